"""Graph files as sources: the constants of a frozen graph, the variables of a MetaGraph.

A frozen graph has its weights in it: its constants are its variables, and large ones are read
from where they lie in the file. A ``.meta``, or a SavedModel without variables, only says
which variables there are: they are listed, and their values are an error that says where to
look for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, IncompleteError, LimitError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.formats.graph_file import GraphFile, read_graph_file
from ckpttool.formats.tensor_proto import Tensor
from ckpttool.model import Variable, numel
from ckpttool.sources.base import Extent, Read
from ckpttool.sources.filenames import file_number
from ckpttool.sources.graph_variables import is_frozen, meta_variables, whole_shapes
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.listed import ListedSource, selection_shape
from ckpttool.sources.selection import Selection
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.model import Kind
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.base import SourceKind
    from ckpttool.storage.base import Directory, ReadableFile

__all__ = ["GraphSource", "MetaGraphSource", "open_resolved"]

#: Types that weights have; what else is constant in a graph is an axis, a shape, a word.
_WEIGHTS = ("float", "bfloat", "complex", "qint", "quint")


def open_resolved(resolved: Resolved, limits: Limits) -> GraphSource | MetaGraphSource:
    """Open a file with a graph.

    Raises:
        CorruptError: id ``graph-malformed``. LimitError: id ``limit-graph``.
    """
    directory = open_directory(resolved.directory)
    try:
        file = directory.open(resolved.prefix)
    except CkpttoolError:
        directory.close()
        raise
    try:
        content = read_graph_file(file, limits)
        if content.graph is not None:
            return GraphSource(directory, file, resolved, limits, content)
        return MetaGraphSource(directory, file, resolved, limits, content)
    except BaseException:
        file.close()
        directory.close()
        raise


class _GraphFileSource(ListedSource):
    """What both have in common: one file, opened before it was known what is in it."""

    def __init__(
        self,
        directory: Directory,
        file: ReadableFile,
        resolved: Resolved,
        limits: Limits,
        kind: SourceKind,
    ) -> None:
        super().__init__(directory, resolved, limits, kind=kind)
        self._files.append(file)
        self.number = file_number(os.path.splitext(resolved.prefix)[0])


class GraphSource(_GraphFileSource):
    """A ``GraphDef``: its constants are its variables.

    One that has variables too is no frozen graph: their values are in a checkpoint, and what
    its constants hold is what they begin with.
    """

    def __init__(
        self,
        directory: Directory,
        file: ReadableFile,
        resolved: Resolved,
        limits: Limits,
        content: GraphFile,
    ) -> None:
        kind: SourceKind = "frozen-graph" if is_frozen(content.main_graph()) else "graph"
        super().__init__(directory, file, resolved, limits, kind)
        self.content = content
        self._tensors: dict[str, Tensor] = {}
        self.publish(self._constants())

    def _constants(self) -> Iterator[Variable]:
        graph = self.content.main_graph()
        for node in graph.nodes:
            if node.op != "Const" or node.name in self._tensors:
                continue
            tensor = graph.attrs(node).tensor("value")
            if tensor is None:
                continue
            self._tensors[node.name] = tensor
            _require_few(len(self._tensors), self.location, self._limits)
            plain = tensor.content is not None and tensor.source.file is not None
            yield Variable(
                node.name,
                node.name,
                tensor.dtype,
                tensor.shape,
                tensor.nbytes,
                0,
                tensor.content[0] if tensor.content and plain else None,
                _kind(node.name, tensor),
            )

    def extent(self, variable: Variable) -> Extent | None:
        tensor = self._tensors[variable.key]
        file = tensor.source.file
        if tensor.content is None or file is None:
            return None
        start, end = tensor.content
        return Extent(file, start, end - start, little_endian=True)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        tensor = self._tensors[variable.key]
        if self.extent(variable) is not None:
            yield from super().reads(variable, selection)
        elif tensor.source.file is not None:
            yield Read(self.location, tensor.start, tensor.end - tensor.start)
        else:
            yield Read(self.location, 0, self._files[0].stat.size)

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        if self.extent(variable) is not None:
            yield from super()._chunks(variable, selection, check=check)
            return
        from ckpttool.sources.assemble import Box, pieces

        elements = self._tensors[variable.key].elements(self._limits)
        shape = selection_shape(variable)

        def read(_part: int, offset: int, size: int) -> bytes:
            return elements.read(offset, size)

        itemsize = BY_NAME[variable.dtype].size
        yield from pieces(selection, itemsize, [Box((0,) * len(shape), shape)], read)

    def _strings(
        self,
        variable: Variable,
        selection: Selection,
        *,
        check: bool,  # noqa: ARG002 - a graph has no checksums
    ) -> list[bytes]:
        from ckpttool.sources.assemble import Box, locate, scatter
        from ckpttool.sources.selection import strides

        stored = self._tensors[variable.key].strings(self._limits)
        shape = selection_shape(variable)
        located = locate(selection, Box((0,) * len(shape), shape), 0)
        result = [b""] * selection.size
        if located is not None:
            places = strides(tuple(axis.length for axis in selection.axes))
            at = sum(map(int.__mul__, located.first, places))
            scatter(stored, located.selection, result, places, at)
        return result


class MetaGraphSource(_GraphFileSource):
    """A ``MetaGraphDef``, or a ``SavedModel`` without variables: their names alone."""

    def __init__(
        self,
        directory: Directory,
        file: ReadableFile,
        resolved: Resolved,
        limits: Limits,
        content: GraphFile,
    ) -> None:
        kind: SourceKind = "metagraph" if content.saved_model is None else "savedmodel"
        super().__init__(directory, file, resolved, limits, kind)
        self.content = content
        keys: dict[str, Variable] = {}
        for meta in content.metas:
            for key, (dtype, shape) in whole_shapes(meta_variables(meta, meta.graph())).items():
                known = None if shape is None or -1 in shape else shape
                _require_few(len(keys), self.location, limits)
                keys.setdefault(
                    key, Variable(key, key, dtype, known, 0, None, None, kind_of_name(key))
                )
        self.publish(keys.values())

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        del selection, check
        raise self._no_values(variable)

    def _strings(self, variable: Variable, selection: Selection, *, check: bool) -> list[bytes]:
        del selection, check
        raise self._no_values(variable)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        del selection
        raise self._no_values(variable)

    def _no_values(self, variable: Variable) -> IncompleteError:
        if self.kind == "savedmodel":
            return IncompleteError(
                f"the values of {variable.name} are not here",
                why=f"{self.location} has no directory variables, and a graph holds none",
                hint="copy the whole SavedModel, with its directory variables",
                id="variables-missing",
            )
        return IncompleteError(
            f"the values of {variable.name} are not here",
            why=f"{self.location} is the graph of a checkpoint: it says which variables there "
            "are, and holds no values",
            hint="give the checkpoint itself: the files .index and .data beside it, or the V1 file",
            id="graph-without-values",
        )


def _require_few(count: int, location: str, limits: Limits) -> None:
    if count > limits.entries:
        raise LimitError(
            f"{location} has too many variables",
            why=f"it has more than {limits.entries} (the limit entries)",
            hint=f"raise it with CKPTTOOL_LIMITS=entries={4 * limits.entries}",
            id="limit-entries",
        )


def _kind(name: str, tensor: Tensor) -> Kind:
    """Weights by their names, as any variable; what else a graph has in it is ``other``."""
    if tensor.dtype.startswith(_WEIGHTS) and numel(tensor.shape) > 1:
        return kind_of_name(name)
    return "other"
