"""The type of an HDF5 dataset's elements as one of our words.

Works on h5py's type identifiers, so that no type is made that would not fit: HDF5
describes integers and floats by their bits, and says nothing of bool, complex numbers or
bfloat16, which are conventions of h5py and Keras. Opens nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ckpttool.formats.dtypes import BY_NAME

if TYPE_CHECKING:
    from h5py import h5t

__all__ = ["ElementType", "element_type"]

#: Floats by (bytes, sign bit, exponent's first bit and length, mantissa's, bias).
_FLOATS = {
    (2, 15, 10, 5, 0, 10, 15): "float16",
    (4, 31, 23, 8, 0, 23, 127): "float32",
    (8, 63, 52, 11, 0, 52, 1023): "float64",
    (2, 15, 7, 8, 0, 7, 127): "bfloat16",
    (1, 7, 2, 5, 0, 2, 15): "float8_e5m2",
}
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
#: The members of the enumeration that h5py makes of a bool.
_BOOL = [(b"FALSE", 0), (b"TRUE", 1)]


class ElementType(NamedTuple):
    """What the elements of a dataset are.

    Attributes:
        name: TensorFlow's word; where it has none, HDF5's (``compound``, ``opaque``…).
        size: bytes of an element in the file; 16 for a string of any length.
        little_endian: whether its words need no swapping.
        strip: for a string of fixed length, how it ends: at the first zero byte (``end``), or
            where only ``zeros`` or ``spaces`` follow; empty for a string of any length.
    """

    name: str
    size: int
    little_endian: bool = True
    strip: str = ""


def element_type(type_id: h5t.TypeID, said: str = "") -> ElementType:
    """The type of a dataset's elements.

    Args:
        type_id: as the dataset gives it.
        said: what an attribute ``dtype`` says of opaque elements: Keras stores bfloat16 so
            (keras/src/saving/saving_lib.py).
    """
    from h5py import h5t

    code, size = type_id.get_class(), type_id.get_size()
    if code in (h5t.INTEGER, h5t.FLOAT):
        return _number(type_id, size)
    if code == h5t.ENUM:
        if size == 1 and _members(type_id) == _BOOL:
            return ElementType("bool", 1)
        return _number(type_id.get_super(), size)
    if code == h5t.COMPOUND:
        return _complex(type_id, size)
    if code == h5t.STRING:
        if type_id.is_variable_str():
            return ElementType("string", 16)
        padding = {h5t.STR_NULLTERM: "end", h5t.STR_NULLPAD: "zeros", h5t.STR_SPACEPAD: "spaces"}
        return ElementType("string", size, strip=padding.get(type_id.get_strpad(), "zeros"))
    if code == h5t.OPAQUE and said in BY_NAME and BY_NAME[said].size == size:
        return ElementType(said, size)
    words = {
        h5t.OPAQUE: "opaque",
        h5t.BITFIELD: "bitfield",
        h5t.REFERENCE: "reference",
        h5t.VLEN: "vlen",
        h5t.ARRAY: "array",
        h5t.TIME: "time",
    }
    return ElementType(words.get(code, "unknown"), size)


def _number(type_id: h5t.TypeID, size: int) -> ElementType:
    """An integer or a float, if all its bits count and TensorFlow has its like."""
    from h5py import h5t

    little = type_id.get_order() != h5t.ORDER_BE
    if type_id.get_class() == h5t.FLOAT:
        bits = (size, *type_id.get_fields(), type_id.get_ebias())
        name = _FLOATS.get(bits, "")
    else:
        sign = "" if type_id.get_sign() == h5t.SGN_2 else "u"
        name = f"{sign}int{8 * size}"
    plain = name in BY_NAME and (type_id.get_precision(), type_id.get_offset()) == (8 * size, 0)
    if not plain or type_id.get_order() not in (h5t.ORDER_LE, h5t.ORDER_BE):
        return ElementType(f"float_{8 * size}" if not name else f"odd_{name}", size)
    return ElementType(name, size, little)


def _members(type_id: h5t.TypeEnumID) -> list[tuple[bytes, int]]:
    if type_id.get_nmembers() != len(_BOOL):
        return []
    found = [
        (type_id.get_member_name(index), type_id.get_member_value(index))
        for index in range(len(_BOOL))
    ]
    return sorted(found)


def _complex(type_id: h5t.TypeCompoundID, size: int) -> ElementType:
    """h5py keeps a complex number as two floats ``r`` and ``i``, side by side."""
    other = ElementType("compound", size)
    if type_id.get_nmembers() != 2 or [type_id.get_member_name(i) for i in (0, 1)] != [b"r", b"i"]:
        return other
    real, imaginary = (element_type(type_id.get_member_type(index)) for index in (0, 1))
    offsets = [type_id.get_member_offset(index) for index in (0, 1)]
    if real != imaginary or real.name not in _COMPLEX or offsets != [0, size // 2]:
        return other
    if size != 2 * real.size:
        return other
    return ElementType(_COMPLEX[real.name], size, real.little_endian)
