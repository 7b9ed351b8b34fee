"""The index of a bundle: header, entries in any spelling, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, CorruptError, LimitError, UnsupportedError
from ckpttool.formats.bundle import BundleIndex
from ckpttool.formats.entry import (
    Entry,
    EntryParser,
    SliceBudget,
    SliceSpec,
    _parse_any_slice,
    parse_slice,
)
from ckpttool.formats.ordered_code import FULL
from ckpttool.limits import Limits
from ckpttool.storage import open_directory
from tests.support import handmade
from tests.support.handmade import entry, header, varint
from tests.support.memory_file import MemoryFile


def index(*items: tuple[bytes, bytes], head: bytes | None = None, **changes: int) -> BundleIndex:
    table = handmade.build_table([(b"", header() if head is None else head), *items])
    return BundleIndex(MemoryFile(table), Limits(**changes))


def only(raw: bytes) -> Entry:
    """The entry of this message, read in every way, which all agree."""
    found = index((b"w", raw), (b"x", raw))
    first, second = found.entries()
    assert first == second._replace(key=b"w")
    assert found.get(b"w") == first
    assert EntryParser("", Limits()).one(b"w", raw) == first
    return first


# What is right ------------------------------------------------------------------------


def test_an_entry_as_tensorflow_writes_it() -> None:
    raw = entry(dtype=14, shape=(2, 300), shard=3, offset=2**40, size=1200, crc=0x80000001)
    assert only(raw) == Entry(b"w", 14, (2, 300), 3, 2**40, 1200, 0x80000001, (), raw)


def test_the_shortest_entry_there_is() -> None:
    assert only(b"") == Entry(b"w", 0, (), 0, 0, 0, None, (), b"")


def test_what_may_be_missing_or_unknown() -> None:
    assert only(entry(shape=None)).shape == ()
    assert only(entry(crc=None)).crc32c is None
    assert only(entry(crc=0)).crc32c == 0
    assert only(entry(dtype=9999)).dtype == 9999
    assert only(entry(dtype=-1)).dtype == -1
    assert only(entry(shape=(0, 5))).shape == (0, 5)
    unknown_rank = b"\x12\x02\x18\x01"
    assert only(b"\x08\x01" + unknown_rank).shape is None
    named_dims = b"\x12\x07\x12\x05\x08\x03\x12\x01n"
    assert only(b"\x08\x01" + named_dims).shape == (3,)


def test_fields_may_come_in_any_order_and_twice() -> None:
    raw = b"\x28\x07\x35\x01\x00\x00\x00\x20\x05\x18\x02\x12\x04\x12\x02\x08\x03\x08\x09\x28\x18"
    assert only(raw) == Entry(b"w", 9, (3,), 2, 5, 24, 1, (), raw)
    twice = entry(shape=(2,)) + b"\x12\x04\x12\x02\x08\x03\x08\x02"
    assert only(twice)[1:3] == (2, (2, 3))  # protobuf joins the two shapes


def test_unknown_fields_are_ignored_and_kept() -> None:
    extra = b"\x78\x05" + b"\xfa\x01\x03abc" + b"\x7d\x00\x00\x00\x00" + b"\x79" + bytes(8)
    raw = entry(shape=(2,), size=8, crc=1, extra=extra)
    assert only(raw) == Entry(b"w", 1, (2,), 0, 0, 8, 1, (), raw)


def test_a_known_field_of_a_wrong_wire_type_is_unknown() -> None:
    assert only(b"\x0d\x05\x00\x00\x00" + b"\x10\x05" + b"\x32\x00")[1:7] == (0, (), 0, 0, 0, None)


def test_the_parts_of_a_partitioned_variable() -> None:
    raw = entry(shape=(4, 6), slices=[[(0, None), (0, 3)], [(0, 4), (3, 3)], [(1, 2), (0, None)]])
    found = only(raw)
    assert found.slices == (
        SliceSpec((0, 0), (FULL, 3)),
        SliceSpec((0, 3), (4, 3)),
        SliceSpec((1, 0), (2, FULL)),
    )
    assert [part.extent((4, 6)) for part in found.slices] == [(4, 3), (4, 3), (2, 6)]
    assert found.slices[0].key(b"w") == handmade.slice_key(b"w", [(0, None), (0, 3)])
    assert found.slices[1].key(b"w") == handmade.slice_key(b"w", [(0, 4), (3, 3)])


@pytest.mark.parametrize(
    ("start", "length", "shape"),
    [
        ((0,), (3,), (2,)),
        ((1,), (2,), (2,)),
        ((3,), (0,), (2,)),
        ((-1,), (1,), (2,)),
        ((0,), (-2,), (2,)),
        ((1,), (FULL,), (2,)),
        ((0, 0), (1, 1), (2,)),
        ((), (), (2,)),
    ],
)
def test_a_part_that_does_not_fit(
    start: tuple[int, ...], length: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    assert SliceSpec(start, length).extent(shape) is None


def test_keys_of_any_bytes() -> None:
    keys = [b"\x00", b"\x00\x01w", b"\x1b[31m", b"a\nb", b"k" * 600_000, b"\xff\xfe", "é".encode()]
    items = [(key, entry(offset=number)) for number, key in enumerate(sorted(keys))]
    found = index(*items)
    assert [(item.key, item.offset) for item in found.entries()] == [
        (key, number) for number, key in enumerate(sorted(keys))
    ]
    assert all(found.get(key) is not None for key in keys)


def test_the_header_is_no_entry() -> None:
    found = index()
    assert list(found.entries()) == []
    assert found.get(b"") is None
    assert found.get(b"w") is None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", (0, False, 0, 0, ())),
        (header(), (1, False, 1, 0, ())),
        (header(3, big_endian=True, producer=99, min_consumer=1), (3, True, 99, 1, ())),
        (header(bad_consumers=(2, 3)), (1, False, 1, 0, (2, 3))),
        (b"\x08\x01\x1a\x04\x1a\x02\x02\x03", (1, False, 0, 0, (2, 3))),
        (header(2**31 - 1), (2**31 - 1, False, 1, 0, ())),
        (header(extra=b"\x7a\x01x"), (1, False, 1, 0, ())),
    ],
)
def test_headers(raw: bytes, expected: tuple[object, ...]) -> None:
    found = index(head=raw).header
    assert found == (*expected, raw)


# What is wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "kind", "id"),
    [
        (header(min_consumer=2), UnsupportedError, "bundle-version"),
        (header(bad_consumers=(1,)), UnsupportedError, "bundle-version"),
        (b"\x1a\x03\x1a\x01\x01", UnsupportedError, "bundle-version"),
        (b"\xff", CorruptError, "header-malformed"),
        (b"\x0a\x01", CorruptError, "header-malformed"),
        (b"\x1a\x02\x08\xff", CorruptError, "header-malformed"),
        (header(-1), CorruptError, "header-malformed"),
        (b"\x10\x02", CorruptError, "header-malformed"),
    ],
)
def test_headers_that_cannot_be_used(raw: bytes, kind: type[CkpttoolError], id: str) -> None:
    with pytest.raises(kind) as caught:
        index((b"w", entry()), head=raw)
    assert caught.value.id == id


@pytest.mark.parametrize("items", [[], [(b"a", entry())]])
def test_a_missing_header(items: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(CorruptError) as caught:
        BundleIndex(MemoryFile(handmade.build_table(items)), Limits())
    assert caught.value.id == "header-missing"


def shape_field(*dims: bytes) -> bytes:
    inner = b"".join(b"\x12" + varint(len(dim)) + dim for dim in dims)
    return b"\x08\x01\x12" + varint(len(inner)) + inner


@pytest.mark.parametrize(
    ("raw", "kind", "id"),
    [
        (b"\xff", CorruptError, "entry-malformed"),
        (b"\x08", CorruptError, "entry-malformed"),
        (b"\x08\x01\x12\x05\x12", CorruptError, "entry-malformed"),
        (shape_field(b"\x08"), CorruptError, "entry-malformed"),
        (b"\x3a\x02\x0a\x05", CorruptError, "entry-malformed"),
        (entry(shard=-1), CorruptError, "entry-malformed"),
        (entry(offset=2**63), CorruptError, "entry-malformed"),
        (entry(offset=2**63 - 8, size=8), CorruptError, "entry-malformed"),
        (entry(size=2**64 - 1), CorruptError, "entry-malformed"),
        (entry(shape=(-1,)), CorruptError, "negative-dimension"),
        (entry(shape=(2, -(2**63), 3)), CorruptError, "negative-dimension"),
        (entry(shape=(2**61,)), CorruptError, "shape-overflow"),
        (entry(shape=(2**40, 2**40)), CorruptError, "shape-overflow"),
        (entry(dtype=9999, shape=(2**62, 2)), CorruptError, "shape-overflow"),
        (entry(shape=(1,) * 255), LimitError, "limit-rank"),
    ],
)
def test_entries_that_cannot_be_used(raw: bytes, kind: type[CkpttoolError], id: str) -> None:
    for read in (
        lambda found: list(found.entries()),
        lambda found: found.get(b"layer/kernel"),
    ):
        with pytest.raises(kind) as caught:
            read(index((b"layer/kernel", raw)))
        assert caught.value.id == id
        assert "'layer/kernel'" in caught.value.what


def test_what_is_large_but_possible() -> None:
    assert only(entry(shape=(2**60,))).shape == (2**60,)
    assert only(entry(shape=(2**62, 0, 2**62))).shape == (2**62, 0, 2**62)
    assert only(entry(shape=(1,) * 254)).shape == (1,) * 254
    assert only(entry(offset=2**63 - 9, size=8)).offset == 2**63 - 9


def test_the_limit_on_parts() -> None:
    raw = entry(shape=(3,), slices=[[(number, 1)] for number in range(3)])
    assert len(next(index((b"w", raw), slices=3).entries()).slices) == 3
    with pytest.raises(LimitError) as caught:
        list(index((b"w", raw), slices=2).entries())
    assert caught.value.id == "limit-slices"


def test_a_long_odd_key_does_not_flood_the_message() -> None:
    with pytest.raises(CorruptError) as caught:
        list(index((b"\x1b\xff" * 5000, b"\xff")).entries())
    assert len(caught.value.what) < 300
    assert caught.value.what.isprintable()


def test_what_came_before_damage_is_given() -> None:
    items = [(f"{number:05d}".encode(), entry()) for number in range(20_000)]
    items[19_000] = (items[19_000][0], b"\xff")
    seen = 0
    with pytest.raises(CorruptError):
        for block in index(*items).blocks():
            seen += len(block)
    assert seen > 8000


def test_damage_is_told_and_the_rest_is_read() -> None:
    errors: list[CkpttoolError] = []
    table = handmade.build_table(
        [(b"", b"\xff"), (b"a", entry()), (b"b", b"\xff"), (b"c", entry())]
    )
    found = BundleIndex(MemoryFile(table), Limits(), errors.append)
    assert [item.key for item in found.entries()] == [b"a", b"c"]
    assert [error.id for error in errors] == ["header-malformed", "entry-malformed"]
    assert found.found_header is None
    assert found.header.num_shards == 0


# The quick reader against the general one ----------------------------------------------

FIELDS = st.one_of(
    st.sampled_from([0, 1, 7, 14, 33, 100, 9999]).map(lambda n: b"\x08" + varint(n)),
    st.lists(st.sampled_from([0, 1, 3, 127, 128, 2**33]), max_size=4).map(
        lambda dims: b"\x12" + varint(len(handmade.shape_proto(dims))) + handmade.shape_proto(dims)
    ),
    st.sampled_from([0, 1, 127, 128, 70000]).map(lambda n: b"\x18" + varint(n)),
    st.integers(0, 2**63 - 1).map(lambda n: b"\x20" + varint(n)),
    st.sampled_from([0, 5, 127, 128, 2**31, 2**49 - 1, 2**56 - 1, 2**56]).map(
        lambda n: b"\x28" + varint(n)
    ),
    st.integers(0, 2**32 - 1).map(lambda n: b"\x35" + n.to_bytes(4, "little")),
    st.just(b"\x3a\x06\x0a\x04\x08\x01\x10\x02"),
    st.sampled_from([b"\x20\x80\x00", b"\x78\x01", b"\xff", b"", b"\x12\x02\x18\x01"]),
)
MESSAGES = st.lists(FIELDS, max_size=8).map(b"".join)
USUAL = st.tuples(*(FIELDS for _ in range(4))).map(
    lambda more: entry(shape=(3, 4))[:12] + b"".join(more)
)


@given(st.lists(st.one_of(MESSAGES, USUAL), min_size=1, max_size=8))
def test_many_reads_as_one(messages: list[bytes]) -> None:
    parser = EntryParser("", Limits())
    for raw in messages:
        one: object
        many: object
        try:
            one = [EntryParser("", Limits()).one(b"k", raw)] * 2
        except CkpttoolError as error:
            one = error.id
        try:
            many = parser.many([(b"k", raw), (b"k", raw)], SliceBudget(Limits()))
        except CkpttoolError as error:
            many = error.id
        assert many == one


NUMBERS = st.sampled_from([0, 1, 127, 128, 2**14 - 1, 2**14, 2**21 - 1, 2**21, 2**62, -1, -(2**63)])
DIMENSION = st.one_of(
    st.tuples(NUMBERS, NUMBERS).map(lambda n: b"\x08" + varint(n[0]) + b"\x10" + varint(n[1])),
    NUMBERS.map(lambda n: b"\x08" + varint(n)),
    NUMBERS.map(lambda n: b"\x10" + varint(n)),
    st.tuples(NUMBERS, NUMBERS).map(lambda n: b"\x10" + varint(n[0]) + b"\x08" + varint(n[1])),
    st.sampled_from([b"", b"\x08\x81\x00", b"\x08", b"\x10\x80\x80", b"\x18\x01", b"\xff"]),
)
SLICE = st.lists(
    st.one_of(
        DIMENSION.map(lambda dims: b"\x0a" + varint(len(dims)) + dims),
        st.sampled_from([b"\x0a", b"\x0a\x05\x08\x01", b"\x0a\x80\x01", b"\x12\x00", b"\x08\x01"]),
    ),
    max_size=4,
).map(b"".join)


@given(SLICE, st.binary(max_size=4))
def test_a_slice_read_in_place_is_read_as_in_any_spelling(raw: bytes, after: bytes) -> None:
    """Whatever bytes follow it: a message must not be read past its end."""

    def read(parse: Callable[[bytes, int, int], SliceSpec]) -> object:
        try:
            return parse(b"?" + raw + after, 1, 1 + len(raw))
        except CkpttoolError as error:
            return str(error)

    assert read(parse_slice) == read(_parse_any_slice)


# Slices of all entries together -------------------------------------------------------


def test_the_slices_of_one_index_are_bounded_in_every_walk() -> None:
    halves = entry(shape=(4,), slices=[[(0, 2)], [(2, 2)]])
    items = [(f"v{number}".encode(), halves) for number in range(3)]
    found = index(*items, index_slices=6)
    for _ in range(2):
        assert len(list(found.entries())) == 3
        assert found.get(b"v1") is not None
    with pytest.raises(LimitError) as caught:
        list(index(*items, index_slices=5).entries())
    assert caught.value.id == "limit-index-slices"
    assert "more than 5 parts" in caught.value.why
    # An entry that is read a second time, for another is damaged, is not counted twice.
    items.append((b"w", b"\xff"))
    table = handmade.build_table([(b"", header()), *items])
    errors: list[CkpttoolError] = []
    limits = Limits(index_slices=6)
    assert len(list(BundleIndex(MemoryFile(table), limits, errors.append).entries())) == 3
    assert [error.id for error in errors] == ["entry-malformed"]


# Crafted files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("bad_dtype", None),
        ("block_handle_64G", "block-malformed"),
        ("crc_bad", None),
        ("dup_key", "keys-duplicate"),
        ("empty_table", "header-missing"),
        ("header_missing", "header-missing"),
        ("huge_shape_2p60", None),
        ("neg_dim", "negative-dimension"),
        ("num_shards_huge", None),
        ("offset_past_eof", None),
        ("prefix_blowup", "keys-unsorted"),
        ("shared_gt_prev", "block-malformed"),
        ("snappy_bomb_4G", "snappy-malformed"),
        ("string_many_elems", None),
        ("too_many_dims", "limit-rank"),
        ("unsorted", "keys-unsorted"),
        ("valid", None),
    ],
)
def test_the_crafted_indexes(hostile: Path, name: str, id: str | None) -> None:
    with open_directory(str(hostile / name)) as directory:
        file = directory.open("c.index")
        try:
            if id is None:
                assert [found.key for found in BundleIndex(file, Limits()).entries()] == [b"v"]
            else:
                with pytest.raises(CkpttoolError) as caught:
                    list(BundleIndex(file, Limits()).entries())
                assert caught.value.id == id
        finally:
            file.close()


def test_truncation_at_every_byte_and_every_flipped_bit_of_an_index() -> None:
    items = [(b"", header(2))]
    items += [
        (b"layer/" + end, entry(shape=(3, 200), shard=1, offset=2400, size=2400, crc=7))
        for end in (b"bias", b"bias/Adam", b"kernel")
    ]
    data = handmade.build_table(items)

    def read(changed: bytes) -> None:
        list(BundleIndex(MemoryFile(changed), Limits()).entries())

    for length in range(len(data)):
        with pytest.raises(CkpttoolError):
            read(data[:length])
    for at in (*range(len(data) - 44), *range(len(data) - 8, len(data))):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(CkpttoolError):
                read(bytes(flipped))
