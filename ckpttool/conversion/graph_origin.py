"""What a graph file is to compute: its inputs and outputs, and refusals.

Reads graphs with our own reader. A graph that was made for training is refused here, with
the option that mends it; one whose variables have no values, too.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ckpttool.conversion.branches import Branches, BranchNode, follow
from ckpttool.conversion.job import Origin
from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.specs import PortSpec
from ckpttool.conversion.stored import (
    INIT_SIGNATURE,
    SERVING,
    of_stored,
    require_inputs,
    require_known_ops,
    require_no_python,
    sizes_of,
    wanted_signatures,
)
from ckpttool.conversion.training import is_setting, nothing_dropped, require_serving
from ckpttool.errors import IncompleteError, NoGraphError, UsageError
from ckpttool.formats.graph_file import GraphFile, read_graph_file
from ckpttool.formats.graphdef import Graph, Node
from ckpttool.limits import Limits
from ckpttool.policy.words import count
from ckpttool.sources.graph_analysis import GraphAnalysis, analyse_graph, find_tensor
from ckpttool.sources.graph_functions import called
from ckpttool.sources.graph_signs import Sign, training_signs
from ckpttool.sources.graph_topology import Topology, split_tensor
from ckpttool.sources.graph_variables import VARIABLE_OPS
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.conversion.request import Request

__all__ = ["of_file"]

#: What TensorFlow calls an operation that nobody named.
_NAMELESS = re.compile(r"(?:|Placeholder\w*|Identity\w*|IteratorGetNext\w*|\w*_Dequeue\w*)")
#: What is cut off where an input is put in its place.
_CUT_AWAY = {"queues", "input-pipeline"}


def of_file(request: Request, path: str, values: str | None, limits: Limits) -> Origin:
    """What a ``.meta``, ``.pb`` or ``.pbtxt`` is to compute.

    Args:
        request: its inputs, outputs, frozen inputs, and whether a training graph will do.
        path: of the graph file.
        values: where its variables have their values; None: nowhere.
        limits: bounds on what the file may claim.

    Raises:
        NotFoundError: id ``tensor-not-found``. NoGraphError: id ``no-outputs``.
        RefusedError: id ``training-graph``.
        IncompleteError: id ``graph-without-values``.
        UnsupportedError: ids ``op-unknown``, ``op-python``.
        UsageError: id ``input-missing``: an output needs more than the inputs that were named;
            id ``signature-one``: of a graph file one signature is converted.
    """
    folder, base = os.path.split(path)
    with open_directory(folder or ".") as directory, closing(directory.open(base)) as file:
        read = read_graph_file(file, limits)
        graph = read.main_graph()
        found = _Chosen(request, read, graph, path)
        signature = found.signature()
        needed = [node.name for node in found.needed if node.op in VARIABLE_OPS]
        if needed and values is None:
            raise IncompleteError(
                f"{path} is a graph without values",
                why=f"its outputs depend on {count(len(needed), 'variable')}: "
                f"{', '.join(needed[:3])}{', …' if len(needed) > 3 else ''}",
                hint=f"give the checkpoint as SRC, and --graph {shlex.quote(path)}",
                id="graph-without-values",
            )
        require_known_ops(path, {node.op for node in found.needed}, graph)
        inside = (node for one in found.functions for node in one.nodes)
        require_no_python(path, (*found.needed, *inside))
        signs = found.signs()
        rates = found.rates(signs)
    allowed = request.allow_training_graph
    warnings = require_serving(path, signs, allowed=allowed, rates=rates)
    found.require_fed()
    return Origin(
        "graph",
        path,
        values if needed else None,
        (signature,),
        (),
        tuple(found.notes),
        warnings,
    )


class _Chosen:
    """What is to be computed of one graph: as asked for, else as its looks suggest."""

    def __init__(self, request: Request, read: GraphFile, graph: Graph, path: str) -> None:
        self._request = request
        self._graph = graph
        self._path = path
        self._topology = Topology(graph)
        self._frozen = {split_tensor(one.name)[0]: one.value for one in request.freeze}
        branches = self._branches()
        self._dead = branches.dead
        self._truths = branches.values
        self._signatures = [
            one for meta in read.metas for one in meta.signatures if one.name != INIT_SIGNATURE
        ]
        self._looked: GraphAnalysis | None = None
        self.notes: list[str] = []
        self.inputs, self.outputs = self._ports()
        places = self._ancestors(port.tensor for port in self.outputs)
        self._places = places
        self.needed = [self._topology.nodes[place] for place in sorted(places)]

    def signature(self) -> Signature:
        names = self._request.signatures
        return Signature(names[0] if names else SERVING, self.inputs, self.outputs)

    @cached_property
    def functions(self) -> list[Graph]:
        """The functions that are called, but for what fixed values turn off."""
        return list(called(self._graph, self._told(), self._never_called()))

    def require_fed(self) -> None:
        """Check that every placeholder of what is computed is an input, fixed, or has a default."""
        given = {split_tensor(port.tensor)[0] for port in self.inputs} | self._frozen.keys()
        require_inputs(self._path, self.needed, given)

    def signs(self) -> tuple[Sign, ...]:
        """Signs of training in what is computed, but for what the inputs stand in for."""
        asked = {split_tensor(one.tensor)[0] for one in self._request.inputs}
        off = self._dropout_that_is_off()
        among = [
            place
            for place in self._places
            if (name := self._topology.nodes[place].name) not in (self._frozen.keys() | asked)
            and not name.startswith(off)
        ]
        found = training_signs(self._graph, self._topology, among, self.functions)
        return tuple(one for one in found if one.alters and one.id not in _CUT_AWAY)

    def rates(self, signs: Sequence[Sign]) -> dict[str, str]:
        """Layers of dropout that signs name → the placeholder whose value turns them off."""
        layers = [node for sign in signs if sign.id == "dropout" for node in sign.nodes]
        found: dict[str, str] = {}
        for place in sorted(self._places) if layers else ():
            node = self._topology.nodes[place]
            if node.op.startswith("Placeholder") and is_setting(node.name):
                scopes = self._scopes_of({node.name})
                found |= {one: node.name for one in layers if f"{one}/".startswith(scopes)}
        return found

    def _dropout_that_is_off(self) -> tuple[str, ...]:
        """The scopes of dropout layers whose rate is fixed at what drops nothing."""
        return self._scopes_of(
            {
                name
                for name, value in self._frozen.items()
                if is_setting(name) and value == nothing_dropped(name)
            }
        )

    def _scopes_of(self, fixed: set[str]) -> tuple[str, ...]:
        """The scopes where rates, or what is computed of them alone, meet something else."""
        _, meeting = self._made_of(fixed)
        scopes = {name.rpartition("/")[0] for name in meeting}
        return tuple(f"{scope}/" for scope in sorted(scopes) if scope)

    def _made_of(self, fixed: Iterable[str]) -> tuple[set[str], set[str]]:
        """Nodes, with what is computed of them alone (``1 - keep_prob``), and all other users."""
        made: set[str] = set()
        users: set[str] = set()
        found = set(fixed)
        while found:
            made |= found
            found = set()
            for node in self._topology.nodes:
                given = {split_tensor(one)[0] for one in node.inputs if one[:1] != "^"}
                if not given & made or node.name in made:
                    continue
                others = (self._topology.positions.get(name) for name in given - made)
                if all(at is not None and self._topology.nodes[at].op == "Const" for at in others):
                    found.add(node.name)
                else:
                    users.add(node.name)
        return made, users - made

    # Ports ----------------------------------------------------------------------------

    @property
    def _analysis(self) -> GraphAnalysis:
        if self._looked is None:
            self._looked = analyse_graph(self._graph)
        return self._looked

    def _ports(self) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        request = self._request
        stored = self._stored()
        outputs = tuple(replace(self._asked(one), dtype=one.dtype or "") for one in request.outputs)
        if not outputs and stored is not None:
            outputs = stored.outputs
        if not outputs:
            outputs = self._likely_outputs()
        inputs = tuple(map(self._asked, request.inputs))
        if not inputs and stored is not None and not request.outputs:
            inputs = stored.inputs
        if not inputs:
            inputs = self._likely_inputs(outputs)
            self._say("input", inputs)
        return inputs, outputs

    def _stored(self) -> Signature | None:
        """The signature that the file itself has, or the one that was asked for."""
        wanted = self._request.signatures
        if not self._signatures and not wanted:
            return None
        chosen, *others = wanted_signatures(wanted, self._signatures, self._path)
        if wanted and others:
            raise UsageError(
                f"{self._path} is converted one signature at a time",
                why=f"{len(wanted)} are named, and only of a SavedModel several are kept",
                hint=f"convert each to a result of its own: --signature {chosen.name}",
                id="signature-one",
            )
        if others and not self._request.outputs:
            names = ", ".join(one.name for one in others)
            self.notes.append(f"only {chosen.name}: it also has {names}; --signature chooses")
        return of_stored(chosen)

    def _asked(self, spec: PortSpec) -> Port:
        tensor = f"{spec.tensor}:{spec.index or 0}"
        found = find_tensor(self._graph, self._topology, tensor)
        shape = sizes_of(found.shape) if spec.shape is None else spec.shape
        return Port(spec.name, spec.dtype or found.dtype, shape, found.name)

    def _likely_outputs(self) -> tuple[Port, ...]:
        likely = [one.name for one in self._analysis.outputs]
        if not likely:
            raise NoGraphError(
                f"{self._path}: no output can be made out",
                why="no operation of its graph looks like one",
                hint="name it: --output OPERATION; ckpttool inspect --graph shows them",
                id="no-outputs",
            )
        (name,) = _short_names([likely[0]], "output")
        port = Port(name, "", None, likely[0])
        self._say("output", [port], likely[1:4])
        return (port,)

    def _likely_inputs(self, outputs: Iterable[Port]) -> tuple[Port, ...]:
        """The placeholders that the outputs need; else what an input pipeline gives."""
        places = self._ancestors(port.tensor for port in outputs)
        needed = {self._topology.nodes[place].name for place in places}
        settings = {one.name for one in self._analysis.placeholders if is_setting(one.name)}
        fed = [
            one.name
            for one in self._analysis.placeholders
            if split_tensor(one.name)[0] in needed - self._frozen.keys() and not one.default
        ]
        fed = sorted(fed, key=lambda name: name in settings)
        if fed:
            names = _short_names(fed, "input")
            known = {one.name: one for one in self._analysis.placeholders}
            return tuple(
                Port(name, known[one].dtype, sizes_of(known[one].shape), one)
                for name, one in zip(names, fed, strict=True)
            )
        parts = [
            one
            for one in self._analysis.inputs
            if split_tensor(one.name)[0] in needed - self._frozen.keys()
        ]
        names = _short_names([one.name for one in parts], "input")
        return tuple(
            Port(name, one.dtype, sizes_of(one.shape), one.name)
            for name, one in zip(names, parts, strict=True)
        )

    def _say(self, what: str, ports: Sequence[Port], others: Sequence[str] = ()) -> None:
        said = ", ".join(f"{port.name} ({port.tensor})" for port in ports) or "none"
        also = f"; also likely: {', '.join(others)}" if others else ""
        self.notes.append(f"{what}: {said}{also}; --{what} chooses")

    # Nodes ----------------------------------------------------------------------------

    def _branches(self) -> Branches:
        known = {name: value for name, value in self._frozen.items() if isinstance(value, bool)}
        nodes = (BranchNode(node.name, node.op, node.inputs) for node in self._graph.nodes)
        return follow(nodes if known else (), known)

    def _told(self) -> Iterator[Node]:
        """The nodes whose functions are looked at: not where a fixed value goes into one.

        What that turns off inside cannot be told here; but a rate that drops turns nothing off,
        and of a condition the branch may be known.
        """
        off = {
            name
            for name, value in self._frozen.items()
            if not is_setting(name) or value == nothing_dropped(name)
        }
        fixed = self._made_of(off)[0] | self._truths.keys()
        for node in self.needed:
            inputs = node.inputs if self._truth(node) is None else node.inputs[1:]
            if not {split_tensor(one)[0] for one in inputs} & fixed:
                yield node

    def _truth(self, node: Node) -> bool | None:
        """What a condition depends on, where that is fixed; None: it is not, or it is none."""
        if node.op not in {"If", "StatelessIf"} or not node.inputs:
            return None
        return self._truths.get(split_tensor(node.inputs[0])[0])

    def _never_called(self) -> set[tuple[str, str]]:
        """The branches of conditions on a fixed truth value that are not taken."""
        found = set()
        for node in self.needed:
            value = self._truth(node)
            if value is not None:
                found.add((node.name, "else_branch" if value else "then_branch"))
        return found

    def _ancestors(self, tensors: Iterable[str]) -> set[int]:
        """What these tensors need to run: inputs and frozen ones need nothing."""
        topology = self._topology
        stops = {split_tensor(port.tensor)[0] for port in getattr(self, "inputs", ())}
        stops |= {split_tensor(one.tensor)[0] for one in self._request.inputs}
        stops |= self._frozen.keys()
        waiting = list(topology.of_names(tensors))
        seen = set(waiting)
        while waiting:
            place = waiting.pop()
            if topology.nodes[place].name in stops:
                continue
            for producer in (*topology.producers[place], *topology.controls.get(place, ())):
                if producer not in seen and topology.nodes[producer].name not in self._dead:
                    seen.add(producer)
                    waiting.append(producer)
        return seen


def _short_names(tensors: Sequence[str], role: str) -> list[str]:
    """What to call tensors: by their operations without scopes, where that tells them apart.

    What TensorFlow named by itself is called by its role.
    """
    short = [split_tensor(one)[0].rpartition("/")[2] for one in tensors]
    short = [role if _NAMELESS.fullmatch(one) else one for one in short]
    if len(set(short)) == len(short):
        return short
    if set(short) == {role}:
        return [f"{role}_{at}" for at in range(len(short))]
    whole = [split_tensor(one)[0] for one in tensors]
    if len(set(whole)) == len(whole):
        return whole
    return [one.replace(":", "_") for one in tensors]
