"""``saved_model.pb`` and ``fingerprint.pb``: a SavedModel's MetaGraphs and what marks it.

Field numbers are those of tensorflow/core/protobuf/{saved_model,fingerprint}.proto. Knows
nothing of the directory around them.
"""

from __future__ import annotations

from typing import NamedTuple

from ckpttool.errors import LimitError
from ckpttool.formats import wire
from ckpttool.formats.graph_errors import naming_graph
from ckpttool.formats.long_message import MessageBytes, fields_of
from ckpttool.formats.metagraph import MetaGraph, parse_metagraph
from ckpttool.limits import Limits

__all__ = [
    "Fingerprint",
    "SavedModel",
    "parse_fingerprint",
    "parse_saved_model",
    "patch_checkpoint_hash",
]

_SCHEMA_VERSION, _META_GRAPH = 1, 2
_CHECKPOINT_HASH, _UUID = 5, 7
#: A SavedModel has one MetaGraph a set of tags; three is many.
_MAX_META_GRAPHS = 100


class SavedModel(NamedTuple):
    """A parsed ``SavedModel``; ``schema_version`` is 1 in everything TensorFlow writes."""

    schema_version: int
    meta_graphs: tuple[MetaGraph, ...]


class Fingerprint(NamedTuple):
    """A ``FingerprintDef``: hashes over the parts of a SavedModel, unsigned 64-bit numbers.

    ``checkpoint_hash`` is over the bytes of ``variables.index``; ``uuid`` is empty where
    the writer gave none.
    """

    saved_model_checksum: int
    graph_def_program_hash: int
    signature_def_hash: int
    saved_object_graph_hash: int
    checkpoint_hash: int
    uuid: str


def parse_saved_model(source: MessageBytes, start: int, end: int, limits: Limits) -> SavedModel:
    """Parse the ``SavedModel`` in ``[start, end)``, but for its graphs.

    Raises:
        CorruptError: id ``graph-malformed``.
        LimitError: id ``limit-graph``.
    """
    version = 0
    meta_graphs: list[MetaGraph] = []
    with naming_graph(source.path):
        for number, _, value in fields_of(source, start, end):
            if isinstance(value, int):
                version = wire.signed64(value) if number == _SCHEMA_VERSION else version
            elif number == _META_GRAPH:
                if len(meta_graphs) == _MAX_META_GRAPHS:
                    raise LimitError(
                        f"{source.path} has too many MetaGraphs",
                        why=f"it has more than {_MAX_META_GRAPHS}, and a SavedModel has few",
                        id="limit-graph",
                    )
                meta_graphs.append(parse_metagraph(source, *value, limits))
    return SavedModel(version, tuple(meta_graphs))


def parse_fingerprint(data: bytes, path: str) -> Fingerprint:
    """Parse a ``FingerprintDef``.

    Raises:
        CorruptError: id ``graph-malformed``.
    """
    numbers: dict[int, int] = {}
    uuid = ""
    with naming_graph(path):
        for number, _, value in wire.fields(data):
            if isinstance(value, int):
                numbers[number] = value
            elif number == _UUID:
                uuid = data[value[0] : value[1]].decode("utf-8", "surrogateescape")
    program, signature, objects, checkpoint = (numbers.get(number, 0) for number in range(2, 6))
    return Fingerprint(numbers.get(1, 0), program, signature, objects, checkpoint, uuid)


def patch_checkpoint_hash(data: bytes, path: str, value: int) -> bytes:
    """A ``FingerprintDef`` with another ``checkpoint_hash``, and all else as it is.

    Raises:
        CorruptError: id ``graph-malformed``.
    """
    with naming_graph(path):
        kept = [raw for number, _, raw in wire.raw_fields(data) if number != _CHECKPOINT_HASH]
    tag = wire.encode_varint(_CHECKPOINT_HASH << 3 | wire.VARINT)
    return b"".join([*kept, tag, wire.encode_varint(value)])
