"""Graphs that were made for training: the refusal, and the options that mend it.

Knows what ``sources/graph_signs.py`` finds; which nodes are looked at is for the callers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ckpttool.errors import RefusedError
from ckpttool.sources.graph_roles import rate_like
from ckpttool.sources.graph_signs import Sign
from ckpttool.sources.graph_topology import split_tensor

__all__ = ["is_setting", "nothing_dropped", "require_serving"]


def require_serving(
    path: str,
    signs: Sequence[Sign],
    *,
    allowed: bool,
    rates: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Check that a graph has no signs of training; where it may have them, they are warnings.

    Args:
        path: of the graph, for the error.
        signs: those in what is computed.
        allowed: it is converted all the same.
        rates: layers of dropout → the placeholder whose value turns them off; of those known.

    Raises:
        RefusedError: id ``training-graph``.
    """
    said = tuple(f"{sign.message} ({', '.join(sign.nodes)})" for sign in signs)
    if not signs or allowed:
        return said
    hint = "name inputs and outputs of the part that serves, or add --allow-training-graph"
    mends = (_mend(sign, node, rates or {}) for sign in signs for node in sign.nodes)
    if mending := dict.fromkeys(filter(None, mends)):
        hint = f"add {' '.join(mending)}, or --allow-training-graph"
    raise RefusedError(
        f"{path} is a graph for training", why="; ".join(said), hint=hint, id="training-graph"
    )


def is_setting(name: str) -> bool:
    """Whether a placeholder of this name is a rate of dropout."""
    return bool(rate_like(name))


def nothing_dropped(name: str) -> float:
    """The rate at which a placeholder of this name turns dropout off."""
    return 1.0 if re.search("keep|kp", name, re.IGNORECASE) else 0.0


def _mend(sign: Sign, node: str, rates: Mapping[str, str]) -> str:
    """The option that turns off what a sign found; empty where there is none."""
    name = rates.get(node, "") if sign.id == "dropout" else split_tensor(node)[0]
    if sign.id in {"dropout", "rate-unfed", "training-by-default"} and is_setting(name):
        return f"--freeze-input {name}={nothing_dropped(name)}"
    if sign.id in {"switch-unfed", "training-by-default"}:
        return f"--freeze-input {name}=False"
    return ""
