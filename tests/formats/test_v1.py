"""Files of V1 checkpoints: what they hold, and what crafted ones claim."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, CorruptError
from ckpttool.formats.dtypes import BY_NAME, DType
from ckpttool.formats.entry import SliceBudget, SliceSpec
from ckpttool.formats.long_message import MemoryBytes
from ckpttool.formats.table_values import Value
from ckpttool.formats.v1 import SavedTensor, V1File, is_whole
from ckpttool.formats.v1_values import V1Elements, is_plain
from ckpttool.formats.wire import encode_field, encode_varint
from ckpttool.limits import Limits
from tests.support.memory_file import MemoryFile
from tests.support.v1_files import FULL, entry, header, meta, number, packed, table, v1_file

FLOATS = struct.pack("<6f", *range(6))
WHOLE = SliceSpec((0, 0), (-1, -1))


def opened(data: bytes, limits: Limits | None = None) -> V1File:
    limits = limits or Limits()
    return V1File(MemoryFile(data, "file"), limits, SliceBudget(limits))


def failure(data: bytes, limits: Limits | None = None) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        opened(data, limits)
    return caught.value


def elements(dtype: str, count: int, tensor: bytes, limits: Limits | None = None) -> V1Elements:
    """The elements of a tensor message, as they stand in a slice's message."""
    _, message = entry(b"v", [], tensor)
    value = Value(MemoryBytes(message, "file"), 0, len(message))
    return V1Elements("v", value, BY_NAME[dtype], count, limits or Limits())


def example() -> bytes:
    return v1_file(
        [
            meta(b"w", 1, (2, 3), [[FULL, FULL]]),
            meta(b"cut", 9, (4,), [[(0, 1)], [(1, 3)]]),
            meta(b"scalar", 3, (), [[]]),
        ],
        [
            entry(b"w", [FULL, FULL], encode_field(5, FLOATS)),
            entry(b"cut", [(0, 1)], packed(10, [-1])),
            entry(b"cut", [(1, 3)], packed(10, [1, 2, 2**62])),
            entry(b"scalar", [], packed(7, [-5])),
        ],
    )


def test_what_a_file_holds() -> None:
    file = opened(example())
    assert file.tensors == [
        SavedTensor(b"w", 1, (2, 3), (WHOLE,)),
        SavedTensor(b"cut", 9, (4,), (SliceSpec((0,), (1,)), SliceSpec((1,), (3,)))),
        SavedTensor(b"scalar", 3, (), (SliceSpec((), ()),)),
    ]
    assert file.versions.producer == 1
    for tensor in file.tensors:
        for spec in tensor.slices:
            assert file.value(tensor.name, spec, check=True) is not None
            assert file.block(tensor.name, spec) is not None
    assert file.value(b"w", SliceSpec((0,), (-1,)), check=True) is None
    assert file.value(b"zzz", WHOLE, check=True) is None


def test_whole_is_whole_however_it_is_spelled() -> None:
    assert is_whole(SliceSpec((0, 0), (-1, -1)), (2, 3))
    assert is_whole(SliceSpec((0, 0), (2, 3)), (2, 3))
    assert is_whole(SliceSpec((), ()), ())
    assert not is_whole(SliceSpec((0, 0), (1, 3)), (2, 3))
    assert not is_whole(SliceSpec((), ()), (2, 3))


def test_what_is_said_in_two_messages_belongs_together() -> None:
    """TensorFlow's reader registers slice by slice (tensor_slice_set.cc)."""
    parts = [meta(b"v", 1, (4,), [[(0, 2)]]), meta(b"v", 1, (4,), [[(2, 2)]])]
    (tensor,) = opened(v1_file(parts, [])).tensors
    assert [spec.start for spec in tensor.slices] == [(0,), (2,)]
    other = meta(b"v", 3, (4,), [[(2, 2)]])
    error = failure(v1_file([parts[0], other], []))
    assert (error.id, error.exit_code) == ("metadata-malformed", 20)
    assert "two dtypes" in error.why


def test_a_variable_without_slices_is_none() -> None:
    """As in TensorFlow, which finds no tensor of that name."""
    assert opened(v1_file([meta(b"v", 1, (4,), [])], [])).tensors == []


