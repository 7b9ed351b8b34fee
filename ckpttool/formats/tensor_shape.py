"""``TensorShapeProto`` (tensorflow/core/framework/tensor_shape.proto) → a tuple or None."""

from __future__ import annotations

from ckpttool.formats.wire import fields, malformed, signed64

__all__ = ["PartialShape", "read_shape"]

#: Sizes, -1 where one is not known; None where not even their number is.
PartialShape = tuple[int, ...] | None

_DIM, _UNKNOWN_RANK, _SIZE = 2, 3, 1
#: TensorFlow's own bound (tensor_shape.h: MaxDimensions).
_MAX_RANK = 254


def read_shape(data: bytes, start: int = 0, end: int | None = None) -> PartialShape:
    """The shape in ``data[start:end]``.

    Raises:
        CorruptError: it is malformed, has more than 254 dimensions, or one below -1.
    """
    sizes: list[int] = []
    for number, _, value in fields(data, start, end):
        if number == _UNKNOWN_RANK and value == 1:
            return None
        if number != _DIM or isinstance(value, int):
            continue
        size = 0
        for inner, _, given in fields(data, *value):
            if inner == _SIZE and isinstance(given, int):
                size = signed64(given)
        if size < -1:
            raise malformed(f"a dimension of {size}")
        sizes.append(size)
        if len(sizes) > _MAX_RANK:
            raise malformed(f"a shape of more than {_MAX_RANK} dimensions")
    return tuple(sizes)
