"""What the variables of a V2 checkpoint are called: by their keys, or by the object graph.

Reads the object graph when a name is first asked for, and goes on with the keys where it
cannot be read. Knows the graph's entry and how to read it, not the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.limits import Limits, within_memory
from ckpttool.model import Oddity, Variable, shape_text
from ckpttool.sources.kinds import label_of_name
from ckpttool.sources.v2_variables import Labeller

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckpttool.sources.naming import GraphNames

__all__ = ["BundleNames"]


class BundleNames:
    """Names of one checkpoint.

    Args:
        graph: the variable that holds the object graph; None in a name-based checkpoint.
        read: the strings of a variable, all of them.
        limits: bounds on the graph.
        notes: where it is said that a graph cannot be read.
    """

    def __init__(
        self,
        graph: Variable | None,
        read: Callable[[Variable], list[bytes]],
        limits: Limits,
        notes: list[str],
    ) -> None:
        self._variable = graph
        self._read = read
        self._limits = limits
        self._notes = notes
        self._graph: GraphNames | None = None
        self._label: Labeller | None = None

    @property
    def graph(self) -> GraphNames | None:
        """The names of an object-based checkpoint; parses the object graph.

        None for a name-based one, and (with a note) where the graph cannot be read.
        """
        if self._variable is not None and self._label is None:
            from ckpttool.formats.object_graph import parse_object_graph
            from ckpttool.sources.naming import GraphNames, label_of_key

            self._label = label_of_key
            try:
                with within_memory("the object graph"):
                    self._graph = GraphNames(parse_object_graph(self.graph_bytes(), self._limits))
                    self._label = self._graph.label
            except CkpttoolError as error:
                self._notes.append(Oddity(f"names and kinds are guessed from the keys: {error}"))
        return self._graph

    def labeller(self) -> Labeller:
        """What gives a key its name and kind; parses the object graph, as ``graph``."""
        if self._variable is None:
            return label_of_name
        _ = self.graph
        assert self._label is not None, "`graph` sets it"
        return self._label

    def key_of(self, name: str) -> str | None:
        """The key of a readable name or an object path; None in a name-based checkpoint.

        What the graph does not know, all where it cannot be read, goes by the path that
        its key spells; the labeller gives it that name, so it is found by it.
        """
        if self._variable is None:
            return None
        from ckpttool.sources.naming import key_of_path

        return (self.graph.key_of(name) if self.graph else None) or key_of_path(name)

    def graph_bytes(self) -> bytes:
        """The serialised object graph; only an object-based checkpoint has one.

        Raises:
            LimitError: id ``limit-object-graph-bytes``.
            CorruptError: id ``object-graph-malformed``: it is no single string.
            CkpttoolError: as ``Source.strings``.
        """
        variable = self._variable
        assert variable is not None, "the caller looked at the style"
        if variable.dtype != "string" or variable.shape != ():
            raise CorruptError(
                "the object graph is malformed",
                why=f"it should be one string, and is {variable.dtype} "
                f"{shape_text(variable.shape)}",
                hint="the variables can still be used by their keys: add --names key",
                id="object-graph-malformed",
            )
        if variable.nbytes > self._limits.object_graph_bytes:
            raise LimitError(
                "the object graph is over a limit",
                why=f"it has {variable.nbytes} bytes, over {self._limits.object_graph_bytes}",
                hint="if the file is trusted, raise object_graph_bytes in CKPTTOOL_LIMITS",
                id="limit-object-graph-bytes",
            )
        (data,) = self._read(variable)
        return data
