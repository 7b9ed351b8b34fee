"""Types of option values: durations, sizes, times. A value that makes no sense is a usage error."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["AT_LEAST_0", "DURATION", "SIZE", "WEIGHTS", "WHEN"]


class _Duration(click.ParamType[Any]):
    """``7d``, ``10m``, ``90`` → seconds."""

    name = "duration"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        from ckpttool.policy.words import parse_duration

        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a duration such as 90, 10m, 36h or 7d", param, ctx)


class _Finite(click.FloatRange):
    """A number in a range; not infinite, and not what is no number."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class _Size(click.ParamType[Any]):
    """``500GB`` → bytes; powers of 1024."""

    name = "size"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        from ckpttool.limits import parse_size

        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a size such as 800MB or 2TB", param, ctx)


class _Weights(click.ParamType[Any]):
    """``0.7,0.3`` → numbers."""

    name = "weights"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers such as 0.7,0.3", param, ctx)


class _When(click.ParamType[Any]):
    """A date, a date and time, or seconds since the epoch → seconds since the epoch."""

    name = "time"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            number = float(str(value))
        except ValueError:
            pass
        else:
            if math.isfinite(number):
                return number
        from datetime import datetime

        try:
            # A time without an offset is the local one, as in a log beside it.
            return datetime.fromisoformat(str(value)).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is not a time such as 2026-01-31, 2026-01-31T18:00 or "
                "2026-01-31T18:00Z",
                param,
                ctx,
            )


AT_LEAST_0 = _Finite(min=0)
DURATION = _Duration()
SIZE = _Size()
WHEN = _When()
WEIGHTS = _Weights()
