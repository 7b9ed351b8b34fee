"""The elements of one slice of a V1 checkpoint: a TensorProto with one repeated field.

Which field that is, and how elements become numbers in it, depends on the dtype
(tensorflow/core/util/saved_tensor_slice_util.h, tensor_slice_reader.h). Floats and complex
numbers lie in the file as they lie in memory, so they are read from their place; integers,
truth values and half floats are varints and have to be decoded. A field may be packed or
not, and in pieces, as protobuf allows; TensorFlow refuses one with a number too few or too
many, and so does this module. Knows no names, shapes or files.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from ckpttool.errors import CorruptError, LimitError, UnsupportedError
from ckpttool.formats.dtypes import DType
from ckpttool.formats.long_message import MessageBytes, fields_of
from ckpttool.formats.table_values import Value
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.limits import Limits

__all__ = ["V1Elements", "is_plain", "require_stored"]

#: Where SavedTensorSlices has its slice, and that its elements.
_DATA, _TENSOR = 2, 3
_STRING_VAL = 8
#: Types whose elements lie in the file as in memory, and their fields (tensor.proto).
_PLAIN = {"float32": 5, "float64": 6, "complex64": 9, "complex128": 12}
#: Types that are stored as varints, and their fields.
_VARINTS = {
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), 7),
    **dict.fromkeys(("qint8", "qint16", "qint32", "quint8", "quint16"), 7),
    "int64": 10,
    "bool": 11,
    "float16": 13,
    "uint32": 16,
    "uint64": 17,
}
_CODES: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
#: Stored bytes that are decoded at once.
_PIECE = 2**18


def is_plain(dtype: DType) -> bool:
    """Whether elements of a type lie in the file as they lie in memory."""
    return dtype.name in _PLAIN


def require_stored(dtype: DType) -> None:
    """Check that V1 holds elements of a type.

    Raises:
        UnsupportedError: id ``dtype-unsupported``.
    """
    if dtype.name not in _PLAIN and dtype.name not in _VARINTS and dtype.name != "string":
        raise UnsupportedError(
            f"values of type {dtype.name} cannot be read from a V1 checkpoint",
            why="the format has no field for them, and TensorFlow writes and reads none",
            hint="the variable can be listed",
            id="dtype-unsupported",
        )


class Place(NamedTuple):
    """Bytes ``[start, end)`` of ``source`` that are the elements as they are."""

    source: MessageBytes
    start: int
    end: int


class V1Elements:
    """The elements of a slice.

    Args:
        what: the variable or slice, for messages.
        value: its message.
        dtype: its type.
        count: how many elements its shape has.
        limits: bounds on what is held.

    Raises:
        CorruptError: ids ``size-mismatch``, ``message-malformed``.
        LimitError: ids ``limit-v1-decoded-bytes``, ``limit-string-elements``,
            ``limit-string-bytes``.
        UnsupportedError: id ``dtype-unsupported``.
    """

    def __init__(self, what: str, value: Value, dtype: DType, count: int, limits: Limits) -> None:
        require_stored(dtype)
        self._what = what
        self._value = value
        self._dtype = dtype
        self.count = count
        self._limits = limits

    @property
    def stored_bytes(self) -> int:
        """How long the message is that they are in."""
        return self._value.size

    def place(self) -> Place | None:
        """Where the elements lie as they are, in one piece; None where they have to be decoded."""
        field = _PLAIN.get(self._dtype.name)
        if field is None:
            return None
        runs = []
        for run in self._runs(field):
            runs.append(run)
            if len(runs) > 1:
                return None
        if not runs:
            runs.append((0, 0))
        (run,) = runs
        if isinstance(run, int):
            return None
        self._require(run[1] - run[0], self.count * self._dtype.size, "bytes")
        return Place(self._value.source, *run)

    def decoded(self) -> bytes:
        """The elements in C order, little-endian."""
        size = self.count * self._dtype.size
        if self.count > self._value.size:  # no element takes less than a byte
            self._require(self._value.size, self.count, "bytes for as many elements,")
        if size > self._limits.v1_decoded_bytes:
            raise LimitError(
                f"{self._what} is over a limit",
                why=f"its elements have to be decoded, and are {size} bytes, over "
                f"{self._limits.v1_decoded_bytes}",
                hint="if the file is trusted, raise v1_decoded_bytes in CKPTTOOL_LIMITS",
                id="limit-v1-decoded-bytes",
            )
        plain = _PLAIN.get(self._dtype.name)
        pieces = self._plain_pieces(plain) if plain else self._varint_pieces()
        result = bytearray()
        for piece in pieces:
            result += piece
            if len(result) > size:
                break
        self._require(len(result), size, "bytes")
        return bytes(result)

    def strings(self) -> list[bytes]:
        """The elements of a string variable in C order."""
        self.require_strings()
        source = self._value.source
        found = [source.get(*run) for run in self._runs(_STRING_VAL) if not isinstance(run, int)]
        self._require(len(found), self.count, "strings")
        return found

    def require_strings(self) -> None:
        """Check that as many strings can be there at all, and may be held; raises as above."""
        most = self._value.size // 2  # each takes a tag and a length at least
        if self.count > most:
            self._require(most, self.count, "strings at most")
        require_bounded(f"reading {self._what}", self.count, self._value.size, self._limits)

    def string_bytes(self) -> int:
        """How many bytes the strings have together, without holding one; raises as above."""
        self.require_strings()
        runs = self._runs(_STRING_VAL)
        return sum(run[1] - run[0] for run in runs if not isinstance(run, int))

    # ----------------------------------------------------------------------------------

    def _runs(self, field: int) -> Iterator[int | tuple[int, int]]:
        """What the field has: single numbers, or places of packed ones (or of a string)."""
        source = self._value.source
        try:
            for number, _, data in fields_of(source, self._value.start, self._value.end):
                if number != _DATA or isinstance(data, int):
                    continue
                for inner, _, tensor in fields_of(source, *data):
                    if inner != _TENSOR or isinstance(tensor, int):
                        continue
                    for last, _, run in fields_of(source, *tensor):
                        if last == field:
                            yield run
        except CorruptError as error:
            raise self._malformed(error.why) from None

    def _plain_pieces(self, field: int) -> Iterator[bytes]:
        word = self._dtype.word
        for run in self._runs(field):
            if isinstance(run, int):
                yield (run & (1 << 8 * word) - 1).to_bytes(word, "little")
                continue
            start, end = run
            while start < end:
                stop = min(end, start + _PIECE)
                yield self._value.source.get(start, stop)
                start = stop

    def _varint_pieces(self) -> Iterator[bytes]:
        for run in self._runs(_VARINTS[self._dtype.name]):
            if isinstance(run, int):
                yield self._elements((run,))
            else:
                yield from self._packed(*run)

    def _packed(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            data = self._value.source.get(start, min(end, start + _PIECE))
            size = len(data)
            while size and data[size - 1] > 0x7F:  # a number that goes on in the next piece
                size -= 1
            if not size or (size < len(data) and start + len(data) == end):
                raise self._malformed("a number runs past the end")
            whole = data[:size]
            yield self._elements(whole if whole.isascii() else self._numbers(whole))
            start += size

    def _numbers(self, data: bytes) -> list[int]:
        found: list[int] = []
        append = found.append
        value = shift = 0
        for byte in data:
            if byte < 0x80:
                append(value | byte << shift)
                value = shift = 0
            else:
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > 63:
                    raise self._malformed("a number has more than 64 bits")
        return found

    def _elements(self, numbers: Iterable[int]) -> bytes:
        """Numbers as elements; what is too wide loses its high bits, as in TensorFlow."""
        if self._dtype.name == "bool":
            return bytes(value != 0 for value in numbers)
        size = self._dtype.size
        if isinstance(numbers, bytes):
            if size == 1:
                return numbers
            result = array(_CODES[size])
            result.extend(numbers)
        else:
            mask = (1 << 8 * size) - 1
            result = array(_CODES[size], [value & mask for value in numbers])
        if sys.byteorder == "big":
            result.byteswap()
        return result.tobytes()

    def _require(self, found: int, expected: int, unit: str) -> None:
        if found != expected:
            raise CorruptError(
                f"the values of {self._what} cannot be read: its size does not fit its shape",
                why=f"{found} {unit} are stored, and its {self.count} elements of "
                f"{self._dtype.name} are {expected}",
                hint="take the file from another copy",
                id="size-mismatch",
            )

    def _malformed(self, why: str) -> CorruptError:
        return CorruptError(
            f"the values of {self._what} in {self._value.source.path} are malformed",
            why=why,
            hint="take the file from another copy",
            id="message-malformed",
        )
