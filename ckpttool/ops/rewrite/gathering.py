"""Several bundles as one: the pieces of a save that was interrupted, or made per machine.

Slices of one variable that lie in different bundles are united; a key that two bundles
have is refused by name, for nothing says which of the two is right.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpttool.errors import RefusedError
from ckpttool.formats.bundle import SliceSpec
from ckpttool.formats.dtypes import dtype_name
from ckpttool.formats.sstable import quote_key
from ckpttool.model import shape_text
from ckpttool.ops.rewrite.tensors import Bundle, Owner, Tensor

__all__ = ["gather"]


def gather(bundles: Sequence[tuple[str, Bundle]]) -> Bundle:
    """One bundle of all; its shards are theirs, one behind the other.

    Args:
        bundles: the location of each, for messages, and what is in it.

    Raises:
        RefusedError: ids ``duplicate-key``, ``bundles-differ``.
    """
    (first_name, first), *_ = bundles
    result = Bundle([], {}, first.header, first.big_endian, 0)
    origin: dict[bytes, str] = {}
    for name, bundle in bundles:
        if bundle.big_endian != first.big_endian:
            raise RefusedError(
                f"{name} and {first_name} cannot be one checkpoint",
                why="one is little-endian and the other big-endian",
                hint="copy one of them with TensorFlow on this machine first",
                id="bundles-differ",
            )
        for tensor in bundle.tensors:
            _add(result, tensor, name, origin)
        for owner in bundle.owners.values():
            _unite(result, owner, name, origin)
        result.shards += bundle.shards
        result.inputs += bundle.inputs
    return result


def _add(result: Bundle, tensor: Tensor, name: str, origin: dict[bytes, str]) -> None:
    other = origin.setdefault(tensor.key, name)
    if other is not name:
        raise _twice(tensor.variable, other, name)
    result.tensors.append(tensor._replace(shard=tensor.shard + result.shards))


def _unite(result: Bundle, owner: Owner, name: str, origin: dict[bytes, str]) -> None:
    known = result.owners.get(owner.key)
    if known is None:
        other = origin.setdefault(owner.key, name)
        if other is not name:
            raise _twice(owner.key, other, name)
        result.owners[owner.key] = owner
        return
    if (known.dtype, known.shape) != (owner.dtype, owner.shape):
        raise RefusedError(
            f"the slices of {quote_key(owner.key)} belong to different variables",
            why=f"{origin[owner.key]} has {dtype_name(known.dtype)} "
            f"{shape_text(known.shape or ())}, and {name} {dtype_name(owner.dtype)} "
            f"{shape_text(owner.shape or ())}",
            hint="gather only the pieces of one save",
            id="bundles-differ",
        )
    slices: tuple[SliceSpec, ...] = (*known.slices, *owner.slices)
    result.owners[owner.key] = Owner(owner.key, owner.dtype, owner.shape, slices, b"")


def _twice(key: bytes, one: str, other: str) -> RefusedError:
    return RefusedError(
        f"the key {quote_key(key)} is there twice",
        why=f"{one} and {other} both have it",
        hint="nothing says which is right: leave one of the two out",
        id="duplicate-key",
    )
