"""Sparse files that claim gigabytes: memory is bounded by limits, not by claims.

A hole in a file costs whoever sends it nothing, so a size that fits the file proves
nothing. Each command runs in a process whose address space is small.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ckpttool.errors import LimitError
from ckpttool.limits import Limits
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.faults.crafted import GRAPH, message, value, with_graph
from tests.support import handmade
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, slice_key, varint, write_bundle

STRING = 7
#: MiB of address space: what Python and the imports take, and little more.
MEMORY = 120
GIB = 2**30


def sparse(folder: Path, key: bytes, nbytes: int) -> Path:
    """One string of so many zeros, none of them written, after a good ``w``."""
    length = struct.pack("<I" if nbytes < 2**32 else "<Q", nbytes)
    head = varint(nbytes) + struct.pack("<I", handmade.masked_crc(length))
    entries: dict[bytes, EntryFields | bytes] = {
        key: {"dtype": STRING, "shape": (), "size": len(head) + nbytes, "crc": 5},
        b"w": {"shape": (), "size": 4, "crc": handmade.masked_crc(head[:4])},
    }
    write_bundle(folder, "c", entries, [head])
    os.truncate(folder / "c.data-00000-of-00001", len(head) + nbytes)
    return folder / "c"


@pytest.mark.parametrize(
    ("nbytes", "why"),
    [(50 * 2**20, "checksum"), (400 * 2**20, "over 67108864"), (2**40, "over 67108864")],
)
def test_an_object_graph_is_not_held_for_a_listing(
    run_cli: RunCli, tmp_path: Path, nbytes: int, why: str
) -> None:
    prefix = sparse(tmp_path, GRAPH, nbytes)
    for command in ("list", "inspect"):
        done = run_cli([command, prefix], memory_mb=MEMORY)
        assert done.returncode == 0, done.stderr
        assert "w" in done.stdout
    assert why in run_cli(["list", prefix], memory_mb=MEMORY).stderr
    quick = run_cli(["verify", "--quick", prefix], memory_mb=MEMORY)
    assert quick.returncode == 0, quick.stderr
    assert "the keys of the object graph" in quick.stdout


@pytest.mark.parametrize(
    ("nbytes", "code", "id"),
    [
        (300 * 2**20, 20, "checksum-mismatch"),
        (2 * GIB, 21, "limit-string-bytes"),
        (8 * GIB, 21, "limit-string-bytes"),
        (2**40, 21, "limit-string-bytes"),
    ],
)
def test_a_string_is_not_held_before_it_is_known(
    run_cli: RunCli, tmp_path: Path, nbytes: int, code: int, id: str
) -> None:
    prefix = sparse(tmp_path, b"s", nbytes)
    done = run_cli(["load", prefix, "s"], memory_mb=MEMORY)
    assert (done.returncode, done.stdout) == (code, "")
    assert f"[{id}]" in done.stderr


def test_elements_that_would_not_fit_are_refused_before_a_place_is_made(
    run_cli: RunCli, tmp_path: Path
) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"s": {"dtype": STRING, "shape": (10**9,), "size": 2 * 10**9, "crc": 5}
    }
    write_bundle(tmp_path, "c", entries, [b""])
    os.truncate(tmp_path / "c.data-00000-of-00001", 2 * 10**9)
    for index in ("", "[0]", "[5:10]"):
        done = run_cli(["load", tmp_path / "c", f"s{index}"], memory_mb=MEMORY)
        assert done.returncode == 21
        assert "[limit-string-elements]" in done.stderr


def test_parts_of_strings_count_together(tmp_path: Path) -> None:
    """A hundred parts may well lie at the same place."""
    stored, crc = handmade.string_payload([b"x" * 100])
    rows: list[handmade.Slice] = [[(row, 1)] for row in range(4)]
    part: EntryFields = {"dtype": STRING, "shape": (1,), "size": len(stored), "crc": crc}
    entries: dict[bytes, EntryFields | bytes] = {
        b"s": {"dtype": STRING, "shape": (4,), "slices": rows}
    }
    entries.update({slice_key(b"s", dims): part for dims in rows})
    write_bundle(tmp_path, "c", entries, [stored])
    whole = 4 * len(stored)
    for limits, id in (
        (Limits(string_bytes=whole, string_elements=4), None),
        (Limits(string_bytes=whole - 1), "limit-string-bytes"),
        (Limits(string_elements=3), "limit-string-elements"),
    ):
        with open_source(str(tmp_path / "c"), limits) as source:
            variable = source.find("s")
            if id is None:
                assert source.strings(variable, Selection.whole((4,))) == [b"x" * 100] * 4
                continue
            with pytest.raises(LimitError) as caught:
                source.strings(variable, Selection.whole((4,)))
            assert caught.value.id == id


def test_a_graph_that_does_not_fit_into_memory_is_done_without(
    run_cli: RunCli, tmp_path: Path
) -> None:
    edges = message(1, b"\x08\x01\x12\x00") * 3_500_000
    with_graph(tmp_path, message(1, edges) + message(1, value(b"v")))
    prefix = tmp_path / "c"
    done = run_cli(["list", prefix], memory_mb=MEMORY)
    assert done.returncode == 0, done.stderr
    assert "\nv\tfloat32\t[2]" in done.stdout
    assert "the object graph does not fit into memory" in done.stderr
    done = run_cli(["verify", prefix], memory_mb=MEMORY)
    assert done.returncode == 3
    assert "out-of-memory" in done.stdout
    assert run_cli(["verify", prefix]).returncode == 0, "there is nothing wrong with it"
