"""Chosen values as a file: ``.npy``, ``.npz``, ``.csv``, ``.json``, or the raw bytes.

Streams from the source to the file, so a variable of any size passes through a few MiB,
and needs no numpy. The file appears whole or not at all. What a format cannot hold
exactly is refused before anything is read.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ckpttool.errors import (
    ChangedError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
    UsageError,
)
from ckpttool.formats import npy
from ckpttool.formats.elements import cast_target, npy_descr

if TYPE_CHECKING:
    from ckpttool.ops.load import Loaded, Picked

__all__ = ["FORMATS", "SaveFormat", "Saved", "file_format", "save", "save_to"]

SaveFormat = Literal["npy", "npz", "csv", "json", "raw"]
FORMATS: tuple[SaveFormat, ...] = get_args(SaveFormat)

#: Formats that are not text.
_BINARY = {"npy", "npz", "raw"}

Write = Callable[[bytes], object]

#: Fixed-width strings may take so many times the room of the strings themselves.
_MOST_PADDING = 16
_PADDING_ANYWAY = 2**26


class Saved(NamedTuple):
    """A file that was written; ``nbytes`` are its own."""

    path: str
    format: SaveFormat
    nbytes: int


def file_format(path: str, given: SaveFormat | None, *, terminal: bool = False) -> SaveFormat:
    """The format of an output: the one given, else what its name ends with.

    Args:
        path: the file; ``-`` is standard output.
        given: a format that was asked for, whatever the name.
        terminal: whether standard output is a terminal.

    Raises:
        UsageError: id ``output-format``: neither says it; id ``output-terminal``: it is of
            bytes, and for a terminal.
    """
    if path == "-" and terminal and given in _BINARY:
        raise UsageError(
            f"{given} is not for a terminal",
            why="it is of bytes, which a terminal takes for commands",
            hint="send it to a file or a program: > FILE, | PROGRAM; or leave -o out to see the "
            "values",
            id="output-terminal",
        )
    if given is not None:
        return given
    suffix = os.path.splitext(path)[1].lower().removeprefix(".")
    for known in FORMATS:
        if suffix == known:
            return known
    raise UsageError(
        "the format of standard output is not given" if path == "-" else f"what is {path} to be?",
        why="it has no name to tell it by"
        if path == "-"
        else f"its name ends with none of {', '.join('.' + known for known in FORMATS)}",
        hint=f"add --format with one of: {', '.join(FORMATS)}",
        id="output-format",
    )


def save(
    loaded: Loaded,
    path: str,
    format: SaveFormat,
    *,
    overwrite: bool = False,
) -> Saved:
    """Write the chosen values to a file.

    A checkpoint that another program replaces meanwhile is read a second time.

    Raises:
        UsageError: id ``output-single``: the format holds one variable only; id
            ``output-not-a-file``; id ``output-twice``.
        UnsupportedError: id ``dtype-not-representable``: the format has no such type.
        NotFoundError: id ``destination-directory``: there is no such directory.
        RefusedError: id ``exists``.
        UnsafeError: id ``unsafe-member``.
        CkpttoolError: from reading or writing.
    """
    from ckpttool.storage import open_directory, stat_path

    _check(loaded, format)
    folder, name = os.path.split(path)
    above = stat_path(folder or ".")
    if above is None or above.kind != "directory":
        raise NotFoundError(
            f"cannot write {path}",
            why=f"there is no directory {folder}",
            hint=f"mkdir -p {shlex.quote(folder)}",
            id="destination-directory",
        )
    with open_directory(folder) as directory:
        there = directory.stat(name) if name else None
        if not name or (there and there.kind in {"directory", "other"}):
            raise UsageError(
                f"{path} cannot be written",
                why="it is no regular file, but a directory or a device",
                hint="give the name of a file; -o - writes to standard output",
                id="output-not-a-file",
            )
        while True:
            with directory.create(name, overwrite=overwrite) as file:
                counted = _Counted(file.write)
                try:
                    save_to(loaded, counted.write, format)
                except ChangedError as error:
                    loaded.restart(error)
                    continue
                file.commit()
                return Saved(path, format, counted.nbytes)


def save_to(loaded: Loaded, write: Write, format: SaveFormat) -> None:
    """Write the chosen values in a format.

    Raises:
        UsageError, UnsupportedError: as `save`; nothing is read or written then.
        CkpttoolError: from reading or writing.
    """
    _check(loaded, format)
    if format == "npz":
        _npz(loaded, write)
    elif format == "json":
        from ckpttool.ops.value_json import array_pieces

        write(b'{"variables": ')
        for text in array_pieces(loaded):
            write(text.encode("ascii"))
        write(b"}\n")
    elif format == "csv":
        for text in _csv(loaded):
            write(text.encode("utf-8", "surrogateescape"))
    else:
        for piece in _npy(loaded, 0) if format == "npy" else loaded.chunks(0):
            write(piece)


def _check(loaded: Loaded, format: SaveFormat) -> None:
    """Refuse what a format cannot hold, before anything is read; raises as `save`."""
    items = loaded.items
    if format in {"npy", "csv", "raw"} and len(items) != 1:
        raise UsageError(
            f"a .{format} file holds one variable",
            why=f"{len(items)} are chosen",
            hint="choose one, or save as .npz or .json",
            id="output-single",
        )
    if format in {"npy", "npz"}:
        foreign = [item for item in items if item.dtype != "string" and not npy_descr(item.dtype)]
        if foreign:
            known = [item for item in foreign if cast_target(item.dtype, "auto") != item.dtype]
            raise _not_representable(
                format,
                "NumPy has no type for "
                + ", ".join(f"{item.name} ({item.dtype})" for item in foreign),
                "add --cast auto, which widens just these, exactly, or save as .json"
                if known == foreign
                else "leave out what is opaque: it has no values to save",
            )
    if format == "csv" and len(items[0].shape) > 2:
        raise _not_representable(
            format,
            f"{items[0].name} has {len(items[0].shape)} dimensions, a table has 2",
            "choose a part of it with an index, or save as .npy or .json",
        )
    if format == "raw" and items[0].dtype == "string":
        raise _not_representable(
            format, f"the strings of {items[0].name} have no fixed size", "save as .json"
        )
    if format == "npz":
        _member_names(items)


def _not_representable(format: SaveFormat, why: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"the values cannot be saved as .{format}",
        why=why,
        hint=hint,
        id="dtype-not-representable",
    )


def _npy(loaded: Loaded, number: int) -> Iterator[bytes]:
    item = loaded.items[number]
    if item.dtype == "string":
        yield from _npy_strings(loaded, number)
        return
    descr = npy_descr(item.dtype)
    assert descr is not None, "checked before"
    yield npy.header(descr, item.shape)
    yield from loaded.chunks(number)


def _npy_strings(loaded: Loaded, number: int) -> Iterator[bytes]:
    """NumPy's fixed-width strings, which end at the first of the zero bytes at their end."""
    item = loaded.items[number]
    strings = loaded.strings(number)
    width = max(1, max(map(len, strings), default=1))
    if any(value.endswith(b"\0") for value in strings):
        raise _not_representable(
            "npy",
            f"a string of {item.name} ends with a zero byte, which NumPy's S type drops",
            "save as .json",
        )
    padded, actual = width * len(strings), sum(map(len, strings))
    if padded > _MOST_PADDING * actual + _PADDING_ANYWAY:
        raise _not_representable(
            "npy",
            f"with each of {len(strings)} strings as long as the longest ({width} bytes) "
            f"they take {padded} bytes instead of {actual}",
            "save as .json",
        )
    yield npy.header(f"|S{width}", item.shape)
    for begin in range(0, len(strings), 4096):
        yield b"".join([value.ljust(width, b"\0") for value in strings[begin : begin + 4096]])


