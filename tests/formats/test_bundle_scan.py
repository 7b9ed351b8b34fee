"""The fast way through an index gives what the general way gives, to the byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError
from ckpttool.formats.bundle import BundleIndex, Entry
from ckpttool.formats.bundle_scan import Lines, Texts, scan
from ckpttool.formats.dtypes import BY_NUMBER
from ckpttool.limits import Limits
from ckpttool.model import numel
from tests.support import handmade
from tests.support.handmade import EntryFields, entry, header
from tests.support.memory_file import MemoryFile


def of_entry(found: Entry) -> str:
    return f"\t{found.dtype}\t{found.shape}\t{found.size}\t{found.shard}"


def of_ending(ending: str) -> str:
    return f"\t{ending}\n"


APART = (b"Adam", b"zz")
TEXTS = Texts(of_entry, of_ending, APART)


def ending_of(key: str) -> str:
    return key[max(key.rfind("/"), 0) :]


def line(found: Entry) -> str:
    key = found.key.decode("utf-8", "surrogateescape")
    return key + of_entry(found) + of_ending(ending_of(key))


def both_ways(data: bytes) -> tuple[str, int]:
    """The text of an index, the same both ways; and how many entries needed the general one."""
    slow: list[str] = []
    slow_error = ""
    try:
        slow.extend(map(line, BundleIndex(MemoryFile(data), Limits()).entries()))
    except CkpttoolError as error:
        slow_error = f"{error.id}: {error}"
    fast, fast_error, general = [], "", 0
    try:
        for piece in scan(BundleIndex(MemoryFile(data), Limits()), TEXTS):
            if isinstance(piece, Lines):
                fast.append(piece.joined().decode())
            else:
                general += len(piece)
                fast += map(line, piece)
    except CkpttoolError as error:
        fast_error = f"{error.id}: {error}"
    assert "".join(fast) == "".join(slow)
    assert fast_error == slow_error
    return "".join(fast), general


SHAPES = [(), (8,), (3, 3, 64, 128), (256, 256), (1000,), (0, 5)]
PARTS = ["a", "kernel", "bias", "layer_1", "layer_12", "Adam", "Adam_1", "w" * 70, "query"]


def usual(
    dtype: int, shape: Sequence[int], *, shard: int = 0, offset: int = 0, crc: int = 1
) -> bytes:
    size = BY_NUMBER[dtype].size * numel(tuple(shape))
    return entry(dtype, shape, shard, offset, size, crc)


NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map(
    lambda parts: "/".join(parts).encode()
)
ENTRIES = st.builds(
    usual,
    st.sampled_from([1, 14]),
    st.sampled_from(SHAPES),
    offset=st.one_of(st.just(0), st.integers(0, 2**57)),
    shard=st.sampled_from([0, 0, 1, 127, 128]),
    crc=st.integers(0, 2**32 - 1),
)
ODD = st.one_of(
    st.just(entry(7, (2,), size=9, crc=1)),
    st.just(entry(1, (2,), size=9, crc=1)),
    st.just(entry(1, (2,), size=8)),
    st.just(entry(9999, (2,), size=8, crc=1)),
    st.just(entry(1, (4,), slices=[[(0, 2)], [(2, 2)]], crc=1)),
    st.just(entry(1, (2,), size=8, crc=1, extra=b"\x78\x01")),
    st.just(entry(1, (-2,), size=8, crc=1)),
    st.just(b""),
    st.just(b"\x08\x01\x12\x02\x18\x01\x35\x01\x00\x00\x00"),
    st.binary(max_size=20),
)
ODD_NAMES = st.sampled_from(["é/ü".encode(), b"\xff", b"tab\tin", b"\x00\x01", b"k" * 300, b"zz/a"])


@given(
    st.dictionaries(NAMES, ENTRIES, max_size=50),
    st.dictionaries(st.one_of(NAMES, ODD_NAMES), ODD, max_size=1),
    st.sampled_from([1, 2, 300, 4096]),
    st.sampled_from([1, 3, 16, 10**6]),
    st.sampled_from([1, 2]),
)
def test_the_same_text_both_ways(
    ordinary: dict[bytes, bytes],
    odd: dict[bytes, bytes],
    block_size: int,
    interval: int,
    shards: int,
) -> None:
    items = [(b"", header(shards)), *sorted((ordinary | odd).items())]
    both_ways(handmade.build_table(items, block_size=block_size, restart_interval=interval))


def transformer(layers: int, *, shard: int = 0) -> list[tuple[bytes, bytes]]:
    ends = ("bias", "bias/Adam", "bias/Adam_1", "kernel", "kernel/Adam", "kernel/Adam_1")
    parts = ("attention/query", "attention/key", "ffn", "norm_1", "norm_2")
    names = [
        f"encoder/layer_{layer:03d}/{part}/{end}"
        for layer in range(layers)
        for part in parts
        for end in ends
    ]
    random.seed(1)
    return [
        (
            name.encode(),
            usual(1, SHAPES[number % 4], offset=random.getrandbits(40), crc=number, shard=shard),
        )
        for number, name in enumerate(sorted(names))
    ]


@pytest.mark.parametrize("shards", [1, 2])
def test_an_ordinary_index_needs_nothing_else(shards: int) -> None:
    items = [(b"", header(shards)), *transformer(300, shard=shards - 1)]
    text, general = both_ways(handmade.build_table(items))
    assert general == 0
    assert text.count("\n") == 300 * 30


def test_many_endings_and_shapes_are_no_more_than_slower() -> None:
    names = sorted(f"part_{number % 7}/variable_{number}".encode() for number in range(5000))
    items = [(b"", header())]
    items += [(name, usual(1, (number,), crc=1)) for number, name in enumerate(names)]
    _, general = both_ways(handmade.build_table(items))
    assert general == 0
    flat = [(f"variable_{number:06d}".encode(), usual(1, (8,), crc=1)) for number in range(40_000)]
    _, general = both_ways(handmade.build_table([(b"", header()), *flat], restart_interval=1))
    assert general == 0


def test_what_is_remembered_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpttool.formats.bundle_scan._KNOWN", 50)
    monkeypatch.setattr("ckpttool.formats.bundle_scan._ENDINGS", 3)
    items = [(b"", header()), *transformer(40)]
    _, general = both_ways(handmade.build_table(items))
    assert general == 0


def test_a_huge_block_is_left_to_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data = handmade.build_table([(b"", header()), *transformer(20)])
    assert both_ways(data)[1] == 0
    monkeypatch.setattr("ckpttool.formats.bundle_scan._BLOCK", 10_000)
    assert both_ways(data)[1] == 20 * 30


def test_one_odd_block_leaves_the_others_alone() -> None:
    items = transformer(300)
    items[4000] = (items[4000][0], entry(7, (), size=5, crc=1))
    data = handmade.build_table([(b"", header()), *items], block_size=20_000)
    _, general = both_ways(data)
    assert 0 < general < 1000


@pytest.mark.parametrize("name", [b"Adam/w", b"Adamantium", b"zzz"])
def test_blocks_with_names_apart_are_left_to_the_general_way(name: bytes) -> None:
    items = sorted([*transformer(10), (name, usual(1, (8,), crc=1))])
    _, general = both_ways(handmade.build_table([(b"", header()), *items]))
    assert general == len(items)


def test_names_near_those_apart_are_not() -> None:
    items = sorted([*transformer(10), *((name, usual(1, (8,), crc=1)) for name in (b"Ada", b"z"))])
    _, general = both_ways(handmade.build_table([(b"", header()), *items]))
    assert general == 0


@pytest.mark.parametrize("fields", [{"crc": None}, {"size": 31}, {"offset": 2**62}, {"shard": 1}])
def test_any_entry_may_be_the_odd_one(fields: EntryFields) -> None:
    items = transformer(1)
    for number in range(len(items)):
        full: EntryFields = {"shape": (8,), "size": 32, "crc": 1, **fields}
        raw = entry(**full)
        changed = [*items[:number], (items[number][0], raw), *items[number + 1 :]]
        _, general = both_ways(handmade.build_table([(b"", header()), *changed]))
        assert general == len(items)


@pytest.mark.parametrize(
    "raw",
    [
        # Fields in front of the shape, of which the size counts: the last one of its number.
        b"\x08\x01\x20\x06\x12\x02\x12\x00\x28\x09\x35" + bytes(4),
        b"\x10\x01\x12\x04\x12\x02\x08\x02\x28\x08\x35" + bytes(4),
        b"\x08\x81\x12\x04\x12\x02\x08\x02\x28\x08\x35" + bytes(4),
        # Ends past 2^63.
        entry(shape=(2**61 - 1,), size=2**63 - 4, offset=2**55, crc=1),
        # A byte too many, or too few.
        b"\x08\x01\x12\x04\x12\x02\x08\x02\x20\x28\x08\x35" + bytes(4),
        b"\x08\x01\x12\x04\x12\x02\x08\x02\x28\x08\x35" + bytes(3),
        entry(shape=(7,) * 60, size=4, crc=1),
    ],
)
def test_crafted_entries(raw: bytes) -> None:
    _, general = both_ways(handmade.build_table([(b"", header()), (b"a/b", raw)]))
    assert general in {0, 1}
    _, general = both_ways(handmade.build_table([(b"", header()), *transformer(1), (b"w", raw)]))
    assert general in {0, 31}


def table(*blocks: bytes, bound: str = "f") -> bytes:
    """A table of a block with the header and these very blocks, with good checksums."""
    out, index = b"", []
    for number, contents in enumerate([handmade.block([(b"", header())]), *blocks]):
        key = (bound * number).encode() or b"a"
        index.append((key, handmade.handle(len(out), len(contents))))
        out += handmade.frame(contents)
    meta, ends = handmade.block([]), handmade.block(index, 1)
    places = handmade.handle(len(out), len(meta))
    out += handmade.frame(meta)
    places_of_index = handmade.handle(len(out), len(ends))
    return out + handmade.frame(ends) + handmade.footer(places, places_of_index)


def test_restart_points_that_are_none() -> None:
    items = transformer(1)
    good = handmade.block(items, 8)
    assert both_ways(table(good))[1] == 0
    runs = struct.unpack("<4I", good[-20:-4])
    ends = [len(handmade.block(items[:count], 8)) - 8 for count in range(1, 8)]
    for wrong in (runs[1] + 1, runs[1] - 1, ends[2], ends[4]):
        both_ways(table(good[:-20] + struct.pack("<5I", 0, wrong, *runs[2:], 4)))


def test_keys_past_their_bound() -> None:
    both_ways(table(handmade.block(transformer(1)), bound="b"))


def test_empty_blocks() -> None:
    empty = handmade.block([])
    text, general = both_ways(table(empty, handmade.block(transformer(1)), empty))
    assert (text.count("\n"), general) == (30, 0)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_blocks_with_good_checksums(changes: list[tuple[int, int]]) -> None:
    contents = bytearray(handmade.block(transformer(1), 8))
    for at, byte in changes:
        contents[at % len(contents)] = byte
    both_ways(table(bytes(contents)))


def test_every_byte_of_a_block_changed_to_every_value_that_matters() -> None:
    contents = handmade.block(transformer(1)[:6], 4)
    for at in range(len(contents)):
        for byte in (0, 1, 0x12, 0x18, 0x20, 0x28, 0x35, 0x7F, 0x80, 0xFF):
            both_ways(table(contents[:at] + bytes((byte,)) + contents[at + 1 :]))


def test_real_indexes(corpus: Path) -> None:
    seen = 0
    for path in sorted(corpus.rglob("*.index")):
        data = path.read_bytes()
        text, _ = both_ways(data)
        seen += text.count("\n")
    assert seen > 1000