@pytest.mark.parametrize(
    ("metas", "id", "code"),
    [
        ([meta(b"v", 1, (2**40, 2**40), [[FULL, FULL]])], "shape-overflow", 20),
        ([meta(b"v", 1, (-1,), [[FULL]])], "negative-dimension", 20),
        ([meta(b"v", 1, (1,) * 300, [[FULL]])], "limit-rank", 21),
        ([meta(b"v", 1, (9,), [[FULL]] * 6)], "limit-slices", 21),
        ([meta(b"%d" % n, 1, (9,), [[FULL]] * 4) for n in range(3)], "limit-index-slices", 21),
        ([meta(b"%d" % n, 1, (9,), [[FULL]]) for n in range(9)], "limit-entries", 21),
        ([encode_field(1, b"v") + b"\x12\xff"], "metadata-malformed", 20),
        ([encode_field(2, number(3, 1)) + encode_field(4, b"")], "metadata-malformed", 20),
        ([b"\x0b" * 50], "metadata-malformed", 20),  # groups, one inside the other
    ],
)
def test_claims(metas: Sequence[bytes], id: str, code: int) -> None:
    error = failure(v1_file(metas, []), Limits(slices=5, index_slices=10, entries=8))
    assert (error.id, error.exit_code) == (id, code)
    assert "file" in error.what
    assert error.why


def test_versions() -> None:
    newer = number(1, 9) + number(2, 2)
    barred = number(1, 1) + packed(3, [7, 1])
    for versions in (newer, barred):
        error = failure(v1_file([], [], versions=versions))
        assert (error.id, error.exit_code) == ("bundle-version", 12)
    assert opened(v1_file([], [], versions=number(1, 9) + number(3, 7))).versions.producer == 9


def test_a_table_of_something_else() -> None:
    assert failure(table([(b"a", b"x")])).id == "metadata-missing"
    large = failure(v1_file([meta(b"v" * 900, 1, (1,), [[FULL]])], []), Limits(block_bytes=500))
    assert (large.id, large.exit_code) == ("limit-block", 21)


def test_every_truncation_is_an_error() -> None:
    data = example()
    for size in range(len(data)):
        assert failure(data[:size]).exit_code == 20


def test_every_flipped_bit_of_a_block_is_an_error() -> None:
    data = example()
    end = data.index(bytes(4) + (1).to_bytes(4, "little") + b"\0")  # the data block's
    for at in range(end):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert failure(bytes(damaged)).exit_code == 20


def test_no_flipped_bit_gives_other_values() -> None:
    data = example()
    expected = opened(data).tensors
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x11
        with suppress(CkpttoolError):  # of any other kind none is raised
            assert opened(bytes(damaged)).tensors == expected


# Elements -----------------------------------------------------------------------------


def varint_types() -> list[DType]:
    return [
        dtype
        for dtype in BY_NAME.values()
        if not is_plain(dtype) and dtype.name.strip("qu") in {"int8", "int16", "int32", "int64"}
    ] + [BY_NAME["bool"], BY_NAME["float16"]]


FIELDS = {"int64": 10, "bool": 11, "float16": 13, "uint32": 16, "uint64": 17}


@given(st.data())
def test_varints_packed_or_not_in_pieces(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(varint_types()))
    signed = dtype.name.lstrip("q").startswith("int")
    low = -(2 ** (8 * dtype.size - 1)) if signed else 0
    high = 1 if dtype.name == "bool" else 2 ** (8 * dtype.size - signed) - 1
    values = data.draw(st.lists(st.integers(low, high), max_size=40))
    field = FIELDS.get(dtype.name, 7)
    tensor = b""
    rest = values
    while rest:
        part, rest = rest[: (cut := data.draw(st.integers(1, len(rest))))], rest[cut:]
        one_by_one = b"".join(number(field, value) for value in part)
        tensor += packed(field, part) if data.draw(st.booleans()) else one_by_one
    found = elements(dtype.name, len(values), tensor)
    assert found.place() is None
    assert found.decoded() == b"".join(
        value.to_bytes(dtype.size, "little", signed=signed) for value in values
    )


def test_numbers_over_a_piece_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    import ckpttool.formats.v1_values as module

    values = [3**n % 2**40 for n in range(300)]
    for piece in (10, 11, 64):
        monkeypatch.setattr(module, "_PIECE", piece)
        found = elements("int64", 300, packed(10, values)).decoded()
        assert found == struct.pack("<300q", *values)


