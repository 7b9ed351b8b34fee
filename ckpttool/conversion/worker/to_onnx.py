"""The target ONNX: one signature as a model, its large weights past tf2onnx, streamed.

tf2onnx gets the graph without its large weights; what it makes is named, checked, and
written with the weights as they come from the checkpoint: in the file, or beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.request import Settings
from ckpttool.conversion.worker.bfloat16 import widened
from ckpttool.conversion.worker.graph_edit import unique
from ckpttool.conversion.worker.onnx_file import tensor_type, write_model
from ckpttool.conversion.worker.onnx_graph import make_model, require_valid, supported_opset
from ckpttool.conversion.worker.onnx_names import (
    Dimension,
    all_graphs,
    dimension_names,
    port_names,
    rename,
    set_shapes,
)
from ckpttool.conversion.worker.onnx_ranks import with_ranks
from ckpttool.conversion.worker.onnx_weights import (
    KEEP_OUT,
    LaidOut,
    absorb_layouts,
    with_constants_outside,
)
from ckpttool.conversion.worker.program import Frozen, Function, Program, Written
from ckpttool.errors import LimitError, UsageError
from ckpttool.policy.words import size

__all__ = ["write"]

#: From here on weights get a file of their own, unless it is said.
_BESIDE_BYTES = 100 * 10**6
#: A protocol message has less than 2 GB.
_MOST_BYTES = 2**31 - 2**20


def write(program: Program, path: str, settings: Settings) -> Written:
    """Write an ONNX file, and ``path`` + ``.data`` where its weights lie beside it.

    Args:
        program: what is converted; one signature.
        path: the file.
        settings: ``batch``, ``opset``, ``external_data``.

    Raises:
        UsageError: ids ``onnx-signatures``, ``onnx-opset``, ``onnx-rank``, ``onnx-file-name``.
        ConversionError: ids ``onnx-operators``, ``onnx-errors``, ``onnx-invalid``.
        UnsupportedError: ids ``onnx-dtype``, ``onnx-strings``, ``stateful-graph``.
        LimitError: id ``onnx-too-large``: it does not fit into one file.
    """
    opset = supported_opset(settings.opset)
    function = _only(program)
    narrow = function.frozen(batch=settings.batch, keep_out=KEEP_OUT)
    warnings = []
    frozen = widened(narrow)
    if frozen is not narrow:
        warnings.append("bfloat16 is computed as float32: tf2onnx takes it for float16")
    ranked = with_ranks(frozen)
    if ranked is not frozen:
        names = [port.name for port in frozen.signature.inputs if port.shape is None]
        warnings.append(f"of any number of dimensions, one is left of {', '.join(names)}")
    frozen = _in_order(with_constants_outside(ranked), function.signature)
    ports = port_names(frozen.signature)
    if ports.outputs != frozen.signature.outputs:
        renamed = [port.name for port in ports.outputs if port not in frozen.signature.outputs]
        warnings.append(f"outputs that are called as inputs are renamed: {', '.join(renamed)}")
    dimensions = dimension_names(replace(frozen, signature=ports))
    model = make_model(frozen, opset)
    weights = _settle(model, frozen, ports, dimensions)
    if settings.external_data and not weights:
        warnings.append(f"no file beside it: every weight has less than {size(KEEP_OUT)}")
    write_model(model, weights, path, beside=_is_beside(weights, settings))
    return Written(
        (Signature(function.signature.name, ports.inputs, ports.outputs),),
        tuple(warnings),
        {"opset": opset},
    )


def _only(program: Program) -> Function:
    names = [one.signature.name for one in program.functions]
    if len(names) != 1:
        raise UsageError(
            f"an ONNX model holds one signature, and there are {len(names)}",
            why=f"they are {', '.join(names)}",
            hint=f"convert each to a file of its own: --signature {names[0]}",
            id="onnx-signatures",
        )
    return program.functions[0]


def _in_order(frozen: Frozen, wanted: Signature) -> Frozen:
    """The function with its ports in the order of its signature."""
    signature = frozen.signature

    def ordered(ports: Sequence[Port], names: Sequence[Port]) -> tuple[Port, ...]:
        by_name = {port.name: port for port in ports}
        return tuple(by_name[one.name] for one in names)

    inputs = ordered(signature.inputs, wanted.inputs)
    outputs = ordered(signature.outputs, wanted.outputs)
    return replace(frozen, signature=replace(signature, inputs=inputs, outputs=outputs))


def _settle(
    model: Any,  # noqa: ANN401
    frozen: Frozen,
    ports: Signature,
    dimensions: Mapping[str, Sequence[Dimension]],
) -> dict[str, LaidOut]:
    """Give all in a model its name, and check it; its weights by their final names."""
    graph = model.graph
    weights = absorb_layouts(model, frozen.weights)
    given = {one.name: one for one in graph.input}
    inputs = [given[port.tensor] for port in ports.inputs]
    del graph.input[:]
    graph.input.extend(inputs)
    fixed = {port.tensor: port.name for port in (*ports.inputs, *ports.outputs)}
    taken = set(fixed.values())
    for value, one in weights.items():
        fixed[value] = unique(one.name, taken)
        taken.add(fixed[value])
    rename(model, fixed)
    set_shapes(model, dimensions)
    used = {node.domain for one in all_graphs(graph) for node in one.node} | {""}
    imports = [one for one in model.opset_import if one.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    found = {fixed[value]: one for value, one in weights.items()}
    require_valid(_with_inputs(model, found))
    return found


def _with_inputs(model: Any, weights: Mapping[str, LaidOut]) -> Any:  # noqa: ANN401
    """The model with its weights as inputs: as valid as with them inside, and small."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for name, one in weights.items():
        kind = tensor_type(one.dtype)
        whole.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, one.shape))
    return whole


def _is_beside(weights: Mapping[str, LaidOut], settings: Settings) -> bool:
    """Whether the weights get a file of their own.

    Raises:
        LimitError: id ``onnx-too-large``.
    """
    total = sum(one.nbytes for one in weights.values())
    if settings.external_data is None:
        return total >= _BESIDE_BYTES
    if not settings.external_data and total > _MOST_BYTES:
        raise LimitError(
            "the weights do not fit into one ONNX file",
            why=f"they have {total} bytes, and such a file can have 2 GB",
            hint="leave out --no-external-data",
            id="onnx-too-large",
        )
    return settings.external_data and bool(weights)
