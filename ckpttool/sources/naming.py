"""Which readable name, object path and kind each key of a checkpoint has.

In a name-based checkpoint the key is the name. In an object-based one the object graph
gives each key an object path (``model/layers/0/kernel``) and often the variable's own name
(``dense/kernel``); the readable name is that own name where it is unique and says
something, else the path. Names depend on nothing but the graph.

Pure: works on a parsed graph and on keys, and reads no file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY, VARIABLE_VALUE, ObjectGraph
from ckpttool.model import Kind
from ckpttool.sources.graph_walk import WalkedGraph, walk_graph
from ckpttool.sources.kinds import Label, kind_of_name, label_of_name

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = [
    "GraphNames",
    "Label",
    "key_of_path",
    "kind_of_name",
    "label_of_key",
    "label_of_name",
    "path_of_key",
    "readable_path",
    "says_something",
]

_ATTRIBUTES = "/.ATTRIBUTES/"
_VALUE = _ATTRIBUTES + VARIABLE_VALUE
_SLOT = "/.OPTIMIZER_SLOT/"

#: Names that TensorFlow gives to what was not named, and the two of a Keras mean.
_MEANINGLESS = re.compile(
    r"(?:Variable|ShardedVariable|SyncOnReadVariable|StateVar|total|count)(?:_\d+)?"
)
#: Their openings, which are quicker to look for.
_MEANINGLESS_OPENINGS = ("Variable", "ShardedV", "SyncOnRe", "StateVar", "total", "count")

#: The list in which Keras' ExportArchive keeps what it exports (keras/src/export/saved_model.py).
_EXPORTED = "_all_variables"
_EXPORTED_LIST = f"{_EXPORTED}/"

_ESCAPE = re.compile(r"\.[.S]")


def label_of_key(key: str) -> Label:
    """The best label of an object-based key that no object graph explains.

    The name is the path that the key spells, and the kind a guess from its components.
    """
    if key == OBJECT_GRAPH_KEY:
        return key, "object_graph"
    if not key.endswith(_VALUE):
        return key, "other" if _ATTRIBUTES in key else kind_of_name(key)
    path = path_of_key(key)
    components = path.split("/")
    last = components[-1]
    if "_model_variables_moving_average" in components:
        return path, "ema"
    if "_trainable_variables" in components:
        return path, "model"
    if _SLOT in path:
        return path, "ema" if last == "average" else "optimizer"
    if any(name.endswith("optimizer") for name in components[:-1]):
        return path, "step" if last in {"iter", "_iterations"} else "optimizer"
    return path, "other" if "metrics" in components else kind_of_name(path)


def path_of_key(key: str) -> str:
    """The object path that a key spells: ``a/b/.ATTRIBUTES/VARIABLE_VALUE`` → ``a/b``.

    Any other key is its own path: one of a table's keys or of an iterator's state names an
    attribute too, and a name-based one spells no path.
    """
    return key.removesuffix(_VALUE) or key


def key_of_path(path: str) -> str:
    """The key of a variable's value whose path, as `path_of_key` spells it, this is."""
    return path + _VALUE


def readable_path(path: str) -> str:
    """A path with its names as they were given: ``..`` in it is a dot, and ``.S`` a slash.

    There is no way back: a slash in a name then looks like one between two names.
    """
    if "." not in path:
        return path
    return _ESCAPE.sub(lambda found: "/" if found[0] == ".S" else ".", path)


def says_something(full_name: str) -> bool:
    """Whether a full name is one that somebody gave; unnamed variables share one."""
    unnamed = full_name.startswith(_MEANINGLESS_OPENINGS) and _MEANINGLESS.fullmatch(full_name)
    return bool(full_name) and not unnamed


class _Labels(dict[str, Label]):
    """The labels of the keys that a graph knows, and the best ones of any others."""

    def __missing__(self, key: str) -> Label:
        return label_of_key(key)


