"""Look into, check and read TensorFlow checkpoints without TensorFlow.

``open(address)`` gives a checkpoint as a mapping of names to variables, ``latest`` the
newest whole one of a run, ``verify`` checks one, ``diff`` compares two. ``write_checkpoint``
makes one of arrays, ``convert`` what is served of one; ``plan_repartition``, ``plan_edit``,
``plan_average``, ``plan_merge``, ``plan_copy`` and ``plan_prune`` give plans that can be looked
at and applied. Every error is a ``CkpttoolError``. Nothing is imported before it is used.
"""

from __future__ import annotations

from ckpttool.version import __version__

# Type checkers take it for true by its name. To import ``typing`` takes some milliseconds
# in which the command line cannot yet answer an interrupt.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ckpttool.api import Checkpoint, open  # noqa: A004 - as gzip.open and io.open are named
    from ckpttool.errors import (
        CancelledError,
        ChangedError,
        CkpttoolError,
        ConversionError,
        ConverterMissingError,
        CorruptError,
        ForeignFormatError,
        IncompleteError,
        InternalError,
        LimitError,
        NoGraphError,
        NoSpaceError,
        NotFoundError,
        PartialError,
        PermissionDeniedError,
        RefusedError,
        ResultDiffersError,
        StorageError,
        UnsafeError,
        UnsupportedError,
        UsageError,
    )
    from ckpttool.limits import Limits
    from ckpttool.model import Finding, Shard, Variable, VariableSlice
    from ckpttool.ops.convert import ConvertResult
    from ckpttool.ops.convert_api import convert
    from ckpttool.ops.diff.run import diff
    from ckpttool.ops.latest import latest
    from ckpttool.ops.prune.api import plan_prune
    from ckpttool.ops.rewrite.plan import RewritePlan
    from ckpttool.ops.rewrite.run import RewriteResult
    from ckpttool.ops.verify import verify
    from ckpttool.ops.write import Pieces, write_checkpoint
    from ckpttool.ops.writing import (
        plan_average,
        plan_copy,
        plan_edit,
        plan_merge,
        plan_repartition,
    )

__all__ = [
    "CancelledError",
    "ChangedError",
    "Checkpoint",
    "CkpttoolError",
    "ConversionError",
    "ConvertResult",
    "ConverterMissingError",
    "CorruptError",
    "Finding",
    "ForeignFormatError",
    "IncompleteError",
    "InternalError",
    "LimitError",
    "Limits",
    "NoGraphError",
    "NoSpaceError",
    "NotFoundError",
    "PartialError",
    "PermissionDeniedError",
    "Pieces",
    "RefusedError",
    "ResultDiffersError",
    "RewritePlan",
    "RewriteResult",
    "Shard",
    "StorageError",
    "UnsafeError",
    "UnsupportedError",
    "UsageError",
    "Variable",
    "VariableSlice",
    "__version__",
    "convert",
    "diff",
    "latest",
    "open",
    "plan_average",
    "plan_copy",
    "plan_edit",
    "plan_merge",
    "plan_prune",
    "plan_repartition",
    "verify",
    "write_checkpoint",
]

_HOMES = {
    "Checkpoint": "ckpttool.api",
    "open": "ckpttool.api",
    "ConvertResult": "ckpttool.ops.convert",
    "convert": "ckpttool.ops.convert_api",
    "diff": "ckpttool.ops.diff.run",
    "latest": "ckpttool.ops.latest",
    "plan_prune": "ckpttool.ops.prune.api",
    "RewritePlan": "ckpttool.ops.rewrite.plan",
    "RewriteResult": "ckpttool.ops.rewrite.run",
    **dict.fromkeys(
        ("plan_average", "plan_copy", "plan_edit", "plan_merge", "plan_repartition"),
        "ckpttool.ops.writing",
    ),
    "verify": "ckpttool.ops.verify",
    "Pieces": "ckpttool.ops.write",
    "write_checkpoint": "ckpttool.ops.write",
    "Limits": "ckpttool.limits",
    **dict.fromkeys(("Finding", "Shard", "Variable", "VariableSlice"), "ckpttool.model"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'ckpttool' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES.get(name, "ckpttool.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
