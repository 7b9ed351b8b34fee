"""Whose slot a name is, and which variable of one checkpoint is which of another: pure."""

from __future__ import annotations

import random

import pytest

from ckpttool.model import Kind
from ckpttool.ops.edit.matching import Described, Matched, match
from ckpttool.ops.slot_names import base_of_slot


@pytest.mark.parametrize(
    ("slot", "names", "base"),
    [
        ("w/Adam", {"w"}, "w"),
        ("a/w/Adam_1", {"w", "a/w"}, "a/w"),
        ("w/part_0/Ftrl", {"w"}, "w"),
        ("w/part_0/Ftrl", {"w", "w/part_0"}, "w/part_0"),
        ("training/Adagrad/a/w/accumulator", {"a/w", "w"}, "a/w"),
        ("training/Ftrl/a/w/part_3/linear", {"a/w"}, "a/w"),
        ("OptimizeLoss/w/Momentum", {"w"}, "w"),
        ("a/w_slot_vr", {"a/w"}, "a/w"),
        ("w_slot_vr", {"w"}, "w"),
        ("w/Adam", {"v", "Adam"}, None),
        ("beta1_power", {"beta1"}, None),
        ("Adam", {"Adam"}, None),
        ("xw/Adam", {"w"}, None),
        ("/Adam", {""}, None),
    ],
)
def test_the_variable_of_a_slot(slot, names, base):
    found = base_of_slot(slot, names)
    assert (None if found is None else slot[found[0] : found[1]]) == base


def side(prefix: str, *variables, paths: bool = False) -> list[Described]:
    """Variables given as name and shape, or name, shape, kind and the name they follow."""
    made = []
    for name, shape, *more in variables:
        kind: Kind = more[0] if more else "model"
        follows = f"{prefix} {more[1]}" if len(more) > 1 else None
        path = f"p/{name}" if paths else ""
        made.append(
            Described(f"{prefix} {name}", name, name, path, name, kind, "float32", shape, follows)
        )
    return made


def pairs(matched: Matched) -> dict[str, str]:
    return {target.partition(" ")[2]: source.name for target, (source, _) in matched.pairs.items()}


def test_a_slot_is_only_paired_where_its_variable_is():
    have = side("h", ("a", (2,)), ("b", (2,)), ("m0", (2,), "optimizer", "a"))
    same = side("w", ("a", (2,)), ("b", (2,)), ("m0", (2,), "optimizer", "a"))
    other = side("w", ("a", (2,)), ("b", (2,)), ("m0", (2,), "optimizer", "b"))
    assert pairs(match(have, same, {})) == {"a": "a", "b": "b", "m0": "m0"}
    assert pairs(match(have, other, {})) == {"a": "a", "b": "b"}
    assert match(have, other, {}).settled, "slots need no partner"


def test_paths_decide_alone_where_they_pair_the_whole_model():
    """One program wrote both, in sessions that numbered the layers differently."""
    have = side("h", ("dense/k", (2,)), ("dense_1/k", (2,)))
    want = side("w", ("dense_1/k", (2,)), ("dense_2/k", (2,)))
    first, second = (
        [one._replace(path=f"layers/{number}/k") for number, one in enumerate(each)]
        for each in (have, want)
    )
    found = match(first, second, {})
    assert pairs(found) == {"dense_1/k": "dense/k", "dense_2/k": "dense_1/k"}
    assert {how for _, how in found.pairs.values()} == {"its path"}


def test_a_path_and_a_name_that_disagree_are_a_doubt():
    have = [
        Described("h1", "x", "x", "p/1", "x", "model", "float32", (2,)),
        Described("h2", "y", "y", "p/2", "y", "model", "float32", (2,)),
        Described("h3", "z", "z", "", "z", "model", "float32", (2,)),
    ]
    want = [
        Described("w1", "y", "y", "p/1", "y", "model", "float32", (2,)),
        Described("w2", "q", "q", "p/2", "q", "model", "float32", (2,)),
        Described("w3", "z", "z", "", "z", "model", "float32", (2,)),
    ]
    found = match(have, want, {})
    assert not found.settled
    assert {one.id for one, _ in found.doubtful} == {"w1", "w2"}
    assert match(have, want, {"x": "y", "y": "q"}).settled


def test_a_map_beats_everything_and_its_strangers_are_told():
    have, want = side("h", ("a", (2,)), ("b", (2,))), side("w", ("a", (2,)), ("b", (2,)))
    assert pairs(match(have, want, {"a": "b", "b": "a"})) == {"b": "a", "a": "b"}
    found = match(have, want, {"a": "nowhere", "strange": "b"})
    assert found.unknown == ["nowhere", "strange"]
    assert not found.settled


def test_another_dtype_or_shape_is_found_after_pairing():
    have, want = side("h", ("a", (2,)), ("b", (3,))), side("w", ("a", (3,)), ("b", (3,)))
    (pair,) = match(have, want, {}).different
    assert [one.words for one in pair] == ["a float32 [2]", "a float32 [3]"]
    assert pair[0]._replace(shape=None).words == "a float32 ?"


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_paired_twice_and_nothing_is_lost(seed):
    """Whatever the names: each variable of the model is paired, or listed, exactly once."""
    dice = random.Random(seed)
    words = ["dense", "dense_1", "dense_2", "conv", "a", "kernel", "bias"]

    def some(prefix: str) -> list[Described]:
        names = {
            "/".join(dice.choices(words, k=dice.randint(1, 3))) for _ in range(dice.randint(0, 9))
        }
        return [
            Described(
                f"{prefix}{name}", name, name, dice.choice(["", name]), name, "model",
                "float32", (dice.randint(1, 3),),
            )
            for name in sorted(names)
        ]  # fmt: skip

    have, want = some("h"), some("w")
    found = match(have, want, {})
    sources = [source.id for source, _ in found.pairs.values()]
    assert len(sources) == len(set(sources))
    listed = [one.id for one in found.missing] + [one.id for one, _ in found.doubtful]
    assert sorted(listed + list(found.pairs)) == sorted(one.id for one in want)
    assert sorted(sources + [one.id for one in found.homeless]) == sorted(one.id for one in have)
    everything = match(have, have, {})
    assert [source.id for source, _ in everything.pairs.values()] == list(everything.pairs)
    assert everything.settled
