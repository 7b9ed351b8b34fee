"""An array on its way into a file: what every writer of arrays takes.

A writer knows nothing of where the elements come from: it asks for them once, array by
array, and they come in pieces. Holds also the errors that the writers share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.errors import UnsupportedError, UsageError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.formats.elements import cast_target
from ckpttool.model import numel

if TYPE_CHECKING:
    from ckpttool.storage.base import ReadableFile

__all__ = [
    "NamedArray",
    "Place",
    "least_bytes",
    "name_not_representable",
    "not_representable",
    "refuse_dtypes",
    "require_distinct",
]

#: Arrays that a message names; the rest are counted.
_NAMED = 5


class Place(NamedTuple):
    """Where the elements of an array lie in a row, as ``NamedArray.chunks`` gives them.

    ``crc32c`` is the (masked) checksum that whoever wrote them has stored. A writer whose
    format has them so may have them copied by the kernel, unread: that they are undamaged
    is then only found out by comparing the copy with the checksum.
    """

    file: ReadableFile
    offset: int
    nbytes: int
    crc32c: int


class NamedArray(NamedTuple):
    """One array.

    Attributes:
        name: what it is called in the file; any text, bytes that are not UTF-8 as
            surrogate escapes.
        dtype: TensorFlow's word.
        shape: one size a dimension.
        chunks: called once, gives the elements in C order, little-endian, in TensorFlow's
            layout (``formats/dtypes.py``), in pieces of whole elements. Not of strings.
        strings: the same of an array of strings: all of them at once.
        place: where they lie, when its turn comes; None where they have to be read.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[bytes]]
    strings: Callable[[], Sequence[bytes]]
    place: Callable[[], Place | None] = lambda: None

    def to_be_read(self) -> NamedArray:
        """The same without a place."""
        return self._replace(place=lambda: None)


def least_bytes(arrays: Iterable[NamedArray]) -> int:
    """What the elements of arrays take at least in a file that holds them unpacked."""
    return sum(
        numel(array.shape) * BY_NAME[array.dtype].size for array in arrays if array.dtype in BY_NAME
    )


def refuse_dtypes(
    format: str, holder: str, misfits: Iterable[NamedArray], elsewhere: str = "save as .json"
) -> None:
    """Refuse to write arrays whose dtype a format does not have, where there are any.

    Args:
        format: the ending of its files, without the dot.
        holder: who it is that has no such type, for the message.
        misfits: the arrays.
        elsewhere: what to do where no cast helps.

    Raises:
        UnsupportedError: id ``dtype-not-representable``; the hint names the cast that makes
            them fit, where all of them have an exact one.
    """
    foreign = list(misfits)
    if not foreign:
        return
    castable = all(cast_target(array.dtype, "auto") != array.dtype for array in foreign)
    named = ", ".join(f"{array.name} ({array.dtype})" for array in foreign[:_NAMED])
    more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    raise not_representable(
        format,
        f"{holder} has no type for {named}{more}",
        f"add --cast auto, which widens what NumPy has no type for, exactly, or {elsewhere}"
        if castable
        else elsewhere
        if all(array.dtype == "string" or "complex" in array.dtype for array in foreign)
        else "leave out what is opaque: it has no values to save",
    )


def not_representable(format: str, why: str, hint: str) -> UnsupportedError:
    """The error of values that a format cannot hold exactly."""
    return UnsupportedError(
        f"the values cannot be saved as .{format}",
        why=why,
        hint=hint,
        id="dtype-not-representable",
    )


def name_not_representable(format: str, name: str, why: str) -> UnsupportedError:
    """The error of a name that a format cannot hold."""
    return UnsupportedError(
        f"{name} cannot be the name of an array in a .{format} file",
        why=why,
        hint="save it by itself as .npy, or leave it out",
        id="name-not-representable",
    )


def require_distinct(format: str, names: Iterable[str]) -> None:
    """Refuse names that are the same.

    Raises:
        UsageError: id ``output-twice``.
    """
    listed = list(names)
    if len(set(listed)) < len(listed):
        raise UsageError(
            "a variable is chosen twice",
            why=f"the arrays of a .{format} file have different names",
            hint="name each variable once",
            id="output-twice",
        )
