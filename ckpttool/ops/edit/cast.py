"""``--cast``: floating-point variables in another floating-point type.

Values pass through in pieces, so memory does not depend on a variable's size. Where the
new type holds less, what is lost is counted: values that were rounded, and values that
became infinite. Integers, bools, complex numbers and strings are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ckpttool.errors import RefusedError
from ckpttool.formats.bundle_writer import patch_dtype
from ckpttool.formats.dtypes import BY_NAME, BY_NUMBER, dtype_name, numpy_dtype
from ckpttool.model import numel
from ckpttool.ops.edit.contents import Contents, Item
from ckpttool.ops.rewrite.run import Change
from ckpttool.ops.rewrite.slice_rules import glob
from ckpttool.ops.rewrite.slicing import RESTORABLE
from ckpttool.ops.rewrite.stream import stream
from ckpttool.ops.rewrite.tensors import Computed, Owner, Tensor, for_threads

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CASTS", "Loss", "cast", "count_losses", "loss_warnings", "with_losses"]

#: The types that can be asked for, with the bits of exponent and of fraction.
CASTS = {"float64": (11, 52), "float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}
#: The floating-point types that are cast, in the same way.
_FLOATS = {
    **CASTS,
    "float8_e5m2": (5, 2),
    "float8_e4m3fn": (4, 3),
    "float8_e4m3fnuz": (4, 3),
    "float8_e4m3b11fnuz": (4, 3),
    "float8_e5m2fnuz": (5, 2),
    "float4_e2m1fn": (2, 1),
}
#: Bytes that are read at once.
_PIECE = 2**20
#: Variables of which a warning is given.
_WARNINGS = 20


@dataclass(slots=True)
class Loss:
    """What a cast did to the values of a variable, as far as it was done.

    Attributes:
        change: the cast itself.
        values: how many values the variable has.
        rounded: values that are not what they were.
        overflowed: values that were finite, and are infinite now.
    """

    change: Change
    values: int
    rounded: int = 0
    overflowed: int = 0

    def words(self) -> str:
        """For people; empty where nothing was lost."""
        found = [
            f"{count:,} of {self.values:,} values {what}"
            for count, what in ((self.rounded, "rounded"), (self.overflowed, "overflowed to inf"))
            if count
        ]
        return ", ".join(found)


def cast(
    contents: Contents, dtype: str, only: Sequence[str], unmatched: Callable[[str], None]
) -> tuple[list[Change], dict[str, Loss]]:
    """Have floating-point variables written in another type.

    Args:
        contents: changed in place.
        dtype: one of ``CASTS``.
        only: patterns of names; none: all.
        unmatched: told of a pattern that matches no floating-point variable.

    Returns:
        The changes, and by variable (its ``origin``) what is lost: counted while the bytes
        are made, which has to happen once.

    Raises:
        RefusedError: id ``slices-unrestorable``: a partitioned variable would get a type
            whose slices TensorFlow cannot put together.
    """
    new = BY_NAME[dtype]
    changes, losses = [], {}
    for item in _chosen(contents, only, unmatched):
        old = dtype_name(item.dtype)
        if old == dtype:
            continue
        if item.owner is not None and len(item.tensors) > 1 and dtype not in RESTORABLE:
            raise _unrestorable(item, dtype)
        exact = _is_exact(old, dtype)
        change = Change(item.name, f"{old} → {dtype}", "exact" if exact else f"--cast {dtype}")
        values = sum(numel(tensor.shape or ()) for _, tensor in item.tensors)
        counted = None if exact else Loss(change, values)
        item.tensors = [
            (place, _cast_tensor(tensor, new.number, counted, contents.big_endian))
            for place, tensor in item.tensors
        ]
        item.dtype = new.number
        if item.owner is not None:
            item.owner = _cast_owner(item.owner, new.number)
        if counted is not None:
            losses[item.origin] = counted
        changes.append(change)
    return changes, losses


def count_losses(contents: Contents, losses: Iterable[str]) -> None:
    """Find out what casts lose without writing: reads every variable that is concerned."""
    for origin in losses:
        for _, tensor in contents.items[origin].tensors:
            assert isinstance(tensor.content, Computed), "it is cast"
            for _ in tensor.content.chunks():
                pass


def with_losses(changes: Iterable[Change], losses: Mapping[str, Loss]) -> Iterator[Change]:
    """The changes, casts with what they have lost."""
    by_change = {id(loss.change): loss for loss in losses.values()}
    for change in changes:
        loss = by_change.get(id(change))
        if loss is None:
            yield change
        else:
            yield Change(change.variable, change.what, loss.words() or "nothing is lost")


def loss_warnings(losses: Mapping[str, Loss]) -> Iterator[str]:
    """What a person has to know: each variable in which values became infinite.

    Rounding is what a smaller type is for, so one line says how much of it there was.
    """
    infinite = [loss for loss in losses.values() if loss.overflowed]
    for loss in infinite[:_WARNINGS]:
        yield f"{loss.change.variable}: {loss.change.what}: {loss.words()}"
    if len(infinite) > _WARNINGS:
        yield f"… and {len(infinite) - _WARNINGS} more variables: all with --json"
    rounded = [loss for loss in losses.values() if loss.rounded and not loss.overflowed]
    if rounded:
        values, of = sum(loss.rounded for loss in rounded), sum(loss.values for loss in rounded)
        variables = "1 variable" if len(rounded) == 1 else f"{len(rounded):,} variables"
        yield f"{variables}: {values:,} of {of:,} values rounded; each with --json"


def _chosen(
    contents: Contents, only: Sequence[str], unmatched: Callable[[str], None]
) -> Iterator[Item]:
    floats = [item for item in contents.items.values() if dtype_name(item.dtype) in _FLOATS]
    if not only:
        yield from floats
        return
    patterns = {pattern: glob(pattern) for pattern in only}
    for pattern, matches in patterns.items():
        if not any(item.matches(matches) for item in floats):
            unmatched(f"--only {pattern}")
    for item in floats:
        if any(item.matches(matches) for matches in patterns.values()):
            yield item


def _is_exact(old: str, new: str) -> bool:
    """Whether every value of one type is one of the other."""
    return all(had <= has for had, has in zip(_FLOATS[old], _FLOATS[new], strict=True))


def _cast_tensor(tensor: Tensor, dtype: int, loss: Loss | None, big_endian: bool) -> Tensor:
    old, new = BY_NUMBER[tensor.dtype], BY_NUMBER[dtype]
    nbytes = tensor.content.nbytes // old.size * new.size

    def chunks() -> Iterator[bytes]:
        convert = _caster(old.name, new.name, big_endian)
        for data in stream(tensor.content, tensor, _PIECE):
            yield convert(data, loss)

    raw = patch_dtype(tensor.raw, dtype) if tensor.raw else b""
    # A loss is counted for all slices of a variable together, by one thread.
    alone = loss is not None and tensor.key != tensor.variable
    content = Computed(chunks, nbytes, for_threads=not alone and for_threads(tensor.content))
    return tensor._replace(dtype=dtype, content=content, raw=raw)


@cache
def _caster(old: str, new: str, big_endian: bool) -> Callable[[bytes, Loss | None], bytes]:
    """What turns bytes of one type into those of another, and counts what that loses.

    The one place that needs numpy; made once for each type.
    """
    import numpy as np

    before, after = numpy_dtype(old), numpy_dtype(new)
    # Types of ml_dtypes have no byte order of their own: their bytes are swapped as words.
    stored = (f">u{before.itemsize}", f"<u{before.itemsize}") if big_endian else None
    stores = (f"<u{after.itemsize}", f">u{after.itemsize}") if big_endian else None

    def convert(data: bytes, loss: Loss | None) -> bytes:
        if stored is None:
            values = np.frombuffer(data, before)
        else:
            values = np.frombuffer(data, stored[0]).astype(stored[1]).view(before)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            result = values.astype(after)
            if loss is not None:
                _count(values, result, loss)
        if stores is not None:
            result = result.view(stores[0]).astype(stores[1])
        return result.tobytes()

    return convert


def _count(values: np.ndarray, result: np.ndarray, loss: Loss) -> None:
    import numpy as np

    changed = (result.astype(values.dtype) != values) & ~np.isnan(values)
    count = int(np.count_nonzero(changed))
    if count:
        overflowed = int(np.count_nonzero(np.isinf(result) & ~np.isinf(values)))
        loss.overflowed += overflowed
        loss.rounded += count - overflowed


def _cast_owner(owner: Owner, dtype: int) -> Owner:
    raw = patch_dtype(owner.raw, dtype) if owner.raw else b""
    return Owner(owner.key, dtype, owner.shape, owner.slices, raw)


def _unrestorable(item: Item, dtype: str) -> RefusedError:
    return RefusedError(
        f"{item.name} is stored in {len(item.tensors)} slices, and would become {dtype}",
        why=f"TensorFlow puts slices of {dtype} together in no layout but this one",
        hint="put its slices together first: ckpttool repartition SRC DST --merge-slices GLOB; or "
        "leave it out with --only",
        id="slices-unrestorable",
    )
