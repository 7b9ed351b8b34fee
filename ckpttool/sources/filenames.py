"""The file names of a V2 checkpoint: prefix ↔ index, data files, graph; the step in a name.

Pure string work (tensorflow/core/util/tensor_bundle/naming.cc); opens nothing. A prefix
here is a base name, without its directory.
"""

from __future__ import annotations

import os
import re
from typing import Literal, NamedTuple

__all__ = [
    "SAVED_MODEL_FILES",
    "STATE_FILE",
    "Part",
    "file_number",
    "graph_name",
    "index_name",
    "is_sharded_v1",
    "join",
    "shard_name",
    "split_number",
    "split_part",
    "v1_pattern",
    "v1_shard",
]

#: The state file's usual name (``latest_filename`` may give it another).
STATE_FILE = "checkpoint"
#: A SavedModel is a directory with one of these.
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")

_PART = re.compile(r"(.+)\.(?:(index)|(meta)|data-([0-9]{5,9})-of-([0-9]{5,9}))", re.DOTALL)
_SHARDED_V1 = re.compile(r"(.+)-(?:[0-9]{5,9}|\?{5})-of-([0-9]{5,9})", re.DOTALL)
#: A number not inside a decimal; after it at most a metric and ``.ckpt``, as in Keras's
#: ``cp-0010.ckpt`` and ``weights.05-0.33``.
_NUMBER = re.compile(r"(?<![0-9])(?<![0-9]\.)([0-9]+)(?:[-_][0-9]+\.[0-9]+)?(\.ckpt)?\Z", re.DOTALL)
#: What may stand before a number that counts something: a mark, or a word.
_COUNTS = re.compile(r"(?:\A|[-_.@]|epoch|step|iter|ckpt|checkpoint)\Z", re.IGNORECASE)


class Part(NamedTuple):
    """What a file name says: which part of which checkpoint."""

    prefix: str
    kind: Literal["index", "meta", "shard"]
    #: The shard's number, and how many there are; zero for the other kinds.
    shard: int = 0
    shards: int = 0


def join(directory: str, name: str) -> str:
    """The path of a name in a directory as a person would type it: ``./`` is left out."""
    return name if directory in {"", "."} else os.path.join(directory, name)


def index_name(prefix: str) -> str:
    """``model.ckpt-7`` → ``model.ckpt-7.index``."""
    return f"{prefix}.index"


def shard_name(prefix: str, shard: int, shards: int) -> str:
    """``model.ckpt-7``, 0, 2 → ``model.ckpt-7.data-00000-of-00002``."""
    return f"{prefix}.data-{shard:05d}-of-{shards:05d}"


def graph_name(prefix: str) -> str:
    """The ``.meta`` file; a sharded V1 prefix loses its shard (meta_graph_filename)."""
    sharded = _SHARDED_V1.fullmatch(prefix)
    return f"{sharded[1] if sharded else prefix}.meta"


def split_part(name: str) -> Part | None:
    """Which part of a checkpoint a file of this name would be; None for any other name."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    prefix, index, meta, shard, shards = match.groups()
    if index:
        return Part(prefix, "index")
    if meta:
        return Part(prefix, "meta")
    return Part(prefix, "shard", int(shard), int(shards))


def is_sharded_v1(name: str) -> str | None:
    """The prefix in ``export-00000-of-00002``, how V1 names its shards; else None."""
    match = _SHARDED_V1.fullmatch(name)
    return match[1] if match else None


def v1_pattern(prefix: str, shards: int) -> str:
    """How TensorFlow spells the prefix of a sharded V1 checkpoint: ``m-?????-of-00002``."""
    return f"{prefix}-?????-of-{shards:05d}"


def v1_shard(name: str) -> tuple[str, int | None, int] | None:
    """What a name in V1's spelling of shards says: the prefix, which one, of how many.

    Of the pattern that stands for all of them, which one is None.
    """
    match = _SHARDED_V1.fullmatch(name)
    if match is None:
        return None
    which = name[len(match[1]) + 1 :].partition("-of-")[0]
    return match[1], None if "?" in which else int(which), int(match[2])


def split_number(prefix: str) -> tuple[str, int | None]:
    """The series and the number of a prefix: ``model.ckpt-1000`` → ``("model.ckpt", 1000)``.

    The number is a step or an epoch, or whatever the writer counts. Prefixes of one series
    can be compared by it; ``model`` and ``ckpt-1-best`` have none. The number of files of a
    sharded V1 checkpoint is none of these.
    """
    prefix = is_sharded_v1(prefix) or prefix
    match = _NUMBER.search(prefix)
    if match is None:
        return prefix, None
    return prefix[: match.start()].rstrip("-_.") + (match[2] or ""), int(match[1])


def file_number(name: str) -> int | None:
    """The step or epoch in the name of a file of weights, without its ending; None where none.

    ``model-7``, ``weights.05-0.33`` and ``epoch10`` have one. In ``resnet50``, ``vgg_v2`` and
    ``w_bf16`` the number says which model it is, so one that is a part of a word is none; nor
    is the number of files in ``model-00001-of-00002``.
    """
    name = is_sharded_v1(name) or name
    match = _NUMBER.search(name)
    if match is None or not _COUNTS.search(name, 0, match.start()):
        return None
    return int(match[1])
