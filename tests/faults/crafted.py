"""Crafted checkpoints: each a function that writes one, with the exit codes it deserves.

Every case is a checkpoint with the prefix ``c``, whose variable (where it can be asked
for) is ``v``. A case says what `list`, `load SRC v` and `verify` end with, and which
finding or error id they must give. Sizes on disk stay small: the claims are what is big.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import handmade
from tests.support.handmade import (
    EntryFields,
    block,
    build_table,
    entry,
    footer,
    frame,
    handle,
    header,
    slice_key,
    varint,
    write_bundle,
)

__all__ = ["CASES", "Case"]

EIGHT = bytes(range(8))
STRING, VARIANT = 7, 21
GOOD: EntryFields = {"shape": (2,), "size": 8}
GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclass(frozen=True)
class Case:
    """A crafted checkpoint and what the commands answer.

    ``listed``, ``loaded`` and ``verified`` are exit codes; ``id`` is the error of the
    first of them that fails, or a finding of `verify`.
    """

    name: str
    write: Callable[[Path], None]
    listed: int
    loaded: int
    verified: int
    id: str


CASES: dict[str, Case] = {}


def case(
    listed: int, loaded: int, verified: int, id: str
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Register a function that writes a case into an empty directory."""

    def register(write: Callable[[Path], None]) -> Callable[[Path], None]:
        name = write.__name__
        CASES[name] = Case(name, write, listed, loaded, verified, id)
        return write

    return register


def index(folder: Path, data: bytes, shard: bytes = EIGHT) -> None:
    """An index of these bytes, and a data file of one shard."""
    (folder / "c.index").write_bytes(data)
    (folder / "c.data-00000-of-00001").write_bytes(shard)


