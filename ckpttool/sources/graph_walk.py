"""What each node of an object graph is for, and the path that leads to it.

A key says neither: TensorFlow keys a variable by the first of its shortest paths, and for
Keras 3 that path leads through the optimizer (``optimizer/_trainable_variables/0`` is a
kernel of the model). So the graph is walked once more, in an order that answers the
question: from the root without entering an optimizer (what is met belongs to the model,
by the shortest such path), then averages, then optimizers, then metrics and the like. A
node stays what it was first met as. Every walk is a queue, so depth and cycles cost nothing.

An optimizer is recognised by what graphs of TensorFlow 1.13 to 2.21 have in common: slot
variables (TF 1.x optimizers, Keras 2's ``OptimizerV2``), or edges that nothing else has
(``_iterations`` and ``_variables``: Keras 2.11 and later; ``iter`` and ``decay``: an
``OptimizerV2`` without slots; ``beta1_power``: TF 1.x Adam), or the name of an edge to it
(``optimizer``, ``generator_optimizer``: other libraries' and one's own).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from ckpttool.formats.object_graph import ObjectGraph
from ckpttool.model import Kind

__all__ = ["WalkedGraph", "escape_name", "walk_graph"]

#: Pairs of edges that only an optimizer has, by the first of them.
_OPTIMIZER_EDGES = {"_iterations": "_variables", "iter": "decay", "beta1_power": "beta2_power"}
#: Short names of edges to an optimizer, and edges one of which the optimizer must then have.
_SHORT_NAMES = ("opt", "optim")
_STATE_EDGES = frozenset({"accumulator", "learning_rate", "m", "momentum", "step", "v"})

#: An optimizer's edges to what is not, or not only, its own state.
_WEIGHTS_EDGE = "_trainable_variables"
_AVERAGES_EDGE = "_model_variables_moving_average"
_STEP_EDGES = frozenset({"_iterations", "iter", "iterations"})
#: A list of everything: walked last, for ``_momentums/0`` says more than ``_variables/8``.
_EVERYTHING_EDGE = "_variables"
#: The slot in which averaging optimizers (TensorFlow Addons, Model Garden) keep the mean.
_AVERAGE_SLOT = "average"

#: Edges of the root to a counter: ``tf.train.Checkpoint(step=…)``.
_COUNTERS = frozenset(
    {"epoch", "global_step", "iteration", "iterations", "save_counter", "step", "train_step"}
)

#: Edges to what is neither trained nor needed to predict: metrics, random number generators.
_OTHER_EDGES = frozenset(
    {
        "_metrics",
        "_random_generator",
        "_seed_generator",
        "_state_var",
        "compiled_metrics",
        "metrics",
        "seed_generator",
    }
)
#: A Keras metric that is a mean has both of these edges, and not many more.
_MEAN_EDGES = ("total", "count")
_MEAN_EDGES_MOST = 8
_TELLING_EDGES = _OTHER_EDGES | {_MEAN_EDGES[0]}

#: Sets of names whose meaning is remembered.
_REMEMBERED = 2**16

_UNMET, _MET, _OPTIMIZER = 0, 1, 2

_Later = Literal["ema", "optimizer", "other"]
#: A node and a path to it.
_Place = tuple[int, str | None]

#: A chain of a million nodes has paths of 10^12 characters together. TensorFlow's paths
#: are hardly longer than the keys it makes from them, so this many times the keys'
#: characters (and some) are spent on paths; what comes after has none.
_PATHS_TO_KEYS = 4
_PATHS_AT_LEAST = 1_000_000


class WalkedGraph:
    """The outcome of a walk.

    Attributes:
        paths: for each node the escaped path from the root (``""`` for the root itself);
            None where no edge leads, and past the budget.
        kinds: for each node what it, and what is only reached through it, is for.
        escaped: whether a name in any of the paths had to be escaped.
    """

    __slots__ = ("escaped", "kinds", "paths")

    def __init__(self, size: int) -> None:
        self.paths: list[str | None] = [None] * size
        self.kinds: list[Kind] = ["other"] * size
        self.escaped = False


class _Names(NamedTuple):
    """The names of a node's edges, looked at once: the nodes of a kind share them.

    ``characters`` are those of all of them; ``telling``: one may say what it leads to.
    """

    escaped: Sequence[str]
    characters: int
    telling: bool


def escape_name(name: str) -> str:
    """A local name as a component of a path: ``.`` becomes ``..``, and ``/`` becomes ``.S``.

    The rule is in tensorflow/python/trackable/trackable_utils.py.
    """
    return name.replace(".", "..").replace("/", ".S")


def walk_graph(graph: ObjectGraph) -> WalkedGraph:
    """Path and kind of every node; linear in the number of nodes and edges."""
    walk = _Walk(graph)
    if graph.size:
        walk.run()
    return walk.result


class _Walk:
    def __init__(self, graph: ObjectGraph) -> None:
        self._graph = graph
        self.result = WalkedGraph(graph.size)
        self._state = bytearray(graph.size)
        #: Nodes that wait for their turn.
        self._waiting: dict[_Later, list[_Place]] = {"ema": [], "optimizer": [], "other": []}
        #: Characters of paths that may still be made.
        self._budget = _PATHS_AT_LEAST + _PATHS_TO_KEYS * sum(map(len, graph.keys))
        self._names: dict[tuple[str, ...], _Names] = {}

    def run(self) -> None:
        """Meet every node, the model's first."""
        self._mark_optimizers()
        self._meet([(0, "")], "model")
        self._mark_counters()
        waiting = self._waiting
        while any(waiting.values()):  # each may send more to the others
            if waiting["ema"]:
                self._meet(self._take("ema"), "ema")
            elif waiting["optimizer"]:
                self._meet_optimizers(self._take("optimizer"))
            else:
                self._meet(self._take("other"), "other")
        self._place_slots()

    def _take(self, what: _Later) -> list[_Place]:
        taken = self._waiting[what]
        self._waiting[what] = []
        return taken

    def _mark_optimizers(self) -> None:
        """Mark the nodes that are optimizers by what they have."""
        state = self._state
        for slot in self._graph.slots:
            state[slot.optimizer] = _OPTIMIZER
        signs: dict[tuple[str, ...], bool] = {}
        for node, (_, names) in self._graph.edges.items():
            sign = signs.get(names)
            if sign is None:
                sign = any(
                    first in names and second in names for first, second in _OPTIMIZER_EDGES.items()
                )
                if len(signs) < _REMEMBERED:
                    signs[names] = sign
            if sign:
                state[node] = _OPTIMIZER

    def _meet(self, sources: Iterable[_Place], kind: Kind) -> None:
        """Meet everything that the sources lead to, except what must wait for its turn."""
        state = self._state
        paths, kinds = self.result.paths, self.result.kinds
        queue: list[int] = []
        for node, path in sources:
            if state[node] == _UNMET:
                state[node] = _MET
                paths[node] = path
                kinds[node] = kind
                queue.append(node)
            elif state[node] == _OPTIMIZER:
                self._waiting["optimizer"].append((node, path))
        edges = self._graph.edges
        for node in queue:  # grows while it is walked: breadth first
            if node not in edges:
                continue
            ids, labels = edges[node]
            names, characters, telling = self._names.get(labels) or self._look(labels)
            prefix = self._prefix(paths[node], len(ids), characters)
            if telling:
                ids, names = self._set_aside(ids, names, prefix)
            for child, name in zip(ids, names, strict=True):
                met = state[child]
                if met == _UNMET:
                    state[child] = _MET
                    paths[child] = None if prefix is None else prefix + name
                    kinds[child] = kind
                    if child in edges:
                        queue.append(child)
                elif met == _OPTIMIZER:
                    path = None if prefix is None else prefix + name
                    self._waiting["optimizer"].append((child, path))

    def _look(self, labels: tuple[str, ...]) -> _Names:
        """What there is to know of the names of a node's edges."""
        text = "\0".join(labels)
        names: Sequence[str] = labels
        if "." in text or "/" in text:
            names = [escape_name(name) for name in labels]
            self.result.escaped = True
        telling = "opt" in text or "ema" in text or not _TELLING_EDGES.isdisjoint(labels)
        known = _Names(names, sum(map(len, names)), telling)
        if len(self._names) < _REMEMBERED:
            self._names[labels] = known
        return known

    def _prefix(self, path: str | None, children: int, characters: int) -> str | None:
        """What the paths of a node's children begin with, if the budget is enough for them."""
        if path is None or self._budget < 0:
            return None
        self._budget -= (len(path) + 1) * children + characters
        if self._budget < 0:
            return None
        return f"{path}/" if path else ""

    def _set_aside(
        self, ids: Sequence[int], names: Sequence[str], prefix: str | None
    ) -> tuple[list[int], list[str]]:
        """The edges to follow now; those that say they lead to something else wait."""
        mean = len(names) <= _MEAN_EDGES_MOST and all(edge in names for edge in _MEAN_EDGES)
        now_ids: list[int] = []
        now_names: list[str] = []
        for child, name in zip(ids, names, strict=True):
            later = "other" if mean else self._by_edge(child, name)
            if later is None:
                now_ids.append(child)
                now_names.append(name)
            else:
                path = None if prefix is None else prefix + name
                self._waiting[later].append((child, path))
        return now_ids, now_names

    def _by_edge(self, child: int, name: str) -> _Later | None:
        """What the name of an edge says of the node it leads to."""
        if name in _OTHER_EDGES:
            return "other"
        if child not in self._graph.edges:
            return None
        _, inside = self._graph.edges[child]
        words = name.strip("_").split("_")
        if "ema" in (words[0], words[-1]):
            return "ema"
        if words[-1] in {"optimizer", "optimizers"}:
            return "optimizer"
        if words[-1] in _SHORT_NAMES and not _STATE_EDGES.isdisjoint(inside):
            return "optimizer"
        return None

    def _mark_counters(self) -> None:
        edges, kinds = self._graph.edges, self.result.kinds
        ids, names = edges.get(0, ((), ()))
        for child, name in zip(ids, names, strict=True):
            if name in _COUNTERS and child not in edges and kinds[child] == "model":
                kinds[child] = "step"

    def _meet_optimizers(self, optimizers: list[_Place]) -> None:
        """Meet what only these optimizers lead to; one may hold another (loss scaling)."""
        state, result = self._state, self.result
        weights: list[_Place] = []
        averages: list[_Place] = []
        own: list[_Place] = []
        everything: list[_Place] = []
        counters: list[int] = []
        for node, path in optimizers:  # grows while it is walked
            if state[node] == _MET:
                continue
            state[node] = _MET
            result.paths[node] = path
            result.kinds[node] = "optimizer"
            ids, labels = self._graph.edges.get(node, ((), ()))
            names, characters, _ = self._names.get(labels) or self._look(labels)
            prefix = self._prefix(path, len(ids), characters)
            for child, name in zip(ids, names, strict=True):
                edge = (child, None if prefix is None else prefix + name)
                if state[child] == _OPTIMIZER:
                    optimizers.append(edge)
                elif name == _WEIGHTS_EDGE:
                    weights.append(edge)
                elif name == _AVERAGES_EDGE:
                    averages.append(edge)
                elif name == _EVERYTHING_EDGE:
                    everything.append(edge)
                else:
                    own.append(edge)
                    if name in _STEP_EDGES and state[child] == _UNMET:
                        counters.append(child)
        self._meet(weights, "model")
        self._meet(averages, "ema")
        self._meet(own, "optimizer")
        self._meet(everything, "optimizer")
        for node in counters:
            result.kinds[node] = "step"

    def _place_slots(self) -> None:
        """Slot variables have no edge of their own: two paths and a name make theirs."""
        paths, kinds, state = self.result.paths, self.result.kinds, self._state
        escaped: dict[str, str] = {}
        for optimizer, original, name, variable in self._graph.slots:
            if state[variable] == _MET and kinds[variable] != "optimizer":
                continue
            state[variable] = _MET
            kinds[variable] = "ema" if name == _AVERAGE_SLOT else "optimizer"
            variable_path, optimizer_path = paths[original], paths[optimizer]
            if paths[variable] is None and variable_path and optimizer_path is not None:
                last = escaped.get(name) or escaped.setdefault(name, escape_name(name))
                self.result.escaped |= last != name
                self._budget -= len(variable_path) + len(optimizer_path) + len(last)
                if self._budget >= 0:
                    paths[variable] = f"{variable_path}/.OPTIMIZER_SLOT/{optimizer_path}/{last}"
