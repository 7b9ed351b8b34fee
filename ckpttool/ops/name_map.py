"""``list --map``: every name that a variable has, side by side, as a file for ``edit --map``.

In an object-based checkpoint a variable has a key, an object path, and often the name that
its program gave it (the one of TensorFlow 1); only the object graph says which belong
together. In a name-based one the three are the same, and the file is there to be edited.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from ckpttool.errors import UsageError
from ckpttool.model import Kind

__all__ = ["MapFormat", "NamesOf", "map_format", "map_text", "save_map"]

MapFormat = Literal["json", "csv"]


class NamesOf(NamedTuple):
    """A variable by all its names.

    Attributes:
        key: the literal key.
        name: the readable name: the full name where that is known, unique and says
            something, else the path. With the key it is the pair that ``edit --map`` reads.
        full_name: what the program that wrote it called it; empty where that is not known.
        path: its object path; the name where the source knows no objects.
        kind, dtype, shape: what it is.
    """

    key: str
    name: str
    full_name: str
    path: str
    kind: Kind
    dtype: str
    shape: str


def map_format(path: str) -> MapFormat:
    """The format of a map by the ending of its file's name; ``-`` is JSON.

    Raises:
        UsageError: id ``output-format``.
    """
    ending = os.path.splitext(path)[1].lower()
    if path == "-" or ending == ".json":
        return "json"
    if ending == ".csv":
        return "csv"
    raise UsageError(
        f"the format of {path} is not known",
        why="a map is written as .json or .csv, and its name has neither ending",
        hint="for example --map names.json, or --map - for standard output",
        id="output-format",
    )


def map_text(rows: Iterable[NamesOf], format: MapFormat) -> Iterator[bytes]:
    r"""The text of a map, in pieces: a list of objects, or lines below their header.

    A key that is not UTF-8 keeps its bytes: in JSON as lone surrogates (``\udcff``), which
    ``edit --map`` turns back; in CSV as they are.
    """
    if format == "json":
        start = "[\n"
        for row in rows:
            yield f"{start}{json.dumps(row._asdict())}".encode("ascii")
            start = ",\n"
        yield b"[]\n" if start == "[\n" else b"\n]\n"
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(NamesOf._fields)
    for row in rows:
        writer.writerow(row)
        yield _taken(text)
    yield _taken(text)


def _taken(text: io.StringIO) -> bytes:
    data = text.getvalue().encode("utf-8", "surrogateescape")
    text.seek(0)
    text.truncate()
    return data


def save_map(rows: Iterable[NamesOf], path: str, *, overwrite: bool) -> int:
    """Write a map to a file; returns how many variables are in it.

    Raises:
        UsageError: id ``output-format``; id ``output-not-a-file``.
        NotFoundError: id ``destination-directory``.
        RefusedError: id ``exists``.
        CkpttoolError: from reading or writing.
    """
    from ckpttool.ops.output_file import output_place

    written_as = map_format(path)
    count = 0

    def counted() -> Iterator[NamesOf]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    with (
        output_place(path) as (directory, name),
        directory.create(name, overwrite=overwrite) as file,
    ):
        for piece in map_text(counted(), written_as):
            file.write(piece)
        file.commit()
    return count
