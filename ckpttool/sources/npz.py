"""An ``.npz`` archive, or one ``.npy`` file, as a source.

Arrays that are stored in C order are read where they lie. Those in Fortran order are put in
order band by band; those that are compressed are unpacked as far as they are wanted. An
array of Python objects is a pickle, which would run code: it is listed and never read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ckpttool.errors import CorruptError, UnsafeError
from ckpttool.formats.elements import swap_words
from ckpttool.formats.npz import StoredArray, read_npy, read_npz
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.formats.zip_directory import STORED
from ckpttool.formats.zip_stream import MemberBytes, unpacked
from ckpttool.model import Finding, Variable
from ckpttool.sources.array_file import ArrayFileSource
from ckpttool.sources.base import Extent, Read
from ckpttool.sources.gather import WINDOW_BYTES, bands, fill
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.selection import Axis, Selection, strides
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved

__all__ = ["NpzSource", "open_resolved"]

_NPY_MAGIC = b"\x93NUMPY"


def open_resolved(resolved: Resolved, limits: Limits) -> NpzSource:
    """Open the file that an address came to; raises as `NpzSource`."""
    return NpzSource(open_directory(resolved.directory), resolved, limits, "npz")


class NpzSource(ArrayFileSource):
    """An open file.

    Raises:
        CorruptError, LimitError, UnsafeError, UnsupportedError: as ``read_npz``.
    """

    _arrays: dict[str, StoredArray]

    def _load(self, name: str) -> Iterable[Variable]:
        file = self.open(name)
        if file.stat.size >= len(_NPY_MAGIC) and file.pread(0, len(_NPY_MAGIC)) == _NPY_MAGIC:
            found = [read_npy(file, os.path.splitext(name)[0], self._limits)]
        else:
            found, others = read_npz(file, self._limits)
            for other in others:
                self._tell("npz-other-member", other, f"{other} is no array, and is not read")
        self._arrays = {array.name: array for array in found}
        for array in found:
            if array.type.dtype.startswith("void"):
                self._tell(
                    "npz-typeless",
                    array.name,
                    f"{array.name} has bytes without a type: numpy writes bfloat16, float8 and "
                    "int4 so",
                )
            elif array.type.dtype in {"object", "structured"}:
                what = "Python objects" if array.type.dtype == "object" else "records"
                self._tell("npz-opaque", array.name, f"{array.name} is of {what}: it is not read")
        return map(_variable, found)

    def _tell(self, id: str, name: str, message: str) -> None:
        self.found(Finding(id, "note", name, message))

    def extent(self, variable: Variable) -> Extent | None:
        array = self._arrays[variable.key]
        if not array.plain or variable.dtype == "string" or not array.type.size:
            return None
        start = array.member.offset + array.header_bytes
        return Extent(self._files[0], start, array.nbytes, array.type.little_endian)

    def chunks(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> Iterator[bytes]:
        if variable.dtype == "object":
            raise UnsafeError(
                f"the values of {variable.name} are not read: they are pickled Python objects",
                why="reading a pickle runs the code that is in it",
                hint="write it again as numbers, where the file was made",
                id="pickled-objects",
            )
        return super().chunks(variable, selection, check=check)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        array = self._arrays[variable.key]
        if self.extent(variable) is not None:
            yield from super().reads(variable, selection)
        else:  # all of it, in the worst case
            member = array.member
            yield Read(self._files[0].path, member.offset, member.stored)

    def checksummed(self, variable: Variable) -> bool:
        return self._arrays[variable.key].checksum

    def sums(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        for array in self._arrays.values():  # read in another order than they are stored in
            if array.checksum and array.fortran_order:
                yield array.name, unpacked(self._files[0], array.member)

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        array = self._arrays[variable.key]
        little = array.type.little_endian
        if selection.is_whole and not array.fortran_order:
            pieces = self._in_order(array, check=check)
        elif array.plain:
            yield from super()._chunks(variable, selection, check=check)
            return
        else:
            self._check(array, selection, check=check)
            pieces = self._gathered(array, selection, array.type.size)
        dtype = self._fixed(variable)
        for piece in pieces:
            yield piece if little else swap_words(piece, dtype.word)

    def _strings(self, variable: Variable, selection: Selection, *, check: bool) -> list[bytes]:
        array = self._arrays[variable.key]
        size = array.type.size
        require_bounded(
            f"reading {variable.name}", selection.size, selection.size * size, self._limits
        )
        if not size:
            return [b""] * selection.size
        if selection.is_whole and not array.fortran_order:
            data = b"".join(self._in_order(array, check=check))
        else:
            self._check(array, selection, check=check)
            units = Selection((*array.shape, size), (*selection.axes, Axis(0, 1, size)))
            data = b"".join(self._gathered(array, units, 1, inner=1))
        texts = (data[at : at + size] for at in range(0, len(data), size))
        if not array.type.unicode:
            return [text.rstrip(b"\0") for text in texts]
        return [_utf8(text, variable.name, little=array.type.little_endian) for text in texts]

    def _check(self, array: StoredArray, selection: Selection, *, check: bool) -> None:
        """Compare the checksum of an array that is wanted whole, but in another order."""
        if check and array.checksum and selection.is_whole:
            for _ in unpacked(self._files[0], array.member):
                pass

    def _in_order(self, array: StoredArray, *, check: bool) -> Iterator[bytes]:
        """All elements as they are stored, whole ones at a time, checked at the end."""
        left, skip = b"", array.header_bytes
        for piece in unpacked(self._files[0], array.member, check=check and array.checksum):
            data = left + piece[skip:]
            skip = max(0, skip - len(piece))
            whole = len(data) // array.type.size * array.type.size
            left = data[whole:]
            if whole:
                yield data[:whole]

    def _gathered(
        self, array: StoredArray, selection: Selection, itemsize: int, inner: int = 0
    ) -> Iterator[bytes]:
        """Selected elements; ``inner`` axes at the end keep their place in Fortran order."""
        outer = len(selection.axes) - inner
        member = (
            None if array.member.method == STORED else MemberBytes(self._files[0], array.member)
        )
        read = self._reader(array, member)
        order = list(range(len(selection.axes)))
        if array.fortran_order:
            order[:outer] = reversed(order[:outer])
        shape = tuple(selection.shape[axis] for axis in order)
        try:
            for band in bands(selection, max(1, WINDOW_BYTES // itemsize)):
                result = bytearray(band.size * itemsize)
                places = strides(tuple(axis.length for axis in band.axes))
                stored = Selection(shape, tuple(band.axes[axis] for axis in order))
                fill(read, stored, itemsize, result, [places[axis] for axis in order])
                yield bytes(result)
        finally:
            if member is not None:
                member.close()

    def _reader(
        self, array: StoredArray, member: MemberBytes | None
    ) -> Callable[[int, int], bytes]:
        """Reads bytes of the elements, from the first one's."""
        skip = array.header_bytes
        if member is not None:
            return lambda offset, size: member.read(skip + offset, size)
        file, start = self._files[0], array.member.offset + skip
        return lambda offset, size: file.pread(start + offset, size)


def _variable(array: StoredArray) -> Variable:
    return Variable(
        array.name,
        array.name,
        array.type.dtype,
        array.shape,
        array.nbytes,
        0,
        array.member.offset + (array.header_bytes if array.plain else 0),
        kind_of_name(array.name),
    )


def _utf8(text: bytes, name: str, *, little: bool) -> bytes:
    """A text of UTF-32 characters as UTF-8, without the zeros that fill it up."""
    try:
        decoded = text.decode("utf-32-le" if little else "utf-32-be")
    except UnicodeDecodeError as error:
        raise CorruptError(
            f"a text of {name} is malformed",
            why=f"its byte {error.start} begins no UTF-32 character",
            hint="take the file from another copy",
            id="strings-malformed",
        ) from None
    return decoded.rstrip("\0").encode()