def _npz(loaded: Loaded, write: Write) -> None:
    from zipfile import ZipFile, ZipInfo

    with ZipFile(_Stream(write), "w") as archive:
        for number, name in enumerate(_member_names(loaded.items)):
            member = ZipInfo(f"{name}.npy")  # dated 1980: the same values, the same file
            with archive.open(member, "w", force_zip64=True) as file:
                for piece in _npy(loaded, number):
                    file.write(piece)


def _member_names(items: Sequence[Picked]) -> list[str]:
    """What the members of an archive are called: names, with the index where that tells."""
    plain = [item.variable.name for item in items]
    names = (
        [
            item.name if plain.count(name) > 1 else name
            for name, item in zip(plain, items, strict=True)
        ]
        if len(set(plain)) < len(plain)
        else plain
    )
    for name in names:
        bad = name.startswith("/") or ".." in name.split("/") or not name.isprintable()
        if bad or "\\" in name:
            raise UnsafeError(
                f"{name} cannot be the name of a member of an archive",
                why="unpacked, it could be written outside the directory, or is no plain text",
                hint="save it by itself as .npy",
                id="unsafe-member",
            )
    if len(set(names)) < len(names):
        raise UsageError(
            "a variable is chosen twice",
            why="the members of a .npz file have different names",
            hint="name each variable once",
            id="output-twice",
        )
    return names


def _csv(loaded: Loaded) -> Iterator[str]:
    from ckpttool.ops.value_text import lines, texts

    item = loaded.items[0]
    if item.dtype == "string":
        cells: Iterable[list[str]] = [list(map(_csv_text, loaded.strings(0)))]
    else:
        cells = texts(loaded, 0)
    yield from lines(cells, item.shape, ",")


def _csv_text(value: bytes) -> str:
    text = value.decode("utf-8", "surrogateescape")
    if not text or any(char in text for char in ',"\r\n'):
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text


class _Counted:
    """Counts the bytes that pass."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.nbytes = 0

    def write(self, data: bytes) -> None:
        self._write(data)
        self.nbytes += len(data)


class _Stream:
    """The little of a file that ``zipfile`` wants of one that cannot seek."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, data: bytes) -> int:
        self._write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Whoever opened the file closes it."""
