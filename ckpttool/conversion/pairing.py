"""Which signature, input or output of a result is which of its source. Pure.

What we write keeps every name. Other converters rename: tf2onnx makes ``x:0`` of ``x``,
TensorFlow Lite ``serving_default_x:0``, and some call all outputs ``Identity``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from ckpttool.conversion.ports import Port, Signature

__all__ = ["Pairing", "pair_ports", "pair_signatures"]

_PREFIXES = ("serving_default_", "StatefulPartitionedCall/", "model/")
#: Ports of which every assignment is tried; with more, only names and order are.
_FEW = 6


@dataclass(slots=True)
class Pairing:
    """What belongs to what.

    Attributes:
        names: the source's name → the result's.
        left: names of the source to which nothing belongs.
        over: names of the result to which nothing belongs.
        how: ``name``; or ``dtype and shape``, or ``order``, which a person should know.
    """

    names: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    how: str = "name"


def pair_signatures(wanted: Sequence[Signature], found: Sequence[Signature]) -> Pairing:
    """By name; one that is alone on both sides by that, since few formats name them."""
    names = {one.name for one in found}
    pairing = Pairing()
    if len(wanted) == len(found) == 1:
        pairing.names = {wanted[0].name: found[0].name}
        return pairing
    for one in wanted:
        if one.name in names:
            pairing.names[one.name] = one.name
        else:
            pairing.left.append(one.name)
    pairing.over = sorted(names - set(pairing.names.values()))
    return pairing


def pair_ports(wanted: Sequence[Port], found: Sequence[Port]) -> Pairing:
    """By name, else by the only way in which dtypes and shapes fit, else by order."""
    plain = {_plain(one.name): one.name for one in found}
    exact = {one.name for one in found}
    pairing = Pairing()
    for port in wanted:
        name = port.name if port.name in exact else plain.get(_plain(port.name))
        if name is not None and name not in pairing.names.values():
            pairing.names[port.name] = name
    left = [one for one in wanted if one.name not in pairing.names]
    over = [one for one in found if one.name not in pairing.names.values()]
    if left and len(left) == len(over):
        ordered = list(zip(left, over, strict=True))
        fitting = _fitting(left, over)
        if len(fitting) == 1:
            pairing.how = "dtype and shape"
            pairing.names |= {a.name: b.name for a, b in zip(left, fitting[0], strict=True)}
            return pairing
        if all(_fits(a, b) for a, b in ordered):
            pairing.how = "order"
            pairing.names |= {a.name: b.name for a, b in ordered}
            return pairing
    pairing.left = [one.name for one in left]
    pairing.over = [one.name for one in over]
    return pairing


def _fitting(left: Sequence[Port], over: Sequence[Port]) -> list[tuple[Port, ...]]:
    """The assignments in which every dtype and shape fits, at most two of them."""
    if len(left) > _FEW:
        return []
    found = []
    for one in permutations(over):
        if all(_fits(a, b) for a, b in zip(left, one, strict=True)):
            found.append(one)
            if len(found) > 1:
                break
    return found


def _fits(a: Port, b: Port) -> bool:
    if _kind(a.dtype) != _kind(b.dtype):
        return False
    if a.shape is None or b.shape is None:
        return True
    if len(a.shape) != len(b.shape):
        return False
    pairs = list(zip(a.shape, b.shape, strict=True))
    # Converters fix an open first dimension to 1.
    return all(one in {None, other} or other is None for one, other in pairs[1:])


def _kind(dtype: str) -> str:
    """Dtypes that stand for one another in other runtimes: quantised ones for real numbers."""
    if dtype.startswith(("float", "bfloat")) or dtype in {"int8", "uint8", "int16"}:
        return "number"
    return dtype.rstrip("0123456789")


def _plain(name: str) -> str:
    """A name without what converters put around it."""
    name = name.rpartition(":")[0] if name.endswith((":0", ":1", ":2")) else name
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
