"""What a SavedModel is to compute, and whether it is all there.

TensorFlow loads one whose variables are absent, and computes with what it finds: so what
the graph needs is compared with what is there before TensorFlow sees it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ckpttool.conversion.assets import require_assets
from ckpttool.conversion.branches import BranchNode, follow
from ckpttool.conversion.job import Origin
from ckpttool.conversion.ports import Port, Signature, require_dtype, require_shape
from ckpttool.conversion.specs import PortSpec
from ckpttool.conversion.stored import (
    INIT_SIGNATURE,
    SERVING,
    of_stored,
    require_inputs,
    require_known_ops,
    require_no_python,
    wanted_signatures,
)
from ckpttool.conversion.targets import TARGETS
from ckpttool.conversion.training import is_setting, require_serving
from ckpttool.errors import IncompleteError, NoGraphError, NotFoundError, UnsupportedError
from ckpttool.formats.graph_file import read_graph_file
from ckpttool.formats.graphdef import Graph
from ckpttool.limits import Limits
from ckpttool.policy.words import count
from ckpttool.sources.filenames import SAVED_MODEL_FILES
from ckpttool.sources.graph_analysis import find_tensor
from ckpttool.sources.graph_functions import called
from ckpttool.sources.graph_roles import switch_like
from ckpttool.sources.graph_signs import Sign, training_signs
from ckpttool.sources.graph_topology import Topology, split_tensor
from ckpttool.sources.graph_variables import meta_variables
from ckpttool.sources.nearest import nearest
from ckpttool.storage import open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.conversion.request import Request
    from ckpttool.formats.metagraph import MetaGraph
    from ckpttool.formats.metagraph import Signature as StoredSignature

__all__ = ["of_saved_model"]

#: What stands around the one call in the function of a signature.
_WRAPPING = {"Identity", "NoOp"}
#: Flaws that are spelled out in an error.
_NAMED = 4


def of_saved_model(request: Request, folder: str, limits: Limits) -> Origin:
    """What a SavedModel is to compute, by its own signatures.

    Raises:
        NotFoundError: ids ``signature-not-found``, ``model-input-unknown``,
            ``model-output-unknown``, ``tensor-not-found``.
        UsageError: ids ``input-missing``, ``port-dtype``, ``port-shape``.
        NoGraphError: id ``no-outputs``: it has no signatures.
        RefusedError: id ``training-graph``.
        IncompleteError: ids ``variables-missing``, ``graph-variables-missing``,
            ``asset-missing``.
        UnsafeError: ids ``unsafe-path``, ``unsafe-link``: an asset lies elsewhere.
    """
    name = next(
        name for name in SAVED_MODEL_FILES if stat_path(os.path.join(folder, name)) is not None
    )
    with open_directory(folder) as directory, closing(directory.open(name)) as file:
        metas = read_graph_file(file, limits, "SavedModel").metas
        meta = next((one for one in metas if "serve" in one.tags), metas[0] if metas else None)
        if meta is None:
            raise NoGraphError(f"{folder} is a SavedModel without a graph", why="it has none")
        stored = [one for one in meta.signatures if one.name != INIT_SIGNATURE and one.outputs]
        chosen = wanted_signatures(request.signatures, stored, folder)
        _require_dense(folder, chosen)
        graph = meta.graph()
        require_known_ops(folder, {node.op for node in graph.all_nodes()}, graph)
        _require_variables(folder, meta, graph, limits)
        require_assets(folder, (one.filename for one in meta.assets))
        signs = _training_signs(folder, graph, chosen, any_switch=meta.objects is None)
        warnings = require_serving(folder, signs, allowed=request.allow_training_graph)
        notes: tuple[str, ...] = ()
        if TARGETS[request.target].single and not request.signatures:
            chosen, notes = _distinct(graph, chosen)
        if len(chosen) > 1 and (request.inputs or request.outputs):
            chosen = chosen[:1]
            notes = (*notes, f"only {chosen[0].name}: --input and --output are of one signature")
        ports = _Ports(request, graph if meta.objects is None else None, folder)
        signatures = tuple(map(ports.of, chosen))
        _require_frozen(request, chosen, folder, any_name=meta.objects is None)
        if meta.objects is None:
            _require_fed(request, graph, chosen, signatures, folder)
        return Origin("savedmodel", folder, folder, signatures, meta.tags, notes, warnings)


def _training_signs(
    folder: str, graph: Graph, signatures: Sequence[StoredSignature], *, any_switch: bool
) -> list[Sign]:
    """Signs that what is served was traced as in training: dropout, the batch's own mean.

    Where a switch or a rate is fed, or has a value by default, that decides, and both ways
    are in the graph. In TensorFlow 1 any truth value may be the switch (``any_switch``), later
    one that is called so: a mask is none.

    Raises:
        UnsupportedError: id ``op-python``.
    """
    topology = Topology(graph)
    outputs = [port.tensor for one in signatures for port in one.outputs]
    places = topology.ancestors(topology.of_names(outputs))
    nodes = [topology.nodes[place] for place in sorted(places)]
    functions = list(called(graph, nodes))
    require_no_python(folder, (*nodes, *(node for one in functions for node in one.nodes)))
    for node in nodes:
        if node.op in {"Placeholder", "PlaceholderWithDefault"} and (
            is_setting(node.name)
            or (
                graph.attrs(node).type("dtype") == "bool" and (any_switch or switch_like(node.name))
            )
        ):
            return []
    found = training_signs(graph, topology, places, functions)
    return [one for one in found if one.id in {"batch-norm-training", "dropout"}]


def _distinct(
    graph: Graph, signatures: Sequence[StoredSignature]
) -> tuple[Sequence[StoredSignature], tuple[str, ...]]:
    """The signatures without those that are another one of them, and what is said of these.

    Keras exports what it serves twice, as ``serve`` and ``serving_default``: two wrappers
    around one function, with the same variables.
    """
    kept: dict[object, StoredSignature] = {}
    notes = []
    for one in sorted(signatures, key=lambda one: one.name != SERVING):
        mark = _what_is_computed(graph, one)
        other = kept.setdefault(one.name if mark is None else mark, one)
        if other is not one:
            notes.append(f"{one.name} is {other.name} once more; --signature chooses")
    return list(kept.values()), tuple(notes)


def _what_is_computed(graph: Graph, signature: StoredSignature) -> object:
    """What two signatures have in common only if they compute the same; None: not known.

    The function behind the call that all outputs come from, what it captures, and the ports.
    """
    nodes = {node.name: node for node in graph.nodes}
    calls = {split_tensor(port.tensor)[0] for port in signature.outputs}
    call = nodes.get(min(calls)) if len(calls) == 1 else None
    if call is None or not call.op.endswith("PartitionedCall"):
        return None
    name = graph.attrs(call).function("f")
    wrapper = next((one for one in graph.functions if one.name == name), None)
    inside = [node for node in wrapper.nodes if node.op not in _WRAPPING] if wrapper else []
    if len(inside) != 1 or not inside[0].op.endswith("PartitionedCall"):
        return None
    fed = [split_tensor(port.tensor)[0] for port in signature.inputs]
    captured = tuple(one for one in call.inputs if split_tensor(one)[0] not in fed)
    order = tuple(fed.index(split_tensor(one)[0]) for one in call.inputs if one not in captured)
    ports = [
        tuple((port.name, port.dtype, port.shape) for port in side)
        for side in (signature.inputs, signature.outputs)
    ]
    places = tuple(split_tensor(port.tensor)[1] for port in signature.outputs)
    return graph.attrs(inside[0]).function("f"), captured, order, *ports, places


class _Ports:
    """The ports of a signature that a request asks for, by the names that it has for them.

    ``graph`` is that of a model of TensorFlow 1, in which any tensor can be meant.
    """

    def __init__(self, request: Request, graph: Graph | None, folder: str) -> None:
        self._request = request
        self._graph = graph
        self._folder = folder

    def of(self, stored: StoredSignature) -> Signature:
        """What a signature is to be."""
        request = self._request
        signature = of_stored(stored, by_name=True)
        frozen = {one.name for one in request.freeze}
        return Signature(
            signature.name,
            tuple(
                port
                for port in self._chosen(signature.inputs, request.inputs, "input", whole=True)
                if not {port.tensor, split_tensor(port.tensor)[0]} & frozen
            ),
            self._chosen(signature.outputs, request.outputs, "output", whole=False),
        )

    def _chosen(
        self, ports: tuple[Port, ...], specs: Sequence[PortSpec], role: str, *, whole: bool
    ) -> tuple[Port, ...]:
        """``whole``: ports that no spec names stay as they are."""
        if not specs:
            return ports
        asked = {spec.tensor: spec for spec in specs}
        known = {port.name: port for port in ports}
        unknown = [name for name in asked if name not in known]
        if not unknown:
            kept = [port.name for port in ports if port.name in asked or whole]
            order = kept if whole else list(asked)
            is_old = self._graph is not None
            return tuple(_as_asked(known[name], asked.get(name), may_open=is_old) for name in order)
        if self._graph is None:
            raise _no_such_port(unknown[0], list(known), role, self._folder)
        topology = Topology(self._graph)
        found = (
            find_tensor(self._graph, topology, f"{spec.tensor}:{spec.index or 0}") for spec in specs
        )
        return tuple(
            Port(spec.name, spec.dtype or "", spec.shape, tensor.name)
            for spec, tensor in zip(specs, found, strict=True)
        )


def _as_asked(port: Port, spec: PortSpec | None, *, may_open: bool) -> Port:
    """A port as it was asked for; ``may_open``: its fixed sizes may be any, too.

    Raises:
        UsageError: ids ``port-dtype``, ``port-shape``: it cannot be that.
    """
    if spec is None:
        return port
    require_dtype(port.name, port.dtype, spec.dtype)
    require_shape(port.name, port.shape, spec.shape, may_open=may_open)
    shape = port.shape if spec.shape is None else spec.shape
    return Port(spec.name, port.dtype, shape, port.tensor)


def _require_frozen(
    request: Request, stored: Sequence[StoredSignature], folder: str, *, any_name: bool
) -> None:
    """Check that what is to be fixed is there; with ``any_name`` any placeholder may be meant."""
    known = list(dict.fromkeys(port.name for one in stored for port in one.inputs))
    unknown = [one.name for one in request.freeze if one.name not in known]
    if unknown and not any_name:
        raise _no_such_port(unknown[0], known, "input", folder, "--freeze-input")


def _require_fed(
    request: Request,
    graph: Graph,
    stored: Sequence[StoredSignature],
    chosen: Sequence[Signature],
    folder: str,
) -> None:
    """Check that the inputs are enough for the outputs: TensorFlow 1 finds out when it runs."""
    topology = Topology(graph)
    frozen = {one.name: one.value for one in request.freeze}
    for own, signature in zip(stored, chosen, strict=True):
        tensors = {port.name: port.tensor for port in (*own.inputs, *own.outputs)}
        fixed = {split_tensor(tensors.get(name, name))[0]: one for name, one in frozen.items()}
        inputs, outputs = (
            [tensors.get(port.tensor, port.tensor) for port in ports]
            for ports in (signature.inputs, signature.outputs)
        )
        given = {split_tensor(one)[0] for one in inputs} | fixed.keys()
        known = {name: value for name, value in fixed.items() if isinstance(value, bool)}
        nodes = (BranchNode(node.name, node.op, node.inputs) for node in graph.nodes)
        dead = follow(nodes, known).dead if known else frozenset()
        until = {*topology.of_names(given), *topology.of_names(dead)}
        needed = topology.ancestors(topology.of_names(outputs), until=until)
        alive = [topology.nodes[place] for place in sorted(needed)]
        require_inputs(folder, (node for node in alive if node.name not in dead), given)


def _no_such_port(
    name: str, known: Sequence[str], role: str, folder: str, option: str = ""
) -> NotFoundError:
    near = nearest(name, known)
    return NotFoundError(
        f"the signature of {folder} has no {role} {name}",
        why=f"it has {', '.join(known) or 'none'}",
        hint=f"did you mean: {option or f'--{role}'} {near[0]}" if near else "give one of those",
        id="model-input-unknown" if role == "input" else "model-output-unknown",
    )


def _require_dense(folder: str, signatures: Iterable[StoredSignature]) -> None:
    for one in signatures:
        sparse = [port.name for port in (*one.inputs, *one.outputs) if not port.tensor]
        if sparse:
            raise UnsupportedError(
                f"the signature {one.name} of {folder} has sparse tensors",
                why=f"{', '.join(sparse)} is made of several tensors, which no target takes",
                hint="choose another one with --signature",
                id="sparse-port",
            )


def _require_variables(folder: str, meta: MetaGraph, graph: Graph, limits: Limits) -> None:
    """Check that what the graph calls variables is there: TensorFlow loads it all the same."""
    needed = meta_variables(meta, graph)
    if not needed:
        return
    from ckpttool.sources.whole import flaws

    inside = os.path.join(folder, "variables")
    there = stat_path(inside)
    if there is None:
        said = ["there is no directory variables"]
    else:
        with open_directory(inside) as directory:
            said = [str(flaw) for flaw in flaws(directory, "variables", limits)]
    if said:
        names = [one.name for one in needed]
        raise IncompleteError(
            f"{folder} has no values for its variables",
            why=f"{'; '.join(said[:_NAMED])}, and its graph has {count(len(names), 'variable')}: "
            f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}",
            hint="copy the SavedModel again, with its directory variables",
            id="variables-missing",
        )
    if meta.objects is None:
        # What is in no collection is filled when the model is loaded (the name of an asset).
        listed = {split_tensor(one.name)[0] for one in meta.variables()}
        names = [
            one.slice.full_name if one.slice else one.name
            for one in needed
            if not listed or one.node in listed
        ]
        _require_names(folder, names)


def _require_names(folder: str, names: Sequence[str]) -> None:
    """TensorFlow 1: the variables go by the names of the graph."""
    from ckpttool.sources.registry import open_source

    with open_source(folder) as source:
        missing = sorted({name for name in names if source.lookup(name) is None})
    if missing:
        raise IncompleteError(
            f"{folder} lacks values",
            why=f"its checkpoint lacks {count(len(missing), 'variable')} of its graph: "
            f"{', '.join(missing[:20])}",
            hint="take the graph and the variables of one export",
            id="graph-variables-missing",
        )
