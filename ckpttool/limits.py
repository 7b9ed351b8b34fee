"""Bounds on what a file may claim, so that memory stays bounded whatever it says.

Each limit is far above anything TensorFlow writes and low enough that reaching it
costs neither much memory nor much time. ``CKPTTOOL_LIMITS="key_bytes=8M,rank=300"``
raises (or lowers) single limits for one run; the Python calls take a ``Limits``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ckpttool.errors import LimitError, UsageError

__all__ = ["Limits", "default_limits", "parse_size", "within_memory"]

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Limits(NamedTuple):
    """Limits on one source; sizes in bytes, the rest counts."""

    #: A block of a table file, as stored. TensorFlow flushes a block at 256 KiB, and a
    #: single entry can be as large as a key (measured: 600 kB).
    block_bytes: int = 64 * 2**20
    #: A block after snappy; snappy cannot expand by more than 21.4.
    block_expanded_bytes: int = 64 * 2**20
    #: One key.
    key_bytes: int = 4 * 2**20
    #: All keys decoded from one block: prefix compression lets 2 MB claim gigabytes.
    block_keys_bytes: int = 32 * 2**20
    #: Entries of one index.
    entries: int = 50_000_000
    #: Slices of one partitioned variable.
    slices: int = 100_000
    #: Slices of all variables of one index. One takes ten bytes to claim, and some hundred
    #: in memory while the index is checked.
    index_slices: int = 500_000
    #: Dimensions of one variable (TensorFlow aborts past 254).
    rank: int = 254
    #: Shards that a header may claim.
    shards: int = 99_999
    #: A compressed block of a V1 checkpoint, expanded, and the numbers of one variable or
    #: slice there that are not stored as they lie in memory: both are held. What is stored
    #: plainly is streamed, whatever its size.
    v1_decoded_bytes: int = 2**30
    #: The object graph, which is read whole; that of 100,000 variables has 20 MB.
    object_graph_bytes: int = 64 * 2**20
    #: Nodes of an object graph; links of all kinds are four times as many at most.
    object_graph_nodes: int = 1_000_000
    #: Nodes of a computation graph, those of its functions too; inputs are eight times as
    #: many at most. (A graph of 300,000 nodes has some 100 MB.)
    graph_nodes: int = 1_000_000
    #: What a MetaGraph has besides nodes: tensors of signatures, variables, assets, ops.
    graph_items: int = 100_000
    #: Names in a graph, together.
    graph_text_bytes: int = 512 * 2**20
    #: A graph as text (.pbtxt), which is read whole.
    graph_file_bytes: int = 256 * 2**20
    #: A constant of a graph whose elements are stored one by one, once decoded.
    constant_bytes: int = 2**28
    #: Elements of a string variable whose values are asked for.
    string_elements: int = 10_000_000
    #: Its bytes as stored.
    string_bytes: int = 2**30
    #: The `checkpoint` state file.
    state_bytes: int = 16 * 2**20
    #: Values (paths, timestamps) of a state file.
    state_values: int = 250_000
    #: Links of all groups of an HDF5 file.
    hdf5_objects: int = 1_000_000
    #: Groups inside each other in an HDF5 file.
    hdf5_depth: int = 256
    #: All paths of an HDF5 file together; a deep one repeats the names above it.
    hdf5_path_bytes: int = 128 * 2**20
    #: A chunk of an HDF5 dataset, as stored and unpacked.
    hdf5_chunk_bytes: int = 256 * 2**20
    #: Seconds of the processor that the HDF5 library may take for one answer: it can be sent
    #: round in circles.
    hdf5_seconds: int = 60
    #: The JSON that describes a Keras model, which is read whole.
    keras_config_bytes: int = 16 * 2**20
    #: Members of a zip archive; its directory may have 256 bytes for each.
    zip_members: int = 1_000_000
    #: The header of a safetensors file, which is read whole. (The library takes 100 MB.)
    safetensors_header_bytes: int = 16 * 2**20
    #: The JSON of a TensorFlow.js model, which is read whole.
    tfjs_model_bytes: int = 16 * 2**20
    #: The list of variables of a gateway (``ps://``), which is read whole.
    gateway_list_bytes: int = 256 * 2**20
    #: Entries of one directory.
    directory_entries: int = 10_000_000
    #: Seconds that a conversion's child process may take.
    convert_seconds: int = 6 * 3600
    #: Its memory; as good as none, for what a conversion takes depends on the model.
    convert_memory_bytes: int = 2**50


def parse_size(text: str) -> int:
    """``"8M"`` → 8388608; plain digits with an optional K, M, G or T (powers of 1024).

    Raises:
        ValueError: the text is not of that form.
    """
    cleaned = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = cleaned[-1:] if cleaned[-1:] in _UNITS else ""
    digits = cleaned.removesuffix(unit) if unit else cleaned
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"not a size: {text!r}")
    return int(digits) * _UNITS[unit]


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Treat memory that runs out as a limit that ``what`` is over.

    For what can be done without, so that the rest goes on.

    Raises:
        LimitError: id ``out-of-memory``.
    """
    try:
        yield
    except MemoryError:
        raise LimitError(
            f"{what} does not fit into memory",
            why="the system gave no more",
            hint="raise the limit of this process (ulimit -v)",
            id="out-of-memory",
        ) from None


def default_limits() -> Limits:
    """The limits of this process: the defaults, changed by ``CKPTTOOL_LIMITS``.

    Raises:
        UsageError: the variable names an unknown limit or a value that is no size.
    """
    setting = os.environ.get("CKPTTOOL_LIMITS", "")
    if not setting:
        return Limits()
    changes: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in setting.split(","))):
        name, _, value = part.partition("=")
        try:
            if name not in Limits._fields:
                raise ValueError(f"unknown limit {name!r}")
            changes[name] = parse_size(value)
        except ValueError as error:
            raise UsageError(
                f"CKPTTOOL_LIMITS cannot be used: {part!r}",
                why=str(error),
                hint=f"write NAME=SIZE, with a name of: {', '.join(sorted(Limits._fields))}",
            ) from None
    return Limits(**changes)
