"""What every command that writes a checkpoint begins with: a source as a ``Bundle``.

Mostly it is a V2 checkpoint, which is taken as it is stored; what it takes to read the
values of everything else is only imported for that.
"""

from __future__ import annotations

from ckpttool.ops.rewrite.tensors import Bundle, read_bundle
from ckpttool.sources.base import NameStyle, Source
from ckpttool.sources.v2 import BundleSource

__all__ = ["bundle_from"]


def bundle_from(source: Source, names: NameStyle = "full") -> Bundle:
    """Everything of an open source, which has to stay open until the bundle is written.

    A V2 checkpoint keeps its keys; of anything else the keys are what ``names`` asks for.

    Raises:
        CkpttoolError: as ``read_bundle`` and ``from_source.bundle_from``.
    """
    if isinstance(source, BundleSource):
        return read_bundle(source)
    from ckpttool.ops.rewrite.from_source import bundle_from as bundle_of_values

    return bundle_of_values(source, names=names)
