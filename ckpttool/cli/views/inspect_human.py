"""``inspect`` for people: from what it is to what is wrong, on one or two screens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text
from ckpttool.cli.views.findings import caller, finding_lines
from ckpttool.cli.views.graph import graph_lines, signature_lines, writer_text
from ckpttool.cli.views.model import model_facts, model_lines, model_metas
from ckpttool.cli.views.tree import tree_lines
from ckpttool.cli.words import when
from ckpttool.model import Finding, Shard, shape_text
from ckpttool.ops.census import Census, Partitioned, Total
from ckpttool.ops.graph_report import GraphReport
from ckpttool.ops.inspect import CheckpointReport, InspectResult
from ckpttool.ops.run_report import RunCheckpoint, RunReport
from ckpttool.policy.words import count, plural
from ckpttool.sources.shard_files import MISSING_NAMED

__all__ = ["described", "human"]

#: Rows of each sort; what is left out is counted, and there in a pipe and with --json.
_CHECKPOINTS = 30
_LEFTOVERS = 10
_SHARDS = 12
_PARTITIONED = 5

_WHAT = {
    ("tf-v2", "name"): "V2 checkpoint, name-based",
    ("tf-v2", "object"): "V2 checkpoint, object-based",
    ("tf-v1", "name"): "V1 checkpoint",
    ("savedmodel", "name"): "SavedModel variables, name-based",
    ("savedmodel", "object"): "SavedModel variables, object-based",
    ("savedmodel", ""): "SavedModel without variables",
    ("frozen-graph", ""): "graph (GraphDef), whose constants are its variables",
    ("graph", ""): "graph (GraphDef) that is not frozen: its constants, without its variables",
    ("safetensors", ""): "safetensors file",
    ("npz", ""): "NumPy arrays",
    ("tflite", ""): "TFLite model, whose constants are its variables",
    ("onnx", ""): "ONNX model, whose initializers are its variables",
    ("tfjs", ""): "TensorFlow.js model",
    ("metagraph", ""): "graph of a checkpoint (MetaGraphDef), without values",
}
_STYLES = {
    "name": "its keys are the names of its variables",
    "object": "its keys are paths of objects; names come from its object graph",
}
_BAR = 12
#: Columns from which on the bars have their full length.
_WIDE = 72
_EIGHTHS = " ▏▎▍▌▋▊▉"


def human(result: InspectResult, screen: Screen) -> Iterator[object]:
    """Text and tables, in the order of reading."""
    if result.run is not None:
        yield from _run(result.run, screen)
        yield "\n"
    if result.checkpoint is not None:
        yield from _checkpoint(result.checkpoint, screen)
        yield "\n"
    error = result.unreadable  # it follows on stderr, with what to do about it
    problems = [found for found in result.problems if error is None or found.object != error.what]
    report = result.checkpoint
    called = caller(report.names, report.prefix) if report else str
    yield from _problems(problems, screen, called, healthy=error is None)


# The run ----------------------------------------------------------------------------------


def _run(run: RunReport, screen: Screen) -> Iterator[object]:
    size = bytes_text(sum(item.nbytes for item in run.checkpoints))
    what = f"run of {count(len(run.checkpoints), 'checkpoint')}, {size}"
    yield screen.text(f"{screen.style(what, 'bold')}  {escape(run.path)}") + "\n"
    hidden = len(run.checkpoints) - _CHECKPOINTS
    if hidden > 0:
        yield screen.style(f"  {hidden} older ones are not shown", "dim") + "\n"
    columns = [
        Column("  checkpoint", style="cyan"),
        Column("step", "right", drop=3),
        Column("saved", drop=2),
        Column("bytes", "right", drop=1),
        Column(""),
    ]
    shown = run.checkpoints[max(hidden, 0) :]
    yield from screen.table(columns, (_checkpoint_row(item, run) for item in shown))
    if run.leftovers:
        yield f"\n{screen.style('  left behind by saves', 'bold')}\n"
        for path, why in run.leftovers[:_LEFTOVERS]:
            yield screen.text(f"  {escape(path)}: {escape(why)}", hang=4)
        yield from _and_more(len(run.leftovers) - _LEFTOVERS, screen)


def _checkpoint_row(item: RunCheckpoint, run: RunReport) -> tuple[str, ...]:
    remarks = ["latest"] if item.latest else []
    if run.state_file and not (item.listed or item.latest):
        remarks.append("not listed")
    if item.flaw:
        remarks.append("not whole")  # why, is among the problems
    return (
        "  " + item.prefix.removeprefix(run.path).lstrip("/"),
        "" if item.step is None else str(item.step),
        when(item.time),
        bytes_text(item.nbytes),
        ", ".join(remarks),
    )


def described(report: CheckpointReport) -> str:
    """What a checkpoint is, in words."""
    return _WHAT.get((report.kind, report.style or ""), report.kind)


# The checkpoint ---------------------------------------------------------------------------


def _checkpoint(report: CheckpointReport, screen: Screen) -> Iterator[object]:
    what = described(report)
    yield screen.text(f"{screen.style(what, 'bold')}  {escape(report.prefix)}")
    if report.style:
        yield screen.text(screen.style(_STYLES[report.style], "dim"), hang=0)
    yield "\n"
    for name, text in _facts(report):
        yield screen.text(f"  {screen.style(f'{name:<11}', 'dim')} {escape(text)}", hang=14)
    census = report.census
    for title, totals in (("kind", census.by_kind), ("dtype", census.by_dtype)):
        if totals:
            yield "\n"
            yield from screen.table(_columns(title), _rows(totals, screen))
    if len(report.shards) > 1 or any(_shard_state(shard) != "whole" for shard in report.shards):
        yield "\n"
        yield from _shards(report.shards, screen)
    if census.scopes is not None:
        yield "\n"
        yield from tree_lines(census.scopes, screen)
    elif census.largest and not (report.graph and report.graph.main):
        yield "\n"
        yield from _largest(census, screen)
    if report.model is not None:
        yield from signature_lines(model_metas(report.model), screen)
        yield from model_lines(report.model, screen)
    graph = report.graph
    if graph is not None:
        yield from signature_lines(graph.metas, screen)
        if graph.main is not None:
            yield "\n"
            yield from graph_lines(graph, graph.main, screen)


def _facts(report: CheckpointReport) -> Iterator[tuple[str, str]]:
    if report.step is not None:
        other = (
            "" if report.number in {None, report.step.value} else f"; its name says {report.number}"
        )
        yield "step", f"{report.step.value} ({report.step.variable}){other}"
    elif report.number is not None:
        yield "step", f"{report.number} (the number in its name)"
    if report.time is not None:
        yield "written", when(report.time)
    total = report.census.total
    parameters = f"{total.parameters:,} {plural(total.parameters, 'parameter')}"
    yield "variables", f"{total.variables:,} with {parameters}, {bytes_text(total.nbytes)}"
    yield "data", _data(report.shards)
    if report.census.partitioned:
        yield "partitioned", _partitioned(report.census)
    if report.model is not None:
        yield from model_facts(report.model)
    if report.graph is not None:
        yield "graph", _graph(report, report.graph)


def _graph(report: CheckpointReport, graph: GraphReport) -> str:
    """The file of a graph, how large it is beside the data, and what wrote it."""
    path = caller({}, report.prefix)(graph.path)
    data = sum(shard.nbytes or 0 for shard in report.shards)
    share = f" ({graph.nbytes / data:.0%} of the data)" if graph.beside and data else ""
    writer = writer_text(graph.writer) if graph.writer else ""
    return f"{path}, {bytes_text(graph.nbytes)}{share}" + (f", by {writer}" if writer else "")


def _data(shards: Sequence[Shard]) -> str:
    states = [_shard_state(shard) for shard in shards]
    wrong = [state for state in ("missing", "short") if state in states]
    size = bytes_text(sum(shard.nbytes or 0 for shard in shards))
    facts = [f"{count(len(shards), 'file')}, {size}"]
    facts += [f"{states.count(state)} {state}" for state in wrong]
    if states.count("missing") >= MISSING_NAMED:  # no more are listed
        facts.append("maybe more: see the problems")
    return ", ".join(facts)


def _shard_state(shard: Shard) -> str:
    if shard.nbytes is None:
        return "missing"
    return "short" if shard.nbytes < shard.expected else "whole"


def _partitioned(census: Census) -> str:
    shown = [_layout(item) for item in census.partitioned[:_PARTITIONED]]
    more = census.partitioned_count - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _layout(item: Partitioned) -> str:
    word = "axis" if len(item.axes) == 1 else "axes"
    axes = f"{word} {', '.join(map(str, item.axes))}"
    along = f" along {axes}" if item.axes else ""
    return f"{item.name} {shape_text(item.shape)} in {count(item.slices, 'slice')}{along}"


def _columns(title: str) -> list[Column]:
    return [
        Column(f"  {title}", style="cyan"),
        Column("variables", "right", drop=3),
        Column("parameters", "right", drop=2),
        Column("bytes", "right"),
        Column("share", style="dim", drop=1),
    ]


def _rows(totals: Mapping[str, Total], screen: Screen) -> Iterator[tuple[str, ...]]:
    all_bytes = sum(total.nbytes for total in totals.values())
    for name, total in totals.items():
        share = total.nbytes / all_bytes if all_bytes else 0.0
        yield (
            f"  {name}",
            f"{total.variables:,}",
            f"{total.parameters:,}",
            bytes_text(total.nbytes),
            _bar(share, screen),
        )


def _bar(share: float, screen: Screen) -> str:
    """A share as a bar and a percentage."""
    percent = " <1%" if 0 < share < 0.005 else f"{share:4.0%}"
    if not screen.unicode:
        return percent
    eighths = round(share * (_BAR if screen.width >= _WIDE else _BAR // 2) * 8)
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return f"{percent} {bar}"


def _shards(shards: Sequence[Shard], screen: Screen) -> Iterator[object]:
    """All where they are few; else those with which something is wrong."""
    shown = shards
    if len(shards) > _SHARDS:
        shown = [shard for shard in shards if _shard_state(shard) != "whole"]
    if not shown:
        return
    columns = [
        Column("  data file", style="cyan"),
        Column("bytes", "right", drop=2),
        Column("needed", "right", drop=1),
        Column(""),
    ]
    rows = (
        (
            "  " + shard.path.rpartition("/")[2],
            "" if shard.nbytes is None else bytes_text(shard.nbytes),
            bytes_text(shard.expected),
            "" if _shard_state(shard) == "whole" else _shard_state(shard),
        )
        for shard in shown[:_SHARDS]
    )
    yield from screen.table(columns, rows)
    yield from _and_more(len(shown) - _SHARDS, screen)


def _largest(census: Census, screen: Screen) -> Iterator[object]:
    columns = [
        Column("  largest", style="cyan"),
        Column("dtype", drop=2),
        Column("shape"),
        Column("bytes", "right", drop=3),
        Column("kind", style="dim", drop=1),
    ]
    rows = (
        (
            f"  {variable.name}",
            variable.dtype,
            shape_text(variable.shape),
            bytes_text(variable.nbytes),
            variable.kind,
        )
        for variable in census.largest
    )
    yield from screen.table(columns, rows)


# Problems ---------------------------------------------------------------------------------


def _problems(
    problems: Sequence[Finding], screen: Screen, called: Callable[[str], str], *, healthy: bool
) -> Iterator[str]:
    """The first few of each id; problems come sorted by severity."""
    serious = [problem for problem in problems if problem.severity != "note"]
    if healthy and not serious:
        mark = "✓ " if screen.unicode else ""
        text = f"{mark}nothing wrong at a glance"
        values = screen.style("(values: ckpttool verify)", "dim")
        yield screen.text(f"{screen.style(text, 'green')} {values}")
    yield from finding_lines(problems, screen, called=called)
    if serious:
        hint = f"what it means: ckpttool explain {serious[0].id}"
        yield screen.style(hint, "dim") + "\n"


def _and_more(more: int, screen: Screen) -> Iterable[str]:
    return [screen.style(f"  and {more} more", "dim") + "\n"] if more > 0 else []
