"""``diff --model``: will a checkpoint restore into a model, and what is unmatched on both sides.

The model is built in a child, which tells what it asks the checkpoint for
(``conversion/worker/expects.py``); the comparison is made here, as with a graph.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ckpttool.conversion.asked import Asked
from ckpttool.conversion.child import Bounds, RunTask, run_task
from ckpttool.conversion.job import Job
from ckpttool.conversion.origin import find_origin
from ckpttool.conversion.request import Choice, Request
from ckpttool.conversion.specs import parse_named_value, parse_port
from ckpttool.conversion.wire import decode, encode, plain
from ckpttool.limits import Limits
from ckpttool.ops.convert_child import kept_log
from ckpttool.ops.convert_live import on_disk
from ckpttool.ops.diff.asked import Question, unanswered
from ckpttool.ops.diff.facts import DiffResult, Level, Only, SideFacts
from ckpttool.ops.diff.model_code import ModelCode
from ckpttool.ops.diff.suggest import with_rules
from ckpttool.ops.wanted import Wanted
from ckpttool.sources.registry import open_source

if TYPE_CHECKING:
    from ckpttool.sources.address import Address
    from ckpttool.sources.base import NameStyle

__all__ = ["diff_model"]

_TASK = "ckpttool.conversion.worker.expects"


def diff_model(
    a: Address,
    code: ModelCode,
    *,
    level: Level = "meta",
    names: NameStyle = "full",
    want: Wanted,
    limits: Limits,
    run: RunTask = run_task,
) -> DiffResult:
    """Compare a checkpoint with what a model asks for; side B is the model.

    Args:
        a: whatever has variables.
        code: builds the model.
        level: ``keys``, or ``meta`` for dtypes and shapes too.
        names: what variables are called in the answer; by their object paths where they are
            restored by objects.
        want: which variables.
        limits: bounds on what files may claim, and on the child.
        run: what runs the child.

    Raises:
        UsageError: ids ``model-function``, ``model-inputs``, ``model-kind``.
        ConversionError: ids ``model-function-failed``, ``model-call-failed``, and of the child.
        UnsupportedError: id ``diff-model-source``.
        CkpttoolError: as ``open_source``.
    """
    request = Request(
        os.fsdecode(a),
        "",
        "",
        model=code.function,
        model_args=tuple(parse_named_value("--model-arg", one) for one in code.arguments),
        root=code.root,
        inputs=tuple(map(parse_port, code.inputs)),
        choice=Choice(names),
        seconds=code.seconds,
        memory=code.memory,
    )
    origin = find_origin(request, limits)
    with (
        open_source(request.source, limits) as source,
        TemporaryDirectory(prefix="ckpttool-diff-") as folder,
        kept_log(code.log, code.said) as log,
    ):
        job = Job(request, on_disk(origin, folder, limits), folder)
        fields: dict[str, object] = plain(job)  # type: ignore[assignment]
        bounds = Bounds.of(limits, code.seconds, code.memory)
        value = run(_TASK, fields, folder=folder, log=log, bounds=bounds)
        asked = decode(Asked, encode(value))
        if asked.by == "objects":
            names = "path"
        variables = {one.key: one for one in source.variables() if one.kind != "object_graph"}
        questions = [
            Question(
                one.name,
                one.kind if (found := variables.get(one.key or "")) is None else found.kind,
                one.dtype,
                one.shape,
                found,
            )
            for one in asked.variables
        ]
        answer = unanswered(questions, want, level)
        only_a = [
            Only(source.name_of(one, names), one.kind, one.dtype, one.shape)
            for one in variables.values()
            if one.key not in answer.keys and want(source.name_of(one, names), one.kind)
        ]
        renamed = with_rules(only_a, answer.missing, [one.name for one in questions])
        in_the_way = answer.missing or answer.shape or (answer.dtype and not asked.casts)
        return DiffResult(
            level,
            SideFacts(source.address, source.location, source.kind, source.style, len(variables)),
            SideFacts(code.function, code.function, "model", None, len(questions)),
            len(answer.keys),
            only_a,
            answer.missing,
            answer.dtype,
            answer.shape,
            suggestions=renamed.pairs,
            rules=renamed.rules,
            renames=renamed.renames,
            warnings=asked.warnings,
            notes=tuple(source.notes),
            restores=not in_the_way,
        )
