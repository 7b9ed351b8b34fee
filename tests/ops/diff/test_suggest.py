"""What may have been renamed: rules, single names, and what is never paired."""

from __future__ import annotations

import random

import pytest

from ckpttool.ops.diff.facts import Only, Rule
from ckpttool.ops.diff.suggest import rename_rule, suggest
from ckpttool.ops.edit.rules import parse_rename


def only(*names: str, shape: tuple[int, ...] = (3,)) -> list[Only]:
    return [Only(name, "model", "float32", shape) for name in names]


def pairs(a: list[Only], b: list[Only]) -> dict[str, str]:
    return {pair.a: pair.b for pair in suggest(a, b).pairs}


LAYERS = [f"layer_{n}/{end}" for n in range(17) for end in ("kernel", "bias")]


@pytest.mark.parametrize(("old", "new"), [("model/", ""), ("", "model/"), ("net/a/", "net/b/c/")])
def test_a_prefix_of_all(old: str, new: str) -> None:
    a, b = [old + name for name in LAYERS], [new + name for name in LAYERS]
    found = suggest(only(*a), only(*reversed(b)))
    assert [(pair.a, pair.b) for pair in found.pairs] == list(zip(a, b, strict=True))
    (rule,) = found.rules
    assert (rule.where, rule.names) == ("prefix", 34)
    assert rule.b + "layer_3/bias" == new + "layer_3/bias" or rule.a.endswith(old)
    assert not found.left_a
    assert not found.left_b


def test_a_rule_holds_for_a_name_of_another_shape_and_says_so() -> None:
    a = [*only("m/x", "m/y"), *only("m/head", shape=(10,))]
    b = [*only("x", "y"), *only("head", shape=(20,))]
    found = suggest(a, b)
    assert found.rules == [Rule("prefix", "m/", "", 3)]
    assert "[10] and [20]" in found.pairs[2].why


def test_a_component() -> None:
    """D19's usual rename: of two variables of one layer the shapes tell which is which."""
    kernels, biases = only("a/weights", "b/weights"), only("a/biases", "b/biases", shape=(1,))
    targets = [*only("a/kernel", "b/kernel"), *only("a/bias", "b/bias", shape=(1,))]
    found = suggest([*kernels, *biases], targets)
    assert found.rules == [
        Rule("component", "weights", "kernel", 2),
        Rule("component", "biases", "bias", 2),
    ]
    assert pairs(only("enc/attn/q/w"), only("enc/self/q/w")) == {"enc/attn/q/w": "enc/self/q/w"}
    # Two of one shape that could be either: no rule, and no name is like enough.
    assert pairs(only("a/mean", "a/variance"), only("a/x", "a/y")) == {}


def test_likeness_wants_the_same_shape_and_no_rival() -> None:
    """D17: a name that was made unique."""
    assert pairs(only("v1_5"), only("v1")) == {"v1_5": "v1"}
    assert pairs(only("v1_5"), only("v1", shape=(4,))) == {}
    assert pairs(only("dense_3"), only("dense_1", "dense_2")) == {}
    assert pairs(only("abc"), only("xyz")) == {}


def test_nothing_is_in_two_pairs() -> None:
    """Whatever the names are: each is used once, with its own shape unless a rule holds."""
    generator = random.Random(3)
    parts = ["a", "b", "c", "net", "w", "w_1"]
    for _ in range(200):
        sides = []
        for _ in range(2):
            names = {"/".join(generator.choices(parts, k=generator.randint(1, 3))) for _ in "12345"}
            sides.append([one for name in sorted(names) for one in only(name)])
        a = [one for one in sides[0] if one not in sides[1]]
        b = [one for one in sides[1] if one not in sides[0]]
        found = suggest(a, b)
        assert len({pair.a for pair in found.pairs}) == len(found.pairs)
        assert len({pair.b for pair in found.pairs}) == len(found.pairs)
        assert {pair.a for pair in found.pairs} | {one.name for one in found.left_a} == {
            one.name for one in a
        }
        assert {pair.b for pair in found.pairs} | {one.name for one in found.left_b} == {
            one.name for one in b
        }


@pytest.mark.parametrize(
    ("rule", "name", "renamed"),
    [
        (Rule("prefix", "m.o#d/", "", 2), "m.o#d/w", "w"),
        (Rule("prefix", "", "a&b\\/", 2), "w", "a&b\\/w"),
        (Rule("component", "weights:0", "kernel", 2), "a/weights:0", "a/kernel"),
        (Rule("component", "a", "b", 2), "a/aa/w", "b/aa/w"),
    ],
)
def test_a_rule_is_one_that_edit_takes(rule: Rule, name: str, renamed: str) -> None:
    text = rename_rule(rule, [])
    assert text is not None
    assert parse_rename(text).replace(name) == renamed
    assert rename_rule(rule, [name]) is None


def test_a_great_many_names_without_a_pair() -> None:
    """Comparing all with all would take hours: it is given up in good time."""
    a = only(*(f"scope_{n:06d}/{n % 7}/kernel_{n * 7919 % 100003}" for n in range(30_000)))
    b = only(*(f"other_{n:06d}/{n % 5}/matrix_{n * 104729 % 100003}" for n in range(30_000)))
    found = suggest(a, b)
    assert len(found.left_a) + len(found.pairs) == 30_000
