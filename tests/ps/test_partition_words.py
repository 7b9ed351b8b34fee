"""The words of --partition, and the parts that they mean: none lost, none twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import UsageError
from ckpttool.ps.partition import parse_partition


@pytest.mark.parametrize(
    ("words", "servers", "lengths"),
    [
        ("fixed", 3, [4, 3, 3]),
        ("fixed:2", 3, [5, 5]),
        ("min-max:80", 4, [5, 5]),
        ("hash", 2, [10]),
        ("size", 2, [10]),
        ("range:3,1", 2, [7, 3]),
        ("range:1,1,2", 3, [3, 3, 4]),
    ],
)
def test_the_rows_of_a_table(words, servers, lengths) -> None:
    """Ten rows of four float32."""
    partition = parse_partition(words, servers)
    assert partition is not None
    assert [part.extent[0] for part in partition.parts((10, 4), 4)] == lengths


@given(
    rows=st.integers(1, 500),
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=8),
)
def test_ranges_fill_the_rows_and_each_has_one(rows, weights) -> None:
    partition = parse_partition(f"range:{','.join(map(str, weights))}", len(weights))
    assert partition is not None
    parts = partition.parts((rows, 2), 4)
    at = 0
    for part in parts:
        assert part.start == (at, 0)
        assert part.extent[0] >= 1
        at += part.extent[0]
    assert at == rows
    assert len(parts) == min(rows, len(weights))


@pytest.mark.parametrize(
    "words",
    ["", "half", "fixed:", "fixed:0", "fixed:-1", "min-max:x", "range:", "range:1", "range:1,0",
     "hash:2", "size:1", "fixed:99999999999", "range:1,2,3"],
)  # fmt: skip
def test_other_words_are_told(words) -> None:
    with pytest.raises(UsageError) as caught:
        parse_partition(words, 2)
    assert caught.value.id == "partition-words"


def test_without_words_nothing_is_cut() -> None:
    assert parse_partition(None, 2) is None
