"""Whether the settings of a retention policy make sense, before anything is looked at. Pure."""

from __future__ import annotations

import math

from ckpttool.errors import RefusedError, UsageError
from ckpttool.policy.facts import Retention

__all__ = ["check_numbers", "check_retention"]


def check_retention(retention: Retention) -> None:
    """Refuse settings that say nothing, or that would leave nothing.

    Raises:
        UsageError: id ``no-policy``: nothing says what may go; or settings that need others.
        RefusedError: id ``policy-keeps-nothing``.
    """
    check_numbers(retention)
    if not (retention.has_keep_rule or retention.max_total_bytes is not None or retention.broken):
        raise UsageError(
            "no policy was given, so nothing says what may go",
            why="pruning has no default",
            hint="for example --max-to-keep 5, --keep-within 7d or --max-total-size 500GB",
            id="no-policy",
        )
    if retention.max_to_keep is not None and retention.max_to_keep < 1:
        raise RefusedError(
            f"--max-to-keep {retention.max_to_keep} would leave nothing",
            why="the newest whole checkpoint always stays",
            hint="use --max-to-keep 1 or more",
            id="policy-keeps-nothing",
        )
    if retention.max_to_keep is None and retention.every_n_hours is not None:
        raise UsageError(
            "--keep-every-n-hours says nothing without --max-to-keep",
            why="it says what stays of those that --max-to-keep lets go",
            hint="add --max-to-keep N",
        )
    if retention.since is not None and retention.style != "saver":
        raise UsageError(
            "--since belongs to --policy saver",
            why="a CheckpointManager counts from its last preserved checkpoint",
            hint="add --policy saver, or leave --since out",
        )


def check_numbers(retention: Retention) -> None:
    """Refuse numbers that no rule can reckon with.

    Raises:
        UsageError: one is too small, infinite or no number.
    """
    least = {
        "every_n_hours": 0,
        "every_n_steps": 1,
        "within": 0,
        "max_total_bytes": 0,
        "min_age": 0,
        "since": -math.inf,
    }
    for name, minimum in least.items():
        value = getattr(retention, name)
        try:
            usable = value is None or (math.isfinite(value) and value >= minimum)
        except OverflowError:
            usable = False  # an integer of hundreds of digits
        if not usable:
            raise UsageError(
                f"{_OPTIONS[name]} {str(value)[:40]} makes no sense",
                why="it has to be a finite number"
                + (f" of {minimum} or more" if math.isfinite(minimum) else ""),
                hint="ckpttool prune --help",
            )


#: What the settings are called on the command line.
_OPTIONS = {
    "every_n_hours": "--keep-every-n-hours",
    "every_n_steps": "--keep-every-n-steps",
    "within": "--keep-within",
    "max_total_bytes": "--max-total-size",
    "min_age": "--min-age",
    "since": "--since",
}