@pytest.mark.parametrize(
    ("dtype", "tensor"),
    [
        ("float32", encode_field(5, FLOATS)),
        ("float64", encode_field(6, FLOATS)),
        ("complex64", encode_field(9, FLOATS)),
        ("complex128", encode_field(12, FLOATS[:16])),
    ],
)
def test_what_lies_in_the_file_as_in_memory_is_not_copied(dtype: str, tensor: bytes) -> None:
    size = BY_NAME[dtype].size
    stored = FLOATS[: len(FLOATS) // size * size]
    found = elements(dtype, len(stored) // size, tensor)
    place = found.place()
    assert place is not None
    assert place.source.get(place.start, place.end) == stored
    assert found.decoded() == stored


def test_floats_in_pieces() -> None:
    tensor = encode_field(5, FLOATS[:8]) + encode_field(5, FLOATS[8:])
    single = b"".join(encode_varint(5 << 3 | 5) + FLOATS[at : at + 4] for at in range(0, 24, 4))
    for message in (tensor, single):
        found = elements("float32", 6, message)
        assert found.place() is None
        assert found.decoded() == FLOATS
    empty = elements("float32", 0, b"").place()
    assert empty is not None
    assert empty.start == empty.end


@pytest.mark.parametrize(
    ("dtype", "count", "tensor"),
    [
        ("float32", 6, encode_field(5, FLOATS[:20])),
        ("float32", 6, encode_field(5, FLOATS + bytes(4))),
        ("float32", 6, b""),
        ("float32", 6, encode_field(4, FLOATS)),  # tensor_content, which V1 does not use
        ("int32", 3, packed(7, [1, 2])),
        ("int32", 3, packed(7, [1, 2, 3, 4])),
        ("int32", 1, packed(10, [1])),  # another type's field
        ("string", 2, encode_field(8, b"x")),
        ("string", 0, encode_field(8, b"x")),
        ("string", 2**50, encode_field(8, b"x")),
        ("int8", 2**50, packed(7, [1])),
    ],
)
def test_a_number_too_few_or_too_many(dtype: str, count: int, tensor: bytes) -> None:
    """TensorFlow: "Error copying slice data"; it repeats no last value here."""
    found = elements(dtype, count, tensor)
    with pytest.raises(CorruptError) as caught:
        if dtype == "string":
            found.strings()
        elif found.place() is None:
            found.decoded()
    assert caught.value.id == "size-mismatch"


@pytest.mark.parametrize("contents", [b"\x80", b"\x01\x80\x80", b"\xff" * 11 + b"\x01"])
def test_numbers_without_end(contents: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        elements("int32", 1, encode_field(7, contents)).decoded()
    assert caught.value.id == "message-malformed"


def test_strings() -> None:
    values = [b"", b"\0\xff", b"x" * 5000]
    found = elements("string", 3, b"".join(encode_field(8, value) for value in values))
    assert found.strings() == values
    assert found.string_bytes() == 5002


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "int4", "variant", "resource"])
def test_types_that_v1_does_not_hold(dtype: str) -> None:
    with pytest.raises(CkpttoolError) as caught:
        elements(dtype, 1, b"")
    assert (caught.value.id, caught.value.exit_code) == ("dtype-unsupported", 12)


def test_what_has_to_be_decoded_is_bounded() -> None:
    limits = Limits(v1_decoded_bytes=7, string_bytes=10)
    with pytest.raises(CkpttoolError) as caught:
        elements("int64", 1, packed(10, [1]), limits).decoded()
    assert (caught.value.id, caught.value.exit_code) == ("limit-v1-decoded-bytes", 21)
    with pytest.raises(CkpttoolError) as caught:
        elements("string", 1, encode_field(8, b"x" * 20), limits).strings()
    assert caught.value.id == "limit-string-bytes"


def test_messages_put_together_from_pieces() -> None:
    """A message that is given twice is one message with the fields of both."""
    halves = [encode_field(2, encode_field(3, packed(7, part))) for part in ([1, 2], [3])]
    message = b"".join(halves)
    value = Value(MemoryBytes(message, "file"), 0, len(message))
    found = V1Elements("v", value, BY_NAME["int32"], 3, Limits())
    assert found.decoded() == struct.pack("<3i", 1, 2, 3)
    assert header([], b"") == encode_field(1, encode_field(2, b""))


@given(st.binary(max_size=60), st.sampled_from(list(BY_NAME)), st.integers(0, 5))
def test_any_bytes_in_a_slice(data: bytes, dtype: str, count: int) -> None:
    value = Value(MemoryBytes(data, "file"), 0, len(data))
    with suppress(CkpttoolError):  # of any other kind none is raised
        found = V1Elements("v", value, BY_NAME[dtype], count, Limits())
        if dtype == "string":
            assert len(found.strings()) == count
        else:
            assert len(found.decoded()) == count * BY_NAME[dtype].size


@given(st.binary(max_size=80))
def test_any_bytes_as_what_there_is(data: bytes) -> None:
    with suppress(CkpttoolError):
        assert all(tensor.slices for tensor in opened(table([(b"", data)])).tensors)
