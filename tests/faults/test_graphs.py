"""FAULTS 13 to 17 for graph files: what they claim, through the commands that read them.

All run in one child with an address-space limit (`confined.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.confined import Outcome, run_confined
from tests.support.graph_files import binary, field, node, placeholder, varint

CPU_SECONDS = 1.0
GROWN_MB = 100

BIG = 2**60
COMMANDS = ("inspect", "inspect --graph", "list", "verify --quick")


def attr(key: bytes, value: bytes) -> bytes:
    return field(5, field(1, key) + field(2, value))


def constant(tensor: bytes) -> bytes:
    return field(1, field(1, b"c") + field(2, b"Const") + attr(b"value", field(8, tensor)))


def shape(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, b"\x08" + varint(size)) for size in sizes))


def cases() -> Mapping[str, tuple[str, bytes, tuple[int, ...]]]:
    """Name → file name, contents, and what each of COMMANDS ends with."""
    first = binary(placeholder("x"))
    recursive = (
        'library { function { signature { name: "f" } node_def { name: "n" op: "f" } } }'
        + node("call", "PartitionedCall", f='func { name: "f" }')
    )
    losses = "".join(
        node(f"loss_{k}/x", "SoftmaxCrossEntropyWithLogits", f"x{k}", f"y{k}") for k in range(400)
    )
    fed = "".join(placeholder(f"x{k}") + placeholder(f"y{k}") for k in range(400))
    return {
        "claimed-node": ("graph.pb", first + varint(1 << 3 | 2) + varint(BIG), (20, 20, 20, 1)),
        "claimed-name": (
            "graph.pb",
            first + field(1, b"\x0a" + varint(BIG)),
            (20, 20, 20, 1),
        ),
        "huge-shape": ("graph.pb", constant(b"\x08\x01" + shape(BIG, BIG)), (20, 20, 20, 1)),
        "huge-constant": (
            "graph.pb",
            constant(b"\x08\x01" + shape(BIG) + b"\x2d\0\0\0\0"),
            (0, 0, 0, 0),
        ),
        "many-strings": (
            "graph.pb",
            constant(b"\x08\x07" + shape(BIG) + field(8, b"x")),
            (0, 0, 0, 0),
        ),
        "many-dimensions": (
            "graph.pb",
            constant(b"\x08\x01" + shape(*[1] * 5000)),
            (20, 20, 20, 1),
        ),
        "many-inputs": (
            "graph.pb",
            field(1, field(1, b"n") + field(2, b"AddN") + b"\x1a\x00" * 300_000),
            (0, 0, 0, 0),
        ),
        "many-empty-nodes": ("graph.pb", first + b"\x0a\x00" * 3_000_000, (20, 20, 20, 1)),
        "many-signatures": (
            "model.meta",
            binary('meta_info_def { stripped_op_list { op { name: "NoOp" } } }')
            + field(5, b"") * 1_000_000,
            (21, 21, 21, 21),
        ),
        "many-meta-graphs": ("saved_model.pb", b"\x08\x01" + field(2, b"") * 100_000, (21,) * 4),
        "deep-attributes": (
            "graph.pb",
            field(1, field(1, b"n") + field(2, b"Xyz") + attr(b"f", deep(2000))),
            (0, 0, 0, 0),
        ),
        "deep-text": ("graph.pbtxt", b"node { attr " + b"{ x " * 500_000, (20, 20, 20, 1)),
        "text-of-one-line": ("graph.pbtxt", b'node { name: "' + b"\\" * 999_999, (20, 20, 20, 1)),
        "cycle": (
            "graph.pb",
            binary(node("a", "Identity", "b") + node("b", "Identity", "a", "^a")),
            (0, 0, 0, 0),
        ),
        "recursion": ("graph.pb", first + binary(recursive), (0, 0, 0, 0)),
        "many-losses": ("graph.pb", binary(fed + losses), (0, 0, 0, 0)),
        "empty-text": ("graph.pbtxt", b"node { }\n", (20, 20, 20, 1)),
    }


def deep(levels: int) -> bytes:
    """A function whose attribute is a function whose attribute is one."""
    value = b""
    for _ in range(levels):
        value = field(10, field(1, b"g") + field(2, field(1, b"f") + field(2, value)))
    return value


Outcomes = Mapping[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    root = tmp_path_factory.mktemp("graphs")
    lines: dict[tuple[str, str], list[str]] = {}
    for name, (file, data, _) in cases().items():
        path = root / name / file
        path.parent.mkdir()
        path.write_bytes(data)
        for command in COMMANDS:
            words = command.split()
            lines[name, command] = [*words, str(path)]
    return dict(zip(lines, run_confined(lines.values()), strict=True))


@pytest.mark.parametrize("name", cases())
def test_claims(name: str, outcomes: Outcomes) -> None:
    codes = cases()[name][2]
    for command, code in zip(COMMANDS, codes, strict=True):
        outcome = outcomes[name, command]
        assert outcome.code == code, (command, outcome.stderr or outcome.stdout)
        assert outcome.cpu < CPU_SECONDS, (command, outcome.cpu)
        assert outcome.grown_mb < GROWN_MB, (command, outcome.grown_mb)
        if code > 1:
            assert "Traceback" not in outcome.stderr
            assert "  why: " in outcome.stderr


def test_a_crafted_constant_is_read_where_it_can_be(tmp_path: Path) -> None:
    """Ten elements of 2^60 that are one number; all strings of 2^60 are over a limit."""
    numbers, strings = tmp_path / "n.pb", tmp_path / "s.pb"
    numbers.write_bytes(constant(b"\x08\x01" + shape(BIG) + b"\x2d\0\0\x80\x3f"))
    strings.write_bytes(constant(b"\x08\x07" + shape(BIG) + field(8, b"x")))
    some, every = run_confined(
        [["load", str(numbers), f"c[{BIG - 10}:]", "--json"], ["load", str(strings), "c"]]
    )
    assert some.code == 0, some.stderr
    assert json.loads(some.stdout)["data"]["variables"][0]["values"] == [1.0] * 10
    assert every.code == 21
    assert "limit-string-elements" in every.stderr
