"""The training step that a checkpoint holds, read from the one scalar that has it.

No numpy: a few bytes from one data file, checked against their checksum.
"""

from __future__ import annotations

from typing import Literal

from ckpttool.errors import CkpttoolError
from ckpttool.formats import crc32c
from ckpttool.formats.bundle import BundleIndex
from ckpttool.limits import Limits
from ckpttool.sources.filenames import index_name, shard_name
from ckpttool.storage import Directory

__all__ = ["STEP_KEYS", "step_inside", "step_of"]

_VALUE = b"/.ATTRIBUTES/VARIABLE_VALUE"
#: Where a step is looked for, in this order; ``save_counter`` counts saves, so it is last.
STEP_KEYS = (
    b"global_step",
    b"global_step" + _VALUE,
    b"step" + _VALUE,
    b"optimizer/iter" + _VALUE,  # Keras 2
    b"optimizer/_iterations" + _VALUE,  # Keras 2.11 and later
    b"model/optimizer/iter" + _VALUE,
    b"model/optimizer/_iterations" + _VALUE,
    b"save_counter" + _VALUE,
)
#: Sizes of the types a counter has (tensorflow/core/framework/types.proto).
_SIGNED = {3: 4, 9: 8}
_UNSIGNED = {22: 4, 23: 8}


def step_of(directory: Directory, prefix: str, index: BundleIndex) -> int | None:
    """The step stored in an open checkpoint; None where there is none to be read.

    Raises:
        CorruptError, LimitError: the index is damaged.
    """
    for key in STEP_KEYS:
        entry = index.get(key)
        if entry is None or entry.shape != () or entry.slices:
            continue
        size = _SIGNED.get(entry.dtype) or _UNSIGNED.get(entry.dtype)
        if size is None or entry.size != size:
            continue
        try:
            file = directory.open(shard_name(prefix, entry.shard, index.header.num_shards))
            try:
                data = file.pread(entry.offset, size)
            finally:
                file.close()
        except CkpttoolError:
            continue  # the data file is missing or short: listing goes on without a step
        if crc32c.mask(crc32c.crc(data)) != entry.crc32c:
            continue
        order: Literal["big", "little"] = "big" if index.header.big_endian else "little"
        return int.from_bytes(data, order, signed=entry.dtype in _SIGNED)
    return None


def step_inside(directory: Directory, prefix: str, limits: Limits) -> int | None:
    """As ``step_of``, of a prefix of a directory; None also where it cannot be read."""
    try:
        file = directory.open(index_name(prefix))
        try:
            return step_of(directory, prefix, BundleIndex(file, limits))
        finally:
            file.close()
    except CkpttoolError:
        return None
