"""Conditions of TensorFlow 1 that a fixed input decides."""

from __future__ import annotations

from ckpttool.conversion.branches import BranchNode, follow


def node(name: str, op: str, *inputs: str) -> BranchNode:
    return BranchNode(name, op, inputs)


def cond(predicate: str = "training") -> list[BranchNode]:
    """What `tf.cond(training, dropout(x), x)` looks like."""
    return [
        node("training", "Placeholder"),
        node("x", "Placeholder"),
        node("cond/Switch", "Switch", predicate, predicate),
        node("cond/switch_t", "Identity", "cond/Switch:1"),
        node("cond/switch_f", "Identity", "cond/Switch"),
        node("cond/pred", "Identity", predicate),
        node("cond/x_t", "Switch", "x", "cond/pred"),
        node("cond/random", "RandomUniform", "^cond/switch_t"),
        node("cond/dropout", "Mul", "cond/x_t:1", "cond/random"),
        node("cond/x_f", "Switch", "x", "cond/pred"),
        node("cond/same", "Identity", "cond/x_f"),
        node("cond/Merge", "Merge", "cond/same", "cond/dropout"),
        node("y", "Identity", "cond/Merge"),
    ]


def test_false_leaves_the_other_branch() -> None:
    found = follow(cond(), {"training": False})
    assert found.dead == {"cond/switch_t", "cond/random", "cond/dropout"}
    assert found.merges == {"cond/Merge": 0}
    assert {"cond/x_t", "cond/x_f"} <= found.switches


def test_true_leaves_the_one_branch() -> None:
    found = follow(cond(), {"training": True})
    assert found.dead == {"cond/switch_f", "cond/same"}
    assert found.merges == {"cond/Merge": 1}


def test_nothing_is_known_of_another_input() -> None:
    found = follow(cond(), {"x": False})
    assert not found.dead
    assert not found.merges


def test_a_predicate_that_is_computed() -> None:
    nodes = [node("not", "LogicalNot", "training"), *cond("not")]
    assert follow(nodes, {"training": True}).merges == {"cond/Merge": 0}
    nodes = [node("both", "LogicalAnd", "unknown", "training"), *cond("both")]
    assert follow(nodes, {"training": False}).merges == {"cond/Merge": 0}
    assert not follow(nodes, {"training": True}).merges
    nodes = [node("any", "LogicalOr", "unknown", "training"), *cond("any")]
    assert follow(nodes, {"training": True}).merges == {"cond/Merge": 1}


def test_a_condition_inside_a_dead_branch_is_dead() -> None:
    inner = [
        node("inner/Switch", "Switch", "cond/dropout", "other"),
        node("other", "Placeholder"),
        node("inner/a", "Neg", "inner/Switch"),
        node("inner/b", "Abs", "inner/Switch:1"),
        node("inner/Merge", "Merge", "inner/a", "inner/b"),
    ]
    found = follow([*cond(), *inner], {"training": False})
    assert {"inner/Switch", "inner/a", "inner/b", "inner/Merge"} <= found.dead


def test_a_loop_does_not_hang() -> None:
    loop = [
        node("enter", "Enter", "y"),
        node("merge", "Merge", "enter", "next"),
        node("test", "LoopCond", "training"),
        node("switch", "Switch", "merge", "test"),
        node("next", "NextIteration", "switch:1"),
        node("exit", "Exit", "switch"),
    ]
    assert "exit" not in follow([*cond(), *loop], {"training": False}).dead
