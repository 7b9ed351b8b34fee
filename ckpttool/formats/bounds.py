"""What any file's directory of arrays may claim: how many, with how many dimensions and bytes.

For the formats whose whole directory is read when they are opened. Knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpttool.errors import CorruptError, LimitError
from ckpttool.limits import Limits
from ckpttool.model import numel

__all__ = ["require_count", "require_shape", "require_within"]

#: Limit → the id of its explanation.
_IDS = {
    "entries": "limit-entries",
    "rank": "limit-rank",
    "key_bytes": "limit-keys",
    "constant_bytes": "limit-constant",
    "graph_nodes": "limit-graph",
    "graph_text_bytes": "limit-graph",
    "safetensors_header_bytes": "limit-safetensors-header-bytes",
    "tfjs_model_bytes": "limit-tfjs-model-bytes",
}
#: Sizes are 64-bit numbers, with a sign, in every format that is read here.
_MOST = 2**63


def require_within(what: str, value: int, limits: Limits, name: str) -> None:
    """Hold a number of bytes, or a count, against the limit that is called ``name``.

    Raises:
        LimitError: with the id of the limit.
    """
    limit: int = getattr(limits, name)
    if value > limit:
        raise LimitError(
            f"{what} is over a limit",
            why=f"{value}, and the limit is {limit}",
            hint=f"if the file is trusted: CKPTTOOL_LIMITS={name}={value}",
            id=_IDS[name],
        )


def require_count(path: str, count: int, limits: Limits) -> None:
    """Hold the number of arrays of a file against the limit.

    Raises:
        LimitError: id ``limit-entries``.
    """
    require_within(f"the number of arrays in {path}", count, limits, "entries")


def require_shape(name: str, shape: Sequence[int], limits: Limits) -> tuple[int, ...]:
    """Check the shape that a file gives an array.

    Raises:
        CorruptError: id ``negative-dimension`` or ``shape-overflow``.
        LimitError: id ``limit-rank``.
    """
    require_within(f"the number of dimensions of {name}", len(shape), limits, "rank")
    checked = tuple(shape)
    if any(size < 0 for size in checked):
        raise CorruptError(
            f"{name} has a negative dimension",
            why=f"its shape is {list(checked)}",
            hint="take the file from another copy",
            id="negative-dimension",
        )
    if numel(tuple(filter(None, checked))) >= _MOST:
        raise CorruptError(
            f"the shape of {name} overflows",
            why=f"{list(checked)} has more than 2^63 elements",
            hint="take the file from another copy",
            id="shape-overflow",
        )
    return checked
