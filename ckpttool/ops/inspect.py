"""``inspect``: what a checkpoint or a run is, and what is in it.

One pass over the variables for what is counted, and the checks of ``verify --quick`` for
what is wrong. Of the values only the step is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ckpttool.errors import CkpttoolError
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Finding, Shard, Variable
from ckpttool.ops.census import Census, take_census
from ckpttool.sources.address import Resolved, run_of
from ckpttool.sources.base import Source, SourceKind, Style
from ckpttool.sources.filenames import graph_name, index_name
from ckpttool.sources.naming import path_of_key
from ckpttool.sources.registry import resolve_and_open
from ckpttool.sources.selection import Selection
from ckpttool.sources.step import COUNTERS
from ckpttool.storage import Directory, open_directory

# What looks at runs and checks bundles is imported when one is met: an HDF5 file is neither.
if TYPE_CHECKING:
    from ckpttool.formats.model_summary import ModelSummary
    from ckpttool.ops.graph_report import GraphReport
    from ckpttool.ops.run_report import RunReport

__all__ = ["CheckpointReport", "InspectResult", "Step", "inspect"]

#: Integers that a step is stored as, and whether they have a sign.
_INTEGERS = {"int32": True, "int64": True, "uint32": False, "uint64": False}
#: Kinds of sources that say more of themselves, in their ``summary``.
_MODELS = {"tflite", "onnx", "tfjs"}
#: Told of checkpoints of a run done and of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A training step, and the variable in which it is stored."""

    value: int
    variable: str


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """One checkpoint.

    Attributes:
        prefix: with its directory.
        kind: what sort of checkpoint it is.
        style: whether its keys are variable names or object paths.
        step: the step that it holds; None where there is none, or it cannot be read.
        number: the number in its name.
        time: when its index was last written, in seconds; None where it is gone again.
        census: its variables, counted.
        shards: its data files, those that are missing too.
        graph: the graph beside it (``.meta``, ``saved_model.pb``), or its own.
        problems: what ``verify --quick`` finds.
        names: object of a problem → what ``list`` calls it, where that is not its key.
        model: what a model says of itself, where its file is more than weights.
    """

    prefix: str
    kind: SourceKind
    style: Style | None
    step: Step | None
    number: int | None
    time: float | None
    census: Census
    shards: tuple[Shard, ...]
    graph: GraphReport | None
    problems: tuple[Finding, ...]
    names: Mapping[str, str]
    model: ModelSummary | None = None


