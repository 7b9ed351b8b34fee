"""``TensorProto`` of ONNX (onnx/onnx.proto): what a tensor is, and its elements.

Elements are plain bytes in the message, plain bytes in a file beside the model, or numbers
in a field of their type, which are decoded when they are asked for. Types of less than a
byte are packed, the first element in the low bits. Knows no numpy and opens no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import CorruptError
from ckpttool.formats import wire
from ckpttool.formats.bounds import require_shape, require_within
from ckpttool.formats.long_message import MessageBytes, fields_of
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.limits import Limits
from ckpttool.model import numel

__all__ = [
    "External",
    "OnnxTensor",
    "OnnxType",
    "numbers_of",
    "onnx_type",
    "read_tensor",
    "text_of",
    "texts_of",
]

_DIMS, _TYPE, _FLOATS, _INT32S, _TEXTS, _INT64S, _NAME = 1, 2, 4, 5, 6, 7, 8
_RAW, _DOUBLES, _UINT64S, _EXTERNAL, _LOCATION = 9, 10, 11, 13, 14
_KEY, _VALUE = 1, 2
_OUTSIDE = 1
#: Field with plain numbers → bytes of one; the others have varints.
_FIXED = {_FLOATS: 4, _DOUBLES: 8}


class OnnxType(NamedTuple):
    """An element type: TensorFlow's word (else ONNX's, small), bits, the field of numbers."""

    dtype: str
    bits: int
    field: int

    @property
    def signed(self) -> bool:
        """Whether the upper bits of a byte repeat the sign of a packed element."""
        return self.dtype.startswith("int")


#: onnx.proto: TensorProto.DataType. A complex number is two in the field of its parts.
_TYPES = {
    1: OnnxType("float32", 32, _FLOATS),
    2: OnnxType("uint8", 8, _INT32S),
    3: OnnxType("int8", 8, _INT32S),
    4: OnnxType("uint16", 16, _INT32S),
    5: OnnxType("int16", 16, _INT32S),
    6: OnnxType("int32", 32, _INT32S),
    7: OnnxType("int64", 64, _INT64S),
    8: OnnxType("string", 0, _TEXTS),
    9: OnnxType("bool", 8, _INT32S),
    10: OnnxType("float16", 16, _INT32S),
    11: OnnxType("float64", 64, _DOUBLES),
    12: OnnxType("uint32", 32, _UINT64S),
    13: OnnxType("uint64", 64, _UINT64S),
    14: OnnxType("complex64", 64, _FLOATS),
    15: OnnxType("complex128", 128, _DOUBLES),
    16: OnnxType("bfloat16", 16, _INT32S),
    17: OnnxType("float8_e4m3fn", 8, _INT32S),
    18: OnnxType("float8_e4m3fnuz", 8, _INT32S),
    19: OnnxType("float8_e5m2", 8, _INT32S),
    20: OnnxType("float8_e5m2fnuz", 8, _INT32S),
    21: OnnxType("uint4", 4, _INT32S),
    22: OnnxType("int4", 4, _INT32S),
    23: OnnxType("float4_e2m1fn", 4, _INT32S),
    24: OnnxType("float8e8m0", 8, _INT32S),
    25: OnnxType("uint2", 2, _INT32S),
    26: OnnxType("int2", 2, _INT32S),
    27: OnnxType("float6e2m3", 6, _INT32S),
    28: OnnxType("float6e3m2", 6, _INT32S),
}


def onnx_type(number: int) -> OnnxType:
    """The type of a number; ``dtype_n`` without a size where there is none."""
    return _TYPES.get(number) or OnnxType(f"dtype_{number}", 0, 0)


class External(NamedTuple):
    """Bytes in a file beside the model; all from ``offset`` on where ``nbytes`` is None."""

    location: str
    offset: int
    nbytes: int | None


class OnnxTensor(NamedTuple):
    """A tensor.

    Attributes:
        place: where its message starts and ends.
        raw: where its plain bytes start and end in the same file; None where it has none.
        external: where they are otherwise; None where they are numbers in a field.
    """

    name: str
    type: OnnxType
    shape: tuple[int, ...]
    place: tuple[int, int]
    raw: tuple[int, int] | None
    external: External | None

    @property
    def packed_bytes(self) -> int:
        """Bytes of its elements by its shape, as ONNX packs them; 0 of strings."""
        return (numel(self.shape) * self.type.bits + 7) // 8


def read_tensor(source: MessageBytes, start: int, end: int, limits: Limits) -> OnnxTensor:
    """The tensor in ``[start, end)``, without its elements.

    Raises:
        CorruptError: ids ``message-malformed``, ``shape-overflow``, ``negative-dimension``.
        LimitError: ids ``limit-rank``, ``limit-keys``.
    """
    dims: list[int] = []
    number, name, outside = 0, "", False
    raw: tuple[int, int] | None = None
    entries: dict[str, str] = {}
    for field, _, value in fields_of(source, start, end):
        if isinstance(value, int):
            if field == _DIMS:
                dims.append(wire.signed64(value))
            elif field == _TYPE:
                number = wire.signed32(value)
            elif field == _LOCATION:
                outside = value == _OUTSIDE
        elif field == _DIMS:
            data = source.get(value[0], min(value[1], value[0] + 10 * limits.rank + 10))
            dims += map(wire.signed64, _varints(data))
        elif field == _NAME:
            name = text_of(source, *value, limits)
        elif field == _RAW:
            raw = value
        elif field == _EXTERNAL and len(entries) < limits.rank:
            key, text = _entry(source, *value, limits)
            entries[key] = text
        require_within(f"the number of dimensions of {name}", len(dims), limits, "rank")
    shape = require_shape(name or "a tensor", dims, limits)
    external = _external(name, entries) if outside else None
    return OnnxTensor(name, onnx_type(number), shape, (start, end), raw, external)


def text_of(source: MessageBytes, start: int, end: int, limits: Limits) -> str:
    """A text; bytes that are not UTF-8 as surrogate escapes.

    Raises:
        LimitError: id ``limit-keys``.
    """
    require_within(f"a name in {source.path}", end - start, limits, "key_bytes")
    return source.get(start, end).decode("utf-8", "surrogateescape")


def numbers_of(source: MessageBytes, tensor: OnnxTensor, limits: Limits) -> bytes:
    """The elements of a tensor whose numbers are in a field: little-endian, as ONNX packs them.

    Raises:
        CorruptError: id ``message-malformed``; ``size-mismatch``: more or fewer than its
            shape has.
        LimitError: id ``limit-constant``.
    """
    what = f"the elements of {tensor.name}"
    require_within(what, tensor.packed_bytes, limits, "constant_bytes")
    kind = tensor.type
    size = max(1, kind.bits // 8)
    mask = (1 << 8 * size) - 1
    result = bytearray()
    for field, _, value in fields_of(source, *tensor.place):
        if field != kind.field:
            continue
        if isinstance(value, int):
            width = _FIXED.get(field, size)
            result += (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        else:
            require_within(what, value[1] - value[0], limits, "constant_bytes")
            data = source.get(*value)
            if field in _FIXED:
                result += data
            else:
                for number in _varints(data):
                    result += (number & mask).to_bytes(size, "little")
        if len(result) > tensor.packed_bytes:
            break
    if len(result) != tensor.packed_bytes:
        raise _misfit(tensor, f"{len(result)} bytes of numbers", f"{tensor.packed_bytes}")
    return bytes(result)


def texts_of(source: MessageBytes, tensor: OnnxTensor, limits: Limits) -> list[bytes]:
    """The elements of a tensor of strings.

    Raises:
        CorruptError: as `numbers_of`. LimitError: ids ``limit-string-elements``,
            ``limit-string-bytes``.
    """
    count = numel(tensor.shape)
    start, end = tensor.place
    require_bounded(f"reading {tensor.name}", count, end - start, limits)
    texts = [
        source.get(*value)
        for field, _, value in fields_of(source, start, end)
        if field == _TEXTS and not isinstance(value, int)
    ]
    if len(texts) != count:
        raise _misfit(tensor, f"{len(texts)} texts", str(count))
    return texts


def _misfit(tensor: OnnxTensor, found: str, needed: str) -> CorruptError:
    return CorruptError(
        f"the elements of {tensor.name} do not fit its shape",
        why=f"it has {found}, and its shape {list(tensor.shape)} takes {needed}",
        hint="take the file from another copy",
        id="size-mismatch",
    )


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = wire.read_varint(data, at, len(data))
        yield value


def _entry(source: MessageBytes, start: int, end: int, limits: Limits) -> tuple[str, str]:
    key = value = ""
    for field, _, place in fields_of(source, start, end):
        if field == _KEY and not isinstance(place, int):
            key = text_of(source, *place, limits)
        elif field == _VALUE and not isinstance(place, int):
            value = text_of(source, *place, limits)
    return key, value


def _external(name: str, entries: dict[str, str]) -> External:
    numbers: dict[str, int | None] = {}
    for key in ("offset", "length"):
        text = entries.get(key)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise CorruptError(
                f"where the elements of {name} are is malformed",
                why=f"the {key} in the file beside the model is {text!r}",
                hint="take the file from another copy",
                id="onnx-malformed",
            )
        numbers[key] = None if text is None else int(text)
    return External(entries.get("location", ""), numbers["offset"] or 0, numbers["length"])