class GraphNames:
    """Names, paths and kinds of the keys of one object-based checkpoint.

    Names are unique among the keys that the graph knows, and so are paths. A key that it
    does not know (the graph's own, a table's keys) goes by what the key itself says.

    Attributes:
        label: gives the readable name and the kind of a key. (It is a dictionary's own
            method, for a listing calls it for every variable.)
    """

    __slots__ = ("_full_names", "_keys", "_keys_of", "_names", "_numbers", "_paths", "label")

    label: Callable[[str], Label]

    def __init__(self, graph: ObjectGraph) -> None:
        walked = walk_graph(graph)
        self._keys = graph.keys
        self._full_names = graph.full_names
        self._paths = _paths(graph, walked)
        self._names = _names(graph, self._paths)
        labels = zip(self._names, _kinds(graph, walked), strict=True)
        self.label = _Labels(zip(graph.keys, labels, strict=True)).__getitem__
        #: Made when they are first asked for.
        self._numbers: dict[str, int] = {}
        self._keys_of: dict[str, str] = {}

    def path(self, key: str) -> str:
        """The object path of a key, as readable as it can be and stay unambiguous."""
        number = self._number(key)
        return path_of_key(key) if number is None else self._paths[number]

    def namer(self, style: NameStyle) -> Callable[[str], str]:
        """What gives a key the name that was asked for."""
        if style == "full":
            return lambda key: self.label(key)[0]
        return self.path if style == "path" else str

    def full_name(self, key: str) -> str:
        """What the program that wrote a variable called it; empty where it is not known."""
        number = self._number(key)
        return "" if number is None else self._full_names[number]

    def key_of(self, text: str) -> str | None:
        """The key whose readable name, or else whose object path, is ``text``; or None."""
        if not self._keys_of:
            self._keys_of = dict(zip(self._paths, self._keys, strict=True))
            self._keys_of.update(zip(self._names, self._keys, strict=True))
        return self._keys_of.get(text)

    def _number(self, key: str) -> int | None:
        if not self._numbers:
            self._numbers = dict(zip(self._keys, range(len(self._keys)), strict=True))
        return self._numbers.get(key)


def _paths(graph: ObjectGraph, walked: WalkedGraph) -> list[str]:
    """The path to each saved tensor, unescaped where no two become the same; all different.

    What is no variable's value, and what cannot be reached, goes by its key.
    """
    keys, paths = graph.keys, walked.paths
    escaped = [
        paths[node] or path_of_key(key) for node, key in zip(graph.owners, keys, strict=True)
    ]
    for number in graph.attributes:
        escaped[number] = path_of_key(keys[number])
    if walked.escaped:
        readable = [readable_path(path) for path in escaped]
        times = Counter(readable)
        readable = [
            path if times[path] == 1 else exact
            for path, exact in zip(readable, escaped, strict=True)
        ]
        if len(set(readable)) == len(readable):
            return readable
    # Two tensors of one path: no TensorFlow writes that, but a file may say so.
    return escaped if len(set(escaped)) == len(escaped) else keys


def _names(graph: ObjectGraph, paths: list[str]) -> list[str]:
    """The readable name of each saved tensor: its full name, or its path; all different.

    What Keras exports has every variable twice, in the list ``variables`` and in a list of
    its own; the first has the name then, and the second goes by its path.
    """
    full_names = graph.full_names
    if 0 in graph.edges and _EXPORTED in graph.edges[0][1]:
        first = {
            name
            for name, path in zip(full_names, paths, strict=True)
            if not path.startswith(_EXPORTED_LIST)
        }
        full_names = [
            "" if path.startswith(_EXPORTED_LIST) and name in first else name
            for name, path in zip(full_names, paths, strict=True)
        ]
    fit = {name for name, times in Counter(full_names).items() if times == 1}
    fit.difference_update(paths)  # or a name would mean two things
    fit.difference_update([name for name in fit if not says_something(name)])
    return [
        full_name if full_name in fit else path
        for full_name, path in zip(full_names, paths, strict=True)
    ]


def _kinds(graph: ObjectGraph, walked: WalkedGraph) -> list[Kind]:
    """The kind of each saved tensor.

    What only the model leads to may still say by its own name that it is something else:
    a ``global_step``, an average that ``tf.train.ExponentialMovingAverage`` made.
    """
    of_node = walked.kinds
    kinds: list[Kind] = [
        kind_of_name(full_name) if of_node[node] == "model" else of_node[node]
        for node, full_name in zip(graph.owners, graph.full_names, strict=True)
    ]
    for number in graph.attributes:
        kinds[number] = "other"
    return kinds
