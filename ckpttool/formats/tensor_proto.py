"""``TensorProto`` (tensorflow/core/framework/tensor.proto): a constant in a graph.

Its elements are either plain bytes (``tensor_content``) or numbers in a field of their
type. Of numbers there may be fewer than elements: the last one is repeated, and without any
all are zero (tensor.cc: FromProtoField). So a few bytes can stand for any number of
elements, and none is made before it is asked for. Knows no numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import LimitError, UnsupportedError
from ckpttool.formats import wire
from ckpttool.formats.dtypes import BY_NAME, dtype_name
from ckpttool.formats.graph_errors import naming_graph
from ckpttool.formats.long_message import AT_HAND, MessageBytes, fields_of
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.formats.tensor_shape import read_shape
from ckpttool.limits import Limits
from ckpttool.model import numel

__all__ = ["Elements", "Tensor", "base_dtype", "read_tensor"]

_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
#: A type with 100 added is a reference to one (types.proto).
_REFERENCE = 100
#: Fields whose numbers are stored as they are, with the bytes of one.
_FIXED = {5: 4, 6: 8, 9: 4, 12: 8}
#: The field with the numbers of a type; not in it: ``int_val``, which has all smaller ones.
_FIELDS = {
    "float32": 5,
    "float64": 6,
    "complex64": 9,
    "complex128": 12,
    "int64": 10,
    "bool": 11,
    "float16": 13,
    "bfloat16": 13,
    "uint32": 16,
    "uint64": 17,
    "float8_e5m2": 18,
    "float8_e4m3fn": 18,
    "float8_e4m3fnuz": 18,
    "float8_e4m3b11fnuz": 18,
    "float8_e5m2fnuz": 18,
    "float4_e2m1fn": 18,
}
_INT_VAL, _FLOAT8_VAL = 7, 18
_MAX_VARINT_BYTES = 10


def base_dtype(number: int) -> str:
    """TensorFlow's word for a type; that of ``float32_ref`` is ``float32``."""
    return dtype_name(number - _REFERENCE if number > _REFERENCE else number)


class Elements(NamedTuple):
    """The elements of a tensor, little-endian: ``stored``, then ``last`` again and again."""

    stored: bytes
    last: bytes
    nbytes: int

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``, all of them among its ``nbytes``."""
        data = self.stored[offset : offset + size]
        missing = size - len(data)
        if missing:
            word = len(self.last)
            skipped = max(offset - len(self.stored), 0) % word
            data += (self.last * (missing // word + 2))[skipped : skipped + missing]
        return data


class Tensor(NamedTuple):
    """A tensor whose elements were not read.

    Attributes:
        source: the bytes that it lies in; ``start``, ``end``: where its message does.
        dtype: TensorFlow's word.
        shape: of known sizes.
        content: where its elements lie as they are, little-endian; None where they have to
            be decoded, and for strings.
    """

    source: MessageBytes
    start: int
    end: int
    dtype: str
    shape: tuple[int, ...]
    content: tuple[int, int] | None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; of a type without a fixed size, those of its message."""
        dtype = BY_NAME.get(self.dtype)
        if dtype is None or not dtype.size:
            return self.end - self.start
        return numel(self.shape) * dtype.size

    def elements(self, limits: Limits) -> Elements:
        """All elements, for a type of fixed size.

        Raises:
            CorruptError: id ``graph-malformed``.
            LimitError: id ``limit-constant``: more than ``limits.constant_bytes`` are stored.
            UnsupportedError: id ``dtype-unsupported``.
        """
        dtype = BY_NAME.get(self.dtype)
        if dtype is None or not dtype.size:
            raise UnsupportedError(
                f"the elements of a constant of type {self.dtype} cannot be read",
                why="they have no fixed size that is known here",
                id="dtype-unsupported",
            )
        if self.content is not None:
            start, end = self.content
            self._require(end - start, limits)
            return Elements(self.source.get(start, end), b"", self.nbytes)
        field = _FIELDS.get(self.dtype, _INT_VAL)
        with naming_graph(self.source.path, f"the tensor at byte {self.start}"):
            stored = self._decode(field, dtype.size, limits)
        return Elements(stored, stored[-dtype.size :] or bytes(dtype.size), self.nbytes)

    def strings(self, limits: Limits) -> list[bytes]:
        """All elements of a string tensor, in C order.

        Raises:
            CorruptError: id ``graph-malformed``.
            LimitError: ids ``limit-string-elements``, ``limit-string-bytes``.
        """
        count = numel(self.shape)
        require_bounded(f"a constant of {self.source.path}", count, self.end - self.start, limits)
        found: list[bytes] = []
        with naming_graph(self.source.path, f"the tensor at byte {self.start}"):
            for number, _, value in fields_of(self.source, self.start, self.end):
                if number == _STRINGS and isinstance(value, tuple) and len(found) < count:
                    found.append(self.source.get(*value))
                elif number == _CONTENT and isinstance(value, tuple):
                    found = _encoded_strings(self.source.get(*value), count)
        return found + (found[-1:] or [b""]) * (count - len(found))

    def _decode(self, field: int, size: int, limits: Limits) -> bytes:
        """What is stored of the numbers, at most as many as there are elements."""
        stored = bytearray()
        wanted = self.nbytes
        mask = (1 << 8 * size) - 1
        for number, _, value in fields_of(self.source, self.start, self.end):
            if number != field or len(stored) >= wanted:
                continue
            if isinstance(value, int):  # not packed
                stored += (value & mask).to_bytes(_FIXED.get(field, size), "little")
            elif field in _FIXED or field == _FLOAT8_VAL:
                self._require(value[1] - value[0], limits)
                stored += self.source.get(*value)
            else:
                for one in _varints(self.source, *value):
                    stored += (one & mask).to_bytes(size, "little")
                    if len(stored) > limits.constant_bytes:
                        break
            self._require(len(stored), limits)
        return bytes(stored[:wanted])

    def _require(self, size: int, limits: Limits) -> None:
        if size > limits.constant_bytes:
            raise LimitError(
                f"a constant of {self.source.path} is over a limit",
                why=f"it has {size} bytes to decode, and the limit constant_bytes is "
                f"{limits.constant_bytes}",
                hint=f"raise it with CKPTTOOL_LIMITS=constant_bytes={4 * limits.constant_bytes}",
                id="limit-constant",
            )


