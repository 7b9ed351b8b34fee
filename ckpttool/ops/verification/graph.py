"""The object graph of an object-based checkpoint: can it be read, and do its keys exist.

Reads the one string that holds it, in every level: it is the index of the objects. Where
damage was found, it also says what the damaged keys are called in a listing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, LimitError
from ckpttool.formats.bundle import Entry
from ckpttool.formats.dtypes import STRING, dtype_name
from ckpttool.formats.object_graph import parse_object_graph
from ckpttool.formats.saved_names import saved_under
from ckpttool.formats.tensor_bytes import read_strings
from ckpttool.limits import Limits, within_memory
from ckpttool.model import shape_text
from ckpttool.ops.verification.contents import GRAPH_KEY, Contents, name_of
from ckpttool.ops.verification.report import Report
from ckpttool.ops.verification.shards import DataFile
from ckpttool.storage import Directory

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = ["check_graph", "listed_names"]

_NAMES_SHOWN = 3


def check_graph(
    contents: Contents,
    files: list[DataFile],
    directory: Directory,
    limits: Limits,
    report: Report,
) -> None:
    """Check the object graph where there is one, and where its bytes can be read.

    What is wrong with its bytes alone (a file cut short, a checksum) is left to those who
    check the bytes of every variable.
    """
    entry = contents.graph
    if entry is None:
        return
    name = name_of(GRAPH_KEY)
    if entry.dtype != STRING or entry.shape != ():
        shape = "of unknown shape" if entry.shape is None else shape_text(entry.shape)
        report.add(
            "object-graph-malformed",
            "error",
            name,
            f"it should be one string, and is {dtype_name(entry.dtype)} {shape}",
        )
        return
    try:
        keys = _keys(entry, contents, files, directory, limits)
    except LimitError as error:  # the variables can be judged without it
        report.add_error(error, name, "warning")
        report.skip(name, f"the keys of the object graph: {error.why}")
        return
    except CkpttoolError as error:
        report.add_error(error, name)
        return
    if keys is None:
        report.skip(name, "the keys of the object graph: its bytes are damaged or not here")
        return
    _compare(keys, contents, report)


def _keys(
    entry: Entry,
    contents: Contents,
    files: list[DataFile],
    directory: Directory,
    limits: Limits,
) -> set[str] | None:
    """The keys that the graph speaks of, or None where its bytes are damaged or not here."""
    with within_memory("the object graph"):
        data = _read(entry, contents, files, directory, limits)
        return None if data is None else set(parse_object_graph(data, limits).keys)


def listed_names(
    objects: set[str],
    contents: Contents,
    files: list[DataFile],
    directory: Directory,
    limits: Limits,
    style: NameStyle = "full",
) -> dict[str, str]:
    """What those objects of findings are called that are not called by their key.

    The graph is read once more for that: to keep its names would cost every healthy
    checkpoint their memory.
    """
    entry = contents.graph
    if entry is None or style == "key":
        return {}
    from ckpttool.sources.naming import GraphNames, label_of_key, path_of_key

    def guessed(key: str) -> str:
        return label_of_key(key)[0] if style == "full" else path_of_key(key)

    called: Callable[[str], str] = guessed
    if not all(guessed(key) == key for key in objects):
        try:
            with within_memory("the object graph"):
                data = _read(entry, contents, files, directory, limits)
                if data is not None:
                    called = GraphNames(parse_object_graph(data, limits)).namer(style)
        except CkpttoolError:
            pass  # there is a finding about it
    names = {key: called(key) for key in objects}
    return {key: name for key, name in names.items() if name != key}


def _read(
    entry: Entry,
    contents: Contents,
    files: list[DataFile],
    directory: Directory,
    limits: Limits,
) -> bytes | None:
    """The graph's bytes, or None where they are damaged or not here."""
    if entry.size > limits.object_graph_bytes:
        raise LimitError(
            "the object graph is over a limit",
            why=f"it has {entry.size} bytes, and the limit is {limits.object_graph_bytes}",
            hint="if the file is trusted, raise object_graph_bytes in CKPTTOOL_LIMITS",
            id="limit-object-graph-bytes",
        )
    for data_file in files:
        if data_file.extents is contents.shards.get(entry.shard):
            break
    else:
        return None
    if entry.offset + entry.size > data_file.length:
        return None
    try:
        file = directory.open(data_file.name)
    except CkpttoolError:
        return None
    try:
        strings, checksum = read_strings(
            file,
            entry.offset,
            entry.size,
            1,
            big_endian=contents.big_endian,
            expected=entry.crc32c,
        )
    except CkpttoolError:
        return None
    finally:
        file.close()
    return strings[0] if checksum == entry.crc32c else None


def _compare(keys: set[str], contents: Contents, report: Report) -> None:
    """The keys that the graph speaks of against those of the index."""
    unknown = 0
    examples: list[str] = []
    missing = set(keys)
    for entry in contents.again():
        key = entry.key.decode("utf-8", "surrogateescape")
        if key in keys:
            missing.discard(key)
            continue
        if entry.key == GRAPH_KEY:
            continue
        part = contents.parts.get(entry.key)
        if part is not None and part.owner is not None:
            continue
        stem = saved_under(key, keys)
        if stem is not None:
            missing.discard(stem)
            continue
        unknown += 1
        if len(examples) < _NAMES_SHOWN:
            examples.append(name_of(entry.key))
    if contents.whole:  # else a missing entry may be in the block that is lost
        for key in sorted(missing):
            report.add(
                "object-graph-key-missing",
                "error",
                key,
                "the object graph refers to it, and the index has no such entry",
            )
    if unknown:
        more = f" and {unknown - len(examples)} more" if unknown > len(examples) else ""
        report.add(
            "object-graph-key-unknown",
            "note",
            name_of(GRAPH_KEY),
            f"{unknown} variables belong to none of its objects: {', '.join(examples)}{more}",
        )
