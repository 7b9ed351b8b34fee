"""The check: whether a result computes what its source does, and what is said of that.

Compares; runs nothing itself. The reference are the cases of ``job.Made``, the results come
from the task ``execute``, which runs a result in its own runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CheckResult", "not_run"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What the check found.

    Attributes:
        state: a failed check is an error (52), unless ``--check-only`` asked for the answer.
        how: by running the result, or by comparing bytes.
        why: why it did not run, or failed.
        metrics: signature → output → figures.
    """

    state: Literal["passed", "failed", "not_run"]
    how: Literal["run", "bytes"] = "run"
    why: str = ""
    metrics: Mapping[str, object] = field(default_factory=dict)


def not_run(why: str) -> CheckResult:
    """The result of a check that was not asked for, or could not be made."""
    return CheckResult("not_run", why=why)
