"""Live values as a checkpoint on this disk: what TensorFlow restores, and no network.

The copy is the one snapshot that the source reads from, keys and object graph included, so
the original that the result is compared with has the same values.
"""

from __future__ import annotations

from dataclasses import replace

from ckpttool.conversion.job import Origin
from ckpttool.limits import Limits
from ckpttool.ops.rewrite.destination import Destination
from ckpttool.ops.rewrite.from_source import bundle_from
from ckpttool.ops.rewrite.run import Options, carry_out
from ckpttool.sources.address import resolve
from ckpttool.sources.registry import open_source

__all__ = ["on_disk"]

_NAME = "live"


def on_disk(origin: Origin, folder: str, limits: Limits) -> Origin:
    """The same origin, with values that are files; only live ones are copied.

    Args:
        origin: where graph and values come from.
        folder: where the copy may lie.
        limits: of the source.

    Raises:
        CkpttoolError: as the source does, and writing.
    """
    if origin.values is None or resolve(origin.values, limits).kind != "ps":
        return origin
    destination = Destination(folder, _NAME)
    with open_source(origin.values, limits) as source:
        bundle = bundle_from(source, names="key")
        carry_out(origin.values, bundle, destination, (), Options(limits=limits))
    return replace(origin, values=destination.location)
