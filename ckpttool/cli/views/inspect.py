"""How ``inspect`` looks.

For people: what it is and its style, a few facts, totals, the largest variables (or the
tree), and what is wrong; of a run, its checkpoints first.

In a pipe, tab-separated lines whose first field says what the line is, so that ``grep``
and ``cut`` find it. First one value a line:

    kind, style, source, prefix, step, time, variables, parameters, bytes, graph, writer

then, as many of each as there are:

    by-dtype     DTYPE  VARIABLES  PARAMETERS  BYTES
    by-kind      KIND  VARIABLES  PARAMETERS  BYTES
    shard        PATH  present|missing  BYTES  BYTES-NEEDED
    partitioned  NAME  SHAPE  SLICES  AXES
    largest      NAME  DTYPE  SHAPE  BYTES  KIND
    scope        NAME  VARIABLES  PARAMETERS  BYTES              (with --tree)
    variable     NAME  DTYPE  SHAPE  BYTES  KIND                 (with --tree)
    signature    NAME  input|output  NAME  DTYPE  SHAPE  TENSOR
    form         TEXT                                             (of TFLite, ONNX, TF.js: to op)
    opset        DOMAIN  VERSION
    quantised    VARIABLES
    nodes        NODES  FUNCTIONS  NODES-OF-FUNCTIONS            (this and the next: with --graph)
    op           NAME  NODES
    placeholder  NAME  DTYPE  SHAPE  default|-
    likely-input, likely-output  NAME  OP  DTYPE  SHAPE
    graph-variable  NAME  DTYPE  SHAPE
    training     ID  NODES  alters|-  NAMES  MESSAGE
    unknown-op   NAME  NODES
    checkpoint   PREFIX  STEP  TIME  BYTES  whole|incomplete  listed|unlisted  latest|-
    leftover     PATH  WHY
    problem      SEVERITY  ID  OBJECT  MESSAGE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.cli.jsontext import exact
from ckpttool.cli.screen import Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.cli.views.graph import (
    graph_data,
    graph_rows,
    signature_rows,
    signatures_data,
    writer_data,
    writer_text,
)
from ckpttool.cli.views.model import model_data, model_metas, model_rows
from ckpttool.cli.views.tree import scope_data, tree_rows
from ckpttool.model import Finding, Shard, Variable, shape_text
from ckpttool.ops.census import Partitioned, Total
from ckpttool.ops.inspect import CheckpointReport, InspectResult

if TYPE_CHECKING:
    from ckpttool.ops.graph_report import MetaReport
    from ckpttool.ops.run_report import RunReport

__all__ = ["InspectView"]


class InspectView(View):
    """One address; what is wrong with it is data, not a warning."""

    command = "inspect"

    def __init__(self, result: InspectResult) -> None:
        self._result = result

    @property
    def exit_code(self) -> int:
        """0 however much is wrong; of a run whose checkpoint cannot be read, that error's."""
        error = self._result.unreadable
        return 0 if error is None else error.exit_code

    def human(self, screen: Screen) -> Iterator[object]:
        from ckpttool.cli.views.inspect_human import human

        return human(self._result, screen)

    # JSON -----------------------------------------------------------------------------

    def data(self) -> Mapping[str, object]:
        result, report = self._result, self._result.checkpoint
        census = report.census if report else None
        graph = report.graph if report else None
        data: dict[str, object] = {
            "source": result.address,
            "kind": result.kind,
            "style": report.style if report else None,
            "prefix": report.prefix if report else None,
            **exact("prefix", report.prefix if report else ""),
            "step": result.step,
            "step_variable": report.step.variable if report and report.step else None,
            "number": report.number if report else None,
            "time": report.time if report else None,
            "variables": census.total.variables if census else None,
            "parameters": census.total.parameters if census else None,
            "bytes": census.total.nbytes if census else None,
            "shards": list(map(_shard, report.shards)) if report else [],
            "by_dtype": _totals(census.by_dtype) if census else {},
            "by_kind": _totals(census.by_kind) if census else {},
            "partitioned": list(map(_partitioned, census.partitioned)) if census else [],
            "largest": list(map(_variable, census.largest)) if census else [],
            "writer": writer_data(graph) if graph else None,
            "graph": graph_data(graph) if graph else None,
            "signatures": signatures_data(_metas(report)) if report else None,
            "run": _run(result.run) if result.run else None,
            "problems": list(map(_problem, result.problems)),
        }
        if report and report.model:
            data["model"] = model_data(report.model)
        if census and census.scopes:
            data["tree"] = scope_data(census.scopes)
        return data

    # Tab-separated lines --------------------------------------------------------------

    def plain(self) -> Iterator[str]:
        yield from tab_lines(self._facts())
        report = self._result.checkpoint
        if report:
            yield from tab_lines(_checkpoint_rows(report))
            yield from tab_lines(signature_rows(_metas(report)))
            if report.model:
                yield from tab_lines(model_rows(report.model))
            if report.graph and report.graph.main:
                yield from tab_lines(graph_rows(report.graph.main))
        if self._result.run:
            yield from tab_lines(_run_rows(self._result.run))
        yield from tab_lines(
            ("problem", problem.severity, problem.id, problem.object, problem.message)
            for problem in self._result.problems
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        data = self.data()
        graph = self._result.checkpoint.graph if self._result.checkpoint else None
        for name in (
            *("kind", "style", "source", "prefix", "step", "time"),
            *("variables", "parameters", "bytes"),
        ):
            value = data[name]
            yield name, "" if value is None else str(value)
        yield "graph", graph.path if graph else ""
        yield "writer", self._writer()

    def _writer(self) -> str:
        report = self._result.checkpoint
        if report and report.model:
            return report.model.writer
        graph = report.graph if report else None
        return writer_text(graph.writer) if graph and graph.writer else ""


def _metas(report: CheckpointReport) -> Sequence[MetaReport]:
    """The signatures of a checkpoint's graph, or of a model."""
    if report.model:
        return model_metas(report.model)
    return report.graph.metas if report.graph else ()


def _checkpoint_rows(report: CheckpointReport) -> Iterator[tuple[str, ...]]:
    census = report.census
    for what, totals in (("by-dtype", census.by_dtype), ("by-kind", census.by_kind)):
        for name, total in totals.items():
            yield what, name, *map(str, total)
    for shard in report.shards:
        present = "present" if shard.present else "missing"
        yield "shard", shard.path, present, _text(shard.nbytes), str(shard.expected)
    for item in census.partitioned:
        axes = ",".join(map(str, item.axes))
        yield "partitioned", item.name, shape_text(item.shape), str(item.slices), axes
    if census.scopes is None:
        for variable in census.largest:
            yield "largest", *_cells(variable)
        return
    for row in tree_rows(census.scopes):
        scope = row.scope
        if scope.inner or scope.variable is None:
            numbers = map(str, (scope.variables, scope.parameters, scope.nbytes))
            yield "scope", row.name, *numbers
        if scope.variable is not None:
            yield "variable", *_cells(scope.variable)


def _run_rows(run: RunReport) -> Iterator[tuple[str, ...]]:
    for item in run.checkpoints:
        yield (
            "checkpoint",
            item.prefix,
            _text(item.step),
            repr(item.time),
            str(item.nbytes),
            "whole" if item.whole else "incomplete",
            "listed" if item.listed else "unlisted",
            "latest" if item.latest else "-",
        )
    for path, why in run.leftovers:
        yield "leftover", path, why


def _cells(variable: Variable) -> tuple[str, ...]:
    shape = shape_text(variable.shape)
    return variable.name, variable.dtype, shape, str(variable.nbytes), variable.kind


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _totals(totals: Mapping[str, Total]) -> dict[str, dict[str, int]]:
    return {
        name: {
            "variables": total.variables,
            "parameters": total.parameters,
            "bytes": total.nbytes,
        }
        for name, total in totals.items()
    }


def _shard(shard: Shard) -> dict[str, object]:
    return {
        "path": shard.path,
        "bytes": shard.nbytes,
        "expected": shard.expected,
        "present": shard.present,
    }


def _partitioned(item: Partitioned) -> dict[str, object]:
    return {
        "name": item.name,
        "shape": None if item.shape is None else list(item.shape),
        "slices": item.slices,
        "axes": list(item.axes),
    }


def _variable(variable: Variable) -> dict[str, object]:
    data: dict[str, object] = {
        "name": variable.name,
        "key": variable.key,
        "dtype": variable.dtype,
        "shape": None if variable.shape is None else list(variable.shape),
        "bytes": variable.nbytes,
        "kind": variable.kind,
    }
    return data | exact("key", variable.key)


def _run(run: RunReport) -> dict[str, object]:
    return {
        "path": run.path,
        "state_file": run.state_file,
        "checkpoints": [
            {
                "prefix": item.prefix,
                **exact("prefix", item.prefix),
                "step": item.step,
                "number": item.number,
                "time": item.time,
                "bytes": item.nbytes,
                "whole": item.whole,
                "flaw": item.flaw or None,
                "listed": item.listed,
                "latest": item.latest,
            }
            for item in run.checkpoints
        ],
        "leftovers": [{"path": path, "why": why} for path, why in run.leftovers],
        "v1": list(run.v1),
    }


def _problem(problem: Finding) -> dict[str, object]:
    return {
        "id": problem.id,
        "severity": problem.severity,
        "object": problem.object,
        "message": problem.message,
    }
