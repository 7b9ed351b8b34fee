"""A file with a graph in it, of whatever kind: ``.pb``, ``.meta``, ``.pbtxt``.

Which message a file holds is told by its bytes, for names tell little: ``frozen.pb`` and
``saved_model.pb`` end alike, and protobuf messages have no mark.
"""

from __future__ import annotations

from typing import NamedTuple

from ckpttool.errors import CorruptError
from ckpttool.formats.graph_errors import graph_malformed, naming_graph
from ckpttool.formats.graph_text import GraphMessage, read_text
from ckpttool.formats.graphdef import Graph, parse_graph
from ckpttool.formats.long_message import FileBytes, MemoryBytes, MessageBytes, fields_of
from ckpttool.formats.metagraph import MetaGraph, parse_metagraph
from ckpttool.formats.saved_model import SavedModel, parse_saved_model
from ckpttool.formats.sniff import sniff_file
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["GraphFile", "read_graph_file"]

#: Fields and children that are looked at to tell one message from another.
_LOOKED_AT = 16


class GraphFile(NamedTuple):
    """What a file holds: exactly one of the last three is not None.

    Attributes:
        message: which message it is.
        text: whether it was in text form.
        graph: a plain ``GraphDef``, as ``tf.io.write_graph`` and freezing write it.
        meta: a ``MetaGraphDef``, as a saver writes it.
        saved_model: a ``SavedModel``.
    """

    message: GraphMessage
    text: bool
    graph: Graph | None
    meta: MetaGraph | None
    saved_model: SavedModel | None

    @property
    def metas(self) -> tuple[MetaGraph, ...]:
        """Its MetaGraphs: of a SavedModel one a set of tags."""
        if self.saved_model is not None:
            return self.saved_model.meta_graphs
        return (self.meta,) if self.meta is not None else ()

    def main_graph(self) -> Graph:
        """Its graph; of a SavedModel that of the MetaGraph with the tag ``serve``, else the first.

        Raises:
            CorruptError: id ``graph-malformed``; also where a SavedModel has none.
        """
        if self.graph is not None:
            return self.graph
        metas = self.metas
        if not metas:
            raise graph_malformed("the SavedModel", "it has no MetaGraph")
        return next((meta for meta in metas if "serve" in meta.tags), metas[0]).graph()


def read_graph_file(
    file: ReadableFile, limits: Limits, message: GraphMessage | None = None
) -> GraphFile:
    """Read an open file; it stays open, and the result reads on from it.

    Args:
        file: binary or text.
        limits: bounds on what it may claim.
        message: which message it is, where that is known.

    Raises:
        CorruptError: id ``graph-malformed``: it holds no graph.
        LimitError: id ``limit-graph``.
    """
    text = sniff_file(file).kind in ("graph-text", "text")
    source: MessageBytes
    if text:
        message, data = read_text(file, limits)
        source = MemoryBytes(data, file.path)
    else:
        source = FileBytes(file)
        message = message or _message(source)
    if message == "SavedModel":
        return GraphFile(
            message, text, None, None, parse_saved_model(source, 0, source.size, limits)
        )
    if message == "MetaGraphDef":
        return GraphFile(message, text, None, parse_metagraph(source, 0, source.size, limits), None)
    return GraphFile(message, text, parse_graph(source, 0, source.size, limits), None, None)


def _message(source: MessageBytes) -> GraphMessage:
    """Which message these bytes are, by what their first fields hold.

    A ``SavedModel`` begins with a number. What field 1 of the others holds begins with a name
    and an op, or else is no node; and a ``MetaGraphDef`` has it once.
    """
    with naming_graph(source.path):
        for place, (number, _, value) in enumerate(fields_of(source, 0, source.size)):
            if isinstance(value, int):
                if number == 1:
                    return "SavedModel"
            elif number == 1:
                return "GraphDef" if _is_node(source, value) else "MetaGraphDef"
            elif number > 2 or place == _LOOKED_AT:
                break
            else:  # a graph without MetaInfoDef, or a library without nodes
                return "MetaGraphDef" if _has_node(source, value) else "GraphDef"
    return "GraphDef"


def _is_node(source: MessageBytes, place: tuple[int, int]) -> bool:
    """Whether a message has a name and an op: what a NodeDef has and a MetaInfoDef has not."""
    texts = {1: b"", 2: b""}
    try:
        for number, _, value in fields_of(source, *place):
            if number in texts and not isinstance(value, int):
                texts[number] = source.get(value[0], min(value[1], value[0] + _LOOKED_AT))
                if number == 2:
                    break
    except CorruptError:
        return False
    # An op is a word; a list of ops, which a MetaInfoDef has there, begins with a tag.
    return bool(texts[1] and texts[2]) and texts[2].isascii() and texts[2][0] > 0x20


def _has_node(source: MessageBytes, place: tuple[int, int]) -> bool:
    try:
        for number, _, value in fields_of(source, *place):
            if number == 1 and not isinstance(value, int):
                return _is_node(source, value)
    except CorruptError:
        pass
    return False
