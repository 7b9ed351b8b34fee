"""A frozen graph → an ONNX model, by tf2onnx; what that says went wrong is an error here.

tf2onnx logs an operation that it does not know, leaves it in its model as it is, and calls
the model converted. So its log is listened to, and the model is checked.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ckpttool.conversion.worker.onnx_handlers import handlers
from ckpttool.conversion.worker.onnx_names import all_graphs
from ckpttool.conversion.worker.program import Frozen
from ckpttool.errors import ConversionError, UnsupportedError, UsageError

__all__ = ["LOWEST_OPSET", "make_model", "require_valid", "supported_opset"]

#: Before it, weights had to be inputs too (onnx/docs/IR.md), and Where did not exist.
LOWEST_OPSET = 9
#: What tf2onnx says of an operation that it does not know: arguments are node and operation.
_UNKNOWN = "Tensorflow op [%s: %s] is not supported"
#: What it says once more of all of them together.
_SUMMARY = "Unsupported ops: %s"
_NAMED = 10
_DOMAINS = {"", "ai.onnx", "ai.onnx.ml"}
#: Compares and changes text by a locale of the machine that it runs on.
_BY_LOCALE = "StringNormalizer"


def supported_opset(wanted: int | None) -> int:
    """The operator set that was asked for; None is the highest that tf2onnx knows.

    Raises:
        UsageError: id ``onnx-opset``.
    """
    from tf2onnx.constants import OPSET_TO_IR_VERSION

    highest: int = max(OPSET_TO_IR_VERSION)
    if wanted is None:
        return highest
    if not LOWEST_OPSET <= wanted <= highest:
        raise UsageError(
            f"--opset {wanted} cannot be written",
            why=f"tf2onnx writes {LOWEST_OPSET} to {highest}",
            hint=f"leave it out for {highest}; runtimes read every older one",
            id="onnx-opset",
        )
    return wanted


def make_model(frozen: Frozen, opset: int) -> Any:  # noqa: ANN401
    """A ModelProto whose inputs are those of the function, then its weights outside.

    Raises:
        ConversionError: id ``onnx-operators``: some have no counterpart; ``onnx-errors``:
            tf2onnx says that something else went wrong.
        UnsupportedError: id ``onnx-dtype``.
    """
    import tensorflow as tf
    from tf2onnx import optimizer
    from tf2onnx.tfonnx import process_tf_graph

    _require_dtypes(frozen)
    _keep_loops(frozen.graph)
    inputs = [port.tensor for port in frozen.signature.inputs]
    inputs += [f"{name}:0" for name in frozen.weights]
    outputs = [port.tensor for port in frozen.signature.outputs]
    with _errors() as errors, _steady_sets():
        graph_def = _optimized(frozen, inputs, outputs)
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(graph_def, name="")
            made = process_tf_graph(
                graph,
                continue_on_error=True,  # to hear of all that it does not know
                opset=opset,
                input_names=inputs,
                output_names=outputs,
                custom_op_handlers=handlers(),
            )
        _require_known(errors)
        made = optimizer.optimize_graph(made)
        return made.make_model("", graph_name=frozen.signature.name)


def _optimized(frozen: Frozen, inputs: list[str], outputs: list[str]) -> Any:  # noqa: ANN401
    """The graph after TensorFlow's own folding of constants.

    For that TensorFlow makes a tensor of zeros for every placeholder, as large as the weight
    that it stands for; but none for a variable.
    """
    import tensorflow as tf
    from tf2onnx import tf_loader

    _change_op(frozen.graph, frozen.weights, "VariableV2")
    with tf.Graph().as_default():
        graph_def = tf_loader.tf_optimize(inputs, outputs, frozen.graph)
    _change_op(graph_def, frozen.weights, "Placeholder")
    return graph_def


def _change_op(graph: Any, names: Container[str], op: str) -> None:  # noqa: ANN401
    for node in graph.node:
        if node.name in names:
            node.op = op
            for name in [name for name in node.attr if name not in {"dtype", "shape"}]:
                del node.attr[name]


def require_valid(model: Any) -> None:  # noqa: ANN401
    """Check that a model is ONNX, and would run the same everywhere.

    Raises:
        ConversionError: ids ``onnx-invalid``, ``onnx-operators``.
        UnsupportedError: id ``onnx-strings``.
    """
    import onnx

    nodes = [node for graph in all_graphs(model.graph) for node in graph.node]
    foreign = Counter(node.op_type for node in nodes if node.domain not in _DOMAINS)
    if foreign:
        raise _unknown_operators(foreign)
    if any(node.op_type == _BY_LOCALE for node in nodes):
        raise UnsupportedError(
            "the signature changes text to lower or upper case",
            why="in ONNX that needs a locale (en_US.UTF-8) of the machine that runs it, and "
            "fails where it is not installed",
            hint="choose inputs after that step, and do it before the model",
            id="onnx-strings",
        )
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        said = " ".join(str(error).split())[:500]
        raise ConversionError(
            "tf2onnx made a model that is no valid ONNX",
            why=said,
            hint="choose other outputs, or another --opset",
            id="onnx-invalid",
        ) from error


class _Listener(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _errors() -> Iterator[Sequence[logging.LogRecord]]:
    """The errors that tf2onnx logs meanwhile; they go on to where they went."""
    logger = logging.getLogger("tf2onnx")
    listener = _Listener()
    logger.addHandler(listener)
    try:
        yield listener.records
    finally:
        logger.removeHandler(listener)


@contextmanager
def _steady_sets() -> Iterator[None]:
    """Give tf2onnx's sets of nodes the same order in every run, by name.

    It takes nodes as they come out of sets, where objects lie by their address; so what it
    makes would have another order, and other names, each time.
    """
    from tf2onnx.graph import Node

    Node.__hash__ = lambda node: zlib.crc32(node.name.encode())
    try:
        yield
    finally:
        del Node.__hash__


def _require_known(records: Sequence[logging.LogRecord]) -> None:
    unknown: Counter[str] = Counter()
    others = []
    for record in records:
        if record.msg == _UNKNOWN and isinstance(record.args, tuple):
            unknown[str(record.args[1])] += 1
        elif record.msg != _SUMMARY:
            others.append(record.getMessage().split("\n")[0][:300])
    if unknown:
        raise _unknown_operators(unknown)
    if others:
        more = f"; and {len(others) - 3} more" if len(others) > 3 else ""
        raise ConversionError(
            "tf2onnx could not convert all of the graph",
            why="; ".join(others[:3]) + more,
            hint="choose other outputs, or another --opset",
            id="onnx-errors",
        )


def _unknown_operators(found: Counter[str]) -> ConversionError:
    named = [f"{op} ({count})" if count > 1 else op for op, count in found.most_common(_NAMED)]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ConversionError(
        "the graph has operations that ONNX, or tf2onnx, has not",
        why=f"{', '.join(named)}{more}",
        hint="choose inputs and outputs that leave them out, or convert it --to savedmodel",
        id="onnx-operators",
    )


def _keep_loops(graph: Any) -> None:  # noqa: ANN401
    """Keep TensorFlow from lowering loops to switches, in which tf2onnx finds no LSTM."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if "_lower_using_switch_merge" in node.attr:
                node.attr["_lower_using_switch_merge"].b = False


def _require_dtypes(frozen: Frozen) -> None:
    """Check that every tensor has a dtype that ONNX has; functions inside as well."""
    from tf2onnx.tf_utils import TF_TO_ONNX_DTYPE

    from ckpttool.formats.dtypes import dtype_name

    graph = frozen.graph
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    found = {
        (value.type, node.name)
        for node in nodes
        for value in node.attr.values()
        if value.WhichOneof("value") == "type" and value.type not in TF_TO_ONNX_DTYPE
    }
    if found:
        names = sorted({dtype_name(number) for number, _ in found})
        example = min(name for _, name in found)
        raise UnsupportedError(
            f"the signature {frozen.signature.name} computes with {', '.join(names)}",
            why=f"tf2onnx has no such type; {example} is one that has",
            hint="choose outputs that leave it out, or convert it --to savedmodel",
            id="onnx-dtype",
        )
