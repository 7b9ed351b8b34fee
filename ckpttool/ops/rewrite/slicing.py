"""Cuts variables into parts and puts parts together, as a plan on a ``Bundle``.

Parts are either slices of one logical variable, which TensorFlow puts together itself, or
literal variables ``X/part_0``, ``X/part_1``, …, which older graphs ask for by name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ckpttool.errors import RefusedError, UsageError
from ckpttool.formats.bundle import SliceSpec
from ckpttool.formats.dtypes import dtype_name
from ckpttool.ops.rewrite.layout import StoredPart, Variable, content_of
from ckpttool.ops.rewrite.run import Change
from ckpttool.ops.rewrite.tensors import Bundle, Owner, Tensor
from ckpttool.ops.slot_names import base_of_slot
from ckpttool.policy.partition import BYTES_PER_STRING, Part, Partitioner
from ckpttool.sources.assemble import Box
from ckpttool.sources.kinds import kind_of_name

__all__ = ["RESTORABLE", "RESTORABLE_RANK", "Cut", "Form", "Layout", "one_part", "relayout"]

#: What the parts become: slices of one logical variable, or variables of their own.
Form = Literal["slices", "parts"]

#: Parts of these types TensorFlow can put together (tensor_bundle.cc GetSliceValue);
#: of any other it restores only exactly the slice that is stored.
RESTORABLE = {
    "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
    "complex64", "complex128", "qint8", "quint8", "qint32",
}  # fmt: skip
#: And of a variable of more dimensions (kTensorSliceMaxRank in tensor_slice_util.h).
RESTORABLE_RANK = 8
_LITERAL = re.compile(r"(.*)/part_(0|[1-9][0-9]{0,5})((?:/.*)?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which variables are cut, how, and the words for it.

    ``named`` says that a person chose the variables, so that it is a mistake when there is
    none of them.
    """

    matches: Callable[[Variable], bool]
    partitioner: Partitioner
    reason: str
    named: bool = True


def relayout(
    bundle: Bundle,
    cuts: Sequence[Cut],
    *,
    join: Callable[[str], bool] | None = None,
    form: Form = "slices",
    unrestorable: bool = False,
) -> list[Change]:
    """Lay out anew every variable that a rule matches (the first one that does).

    It does not matter in how many parts a variable is stored; a rule that makes one part
    puts it together.

    Args:
        bundle: changed in place.
        cuts: the rules.
        join: names ``X`` of which ``X/part_0`` to ``X/part_N`` are one variable, that is
            made whole where no rule cuts it. A slot behind them (``X/part_0/Adam``) belongs
            to the parts of ``X/Adam``.
        form: what the parts become.
        unrestorable: allow slices that TensorFlow cannot put together.

    Raises:
        RefusedError: id ``slices-unrestorable``; id ``parts-do-not-fit``: a number of ``X``
            is missing, or dtypes or shapes differ in more than one axis.
        UsageError: a rule does not fit a variable's shape, or matches none at all.
        CorruptError, IncompleteError: a variable's parts do not make a whole.
        UnsupportedError: id ``dtype-unsupported``: strings cannot be cut.
    """
    changes = []
    layout = Layout(bundle)
    joined = [] if join is None else _literal_variables(bundle, join)
    used: set[int] = set()
    for variable in layout.variables(joined):
        matching = [number for number, one in enumerate(cuts) if one.matches(variable)]
        used.update(matching)
        if not matching and not variable.is_literal:
            continue
        rule = cuts[matching[0]] if matching else _JOINED
        if len(variable.parts) != 1:
            variable.check()
        parts = rule.partitioner(variable.shape, variable.itemsize or BYTES_PER_STRING)
        if _is_so(variable, parts, form):
            continue
        if form == "slices" and len(parts) > 1 and not unrestorable:
            _require_restorable(variable)
        variable.check()
        layout.replace(variable, parts, form)
        changes.append(Change(variable.name, _what(variable, len(parts), form), rule.reason))
    for number, one in enumerate(cuts):
        if one.named and number not in used:
            raise _matches_nothing(one.reason, "no variable has such a name and such an axis")
    if join is not None and not joined:
        raise _matches_nothing("--join-parts", "there is no X/part_0 of a name that it matches")
    layout.store()
    return changes


def _is_so(variable: Variable, parts: Sequence[Part], form: Form) -> bool:
    """Whether a variable is stored in just these parts."""
    boxes = [Box(part.start, part.extent) for part in parts]
    if boxes != [part.box for part in variable.parts]:
        return False
    if len(parts) == 1:
        return variable.is_whole
    return variable.is_literal == (form == "parts")


