from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.sources.nearest import nearest

NAMES = ["dense/kernel", "dense/bias", "dense_1/kernel", "global_step", "Conv/weights"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("dense/kernal", "dense/kernel"),  # a slip
        ("ense/kernel", "dense/kernel"),  # the first letter left out
        ("model/dense_1/kernel", "dense_1/kernel"),  # a scope too many
        ("dense/bias:0", "dense/bias"),  # a suffix too many
        ("step", "global_step"),  # a part of the name
        ("conv/WEIGHTS", "Conv/weights"),  # other case
    ],
)
def test_the_nearest_comes_first(name: str, first: str) -> None:
    assert nearest(name, NAMES)[0] == first


def test_prefixes() -> None:
    there = ["model.ckpt-1000", "model.ckpt-999", "best"]
    assert nearest("model.ckpt-100", there)[0] == "model.ckpt-1000"
    assert nearest("model", there) == ["model.ckpt-999", "model.ckpt-1000"]


def test_no_help_where_nothing_is_near() -> None:
    assert nearest("zzz", NAMES) == []
    assert nearest("x", ["a/b/x/y"]) == ["a/b/x/y"]
    assert nearest("", NAMES) == []
    assert nearest("dense/kernel", []) == []


def test_at_most_n_and_each_once() -> None:
    many = [f"layer_{number}/kernel" for number in range(100)]
    assert nearest("layer_7/kernl", many, n=2)[0] == "layer_7/kernel"
    assert len(nearest("layer_7/kernl", many, n=2)) == 2
    assert nearest("layer_7/kernl", many, n=0) == []


@given(st.text(min_size=1, max_size=30), st.lists(st.text(max_size=30), max_size=20))
def test_an_equal_name_is_always_the_nearest(name: str, others: list[str]) -> None:
    assert nearest(name, [*others, name], n=1)[0].casefold() == name.casefold()


def test_a_million_candidates_take_a_second() -> None:
    many = [f"encoder/layer_{i // 1000}/block_{i % 1000}/kernel" for i in range(1_000_000)]
    start = time.process_time()
    assert nearest("encoder/layer_12/blok_345/kernel", many)[0] == (
        "encoder/layer_12/block_345/kernel"
    )
    assert time.process_time() - start < 5  # measured: 0.4 s


def test_long_names_are_compared_in_bounded_time() -> None:
    many = ["a" * 600_000 + str(number) for number in range(20)]
    start = time.process_time()
    assert nearest("a" * 600_000 + "7x", many)[0] == many[7]
    assert time.process_time() - start < 5
