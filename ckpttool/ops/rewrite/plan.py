"""A plan of a writing command in a program: made now, looked at, carried out later.

The counterpart of ``plan_file`` for Python, with the same promise: before anything is
written, all of it has to be so still.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckpttool.ops.rewrite.plan_file import (
    require_directory,
    require_inputs,
    require_kept,
    stale,
)
from ckpttool.ops.rewrite.run import Change, Options, RewriteResult, ShardResult

__all__ = ["RewritePlan", "Work", "make_plan"]

#: Does it, or with ``dry_run`` says what it would do.
Work = Callable[[Options], RewriteResult]


@dataclass(frozen=True, slots=True, repr=False)
class RewritePlan:
    """What a writing command would do; ``apply()`` does it.

    Attributes:
        planned: what would be done, with the notes and warnings of the plan.
        options: how it is going to be done.
        directory: the working directory, which relative addresses are meant from.
    """

    planned: RewriteResult
    options: Options
    directory: str
    _work: Work

    def __repr__(self) -> str:
        size = f"{self.variables} variables, {self.nbytes} bytes"
        return f"<ckpttool.RewritePlan {self.destination!r}: {size}>"

    @property
    def destination(self) -> str:
        """The prefix that is going to be written."""
        return self.planned.destination

    @property
    def shards(self) -> Sequence[ShardResult]:
        """The data files, with their sizes and how many entries each gets."""
        return self.planned.shards

    @property
    def nbytes(self) -> int:
        """Bytes of all data files together."""
        return self.planned.nbytes

    @property
    def variables(self) -> int:
        """How many there are going to be; one in several slices is one."""
        return self.planned.variables

    @property
    def changes(self) -> Sequence[Change]:
        """What is going to be different from the source: variable, what, reason."""
        return self.planned.changes

    def apply(self, *, progress: Callable[[int, int], None] | None = None) -> RewriteResult:
        """Plan again, and write if everything is as it was; may be called again.

        Raises:
            ChangedError: id ``plan-stale``: a file that was read has changed, or the same
                call would now do something else. Nothing was written.
            CkpttoolError: as making the plan, and as the storage says.
        """
        require_directory(self.directory)
        require_kept(self.planned.inputs)
        now = self._work(self.options._replace(dry_run=True))
        require_inputs(self.planned.inputs, now.inputs)
        if _what(now) != _what(self.planned):
            raise stale("the same call would now do something else")
        return self._work(self.options._replace(progress=progress))


def make_plan(work: Work, options: Options) -> RewritePlan:
    """The plan of ``work``; reads only."""
    planned = work(options._replace(dry_run=True))
    return RewritePlan(planned, options, os.getcwd(), work)


def _what(result: RewriteResult) -> tuple[object, ...]:
    """All that a result says of what is done."""
    return (*result[:5], list(result.changes))