def _literal_variables(bundle: Bundle, matches: Callable[[str], bool]) -> list[Variable]:
    """The variables that are stored as literal parts, and that a pattern matches."""
    groups: dict[str, dict[int, Tensor]] = defaultdict(dict)
    for tensor in bundle.tensors:
        match = _LITERAL.fullmatch(tensor.key.decode("utf-8", "surrogateescape"))
        if match and tensor.variable == tensor.key and matches(match[1] + match[3]):
            groups[match[1] + match[3]][int(match[2])] = tensor
    return [_from_literal(name, parts) for name, parts in groups.items()]


def _matches_nothing(option: str, why: str) -> UsageError:
    return UsageError(
        f"{option} matches nothing", why=why, hint="ckpttool list SRC shows the names"
    )


def one_part(shape: tuple[int, ...], itemsize: int) -> list[Part]:
    """The partitioner that leaves a variable whole."""
    del itemsize
    return [Part((0,) * len(shape), shape)]


#: What happens to joined parts that no rule cuts.
_JOINED = Cut(lambda variable: variable.is_literal, one_part, "--join-parts")


class Layout:
    """The variables of a bundle, and what takes their place."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._stored: dict[bytes, dict[bytes, Tensor]] = defaultdict(dict)
        #: Key of a variable or of one of its old entries → the new entries, once.
        self._new: dict[bytes, list[Tensor]] = {}
        self._owners: dict[bytes, Owner] = {}
        self._gone: set[bytes] = set()
        self._joined: Sequence[Variable] = ()
        #: Names of all variables that are no slots, once they are asked for.
        self._bases: set[str] | None = None

    def variables(self, joined: Sequence[Variable] = ()) -> Iterator[Variable]:
        """Those that have a shape, in the order of their first bytes; first ``joined``.

        What those are stored in are no variables of their own then.
        """
        self._joined = joined
        yield from joined
        parts = {part.tensor.key for variable in joined for part in variable.parts}
        owners = dict(self._bundle.owners)  # as they are: `replace` takes some out meanwhile
        for tensor in self._bundle.tensors:
            if tensor.variable in owners:
                self._stored[tensor.variable][tensor.key] = tensor
        seen: set[bytes] = set()
        for tensor in self._bundle.tensors:
            owner = owners.get(tensor.variable)
            if owner is None:
                if tensor.shape is not None and tensor.key not in parts:
                    box = Box((0,) * len(tensor.shape), tensor.shape)
                    part = StoredPart(box, tensor)
                    yield Variable(tensor.key, tensor.dtype, tensor.shape, (part,))
            elif tensor.variable not in seen and owner.shape is not None:
                seen.add(tensor.variable)
                yield self._partitioned(owner, owner.shape)
        for owner in owners.values():  # those of which no part is there
            if owner.key not in seen and owner.shape is not None:
                yield self._partitioned(owner, owner.shape)

    def _partitioned(self, owner: Owner, shape: tuple[int, ...]) -> Variable:
        stored = self._stored[owner.key]
        parts = []
        for spec in owner.slices:
            tensor = stored.get(spec.key(owner.key))
            if tensor is not None:
                box = Box(spec.start, spec.extent(shape) or spec.length)
                parts.append(StoredPart(box, tensor))
        return Variable(owner.key, owner.dtype, shape, tuple(parts))

    def replace(self, variable: Variable, parts: Sequence[Part], form: Form) -> None:
        """Put new entries in the place of a variable's old ones."""
        first = variable.parts[0].tensor
        new = []
        specs = tuple(SliceSpec(part.start, part.extent) for part in parts)
        for number, (part, spec) in enumerate(zip(parts, specs, strict=True)):
            key = variable.key
            if len(parts) > 1:
                key = spec.key(key) if form == "slices" else self._literal_key(variable, number)
            new.append(
                first._replace(
                    key=key,
                    variable=key if form == "parts" else variable.key,
                    dtype=variable.dtype,
                    shape=part.extent,
                    content=content_of(variable, Box(part.start, part.extent)),
                    raw=b"",
                )
            )
        for stored in variable.parts:
            self._gone.add(stored.tensor.key)
        self._new[first.key] = new
        self._bundle.owners.pop(variable.key, None)
        if len(parts) > 1 and form == "slices":
            self._owners[variable.key] = Owner(
                variable.key, variable.dtype, variable.shape, specs, b""
            )

    def _literal_key(self, variable: Variable, number: int) -> bytes:
        """What part ``number`` is called as a variable of its own.

        That of ``w/Adam`` is ``w/part_0/Adam``: a slot is named behind the part that it
        belongs to (tensorflow/python/training/slot_creator.py).
        """
        if self._bases is None:
            keys = {tensor.variable for tensor in self._bundle.tensors}
            keys.update(joined.key for joined in self._joined)
            names = (key.decode("utf-8", "surrogateescape") for key in keys)
            self._bases = {name for name in names if not _is_slot(name)}
        name, at = variable.name, len(variable.name)
        if _is_slot(name) and (found := base_of_slot(name, self._bases)) is not None:
            # Only such a name is put together again: Mesh TensorFlow's is w_slot_vr.
            at = found[1] if name[found[1] : found[1] + 1] == "/" else at
        return f"{name[:at]}/part_{number}{name[at:]}".encode("utf-8", "surrogateescape")

    def store(self) -> None:
        """Change the bundle."""
        tensors: list[Tensor] = []
        for tensor in self._bundle.tensors:
            tensors += self._new.get(tensor.key, () if tensor.key in self._gone else (tensor,))
        self._bundle.tensors = tensors
        self._bundle.owners |= self._owners


