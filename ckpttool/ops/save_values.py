"""Chosen values as a file, in the format that its name says.

Streams from the source to the file, so a variable of any size passes through a few MiB;
only HDF5 needs numpy. The file appears whole or not at all. What a format cannot hold
exactly is refused before anything is read. The writers of arrays are in ``formats/``;
text is made by ``ops/value_text.py`` and ``ops/value_json.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ckpttool.errors import ChangedError, UsageError
from ckpttool.formats.named_array import NamedArray, not_representable

if TYPE_CHECKING:
    from ckpttool.ops.load import Loaded, Picked
    from ckpttool.storage import NewFile

__all__ = ["FORMATS", "SaveFormat", "Saved", "file_format", "save", "save_to"]

SaveFormat = Literal["npy", "npz", "csv", "json", "safetensors", "h5", "raw"]
FORMATS: tuple[SaveFormat, ...] = get_args(SaveFormat)

#: Formats that are not text.
_BINARY = {"npy", "npz", "safetensors", "h5", "raw"}
#: Other endings of a format's files.
_ENDINGS: dict[str, SaveFormat] = {"hdf5": "h5"}

Write = Callable[[bytes], object]

_COPY_BYTES = 2**20


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
    suffix = _ENDINGS.get(suffix, suffix)
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
        RefusedError: id ``exists``; id ``output-is-source``.
        UnsafeError: id ``unsafe-member``.
        CkpttoolError: from reading or writing.
    """
    from ckpttool.ops.output_file import output_place, require_no_source

    _check(loaded, format)
    require_no_source(path, loaded.source.location, loaded.source.shards())
    with output_place(path) as (directory, name):
        while True:
            with directory.create(name, overwrite=overwrite) as file:
                try:
                    nbytes = _save_as(loaded, file, format)
                except ChangedError as error:
                    loaded.restart(error)
                    continue
                file.commit()
                return Saved(path, format, nbytes)


def save_to(loaded: Loaded, write: Write, format: SaveFormat) -> None:
    """Write the chosen values in a format.

    Raises:
        UsageError, UnsupportedError: as `save`; nothing is read or written then.
        CkpttoolError: from reading or writing.
    """
    _check(loaded, format)
    if format == "npz":
        from ckpttool.formats.npz_writer import write_npz

        write_npz(_arrays(loaded), write)
    elif format == "safetensors":
        from ckpttool.formats.safetensors_writer import write_safetensors

        write_safetensors(_arrays(loaded), write)
    elif format == "h5":
        _hdf5_through(loaded, write)
    elif format == "json":
        from ckpttool.ops.value_json import array_pieces

        write(b'{"variables": ')
        for text in array_pieces(loaded):
            write(text.encode("ascii"))
        write(b"}\n")
    elif format == "csv":
        for text in _csv(loaded):
            write(text.encode("utf-8", "surrogateescape"))
    elif format == "npy":
        from ckpttool.formats.npz_writer import npy_pieces

        for piece in npy_pieces(_arrays(loaded)[0]):
            write(piece)
    else:
        for piece in loaded.chunks(0):
            write(piece)


def _save_as(loaded: Loaded, file: NewFile, format: SaveFormat) -> int:
    """Write the chosen values to a file; how many bytes it has then."""
    if format == "h5":
        from ckpttool.formats.hdf5_writer import write_hdf5

        with file.seekable() as stream:
            write_hdf5(_arrays(loaded), stream)
            return stream.seek(0, os.SEEK_END)
    counted = _Counted(file.write)
    save_to(loaded, counted.write, format)
    return counted.nbytes


def _hdf5_through(loaded: Loaded, write: Write) -> None:
    """An HDF5 file to something that cannot seek: it is made in a temporary file first."""
    from tempfile import TemporaryFile

    from ckpttool.formats.hdf5_writer import write_hdf5

    with TemporaryFile(buffering=0) as stream:
        write_hdf5(_arrays(loaded), stream)
        stream.seek(0)
        while piece := stream.read(_COPY_BYTES):
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
    if format == "npy":
        from ckpttool.formats.npz_writer import check_npy

        check_npy(_arrays(loaded))
    elif format == "npz":
        from ckpttool.formats.npz_writer import check_npz

        check_npz(_arrays(loaded))
    elif format == "safetensors":
        from ckpttool.formats.safetensors_writer import check_safetensors

        check_safetensors(_arrays(loaded))
    elif format == "h5":
        from ckpttool.formats.hdf5_writer import check_hdf5

        check_hdf5(_arrays(loaded))
    elif format == "csv" and len(items[0].shape) > 2:
        raise not_representable(
            format,
            f"{items[0].name} has {len(items[0].shape)} dimensions, a table has 2",
            "choose a part of it with an index, or save as .npy or .json",
        )
    elif format == "raw" and items[0].dtype == "string":
        raise not_representable(
            format, f"the strings of {items[0].name} have no fixed size", "save as .json"
        )


def _arrays(loaded: Loaded) -> list[NamedArray]:
    """The chosen values as the writers of arrays take them."""
    return [
        NamedArray(
            name, item.dtype, item.shape, partial(loaded.chunks, i), partial(loaded.strings, i)
        )
        for i, (name, item) in enumerate(zip(_names(loaded.items), loaded.items, strict=True))
    ]


def _names(items: Sequence[Picked]) -> list[str]:
    """What the arrays of a file are called: names, with the index where that tells."""
    plain = [item.variable.name for item in items]
    if len(set(plain)) == len(plain):
        return plain
    return [
        item.name if plain.count(name) > 1 else name
        for name, item in zip(plain, items, strict=True)
    ]


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
