"""Table files: every block size and restart interval, and everything that is wrong with one."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, CorruptError, LimitError, UnsupportedError
from ckpttool.formats.sstable import Table
from ckpttool.limits import Limits
from tests.support import handmade
from tests.support.memory_file import MemoryFile

Items = list[tuple[bytes, bytes]]

KEYS = st.one_of(
    st.binary(max_size=4),
    st.text("ab/", max_size=12).map(str.encode),
    st.integers(0, 300).map(lambda count: b"k" * count),
)
ITEMS = st.dictionaries(KEYS, st.binary(max_size=200), max_size=60).map(
    lambda found: sorted(found.items())
)


def read(data: bytes, **changes: int) -> Items:
    limits = Limits(**changes)
    return [item for block in Table(MemoryFile(data), limits).blocks() for item in block]


def names(count: int) -> Items:
    return [(f"layer/{number:05d}".encode(), bytes([number % 256])) for number in range(count)]


@given(
    ITEMS, st.sampled_from([1, 20, 64, 4096]), st.sampled_from([1, 2, 3, 16, 10**6]), st.booleans()
)
def test_every_layout_reads_back(items: Items, size: int, interval: int, snappy: bool) -> None:
    data = handmade.build_table(items, block_size=size, restart_interval=interval, snappy=snappy)
    assert read(data) == items
    table = Table(MemoryFile(data), Limits())
    assert table.padding_clean
    assert all(table.get(key) == value for key, value in items)
    known = dict(items)
    for key, _ in items:
        for near in (key + b"\x00", key[:-1], key[:-1] + b"\xff"):
            assert table.get(near) == known.get(near)


def test_lists_are_bounded_and_never_empty() -> None:
    items = names(40_000)
    table = Table(MemoryFile(handmade.build_table(items, block_size=2**30)), Limits())
    lists = list(table.blocks())
    assert [item for block in lists for item in block] == items
    assert len(lists) > 1
    assert all(0 < len(block) < 32_768 for block in lists)


def test_get_reads_one_block() -> None:
    items = names(2000)
    file = MemoryFile(handmade.build_table(items, block_size=500))
    table = Table(file, Limits())
    assert table.block_count > 10
    before = file.reads
    assert table.get(items[1234][0]) == items[1234][1]
    assert table.get(items[1235][0]) == items[1235][1]
    assert file.reads - before <= 2


def test_blocks_hold_only_one_in_memory() -> None:
    items = names(2000)
    file = MemoryFile(handmade.build_table(items, block_size=500))
    blocks = Table(file, Limits()).blocks()
    before = file.reads
    next(blocks)
    assert file.reads == before + 1


def test_the_shortest_separators_of_tensorflow_are_bounds_too() -> None:
    # TensorFlow's index has a key between two blocks, not the last one of the first.
    first, second = handmade.block([(b"apple", b"1")]), handmade.block([(b"berry", b"2")])
    out = handmade.frame(first)
    places = [handmade.handle(0, len(first)), handmade.handle(len(out), len(second))]
    out += handmade.frame(second)
    meta = handmade.block([])
    index = handmade.block([(b"b", places[0]), (b"c", places[1])], 1)
    meta_at, index_at = len(out), len(out) + len(meta) + 5
    out += handmade.frame(meta) + handmade.frame(index)
    out += handmade.footer(
        handmade.handle(meta_at, len(meta)), handmade.handle(index_at, len(index))
    )
    assert read(out) == [(b"apple", b"1"), (b"berry", b"2")]
    table = Table(MemoryFile(out), Limits())
    assert (table.get(b"apple"), table.get(b"b"), table.get(b"berry")) == (b"1", None, b"2")


# What is wrong with a file -----------------------------------------------------------


def expect(data: bytes, id: str, why: str = "", kind: type[CkpttoolError] = CorruptError) -> None:
    with pytest.raises(kind) as caught:
        read(data)
    assert caught.value.id == id
    assert why in str(caught.value)


def one_block(contents: bytes, *, kind: int = 0, crc: int | None = None) -> bytes:
    """A table whose only data block has these contents."""
    out = handmade.frame(contents, kind=kind, crc=crc)
    return finish(out, [(b"\xff", handmade.handle(0, len(contents)))])


def finish(out: bytes, index: Items) -> bytes:
    """The end of a table: metaindex, index and footer."""
    meta, ends = handmade.block([]), handmade.block(index, 1)
    meta_at, index_at = len(out), len(out) + len(meta) + 5
    return (
        out
        + handmade.frame(meta)
        + handmade.frame(ends)
        + handmade.footer(handmade.handle(meta_at, len(meta)), handmade.handle(index_at, len(ends)))
    )


def raw_block(entries: bytes, *restarts: int) -> bytes:
    """A block of these very bytes."""
    return entries + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def raw_entry(shared: int, own: bytes, value: bytes = b"") -> bytes:
    sizes = handmade.varint(shared) + handmade.varint(len(own)) + handmade.varint(len(value))
    return sizes + own + value


GOOD = handmade.build_table([(b"a", b"1"), (b"b", b"2")])


def test_a_file_that_is_no_table() -> None:
    expect(b"", "table-empty")
    expect(b"x", "table-magic")
    expect(GOOD[:-1], "table-magic", f"its {len(GOOD) - 1} bytes")
    expect(GOOD + b"\n", "table-magic")
    expect(bytes(40) + GOOD[-8:-1], "table-magic")
    expect(GOOD[-40:], "table-magic")
    expect(handmade.build_table([], footer_magic=1), "table-magic", "01 00")


@pytest.mark.parametrize(
    ("metaindex", "index", "why"),
    [
        (b"\xff" * 40, b"", "more than 64 bits"),
        (handmade.handle(0, 8), handmade.handle(10**6, 8), "the index block is said to lie"),
        (handmade.handle(2**63, 2**63), handmade.handle(0, 8), "the metaindex block is said"),
        (handmade.handle(0, 8), handmade.handle(0, len(GOOD)), "the index block is said to lie"),
    ],
)
def test_a_footer_that_leads_nowhere(metaindex: bytes, index: bytes, why: str) -> None:
    expect(GOOD[:-48] + handmade.footer(metaindex, index), "table-footer", why)


def test_a_footer_without_room_for_its_blocks() -> None:
    expect(GOOD[-48:], "table-footer")


def test_the_padding_of_the_footer_is_noticed_and_does_no_harm() -> None:
    data = bytearray(GOOD)
    data[-12] = 1
    table = Table(MemoryFile(bytes(data)), Limits())
    assert not table.padding_clean
    assert table.get(b"a") == b"1"


@pytest.mark.parametrize("at", [0, 5, 9])
def test_a_flipped_bit_names_its_block_and_both_checksums(at: int) -> None:
    data = bytearray(handmade.build_table(names(300), block_size=1000))
    data[at] ^= 1
    with pytest.raises(CorruptError) as caught:
        read(bytes(data))
    assert caught.value.id == "block-checksum"
    assert "block 1 of " in caught.value.why
    assert "is stored" in caught.value.why


def test_the_metaindex_block_is_checked_too() -> None:
    data = bytearray(GOOD)
    places = GOOD[-48:]
    data[places[0]] ^= 1
    expect(bytes(data), "block-checksum", "the metaindex block")


def test_compression_of_an_unknown_kind() -> None:
    block = handmade.block([(b"a", b"1")])
    expect(one_block(block, kind=2), "block-compression", "type 2", UnsupportedError)


def test_snappy_that_lies_names_its_block() -> None:
    expect(one_block(handmade.varint(2**32 - 2), kind=1), "snappy-malformed", "block 1 of 1")


def test_keys_out_of_order() -> None:
    expect(
        handmade.build_table([(b"b", b""), (b"a", b"")]), "keys-unsorted", "'a' stands behind 'b'"
    )
    expect(handmade.build_table([(b"a", b"1"), (b"a", b"2")]), "keys-duplicate", "'a'")
    expect(handmade.build_table([(b"", b"1"), (b"", b"2")]), "keys-duplicate", "''")
    # Across blocks, where the index block gives the order away first.
    expect(
        handmade.build_table([(b"b", b""), (b"a", b"")], block_size=1),
        "keys-unsorted",
        "index block",
    )


def test_a_key_past_the_bound_that_the_index_block_gives() -> None:
    block = handmade.block([(b"a", b"1"), (b"z", b"2")])
    data = finish(handmade.frame(block), [(b"m", handmade.handle(0, len(block)))])
    expect(data, "block-malformed", "last key is past")


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"", "cannot hold 0 restart points"),
        (b"\x01\x00\x00", "cannot hold"),
        (raw_block(raw_entry(0, b"a")), "do not rise"),
        (struct.pack("<I", 2**32 - 1), "cannot hold 4294967295 restart points"),
        (raw_block(b"", 4), "no entries"),
        (raw_block(raw_entry(0, b"a"), 1), "do not rise from 0"),
        (raw_block(raw_entry(0, b"a"), 0, 0), "do not rise"),
        (raw_block(raw_entry(0, b"a"), 0, 4), "do not rise"),
        (raw_block(raw_entry(0, b"ab") + raw_entry(1, b"c"), 0, 5), "no restart point"),
        (raw_block(raw_entry(0, b"ab") + raw_entry(0, b"c"), 0, 4), ""),
        (raw_block(raw_entry(1, b"a"), 0), "no restart point"),
        (raw_block(raw_entry(0, b"a") + raw_entry(2, b"b"), 0), "shares 2 bytes with one of 1"),
        (raw_block(raw_entry(0, b"a") + b"\x00\x05\x00b", 0), "reaches"),
        (raw_block(raw_entry(0, b"a") + b"\x00\x01\x7fb", 0), "reaches"),
        (raw_block(raw_entry(0, b"a") + b"\x00\x01", 0), ""),
        (raw_block(raw_entry(0, b"a") + b"\x00", 0), ""),
        (raw_block(b"\x00\xff\xff\x7f\x00a", 0), "claims"),
        (raw_block(b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0), ""),
    ],
)
def test_a_block_that_is_malformed(block: bytes, why: str) -> None:
    expect(one_block(block), "block-malformed", why)
    table = Table(MemoryFile(one_block(block)), Limits())
    with pytest.raises(CorruptError):
        table.get(b"b")


def test_an_empty_block_may_have_any_number_of_restart_points() -> None:
    for restarts in ((), (0,), (0, 0)):
        assert read(one_block(raw_block(b"", *restarts))) == []


BLOCK = handmade.block([(b"a", b"1")])
FRAME = handmade.frame(BLOCK)


@pytest.mark.parametrize(
    ("out", "index"),
    [
        (FRAME, [(b"a", handmade.handle(0, 2**36))]),
        (FRAME, [(b"a", handmade.handle(2**63, len(BLOCK)))]),
        (FRAME, [(b"a", handmade.handle(0, len(BLOCK))), (b"b", handmade.handle(0, len(BLOCK)))]),
        (FRAME, [(b"a", handmade.handle(0, len(BLOCK) + 1))]),
        (
            FRAME * 2,
            [(b"a", handmade.handle(len(FRAME), len(BLOCK))), (b"b", handmade.handle(0, 4))],
        ),
        (FRAME, [(b"a", b"\x00")]),
        (FRAME, [(b"a", b"")]),
        (FRAME, [(b"a", b"\xff" * 11)]),
    ],
)
def test_places_that_are_outside_or_overlap(out: bytes, index: Items) -> None:
    data = finish(out, index)
    with pytest.raises(CorruptError) as caught:
        read(data)
    assert caught.value.id in {"block-malformed", "block-checksum"}


def test_an_index_block_that_names_itself() -> None:
    index = handmade.block([(b"a", handmade.handle(0, 40))], 1)
    meta = handmade.block([])
    data = handmade.frame(index) + handmade.frame(meta)
    data += handmade.footer(
        handmade.handle(len(index) + 5, len(meta)), handmade.handle(0, len(index))
    )
    expect(data, "block-malformed", "is said to lie")


@pytest.mark.parametrize(
    ("changes", "id"),
    [
        ({"block_bytes": 100}, "limit-block"),
        ({"entries": 299}, "limit-entries"),
        ({"key_bytes": 400}, "limit-keys"),
        ({"block_keys_bytes": 1000}, "limit-keys"),
    ],
)
def test_limits(changes: dict[str, int], id: str) -> None:
    items = sorted([*names(296), *((b"x" * (200 + n), b"") for n in (0, 100, 200, 300))])
    data = handmade.build_table(items)
    assert read(data) == items
    with pytest.raises(LimitError) as caught:
        read(data, **changes)
    assert caught.value.id == id


def test_a_prefix_bomb_is_stopped_by_the_bytes_of_its_keys() -> None:
    long = b"k" * 60_000  # each key is a little longer than the last, and so in order
    entries = b"".join(raw_entry(len(long) + number, b"k") for number in range(100_000))
    entries = raw_entry(0, long) + entries
    with pytest.raises(LimitError) as caught:
        read(one_block(raw_block(entries, 0)))
    assert caught.value.id == "limit-keys"


# Reading on past damage ---------------------------------------------------------------


def test_a_damaged_block_is_told_and_the_others_are_read() -> None:
    items = names(600)
    data = bytearray(handmade.build_table(items, block_size=1000))
    table = Table(MemoryFile(bytes(data)), Limits())
    first, second = table.contents(0), table.contents(1)
    intact, lost = (len(next(table.items(block, None))) for block in (first, second))
    data[len(first.data) + 5 + 7] ^= 0x40
    errors: list[CkpttoolError] = []
    found = [
        item
        for block in Table(MemoryFile(bytes(data)), Limits()).blocks(errors.append)
        for item in block
    ]
    assert [error.id for error in errors] == ["block-checksum"]
    assert found == items[:intact] + items[intact + lost :]


# Any damage at all ---------------------------------------------------------------------


def attempt(data: bytes, key: bytes) -> None:
    """Read everything both ways; only our own errors may come out."""
    for call in (lambda: read(data), lambda: Table(MemoryFile(data), Limits()).get(key)):
        run: Callable[[], object] = call
        try:
            run()
        except CkpttoolError:
            pass


@pytest.mark.parametrize("snappy", [False, True])
def test_truncation_at_every_byte_and_every_flipped_bit(snappy: bool) -> None:
    items = names(16)
    data = handmade.build_table(items, block_size=90, restart_interval=3, snappy=snappy)
    for length in range(len(data)):
        with pytest.raises(CkpttoolError):
            read(data[:length])
    padding = range(len(data) - 48 + 4, len(data) - 8)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            if at in padding:
                attempt(bytes(changed), items[7][0])
            else:
                with pytest.raises(CkpttoolError):
                    read(bytes(changed))


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_blocks_of_any_bytes_with_good_checksums(changes: list[tuple[int, int]]) -> None:
    contents = bytearray(handmade.block(names(20), 4))
    for at, byte in changes:
        contents[at % len(contents)] = byte
    attempt(one_block(bytes(contents)), b"layer/00011")
