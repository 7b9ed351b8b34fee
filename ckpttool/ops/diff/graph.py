"""``diff --graph``: will a checkpoint restore into a graph, and all that is in the way of it.

TensorFlow's saver stops at the first key that it does not find; here all are told, with those
that have another dtype or shape. What a checkpoint has beyond that does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ckpttool.errors import NotFoundError
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Variable
from ckpttool.ops.diff.asked import Question, unanswered
from ckpttool.ops.diff.facts import DiffResult, Level, Only, SideFacts
from ckpttool.ops.diff.suggest import with_rules
from ckpttool.ops.wanted import Wanted
from ckpttool.sources.filenames import SAVED_MODEL_FILES
from ckpttool.sources.graph_variables import is_frozen
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.registry import open_source
from ckpttool.storage import open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.formats.graphdef import Graph
    from ckpttool.sources.address import Address
    from ckpttool.sources.base import NameStyle, Source
    from ckpttool.sources.graph_expects import Expects

__all__ = ["diff_graph"]


def diff_graph(
    a: Address,
    graph: Address,
    *,
    level: Level = "meta",
    names: NameStyle = "full",
    want: Wanted | None = None,
    limits: Limits | None = None,
) -> DiffResult:
    """Compare a checkpoint with what a graph asks for; side B is the graph.

    Args:
        a: whatever has variables.
        graph: a ``.meta``, ``.pb`` or ``.pbtxt`` file, or the directory of a SavedModel.
        level: ``keys``, or ``meta`` for dtypes and shapes too.
        names: what the variables of the checkpoint are called in the answer; by their keys
            where the graph restores by objects.
        want: which variables.
        limits: bounds on what files may claim; None: those of this process.

    Raises:
        CorruptError: id ``graph-malformed``. LimitError: id ``limit-graph``.
        CkpttoolError: as ``open_source``.
    """
    limits = limits or default_limits()
    want = want or Wanted()
    path = os.fsdecode(graph)
    location, kind, expects = _read(path, limits)
    if expects.by_object:  # the graph asks for keys
        names = "key"
    with open_source(os.fsdecode(a), limits) as source:
        side = _Checkpoint(source)
        questions = [
            Question(
                name,
                kind_of_name(name) if (found := side.find(name)) is None else found.kind,
                expected.dtype,
                expected.shape,
                found,
            )
            for name, expected in expects.variables.items()
        ]
        answer = unanswered(questions, want, level)
        only_a = [
            Only(source.name_of(one, names), one.kind, one.dtype, one.shape)
            for one in side.variables
            if one.key not in answer.keys and want(source.name_of(one, names), one.kind)
        ]
        renamed = with_rules(only_a, answer.missing, expects.variables)
        return DiffResult(
            level,
            SideFacts(
                source.address, source.location, source.kind, source.style, len(side.variables)
            ),
            SideFacts(path, location, kind, None, len(expects.variables)),
            len(answer.keys),
            only_a,
            answer.missing,
            answer.dtype,
            answer.shape,
            suggestions=renamed.pairs,
            rules=renamed.rules,
            renames=renamed.renames,
            warnings=tuple(_warnings(source, location, expects, found=bool(answer.keys))),
            notes=tuple(source.notes),
            restores=not (answer.missing or answer.dtype or answer.shape),
        )


def _read(path: str, limits: Limits) -> tuple[str, str, Expects]:
    """Where the graph lies, what it is, and what it asks for."""
    from ckpttool.formats.graph_file import read_graph_file
    from ckpttool.sources.graph_expects import expected_of

    stat = stat_path(path)
    folder, name = os.path.split(path)
    is_directory = stat is not None and stat.kind == "directory"
    if is_directory:
        folder, name = path, ""
    with open_directory(folder or ".") as directory:
        if is_directory:
            name = next((one for one in SAVED_MODEL_FILES if directory.stat(one) is not None), "")
            if not name:
                raise NotFoundError(
                    f"{path} has no graph",
                    why=f"it has neither {SAVED_MODEL_FILES[0]} nor {SAVED_MODEL_FILES[1]}",
                    hint="give a .meta, .pb or .pbtxt file, or the directory of a SavedModel",
                    id="graph-missing",
                )
        with closing(directory.open(name)) as file:
            content = read_graph_file(file, limits)
            if content.saved_model is not None:
                kind = "savedmodel"
            else:
                graph = content.graph
                kind = "metagraph" if graph is None else _kind_of(graph)
            return os.path.join(folder, name), kind, expected_of(content, limits)


def _kind_of(graph: Graph) -> str:
    return "frozen-graph" if is_frozen(graph) else "graph"


class _Checkpoint:
    """The variables of a source, as a saver finds them: by key, else by full name."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.variables = [one for one in source.variables() if one.kind != "object_graph"]
        self._by_name = {one.name: one for one in self.variables}
        self._by_name |= {one.key: one for one in self.variables}

    def find(self, name: str) -> Variable | None:
        """The variable of a key; in an object-based checkpoint of its program's name too."""
        found = self._by_name.get(name)
        if found is None and self._source.style == "object":
            return self._source.lookup(name)
        return found


def _warnings(source: Source, location: str, expects: Expects, *, found: bool) -> Iterator[str]:
    if not expects.variables:
        yield f"{location} asks for nothing: it has no variables, as a frozen graph"
    elif not expects.by_saver:
        yield f"{location} has no saver: its variables were looked for by their names"
    if open_ends := sum(one.shape is None for one in expects.variables.values()):
        yield (
            f"{location} does not say the shapes of {open_ends} of its variables; against the "
            "variables of a SavedModel, ckpttool diff A SAVED_MODEL --level meta compares them"
        )
    if expects.by_object and source.style == "name":
        yield (
            f"{location} restores by an object graph, and {source.location} is name-based: "
            "edit --like puts its values under the keys of a checkpoint of that model"
        )
    elif source.style == "object" and not expects.by_object and found:
        yield (
            f"{source.location} is object-based, and {location} restores by names: a "
            "tf.compat.v1.train.Saver then looks for the full names in the object graph"
        )
