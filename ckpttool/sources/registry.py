"""``open_source``: an address → an open source, by the adapter of its kind.

A new kind of source is one module and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from ckpttool.errors import CkpttoolError
from ckpttool.limits import Limits, default_limits
from ckpttool.sources.address import Resolved, ResolvedKind, resolve

if TYPE_CHECKING:
    from ckpttool.sources.base import Source

__all__ = ["ADAPTERS", "open_resolved", "open_source", "resolve_and_open"]

#: What an address came to → the module whose ``open_resolved(resolved, limits)`` opens it.
ADAPTERS: dict[ResolvedKind, str] = {
    "checkpoint": "ckpttool.sources.v2",
    "run": "ckpttool.sources.v2",
    "savedmodel": "ckpttool.sources.v2",
    "tf-v1": "ckpttool.sources.v1",
    "hdf5": "ckpttool.sources.keras_h5",
    "keras-v3": "ckpttool.sources.keras_zip",
    "safetensors": "ckpttool.sources.safetensors",
    "npz": "ckpttool.sources.npz",
    "graph": "ckpttool.sources.graph",
    "tflite": "ckpttool.sources.tflite",
    "onnx": "ckpttool.sources.onnx",
    "tfjs": "ckpttool.sources.tfjs",
    "ps": "ckpttool.sources.ps",
}


def open_source(address: str, limits: Limits | None = None) -> Source:
    """Open what an address names; the caller closes it.

    Args:
        address: a checkpoint's prefix or one of its files, a run directory, ``RUN/@STEP``,
            a SavedModel.
        limits: bounds on what its files may claim; None: those of this process.

    Raises:
        NotFoundError, ForeignFormatError, UsageError, IncompleteError: as ``resolve``.
        CorruptError, LimitError, UnsupportedError: the index cannot be read.
        ChangedError: another program wrote to it meanwhile, and did so again.
    """
    return resolve_and_open(address, limits or default_limits())[1]


def resolve_and_open(address: str, limits: Limits) -> tuple[Resolved, Source]:
    """As `open_source`, with what the address came to.

    Where another program replaces or removes files meanwhile, it is all done once more.
    """
    try:
        resolved = resolve(address, limits)
        return resolved, open_resolved(resolved, limits)
    except CkpttoolError as error:
        from ckpttool.sources.settling import another_try_helps

        if not another_try_helps(error):
            raise
    resolved = resolve(address, limits)
    return resolved, open_resolved(resolved, limits)


def open_resolved(resolved: Resolved, limits: Limits) -> Source:
    """Open what an address has come to; raises as `open_source`."""
    kind = "tf-v1" if resolved.version == "v1" else resolved.kind
    adapter = import_module(ADAPTERS[kind])
    return cast("Source", adapter.open_resolved(resolved, limits))
