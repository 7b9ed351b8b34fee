"""The header of a ``.npy`` file, without numpy.

Version 1.0 of the format (numpy/lib/format.py): magic, version, length, and a Python
literal padded so that the data starts at a multiple of 64. What follows it are the
elements in C order, little-endian, just as a source hands them out. Byte for byte what
``numpy.save`` writes.
"""

from __future__ import annotations

__all__ = ["header"]

_MAGIC = b"\x93NUMPY\x01\x00"
#: numpy leaves room for the first dimension to grow to this many digits.
_GROWTH_DIGITS = 21


def header(descr: str, shape: tuple[int, ...]) -> bytes:
    """What comes before the elements.

    Args:
        descr: numpy's short word for the element type, for example ``<f4`` or ``|S12``.
        shape: one size a dimension.
    """
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(str(shape[0])))
    before = len(_MAGIC) + 2
    text += " " * (-(before + len(text) + 1) % 64) + "\n"
    return _MAGIC + len(text).to_bytes(2, "little") + text.encode("ascii")
