"""How the graph of ``inspect`` looks: JSON, tab-separated lines, and text for people.

Names come from files, so they are escaped where they are printed (tables and ``Output`` do
that for cells and lines; free text is escaped here). Unknown sizes are -1, an unknown rank is
the word ``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen
from ckpttool.model import shape_text
from ckpttool.policy.words import count

if TYPE_CHECKING:
    from ckpttool.formats.metagraph import Signature, TensorInfo
    from ckpttool.ops.graph_report import GraphReport, MetaReport, Writer
    from ckpttool.sources.graph_analysis import GraphAnalysis, GraphTensor
    from ckpttool.sources.graph_signs import Sign
    from ckpttool.sources.graph_variables import GraphVariable

__all__ = [
    "graph_data",
    "graph_lines",
    "graph_rows",
    "ops_lines",
    "signature_lines",
    "signature_rows",
    "signatures_data",
    "writer_data",
    "writer_text",
]

#: Rows of each sort that people are shown; all are there in a pipe and with --json.
_PLACEHOLDERS = 12
_OUTPUTS = 8
_OPS = 12
_TENSORS = 8
_SIGNATURES = 6

_Rows = Iterator[tuple[str, ...]]


# JSON -------------------------------------------------------------------------------------


def writer_data(report: GraphReport) -> dict[str, object] | None:
    """What wrote the graph; None where it was not read."""
    writer = report.writer
    if writer is None:
        return None
    return {
        "tensorflow_version": writer.tensorflow_version or None,
        "git_version": writer.git_version or None,
        "graph_producer": writer.producer,
        "graph_min_consumer": writer.min_consumer,
    }


def signatures_data(metas: Sequence[MetaReport]) -> list[dict[str, object]] | None:
    """The signatures of all MetaGraphs; None of a file that can have none."""
    if not metas:
        return None
    return [
        {
            "name": signature.name,
            "tags": list(meta.tags),
            "method": signature.method,
            "inputs": list(map(_tensor_info, signature.inputs)),
            "outputs": list(map(_tensor_info, signature.outputs)),
        }
        for meta in metas
        for signature in meta.signatures
    ]


def graph_data(report: GraphReport) -> dict[str, object]:
    """The file; and what is in it, where it was looked at."""
    data: dict[str, object] = {
        "path": report.path,
        "bytes": report.nbytes,
        "message": report.message,
        "meta_graphs": list(map(_meta, report.metas)),
        # As text: they have 64 bits, and numbers of JavaScript have 53.
        "fingerprint": None
        if report.fingerprint is None
        else {name: str(value) for name, value in report.fingerprint._asdict().items()},
    }
    if report.main is not None:
        data |= _analysis(report.main)
    return data


def _meta(meta: MetaReport) -> dict[str, object]:
    saver = meta.saver
    return {
        "tags": list(meta.tags),
        "signatures": [signature.name for signature in meta.signatures],
        "assets": [asset.filename for asset in meta.assets],
        "saver": None
        if saver is None
        else {
            "version": saver.version,
            "sharded": saver.sharded,
            "filename_tensor": saver.filename_tensor,
            "save_tensor": saver.save_tensor,
            "restore_op": saver.restore_op,
        },
    }


def _analysis(graph: GraphAnalysis) -> dict[str, object]:
    from ckpttool.sources.tensorflow_ops import listed_version

    return {
        "nodes": graph.nodes,
        "functions": graph.functions,
        "function_nodes": graph.function_nodes,
        "ops": graph.ops,
        "placeholders": [
            {
                "name": each.name,
                "dtype": each.dtype,
                "shape": _shape(each.shape),
                "default": each.default,
            }
            for each in graph.placeholders
        ],
        "likely_inputs": list(map(_tensor, graph.inputs)),
        "likely_outputs": list(map(_tensor, graph.outputs)),
        "variables": list(map(_variable, graph.variables)),
        "training": [
            {
                "id": sign.id,
                "message": sign.message,
                "count": sign.shown,
                "nodes": list(sign.nodes),
                "alters": sign.alters,
            }
            for sign in graph.signs
        ],
        "unknown_ops": list(graph.unknown_ops),
        "known_ops_of": listed_version(),
    }


def _tensor_info(tensor: TensorInfo) -> dict[str, object]:
    return {
        "name": tensor.name,
        "tensor": tensor.tensor or None,
        "dtype": tensor.dtype,
        "shape": _shape(tensor.shape),
    }


def _tensor(tensor: GraphTensor) -> dict[str, object]:
    return {
        "name": tensor.name,
        "op": tensor.op,
        "dtype": tensor.dtype or None,
        "shape": _shape(tensor.shape),
    }


def _variable(variable: GraphVariable) -> dict[str, object]:
    part = variable.slice
    return {
        "name": variable.name,
        "op": variable.op or None,
        "dtype": variable.dtype,
        "shape": _shape(variable.shape),
        "slice_of": None
        if part is None
        else {
            "name": part.full_name,
            "shape": list(part.full_shape),
            "start": list(part.offset),
            "extent": list(part.shape),
        },
    }


def _shape(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else list(shape)


# Tab-separated lines ----------------------------------------------------------------------


def signature_rows(metas: Sequence[MetaReport]) -> _Rows:
    """A line for each tensor of each signature."""
    for meta in metas:
        for signature in meta.signatures:
            for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
                for tensor in tensors:
                    shape = shape_text(tensor.shape)
                    cells = (signature.name, side, tensor.name, tensor.dtype, shape)
                    yield "signature", *cells, tensor.tensor


def graph_rows(graph: GraphAnalysis) -> _Rows:
    """What is in a graph, one thing a line."""
    yield "nodes", str(graph.nodes), str(graph.functions), str(graph.function_nodes)
    for name, number in graph.ops.items():
        yield "op", name, str(number)
    for each in graph.placeholders:
        default = "default" if each.default else "-"
        yield "placeholder", each.name, each.dtype, shape_text(each.shape), default
    for what, tensors in (("likely-input", graph.inputs), ("likely-output", graph.outputs)):
        for tensor in tensors:
            yield what, tensor.name, tensor.op, tensor.dtype, shape_text(tensor.shape)
    for variable in graph.variables:
        yield "graph-variable", variable.name, variable.dtype, shape_text(variable.shape)
    for sign in graph.signs:
        alters = "alters" if sign.alters else "-"
        yield "training", sign.id, str(sign.shown), alters, ",".join(sign.nodes), sign.message
    for name in graph.unknown_ops:
        yield "unknown-op", name, str(graph.ops[name])


# Text -------------------------------------------------------------------------------------


def writer_text(writer: Writer) -> str:
    """``TensorFlow 1.12.0``, or what else is known of a writer; may be empty."""
    if writer.tensorflow_version:
        return f"TensorFlow {writer.tensorflow_version}"
    return f"graph version {writer.producer}" if writer.producer else ""


def signature_lines(metas: Sequence[MetaReport], screen: Screen) -> Iterator[object]:
    """The signatures of each MetaGraph, with their inputs and outputs."""
    for meta in metas:
        hidden = len(meta.signatures) - _SIGNATURES
        for signature in meta.signatures[:_SIGNATURES]:
            yield "\n"
            yield from _signature(signature, meta, screen, several=len(metas) > 1)
        yield from _and_more(hidden, screen)
        if meta.assets:
            names = escape(", ".join(asset.filename for asset in meta.assets[:_TENSORS]))
            more = f" and {len(meta.assets) - _TENSORS} more" * (len(meta.assets) > _TENSORS)
            yield "\n"
            yield screen.text(f"  {screen.style('assets', 'bold')}  {names}{more}", hang=4)


def _signature(
    signature: Signature, meta: MetaReport, screen: Screen, *, several: bool
) -> Iterator[object]:
    tags = f"  tags {', '.join(meta.tags)}" if several else ""
    title = screen.style(f"  signature {escape(signature.name)}".rstrip(), "bold")
    about = screen.style(escape(f"{signature.method}{tags}".strip()), "dim")
    yield screen.text(f"{title}  {about}".rstrip(), hang=4)
    sides = (("in", signature.inputs), ("out", signature.outputs))
    tensors = [(side, tensor) for side, found in sides for tensor in found[:_TENSORS]]
    columns = [
        Column("    "),
        Column("name", style="cyan"),
        Column("dtype", drop=2),
        Column("shape"),
        Column("tensor", style="dim", drop=1),
    ]
    rows = (
        (f"    {side}", tensor.name, tensor.dtype, shape_text(tensor.shape), tensor.tensor)
        for side, tensor in tensors
    )
    if tensors:
        yield from screen.table(columns, rows)
    yield from _and_more(len(signature.inputs) + len(signature.outputs) - len(tensors), screen)


def graph_lines(report: GraphReport, graph: GraphAnalysis, screen: Screen) -> Iterator[object]:
    """What is in a graph: size, what goes in and out, ops, and what to be wary of."""
    what = f"graph of {count(graph.nodes, 'node')}"
    yield screen.text(f"  {screen.style(what, 'bold')}{_size(report, graph)}", hang=4)
    served = bool(report.metas) and any(meta.signatures for meta in report.metas)
    if graph.placeholders:
        yield "\n"
        rows = [
            (each.name, each.dtype, shape_text(each.shape), "may be left out" * each.default)
            for each in graph.placeholders
        ]
        yield from _table("placeholder", "", rows, _PLACEHOLDERS, screen)
    # Where signatures say what goes in and out, nothing has to be guessed.
    guesses = (("likely input", graph.inputs), ("likely output", graph.outputs))
    for title, tensors in () if served else guesses:
        if tensors:
            yield "\n"
            rows = [(each.name, each.dtype, shape_text(each.shape), each.op) for each in tensors]
            yield from _table(title, "op", rows, _OUTPUTS, screen)
    yield "\n"
    yield from ops_lines(graph.ops, screen)
    if graph.signs:
        yield "\n"
        yield screen.style("  signs of a graph that trains", "bold") + "\n"
        for sign in graph.signs:
            yield screen.text(_sign(sign, screen), hang=6)
    if graph.unknown_ops:
        yield "\n"
        yield from _unknown(graph, screen)


def _size(report: GraphReport, graph: GraphAnalysis) -> str:
    facts = []
    if graph.functions:
        facts.append(
            f"{count(graph.functions, 'function')} with {count(graph.function_nodes, 'node')}"
        )
    if graph.variables:
        facts.append(count(len(graph.variables), "variable"))
    if graph.producer:
        facts.append(f"format version {graph.producer}")
    if len(report.analyses) > 1:
        facts.append(f"one of {len(report.analyses)}")
    return "".join(f", {fact}" for fact in facts)


def _table(
    title: str, last: str, rows: Sequence[tuple[str, ...]], most: int, screen: Screen
) -> Iterator[object]:
    columns = [
        Column(f"  {title}", style="cyan"),
        Column("dtype", drop=1),
        Column("shape"),
        Column(last, style="dim", drop=2),
    ]
    shown = ((f"  {row[0]}", *row[1:]) for row in rows[:most])
    yield from screen.table(columns, shown)
    yield from _and_more(len(rows) - most, screen)


def ops_lines(ops: Mapping[str, int], screen: Screen) -> Iterator[object]:
    """The most frequent ops, and how often each is there."""
    shown = list(ops.items())[:_OPS]
    text = ", ".join(f"{name} {number:,}" for name, number in shown)
    more = f", and {len(ops) - _OPS} more kinds" if len(ops) > _OPS else ""
    yield screen.text(f"  {screen.style('ops', 'bold')}  {escape(text)}{more}", hang=4)


def _sign(sign: Sign, screen: Screen) -> str:
    mark = screen.style("!", "yellow") if sign.alters else screen.style("·", "dim")
    names = ", ".join(sign.nodes) + (", …" if sign.shown > len(sign.nodes) else "")
    return f"    {mark} {escape(sign.message)} ({sign.shown}: {escape(names)})"


def _unknown(graph: GraphAnalysis, screen: Screen) -> Iterator[object]:
    from ckpttool.sources.tensorflow_ops import listed_version

    title = f"  ops that TensorFlow {listed_version()} does not have"
    names = escape(", ".join(graph.unknown_ops))
    yield screen.text(f"{screen.style(title, 'bold')}  {names}", hang=4)


def _and_more(more: int, screen: Screen) -> Iterable[str]:
    return [screen.style(f"    and {more} more", "dim") + "\n"] if more > 0 else []