@dataclass(frozen=True, slots=True)
class InspectResult:
    """What an address stands for.

    Attributes:
        address: as it was given.
        run: the run directory that it names; else None.
        checkpoint: the checkpoint that it names, of a run the one that it stands for; None
            where that one cannot be read.
        unreadable: why it cannot be read; only of a run that has checkpoints, else it is
            raised.
        notes: how the address was understood.
    """

    address: str
    run: RunReport | None
    checkpoint: CheckpointReport | None
    unreadable: CkpttoolError | None
    notes: tuple[str, ...]

    @property
    def kind(self) -> SourceKind | Literal["run"]:
        """What the address names, in the words of the JSON contract."""
        return self.checkpoint.kind if self.run is None and self.checkpoint else "run"

    @property
    def step(self) -> int | None:
        """The step inside the checkpoint, else the number in its name."""
        report = self.checkpoint
        if report is None:
            return None
        return report.number if report.step is None else report.step.value

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Of the checkpoint and of the run, errors first; each once."""
        found: list[Finding] = []
        if self.unreadable is not None:
            error = self.unreadable
            message = "; ".join(filter(None, (error.why, error.hint)))
            found.append(Finding(error.id, "error", error.what, message))
        if self.checkpoint is not None:
            found += self.checkpoint.problems
        explained = bool(found) and found[0].severity == "error"
        for problem in self.run.problems if self.run else ():
            if not (explained and problem.id == "state-latest-incomplete"):
                found.append(problem)
        return tuple(sorted(found, key=lambda problem: _SEVERITIES.index(problem.severity)))


_SEVERITIES = ("error", "warning", "note")


def inspect(
    address: str,
    *,
    tree: bool = False,
    depth: int | None = None,
    graph: bool = False,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> InspectResult:
    """Say what an address stands for; nothing is changed and no TensorFlow is needed.

    Args:
        address: a checkpoint's prefix or one of its files, a run directory, ``RUN/@STEP``,
            a SavedModel.
        tree: whether to sort the variables into scopes.
        depth: levels of scopes; None: all.
        graph: whether to look at the nodes of its graph; then there has to be one.
        limits: bounds on what the files may claim; None: those of this process.
        progress: called with checkpoints done and checkpoints in all, of a run.

    Raises:
        CkpttoolError: as ``open_source`` and its ``variables``: there is no checkpoint, or
            its index cannot be read. Of a run that has other checkpoints, the error is part
            of the result.
    """
    limits = limits or default_limits()
    run: RunReport | None = None
    try:
        resolved, source = resolve_and_open(address, limits)
        with source:
            if resolved.kind == "run":
                run = _run(address, limits, progress)
            checkpoint = _report(
                source, resolved, tree=tree, depth=depth, graph=graph, limits=limits
            )
            notes = tuple(source.notes)
    except CkpttoolError as error:
        run = run or _run(address, limits, progress)
        if run is None or not run.checkpoints:
            raise
        return InspectResult(address, run, None, error, ())
    return InspectResult(address, run, checkpoint, None, notes)


def _run(address: str, limits: Limits, progress: Progress | None) -> RunReport | None:
    where = run_of(address)
    if where is None:
        return None
    from ckpttool.ops.run_report import report_run

    return report_run(where, limits, progress)


def _report(
    source: Source,
    resolved: Resolved,
    *,
    tree: bool,
    depth: int | None,
    graph: bool,
    limits: Limits,
) -> CheckpointReport:
    census = take_census(source.variables(), scopes=tree, depth=depth)
    bundle = source.kind in {"tf-v2", "savedmodel"} and resolved.kind != "graph"
    problems = tuple(source.findings())
    names: Mapping[str, str] = {}
    with open_directory(resolved.directory) as directory:
        first = index_name(resolved.prefix) if bundle else _first(source)
        file = directory.stat(first) if first else None
        if bundle:
            from ckpttool.ops.verification.bundle import check_bundle

            checked = check_bundle(
                directory, resolved.prefix, level="quick", jobs=1, limits=limits, progress=None
            )
            problems, names = checked.findings, checked.names
        found = _graph(source, directory, resolved, graph=graph, limits=limits)
        if found is not None:
            problems = (*problems, *found.problems)
    return CheckpointReport(
        source.location,
        source.kind,
        source.style,
        _step(source, census.counters),
        source.number,
        file.mtime_ns / 1e9 if file else None,
        census,
        tuple(source.shards()),
        found,
        problems,
        names,
        getattr(source, "summary", None) if source.kind in _MODELS else None,
    )


def _graph(
    source: Source, directory: Directory, resolved: Resolved, *, graph: bool, limits: Limits
) -> GraphReport | None:
    """The graph of a checkpoint; its reader is imported only where there is one."""
    if not graph and resolved.kind in {"checkpoint", "run", "tf-v1"}:
        stat = directory.stat(graph_name(resolved.prefix))
        if stat is None or stat.kind != "file":
            return None
    elif resolved.kind in _MODELS or (not graph and resolved.kind not in {"graph", "savedmodel"}):
        return None
    from ckpttool.ops.graph_report import report_graph
    from ckpttool.sources.graph import GraphSource, MetaGraphSource

    content = source.content if isinstance(source, GraphSource | MetaGraphSource) else None
    return report_graph(directory, resolved, limits, analyse=graph, content=content)


def _first(source: Source) -> str:
    """The name of the first file of a source that is there."""
    return next((os.path.basename(one.path) for one in source.shards() if one.present), "")


def _step(source: Source, counters: Iterable[Variable]) -> Step | None:
    """The value of the most telling counter that can be read."""
    for variable in sorted(counters, key=_rank):
        signed = _INTEGERS.get(variable.dtype)
        if signed is None:
            continue
        try:
            data = b"".join(source.chunks(variable, Selection.whole(())))
        except CkpttoolError:
            continue  # its data file is missing or damaged, which the problems say
        return Step(int.from_bytes(data, "little", signed=signed), variable.name)
    return None


def _rank(variable: Variable) -> tuple[int, int, str]:
    """Sorts counters: by what they are called, then by how deep they lie."""
    path = path_of_key(variable.key)
    names = {path.rpartition("/")[2], variable.name.rpartition("/")[2]}
    ranks = [rank for rank, name in enumerate(COUNTERS) if name in names]
    return min(ranks, default=len(COUNTERS)), path.count("/"), path
