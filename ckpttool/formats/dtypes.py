"""The element types of TensorFlow: number, name, and size of one element *as stored*.

Numbers and names are those of tensorflow/core/framework/types.proto and ``tf.DType.name``.
A checkpoint stores types narrower than a byte (int4, uint2, float4…) one byte an element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ckpttool.errors import UnsupportedError

if TYPE_CHECKING:
    import numpy

__all__ = ["BY_NAME", "BY_NUMBER", "STRING", "VARIANT", "DType", "dtype_name", "numpy_dtype"]

STRING = 7
VARIANT = 21


class DType(NamedTuple):
    """One element type.

    Attributes:
        number: the enum value in files.
        name: TensorFlow's word.
        size: bytes of an element as stored; 0 where it has no fixed size.
        word: bytes of what a big-endian file swaps: a complex number is two words.
        numpy: the name of the type of an array of it, in numpy or ml_dtypes; quantised
            integers read as plain ones, as TensorFlow's reader gives them.
    """

    number: int
    name: str
    size: int
    word: int
    numpy: str


def _fixed(number: int, name: str, size: int, *, word: int = 0, numpy: str = "") -> DType:
    return DType(number, name, size, word or size, numpy or name)


_TYPES = (
    _fixed(1, "float32", 4),
    _fixed(2, "float64", 8),
    _fixed(3, "int32", 4),
    _fixed(4, "uint8", 1),
    _fixed(5, "int16", 2),
    _fixed(6, "int8", 1),
    DType(STRING, "string", 0, 0, "object"),
    _fixed(8, "complex64", 8, word=4),
    _fixed(9, "int64", 8),
    _fixed(10, "bool", 1),
    _fixed(11, "qint8", 1, numpy="int8"),
    _fixed(12, "quint8", 1, numpy="uint8"),
    _fixed(13, "qint32", 4, numpy="int32"),
    _fixed(14, "bfloat16", 2),
    _fixed(15, "qint16", 2, numpy="int16"),
    _fixed(16, "quint16", 2, numpy="uint16"),
    _fixed(17, "uint16", 2),
    _fixed(18, "complex128", 16, word=8),
    _fixed(19, "float16", 2),
    DType(20, "resource", 0, 0, ""),
    DType(VARIANT, "variant", 0, 0, ""),
    _fixed(22, "uint32", 4),
    _fixed(23, "uint64", 8),
    _fixed(24, "float8_e5m2", 1),
    _fixed(25, "float8_e4m3fn", 1),
    _fixed(26, "float8_e4m3fnuz", 1),
    _fixed(27, "float8_e4m3b11fnuz", 1),
    _fixed(28, "float8_e5m2fnuz", 1),
    _fixed(29, "int4", 1),
    _fixed(30, "uint4", 1),
    _fixed(31, "int2", 1),
    _fixed(32, "uint2", 1),
    _fixed(33, "float4_e2m1fn", 1),
)

BY_NUMBER: dict[int, DType] = {dtype.number: dtype for dtype in _TYPES}
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in _TYPES}


def dtype_name(number: int) -> str:
    """TensorFlow's word for a number; ``dtype_n`` where this table has none."""
    dtype = BY_NUMBER.get(number)
    return dtype.name if dtype else f"dtype_{number}"


def numpy_dtype(name: str) -> numpy.dtype:
    """The dtype of an array that holds elements of type ``name``, little-endian.

    Imports numpy, and ml_dtypes for the types that numpy does not have.

    Raises:
        UnsupportedError: id ``dtype-unsupported``: an unknown type, or one whose elements
            no array can hold (resource, variant).
    """
    dtype = BY_NAME.get(name)
    if dtype is None or not dtype.numpy:
        raise UnsupportedError(
            f"values of type {name} cannot be read",
            why="it is opaque" if dtype else "its number is in no TensorFlow up to 2.21",
            hint="its entry can be listed, checked and copied",
            id="dtype-unsupported",
        )
    import numpy

    try:
        return numpy.dtype(dtype.numpy).newbyteorder("<")
    except TypeError:
        import ml_dtypes

        extended: numpy.dtype = numpy.dtype(getattr(ml_dtypes, dtype.numpy))
        return extended