def read_tensor(source: MessageBytes, start: int, end: int) -> Tensor:
    """The tensor whose message is in ``[start, end)``.

    Raises:
        CorruptError: it is malformed, its shape is not known in full or overflows, or its
            ``tensor_content`` has another size than it needs.
    """
    dtype = "dtype_0"
    shape: tuple[int, ...] = ()
    content: tuple[int, int] | None = None
    run: tuple[int, int] | None = None  # the numbers of a fixed size, where they are in one
    runs = 0
    for number, _, value in fields_of(source, start, end):
        if isinstance(value, int):
            if number == _DTYPE:
                dtype = base_dtype(wire.signed32(value))
            runs += number in _FIXED
        elif number == _SHAPE:
            shape = _known(source, *value)
        elif number == _CONTENT:
            content = value if value[1] > value[0] else None
        elif number in _FIXED:
            run = value if number == _FIELDS.get(dtype) else None
            runs += 1
    item = BY_NAME[dtype].size if dtype in BY_NAME else 0
    nbytes = numel(shape) * (item or 1)
    if nbytes >= 2**63:
        raise wire.malformed(f"a tensor of {nbytes} bytes")
    if content is not None:
        if item and content[1] - content[0] != nbytes:
            raise wire.malformed(f"{content[1] - content[0]} bytes of elements instead of {nbytes}")
        return Tensor(source, start, end, dtype, shape, content if item else None)
    if runs == 1 and run is not None and run[1] - run[0] == nbytes:
        content = run
    return Tensor(source, start, end, dtype, shape, content)


def _known(source: MessageBytes, start: int, end: int) -> tuple[int, ...]:
    if end - start > AT_HAND:
        raise wire.malformed(f"a shape of {end - start} bytes")
    shape = read_shape(source.get(start, end))
    if shape is None or -1 in shape:
        raise wire.malformed("a tensor without a full shape")
    return shape


def _varints(source: MessageBytes, start: int, end: int) -> Iterator[int]:
    """The numbers of a packed field, however long it is."""
    while start < end:
        window = source.get(start, min(end, start + AT_HAND))
        size = len(window)
        last = start + size == end
        at = 0
        while at < size and (last or size - at >= _MAX_VARINT_BYTES):
            value, at = wire.read_varint(window, at, size)
            yield value
        start += at


def _encoded_strings(data: bytes, count: int) -> list[bytes]:
    """Strings in ``tensor_content``: all lengths, then all bytes (coding: EncodeStringList)."""
    at, end = 0, len(data)
    if count > end:
        raise wire.malformed(f"{count} strings in {end} bytes")
    sizes = []
    for _ in range(count):
        size, at = wire.read_varint(data, at, end)
        sizes.append(size)
    if sum(sizes) != end - at:
        raise wire.malformed(f"strings of {sum(sizes)} bytes, and {end - at} are there")
    strings = []
    for size in sizes:
        strings.append(data[at : at + size])
        at += size
    return strings
