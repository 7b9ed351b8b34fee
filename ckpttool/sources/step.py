"""The training step that a checkpoint holds, read from the one scalar that has it.

No numpy: a few bytes from one data file, checked against their checksum. Which scalar it
is, the last part of its key says; the object graph is not parsed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Literal

from ckpttool.errors import CkpttoolError
from ckpttool.formats import crc32c
from ckpttool.formats.bundle import BundleIndex
from ckpttool.formats.entry import Entry
from ckpttool.limits import Limits
from ckpttool.model import Variable
from ckpttool.sources.filenames import index_name, shard_name
from ckpttool.storage import Directory

if TYPE_CHECKING:
    from ckpttool.sources.state_paths import Version

__all__ = ["COUNTERS", "step_among", "step_inside", "step_of"]

#: What a counter of steps is called, the most telling first (``iter``: Keras 2;
#: ``_iterations``: Keras 2.11 and later); ``save_counter`` counts saves, so it is last.
COUNTERS = (
    "global_step",
    "step",
    "train_step",
    "iterations",
    "_iterations",
    "iteration",
    "iter",
    "epoch",
    "save_counter",
)
_RANKS = {name.encode(): rank for rank, name in enumerate(COUNTERS)}
#: Variables with such a name that are looked at.
_TRIED = 20
_VALUE = b"/.ATTRIBUTES/VARIABLE_VALUE"
#: Sizes of the types that a counter has (tensorflow/core/framework/types.proto).
_SIGNED = {3: 4, 9: 8}
_UNSIGNED = {22: 4, 23: 8}
#: By name: whether it has a sign.
_BY_NAME = {"int32": True, "int64": True, "uint32": False, "uint64": False}


def step_of(directory: Directory, prefix: str, index: BundleIndex) -> int | None:
    """The step stored in an open checkpoint; None where there is none to be read.

    Looks up ``global_step``; where there is none, it walks the index once.

    Raises:
        CorruptError, LimitError: the index is damaged.
    """
    for key in (b"global_step", b"global_step" + _VALUE):
        entry = index.get(key)
        if entry is not None and (step := _value(directory, prefix, index, entry)) is not None:
            return step
    for _, _, _, entry in nsmallest(_TRIED, _counters(index)):
        step = _value(directory, prefix, index, entry)
        if step is not None:
            return step
    return None


def step_among(variables: Iterable[Variable], value: Callable[[Variable], bytes]) -> int | None:
    """The same of any variables; ``value`` gives the bytes of a scalar, little-endian."""
    found = []
    for variable in variables:
        rank = _RANKS.get(variable.key.rpartition("/")[2].encode("utf-8", "surrogateescape"))
        if rank is not None and variable.shape == () and variable.dtype in _BY_NAME:
            found.append((rank, variable.key.count("/"), variable.key, variable))
    for _, _, _, variable in nsmallest(_TRIED, found):
        try:
            data = value(variable)
        except CkpttoolError:
            continue  # whoever reads it will say why it cannot be read
        return int.from_bytes(data, "little", signed=_BY_NAME[variable.dtype])
    return None


def _counters(index: BundleIndex) -> Iterator[tuple[int, int, bytes, Entry]]:
    """What is called like a counter: how telling the name is, how deep it lies, its path."""
    for block in index.blocks():
        for entry in block:
            path = entry.key.removesuffix(_VALUE)
            rank = _RANKS.get(path.rpartition(b"/")[2])
            if rank is not None:
                yield rank, path.count(b"/"), path, entry


def _value(directory: Directory, prefix: str, index: BundleIndex, entry: Entry) -> int | None:
    """An integer scalar; None for anything else, or where it cannot be read and trusted."""
    size = _SIGNED.get(entry.dtype) or _UNSIGNED.get(entry.dtype)
    if entry.shape != () or entry.slices or entry.size != size:
        return None
    try:
        file = directory.open(shard_name(prefix, entry.shard, index.header.num_shards))
        try:
            data = file.pread(entry.offset, size)
        finally:
            file.close()
    except CkpttoolError:
        return None  # the data file is missing or short: others will say so
    if crc32c.mask(crc32c.crc(data)) != entry.crc32c:
        return None
    order: Literal["big", "little"] = "big" if index.header.big_endian else "little"
    return int.from_bytes(data, order, signed=entry.dtype in _SIGNED)


def step_inside(
    directory: Directory, prefix: str, limits: Limits, version: Version = "v2"
) -> int | None:
    """As ``step_of``, of a prefix of a directory; None also where it cannot be read."""
    try:
        if version == "v1":
            from ckpttool.sources.v1 import open_prefix

            with open_prefix(directory.path, prefix, limits) as source:
                return source.stored_step
        file = directory.open(index_name(prefix))
        try:
            return step_of(directory, prefix, BundleIndex(file, limits))
        finally:
            file.close()
    except CkpttoolError:
        return None