def _from_literal(name: str, parts: dict[int, Tensor]) -> Variable:
    """The variable that literal parts make up, along the one axis in which they may differ."""
    ordered = [parts[number] for number in sorted(parts)]
    shapes = [tensor.shape for tensor in ordered]
    first = shapes[0]
    why = ""
    if sorted(parts) != list(range(len(parts))):
        missing = next(number for number in range(max(parts)) if number not in parts)
        why = f"{name}/part_{missing} is missing"
    elif len({tensor.dtype for tensor in ordered}) > 1:
        why = f"dtypes are {', '.join(sorted({dtype_name(one.dtype) for one in ordered}))}"
    elif first is None or any(shape is None or len(shape) != len(first) for shape in shapes):
        why = "their shapes have different numbers of dimensions"
    if first is not None and not why:
        differ = {
            axis for shape in shapes for axis, size in enumerate(shape or ()) if size != first[axis]
        }
        if len(differ) <= 1 and (first or len(ordered) == 1):
            axis = differ.pop() if differ else 0
            return _along(name, ordered, first, axis)
        why = f"their shapes differ in axes {sorted(differ)}" if first else "they are scalars"
    raise RefusedError(
        f"the parts of {name} do not make one variable",
        why=why,
        hint="choose others with a pattern, or leave them as they are",
        id="parts-do-not-fit",
    )


def _along(name: str, ordered: list[Tensor], first: tuple[int, ...], axis: int) -> Variable:
    total = 0
    stored = []
    for tensor in ordered:
        shape = tensor.shape or ()
        start = tuple(total if n == axis else 0 for n in range(len(shape)))
        stored.append(StoredPart(Box(start, shape), tensor))
        total += shape[axis] if shape else 0
    whole = tuple(total if n == axis else size for n, size in enumerate(first))
    key = name.encode("utf-8", "surrogateescape")
    return Variable(key, ordered[0].dtype, whole, tuple(stored), is_literal=True)


def _is_slot(name: str) -> bool:
    return kind_of_name(name) in {"optimizer", "ema"}


def _what(variable: Variable, after: int, form: Form) -> str:
    stored = "variable" if variable.is_literal else "slice"
    before = "whole" if variable.is_whole else _count(len(variable.parts), stored)
    kind = "slice" if form == "slices" else "variable"
    return f"{before} → {'whole' if after == 1 else _count(after, kind)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _require_restorable(variable: Variable) -> None:
    rank, dtype = len(variable.shape), dtype_name(variable.dtype)
    if rank > RESTORABLE_RANK:
        why = f"its readers abort when they put {rank} dimensions together (more than "
        why += f"{RESTORABLE_RANK})"
    elif dtype not in RESTORABLE:
        why = f"its readers assemble and re-slice no {dtype}"
    else:
        return
    raise RefusedError(
        f"{variable.name} would be cut into slices that TensorFlow cannot put together",
        why=f"{why}; only exactly the slices that are stored could be restored",
        hint="leave it whole (a narrower pattern), or add --allow-unrestorable",
        id="slices-unrestorable",
    )
