"""Arrays as ``.npy`` and ``.npz``: streamed, without numpy, byte for byte as numpy reads them.

Members of an archive are stored, not compressed, and dated 1980, so that the same values
are the same file. Knows no source and no path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ckpttool.errors import UnsafeError
from ckpttool.formats import npy
from ckpttool.formats.elements import npy_descr
from ckpttool.formats.named_array import (
    NamedArray,
    not_representable,
    refuse_dtypes,
    require_distinct,
)

__all__ = ["check_npy", "check_npz", "npy_pieces", "write_npz"]

#: Fixed-width strings may take so many times the room of the strings themselves.
_MOST_PADDING = 16
_PADDING_ANYWAY = 2**26


def check_npy(arrays: Sequence[NamedArray], format: str = "npy") -> None:
    """Refuse what NumPy has no type for.

    Raises:
        UnsupportedError: id ``dtype-not-representable``.
    """
    misfits = [a for a in arrays if a.dtype != "string" and npy_descr(a.dtype) is None]
    refuse_dtypes(format, "NumPy", misfits)


def check_npz(arrays: Sequence[NamedArray]) -> None:
    """Refuse what an archive cannot hold, before anything is written.

    Raises:
        UnsupportedError: id ``dtype-not-representable``.
        UnsafeError: id ``unsafe-member``.
        UsageError: id ``output-twice``.
    """
    check_npy(arrays, "npz")
    for array in arrays:
        name = array.name
        bad = name.startswith("/") or ".." in name.split("/") or not name.isprintable()
        if bad or "\\" in name:
            raise UnsafeError(
                f"{name} cannot be the name of a member of an archive",
                why="unpacked, it could be written outside the directory, or is no plain text",
                hint="save it by itself as .npy",
                id="unsafe-member",
            )
    require_distinct("npz", [array.name for array in arrays])


def write_npz(arrays: Sequence[NamedArray], write: Callable[[bytes], object]) -> None:
    """Write an archive to something that need not seek.

    Raises:
        UnsupportedError, UnsafeError, UsageError: as `check_npz`; nothing is written then.
        UnsupportedError: id ``dtype-not-representable``: strings that ``S`` cannot hold.
        CkpttoolError: from the arrays and from ``write``.
    """
    from zipfile import ZipFile, ZipInfo

    check_npz(arrays)
    with ZipFile(_Stream(write), "w") as archive:
        for array in arrays:
            member = ZipInfo(f"{array.name}.npy")
            with archive.open(member, "w", force_zip64=True) as file:
                for piece in npy_pieces(array):
                    file.write(piece)


def npy_pieces(array: NamedArray) -> Iterator[bytes]:
    """The bytes of a ``.npy`` file; raises as `write_npz`."""
    if array.dtype == "string":
        yield from _string_pieces(array)
        return
    descr = npy_descr(array.dtype)
    assert descr is not None, "checked before"
    yield npy.header(descr, array.shape)
    yield from array.chunks()


def _string_pieces(array: NamedArray) -> Iterator[bytes]:
    """NumPy's fixed-width strings, which end at the first of the zero bytes at their end."""
    strings = array.strings()
    width = max(1, max(map(len, strings), default=1))
    if any(value.endswith(b"\0") for value in strings):
        raise not_representable(
            "npy",
            f"a string of {array.name} ends with a zero byte, which NumPy's S type drops",
            "save as .json",
        )
    padded, actual = width * len(strings), sum(map(len, strings))
    if padded > _MOST_PADDING * actual + _PADDING_ANYWAY:
        raise not_representable(
            "npy",
            f"with each of {len(strings)} strings as long as the longest ({width} bytes) "
            f"they take {padded} bytes instead of {actual}",
            "save as .json",
        )
    yield npy.header(f"|S{width}", array.shape)
    for begin in range(0, len(strings), 4096):
        yield b"".join([value.ljust(width, b"\0") for value in strings[begin : begin + 4096]])


class _Stream:
    """The little of a file that ``zipfile`` wants of one that cannot seek."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def write(self, data: bytes) -> int:
        self._write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Whoever opened the file closes it."""
