"""How a model that is more than weights looks in ``inspect``: TFLite, ONNX, TensorFlow.js.

Its signatures look like those of a graph (``views/graph.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.cli.views.graph import ops_lines
from ckpttool.ops.graph_report import MetaReport
from ckpttool.policy.words import count

if TYPE_CHECKING:
    from ckpttool.cli.screen import Screen
    from ckpttool.formats.model_summary import ModelSummary

__all__ = ["model_data", "model_facts", "model_lines", "model_metas", "model_rows"]


def model_metas(model: ModelSummary) -> tuple[MetaReport, ...]:
    """Its signatures, as the views of graphs take them; it has no tags."""
    return (MetaReport((), model.signatures, (), None),)


def model_data(model: ModelSummary) -> dict[str, object]:
    """For JSON."""
    return {
        "form": model.form,
        "writer": model.writer or None,
        "opsets": dict(model.opsets),
        "ops": dict(model.ops),
        "quantised": model.quantised,
    }


def model_rows(model: ModelSummary) -> Iterator[tuple[str, ...]]:
    """For a pipe, one thing a line."""
    yield "form", model.form
    for domain, version in model.opsets.items():
        yield "opset", domain, str(version)
    for name, number in model.ops.items():
        yield "op", name, str(number)
    yield "quantised", str(model.quantised)


def model_facts(model: ModelSummary) -> Iterator[tuple[str, str]]:
    """For people, among the facts."""
    opsets = "".join(f", opset {version} of {name}" for name, version in model.opsets.items())
    yield "model", f"{model.form}{opsets}" + (f", by {model.writer}" if model.writer else "")
    if model.quantised:
        yield "quantised", count(model.quantised, "variable")


def model_lines(model: ModelSummary, screen: Screen) -> Iterator[object]:
    """For people, its ops."""
    if model.ops:
        yield "\n"
        yield from ops_lines(model.ops, screen)