def items(*more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The header, a good ``v``, and more."""
    good = entry(shape=(2,), size=8, crc=handmade.masked_crc(EIGHT))
    return sorted([(b"", header()), (b"v", good), *more])


def table(blocks: list[bytes], index_block: bytes | None = None) -> bytes:
    """A table of framed blocks as they are; their handles are right unless given."""
    out = bytearray()
    handles = []
    for number, framed in enumerate(blocks):
        handles.append((b"%06d" % number, handle(len(out), len(framed) - 5)))
        out += framed
    if handles:
        handles[-1] = (b"w", handles[-1][1])
    contents = block(handles, 1) if index_block is None else index_block
    metaindex = handle(len(out), len(block([])))
    out += frame(block([]))
    place = handle(len(out), len(contents))
    return bytes(out) + frame(contents) + footer(metaindex, place)


# The file and its footer --------------------------------------------------------------


@case(20, 20, 1, "table-empty")
def empty_index(folder: Path) -> None:
    index(folder, b"")


@case(20, 20, 1, "table-magic")
def zeros(folder: Path) -> None:
    index(folder, bytes(4096))


@case(20, 20, 1, "table-magic")
def one_byte(folder: Path) -> None:
    index(folder, b"\0")


@case(20, 20, 1, "table-magic")
def magic_alone(folder: Path) -> None:
    index(folder, struct.pack("<Q", handmade.MAGIC))


@case(20, 20, 1, "table-footer")
def footer_of_overlong_numbers(folder: Path) -> None:
    index(folder, b"\x80" * 40 + struct.pack("<Q", handmade.MAGIC))


@case(20, 20, 1, "table-footer")
def footer_past_the_end(folder: Path) -> None:
    index(folder, build_table(items())[:-48] + footer(handle(0, 8), handle(2**40, 2**40)))


@case(20, 20, 1, "table-footer")
def footer_that_overflows(folder: Path) -> None:
    index(folder, footer(handle(2**64 - 1, 2**64 - 1), handle(2**63, 2**63)))


@case(20, 20, 1, "table-footer")
def footer_that_names_itself(folder: Path) -> None:
    whole = build_table(items())
    index(folder, whole[:-48] + footer(handle(0, 8), handle(len(whole) - 48, 43)))


# Blocks -------------------------------------------------------------------------------


@case(20, 20, 1, "block-malformed")
def index_block_that_names_itself(folder: Path) -> None:
    good = frame(block(items()))
    size = len(block([(b"w", handle(0, 0) + b"\0\0")], 1))
    place = handle(len(good) + 13, size)
    index(folder, table([good], block([(b"w", place)], 1)))


@case(20, 20, 1, "block-malformed")
def one_block_named_a_thousand_times(folder: Path) -> None:
    good = frame(block(items()))
    named = [(b"%06d" % number, handle(0, len(good) - 5)) for number in range(1000)]
    index(folder, table([good], block(named, 1)))


@case(20, 20, 1, "block-malformed")
def blocks_that_overlap(folder: Path) -> None:
    good = frame(block(items()))
    named = [(b"w", handle(0, len(good) - 5)), (b"x", handle(8, len(good) - 13))]
    index(folder, table([good], block(named, 1)))


@case(20, 20, 1, "block-malformed")
def block_handle_cut_off(folder: Path) -> None:
    index(folder, table([frame(block(items()))], block([(b"w", b"\0")], 1)))


@case(12, 12, 12, "block-compression")
def unknown_compression(folder: Path) -> None:
    index(folder, table([frame(block(items()), kind=7)]))


@case(20, 20, 1, "snappy-malformed")
def snappy_cut_off(folder: Path) -> None:
    import cramjam

    index(folder, table([frame(bytes(cramjam.snappy.compress_raw(block(items())))[:-3], kind=1)]))


@case(20, 20, 1, "snappy-malformed")
def snappy_copy_before_its_start(folder: Path) -> None:
    index(folder, table([frame(varint(64) + b"\xfe\xff\xff" * 30, kind=1)]))


@case(21, 21, 21, "limit-block")
def snappy_within_its_ratio_and_over_the_limit(folder: Path) -> None:
    # 64 bytes by each copy of 3: 66 MiB out of 3.2 MB, which is as good as snappy gets.
    count = 66 * 2**20 // 64
    stream = varint(1 + 64 * count) + b"\0\0" + (b"\xfe\x01\0" * count)
    index(folder, table([frame(stream, kind=1)]))


@case(20, 20, 1, "block-malformed")
def restart_count_huge(folder: Path) -> None:
    index(folder, table([frame(block(items())[:-4] + b"\xff\xff\xff\xff")]))


@case(20, 20, 1, "block-malformed")
def restart_outside(folder: Path) -> None:
    index(folder, table([frame(block(items())[:-8] + struct.pack("<II", 4000, 1))]))


@case(20, 20, 1, "block-malformed")
def restarts_falling(folder: Path) -> None:
    index(folder, table([frame(block(items())[:-8] + struct.pack("<IIII", 0, 9, 5, 3))]))


@case(20, 20, 1, "block-malformed")
def block_of_three_bytes(folder: Path) -> None:
    index(folder, table([frame(b"\0\0\0")]))


@case(20, 20, 1, "block-malformed")
def value_past_the_block(folder: Path) -> None:
    body = b"\0\0" + varint(100_000) + b"x"
    index(folder, table([frame(body + struct.pack("<II", 0, 1))]))


@case(20, 20, 1, "block-malformed")
def value_of_four_gigabytes(folder: Path) -> None:
    body = b"\0\0" + varint(2**32 - 1) + b"x"
    index(folder, table([frame(body + struct.pack("<II", 0, 1))]))


@case(20, 20, 1, "block-malformed")
def length_of_eleven_bytes(folder: Path) -> None:
    body = b"\0\0" + b"\xff" * 10 + b"\x01"
    index(folder, table([frame(body + struct.pack("<II", 0, 1))]))


@case(21, 21, 21, "limit-keys")
def key_over_the_limit(folder: Path) -> None:
    index(folder, build_table(items((b"w" * (4 * 2**20 + 1), entry()))))


@case(20, 20, 1, "block-malformed")
def shared_bytes_at_a_restart(folder: Path) -> None:
    body = b"\3\0\0"
    index(folder, table([frame(body + struct.pack("<II", 0, 1))]))


@case(20, 20, 1, "header-missing")
def a_hundred_thousand_empty_blocks(folder: Path) -> None:
    empty = frame(block([]))
    index(folder, table([empty] * 100_000))


@case(20, 20, 1, "keys-duplicate")
def one_key_ten_thousand_times(folder: Path) -> None:
    value = entry(shape=(2,), size=8)
    index(folder, build_table([(b"", header()), *[(b"v", value)] * 10_000]))


@case(20, 20, 1, "block-malformed")
def keys_past_their_index(folder: Path) -> None:
    good = frame(block(items()))
    index(folder, table([good], block([(b"a", handle(0, len(good) - 5))], 1)))


@case(20, 20, 1, "keys-unsorted")
def index_block_unsorted(folder: Path) -> None:
    good = frame(block(items()))
    place = handle(0, len(good) - 5)
    index(folder, table([good], block([(b"z", place), (b"a", place)], 1)))


# The header -----------------------------------------------------------------------------


@case(20, 20, 1, "header-malformed")
def header_of_garbage(folder: Path) -> None:
    index(folder, build_table([(b"", b"\xff\xff\xff"), *items()[1:]]))


@case(20, 20, 1, "header-malformed")
def header_of_minus_one_shards(folder: Path) -> None:
    index(folder, build_table([(b"", header(-1)), *items()[1:]]))


@case(20, 20, 1, "header-malformed")
def header_of_byte_order_seven(folder: Path) -> None:
    index(folder, build_table([(b"", b"\x08\x01\x10\x07"), *items()[1:]]))


@case(12, 12, 12, "bundle-version")
def header_for_a_later_reader(folder: Path) -> None:
    index(folder, build_table([(b"", header(min_consumer=2)), *items()[1:]]))


@case(12, 12, 12, "bundle-version")
def header_that_refuses_us(folder: Path) -> None:
    index(folder, build_table([(b"", header(bad_consumers=[1])), *items()[1:]]))


@case(0, 20, 1, "shard-out-of-range")
def header_of_no_shards(folder: Path) -> None:
    index(folder, build_table([(b"", header(0)), *items()[1:]]))


# Entries --------------------------------------------------------------------------------


def with_v(folder: Path, raw: bytes, data: bytes = EIGHT) -> None:
    """A checkpoint whose ``v`` has this message."""
    index(folder, build_table([(b"", header()), (b"v", raw)]), data)


@case(20, 20, 1, "entry-malformed")
def entry_of_garbage(folder: Path) -> None:
    with_v(folder, b"\xff" * 20)


@case(20, 20, 1, "entry-malformed")
def entry_cut_off(folder: Path) -> None:
    with_v(folder, entry(shape=(2,), size=8)[:-1] + b"\x12\x7f")


@case(20, 20, 1, "entry-malformed")
def entry_of_groups(folder: Path) -> None:
    with_v(folder, b"\x0b" * 5000 + b"\x0c" * 5000)


@case(20, 20, 1, "entry-malformed")
def entry_with_field_zero(folder: Path) -> None:
    with_v(folder, b"\x00\x00")


@case(20, 20, 1, "entry-malformed")
def range_past_two_to_the_63(folder: Path) -> None:
    with_v(folder, entry(shape=(2,), offset=2**63 - 4, size=8, crc=1))


@case(20, 20, 1, "entry-malformed")
def range_of_minus_eight(folder: Path) -> None:
    with_v(folder, entry(shape=(2,), offset=-8, size=8, crc=1))


@case(20, 20, 1, "shape-overflow")
def shape_of_two_to_the_64(folder: Path) -> None:
    with_v(folder, entry(shape=(2**32, 2**32), size=8, crc=1))


@case(20, 20, 1, "shape-overflow")
def shape_that_overflows_a_thousand_bits(folder: Path) -> None:
    with_v(folder, entry(shape=(2**62,) * 200, size=8, crc=1))


@case(20, 20, 1, "negative-dimension")
def shape_of_minus_one_and_zero(folder: Path) -> None:
    with_v(folder, entry(shape=(0, -1), crc=1))


@case(21, 21, 21, "limit-rank")
def shape_of_a_hundred_thousand_dimensions(folder: Path) -> None:
    with_v(folder, entry(shape=(1,) * 100_000, size=4, crc=1))


@case(20, 20, 1, "entry-malformed")
def shard_of_minus_one(folder: Path) -> None:
    with_v(folder, entry(shape=(2,), shard=-1, size=8, crc=1))


@case(0, 20, 1, "shard-out-of-range")
def shard_of_two_billion(folder: Path) -> None:
    with_v(folder, entry(shape=(2,), shard=2**31 - 1, size=8, crc=1))


@case(0, 12, 1, "unknown-dtype")
def dtype_zero(folder: Path) -> None:
    with_v(folder, entry(0, (2,), size=8, crc=handmade.masked_crc(EIGHT)))


@case(0, 12, 1, "unknown-dtype")
def dtype_of_a_reference(folder: Path) -> None:
    with_v(folder, entry(101, (2,), size=8, crc=handmade.masked_crc(EIGHT)))


@case(0, 12, 1, "unknown-dtype")
def dtype_of_minus_one(folder: Path) -> None:
    with_v(folder, entry(-1, (2,), size=8, crc=handmade.masked_crc(EIGHT)))


@case(0, 12, 0, "dtype-unsupported")
def dtype_resource(folder: Path) -> None:
    with_v(folder, entry(20, (2,), size=8, crc=handmade.masked_crc(EIGHT)))


@case(0, 12, 1, "shape-unknown")
def rank_unknown(folder: Path) -> None:
    crc = handmade.masked_crc(EIGHT)
    with_v(folder, entry(1, None, size=8, crc=crc, extra=b"\x12\x02\x18\x01"))


@case(0, 20, 1, "size-mismatch")
def fewer_bytes_than_the_shape(folder: Path) -> None:
    with_v(folder, entry(shape=(200,), size=8, crc=handmade.masked_crc(EIGHT)))


@case(0, 20, 1, "size-mismatch")
def more_bytes_than_the_shape(folder: Path) -> None:
    with_v(folder, entry(shape=(1,), size=8, crc=handmade.masked_crc(EIGHT)))


@case(0, 20, 1, "shard-short")
def four_exabytes_of_zero_bytes_on_disk(folder: Path) -> None:
    with_v(folder, entry(4, (2**62,), size=2**62, crc=1))


@case(0, 0, 1, "checksum-missing")
def no_checksum(folder: Path) -> None:
    with_v(folder, entry(shape=(2,), size=8))


# Strings and variants ---------------------------------------------------------------------


@case(0, 20, 1, "size-mismatch")
def strings_of_a_trillion_elements(folder: Path) -> None:
    with_v(folder, entry(STRING, (2**40,), size=8, crc=1))


@case(0, 20, 1, "strings-malformed")
def string_of_eight_exabytes(folder: Path) -> None:
    data = varint(2**63) + bytes(50)
    with_v(folder, entry(STRING, (1,), size=len(data), crc=1), data)


@case(0, 20, 1, "strings-malformed")
def strings_whose_lengths_overflow(folder: Path) -> None:
    data = varint(2**64 - 1) + varint(2) + bytes(5)
    with_v(folder, entry(STRING, (2,), size=len(data), crc=1), data)


@case(0, 20, 1, "strings-malformed")
def string_length_of_eleven_bytes(folder: Path) -> None:
    data = b"\xff" * 10 + b"\x01" + bytes(20)
    with_v(folder, entry(STRING, (1,), size=len(data), crc=1), data)


@case(0, 20, 1, "strings-checksum")
def string_lengths_with_a_wrong_checksum(folder: Path) -> None:
    with_v(folder, entry(STRING, (1,), size=8, crc=1), b"\x03" + bytes(4) + b"abc")


@case(0, 12, 1, "variants-malformed")
def variant_of_eight_exabytes(folder: Path) -> None:
    data = varint(2**63) + bytes(50)
    with_v(folder, entry(VARIANT, (1,), size=len(data), crc=1), data)


@case(0, 12, 1, "size-mismatch")
def variants_of_a_trillion_elements(folder: Path) -> None:
    with_v(folder, entry(VARIANT, (2**40,), size=8, crc=1))


# Partitioned variables ----------------------------------------------------------------------


def partitioned(
    folder: Path,
    shape: tuple[int, ...],
    parts: list[handmade.Slice],
    stored: list[handmade.Slice] | None = None,
) -> None:
    """``v`` with these parts, each of one row of two floats, and a good ``w``."""
    entries: dict[bytes, EntryFields | bytes] = {
        b"v": {"shape": shape, "slices": parts},
        b"w": GOOD,
    }
    for dims in parts if stored is None else stored:
        entries[slice_key(b"v", dims)] = {"shape": (1, 2), "size": 8}
    write_bundle(folder, "c", entries, [EIGHT])


@case(0, 20, 1, "slice-overlap")
def slices_that_overlap(folder: Path) -> None:
    partitioned(folder, (2, 2), [[(0, 1), (0, 2)], [(1, 1), (0, 2)], [(0, 1), (0, None)]])


@case(0, 20, 1, "slice-gap")
def slices_with_a_gap(folder: Path) -> None:
    partitioned(folder, (3, 2), [[(0, 1), (0, 2)], [(2, 1), (0, 2)]])


@case(0, 20, 1, "slice-shape")
def slice_outside(folder: Path) -> None:
    partitioned(folder, (2, 2), [[(0, 1), (0, 2)], [(5, 1), (0, 2)]])


@case(0, 20, 1, "slice-shape")
def slice_that_overflows(folder: Path) -> None:
    partitioned(folder, (2, 2), [[(0, 1), (0, 2)], [(2**62, 2**62), (0, 2)]])


@case(0, 20, 1, "slice-shape")
def slice_of_minus_one(folder: Path) -> None:
    partitioned(folder, (2, 2), [[(0, 1), (0, 2)], [(-1, 1), (0, 2)]])


@case(0, 20, 1, "slice-shape")
def slice_of_another_rank(folder: Path) -> None:
    partitioned(folder, (2, 2), [[(0, 1), (0, 2)], [(1, 1)]])


@case(0, 20, 1, "slice-missing")
def slice_without_an_entry(folder: Path) -> None:
    parts: list[handmade.Slice] = [[(0, 1), (0, 2)], [(1, 1), (0, 2)]]
    partitioned(folder, (2, 2), parts, parts[:1])


@case(0, 20, 1, "slice-mismatch")
def slice_of_another_dtype(folder: Path) -> None:
    parts: list[handmade.Slice] = [[(0, 1), (0, 2)], [(1, 1), (0, 2)]]
    entries: dict[bytes, EntryFields | bytes] = {
        b"v": {"shape": (2, 2), "slices": parts},
        slice_key(b"v", parts[0]): {"shape": (1, 2), "size": 8},
        slice_key(b"v", parts[1]): {"dtype": 9, "shape": (1,), "size": 8},
    }
    write_bundle(folder, "c", entries, [EIGHT])


@case(0, 20, 1, "slice-missing")
def slice_that_is_partitioned_itself(folder: Path) -> None:
    parts: list[handmade.Slice] = [[(0, 1), (0, 2)], [(1, 1), (0, 2)]]
    entries: dict[bytes, EntryFields | bytes] = {b"v": {"shape": (2, 2), "slices": parts}}
    for dims in parts:
        entries[slice_key(b"v", dims)] = {"shape": (1, 2), "slices": [[(0, 1), (0, 2)]]}
    write_bundle(folder, "c", entries, [EIGHT])


@case(21, 21, 21, "limit-slices")
def slices_over_the_limit(folder: Path) -> None:
    part = handmade._message(7, b"")
    with_v(folder, entry(shape=(2,), extra=part * 100_001))


@case(0, 20, 1, "slice-overlap")
def twenty_thousand_equal_slices(folder: Path) -> None:
    parts: list[handmade.Slice] = [[(0, 1), (0, 2)]] * 20_000
    partitioned(folder, (1, 2), parts)


@case(0, 20, 1, "slice-missing")
def twenty_thousand_slices_without_an_entry(folder: Path) -> None:
    parts: list[handmade.Slice] = [[(row, 1), (0, 2)] for row in range(20_000)]
    partitioned(folder, (20_000, 2), parts, [])


# Names --------------------------------------------------------------------------------------


def named(folder: Path, *names: bytes) -> None:
    """A good ``v`` and variables of these names."""
    write_bundle(folder, "c", dict.fromkeys([b"v", *names], GOOD), [EIGHT])


@case(0, 0, 0, "")
def names_that_draw_on_a_terminal(folder: Path) -> None:
    named(folder, b"\x1b[2J\x1b]0;title\x07", b"a\rb", "\u202etxt\u2066".encode(), b"\x9b31m")


@case(0, 0, 0, "")
def names_that_are_not_utf8(folder: Path) -> None:
    named(folder, b"\xff\xfe", b"\xed\xa0\x80", b"a\xc3", b"\0nul", b"tab\tline\nbreak")


@case(0, 0, 0, "")
def names_like_patterns_and_options(folder: Path) -> None:
    named(folder, b"*", b"[a]", b"--help", b"-rf", b"../../etc/passwd", b"%s%n{0}", b" ")


@case(0, 0, 0, "")
def name_of_600_kilobytes(folder: Path) -> None:
    named(folder, b"w" * 600_000)


# Object graphs --------------------------------------------------------------------------------


def message(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def child(node: int, name: bytes = b"x") -> bytes:
    """An edge of an object graph."""
    return message(1, b"\x08" + varint(node) + message(2, name))


def value(key: bytes) -> bytes:
    """The attribute of a node that stores a variable."""
    return message(2, message(1, b"VARIABLE_VALUE") + message(2, b"full") + message(3, key))


def with_graph(folder: Path, graph: bytes, fields: EntryFields | None = None) -> None:
    """A good ``v``, and an object graph of these bytes."""
    stored, crc = handmade.string_payload([graph])
    whole: EntryFields = {"dtype": STRING, "shape": (), "offset": 8, "size": len(stored)}
    entries: dict[bytes, EntryFields | bytes] = {
        b"v": GOOD,
        GRAPH: {**whole, "crc": crc, **(fields or {})},
    }
    write_bundle(folder, "c", entries, [EIGHT + stored])


@case(0, 0, 1, "object-graph-malformed")
def graph_of_garbage(folder: Path) -> None:
    with_graph(folder, b"\xff" * 1000)


@case(0, 0, 0, "")
def graph_of_cycles(folder: Path) -> None:
    cycle = message(1, child(1) + child(0)) + message(1, child(0) + child(1) + value(b"v"))
    with_graph(folder, cycle)


@case(0, 0, 1, "object-graph-malformed")
def graph_with_a_child_that_is_not_there(folder: Path) -> None:
    with_graph(folder, message(1, child(2**31)) + message(1, value(b"v")))


@case(0, 0, 1, "object-graph-malformed")
def graph_with_a_child_of_minus_one(folder: Path) -> None:
    with_graph(folder, message(1, child(2**64 - 1) + value(b"v")))


@case(0, 0, 0, "")
def graph_of_a_chain_of_100_000(folder: Path) -> None:
    nodes = b"".join(message(1, child(number + 1)) for number in range(100_000))
    with_graph(folder, nodes + message(1, value(b"v")))


@case(0, 0, 0, "")
def graph_of_a_million_nodes(folder: Path) -> None:
    with_graph(folder, message(1, value(b"v")) + b"\x0a\x00" * 999_999)


@case(0, 0, 0, "")
def graph_of_two_to_the_hundred_paths(folder: Path) -> None:
    nodes = b"".join(message(1, child(n + 1, b"a") + child(n + 1, b"b")) for n in range(100))
    with_graph(folder, nodes + message(1, value(b"v")))


@case(0, 0, 1, "object-graph-key-missing")
def graph_with_keys_that_are_not_there(folder: Path) -> None:
    keys = b"".join(value(b"gone/%d" % number) for number in range(5000))
    with_graph(folder, message(1, value(b"v") + keys))


@case(0, 0, 1, "object-graph-malformed")
def graph_that_is_no_string(folder: Path) -> None:
    write_bundle(folder, "c", {b"v": GOOD, GRAPH: GOOD}, [EIGHT])


@case(0, 0, 1, "checksum-mismatch")
def graph_with_a_wrong_checksum(folder: Path) -> None:
    with_graph(folder, message(1, value(b"v")), {"crc": 1})


@case(0, 0, 1, "limit-object-graph-bytes")
def graph_of_a_terabyte(folder: Path) -> None:
    with_graph(folder, message(1, value(b"v")), {"size": 2**40, "crc": 1})


# Data files ---------------------------------------------------------------------------------


def without_shard(folder: Path) -> Path:
    """A good checkpoint, but for its data file; gives the path where that should be."""
    write_bundle(folder, "c", {b"v": GOOD}, [EIGHT])
    shard = folder / "c.data-00000-of-00001"
    shard.unlink()
    return shard


@case(0, 20, 1, "shard-missing")
def no_data_file(folder: Path) -> None:
    without_shard(folder)


@case(0, 20, 1, "shard-short")
def data_file_cut_off(folder: Path) -> None:
    without_shard(folder).write_bytes(EIGHT[:5])


@case(0, 20, 1, "shard-empty")
def data_file_of_no_bytes(folder: Path) -> None:
    without_shard(folder).write_bytes(b"")


@case(0, 22, 1, "unsafe-file")
def data_file_is_a_pipe(folder: Path) -> None:
    os.mkfifo(without_shard(folder))


@case(0, 22, 1, "unsafe-file")
def data_file_is_a_directory(folder: Path) -> None:
    without_shard(folder).mkdir()


@case(0, 22, 3, "unsafe-link")
def data_file_is_a_link(folder: Path) -> None:
    without_shard(folder).symlink_to("/etc/passwd")


@case(0, 22, 3, "unsafe-link")
def data_file_is_a_loop(folder: Path) -> None:
    shard = without_shard(folder)
    shard.symlink_to(shard.name)


@case(0, 22, 3, "unsafe-link")
def data_file_is_a_link_to_a_device(folder: Path) -> None:
    without_shard(folder).symlink_to("/dev/zero")


@case(0, 11, 1, "git-lfs-pointer")
def data_file_is_a_pointer(folder: Path) -> None:
    data = os.urandom(3000)
    write_bundle(folder, "c", {b"v": {"dtype": 4, "shape": (3000,), "size": 3000}}, [data])
    (folder / "c.data-00000-of-00001").write_text(
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{'ab' * 32}\nsize 3000\n"
    )  # fmt: skip


@case(22, 22, 22, "unsafe-file")
def index_is_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "c.index")


@case(22, 22, 22, "unsafe-link")
def index_is_a_link(folder: Path) -> None:
    (folder / "c.index").symlink_to("/dev/zero")


@case(22, 22, 22, "unsafe-file")
def index_is_a_directory(folder: Path) -> None:
    (folder / "c.index").mkdir()


@case(11, 11, 11, "foreign-format")
def index_is_an_archive(folder: Path) -> None:
    index(folder, b"PK\x03\x04" + bytes(200))


@case(20, 20, 1, "index-missing")
def no_index(folder: Path) -> None:
    (folder / "c.data-00000-of-00001").write_bytes(EIGHT)


@case(10, 10, 10, "not-found")
def nothing_at_all(folder: Path) -> None:
    (folder / "d.index").write_bytes(b"")


def written(root: Path) -> Iterator[tuple[Case, Path]]:
    """Every case, written into a directory of its own."""
    for name, crafted in CASES.items():
        folder = root / name
        folder.mkdir()
        crafted.write(folder)
        yield crafted, folder / "c"
