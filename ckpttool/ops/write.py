"""``write_checkpoint``: the arrays of a program as a checkpoint that TensorFlow reads.

For Python only: a command has no arrays. What the bytes of an array are is for
``rewrite/from_arrays``; how files appear whole or not at all, for ``rewrite/run``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from operator import index
from typing import TYPE_CHECKING

from ckpttool.errors import RefusedError, UsageError
from ckpttool.formats.bundle_writer import encode_header
from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY, parse_object_graph
from ckpttool.formats.saved_names import saved_under
from ckpttool.limits import Limits, default_limits
from ckpttool.ops.keywords import is_whole, require_shards
from ckpttool.ops.rewrite.destination import Destination
from ckpttool.ops.rewrite.destination import destination as place_of
from ckpttool.ops.rewrite.from_arrays import Pieces, array_content
from ckpttool.ops.rewrite.placing import by_bytes, place
from ckpttool.ops.rewrite.run import Options, RewriteResult, carry_out, finish_pending
from ckpttool.ops.rewrite.tensors import Bundle, Tensor
from ckpttool.storage import stat_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from ckpttool.sources.address import Address

__all__ = ["Pieces", "write_checkpoint"]

_STEP = "global_step"
#: Keys that an error names.
_NAMED = 5


def write_checkpoint(
    destination: Address,
    variables: Mapping[str, ArrayLike | Pieces],
    *,
    shards: int = 1,
    object_graph: bytes | None = None,
    step: int | None = None,
    overwrite: bool = False,
    verify: bool = False,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
) -> RewriteResult:
    """Write arrays as a V2 checkpoint: whole, the index last, or not at all.

    ``tf.train.load_checkpoint`` and ``tf.compat.v1.train.Saver`` read it; its keys are the
    names. Memory does not grow with the arrays, nor are they copied: each is laid out while
    it is written, in the order of the names. A state file is not written.

    Args:
        destination: the prefix, in a directory that exists.
        variables: by name, what ``numpy.asarray`` takes (a Python float is a ``float64``),
            of any dtype that TensorFlow stores, those of ml_dtypes too; strings as ``bytes``
            or ``str``; or `Pieces` of what is not in memory at once.
        shards: how many data files; variables are spread evenly over them, by bytes.
        object_graph: a serialised ``TrackableObjectGraph``, as
            ``checkpoint.read("_CHECKPOINTABLE_OBJECT_GRAPH").item()`` gives it: with it
            ``tf.train.Checkpoint.restore`` works, and the names are the keys that it has.
        step: the training step, written as the variable ``global_step`` (int64).
        overwrite: replace a checkpoint that is there.
        verify: read the result back and compare every checksum.
        progress: told of bytes done and their total.
        limits: bounds; None: the defaults, as changed by ``CKPTTOOL_LIMITS``.

    Raises:
        UsageError: id ``value-shape``: no array, or pieces that do not make one up; id
            ``destination-form``: a directory; ids ``object-graph-key-missing``,
            ``options-contradict``: a graph and variables that do not belong together.
        RefusedError: id ``exists``; id ``name-unusable``; id ``duplicate-key``: ``step``,
            and a variable ``global_step``.
        UnsupportedError: id ``dtype-not-representable``; id ``package-missing``.
        CorruptError: id ``object-graph-malformed``; with ``verify``, id ``written-wrong``.
        NotFoundError: id ``destination-directory``.
        LimitError: id ``object-graph-too-large``.
        ChangedError: id ``locked``: another ckpttool writes there.
        NoSpaceError, PermissionDeniedError, StorageError: as the system says.

    >>> import ckpttool, numpy as np
    >>> result = ckpttool.write_checkpoint(
    ...     "model.ckpt-7", {"dense/kernel": np.ones((4, 2), np.float32)}, step=7
    ... )
    >>> result.variables, result.nbytes
    (2, 40)
    >>> with ckpttool.open("model.ckpt-7") as checkpoint:
    ...     print(checkpoint.step, checkpoint.read("dense/kernel").sum())
    7 8.0
    """
    limits = limits or default_limits()
    require_shards(shards, limits)
    _require_names(variables)
    path = os.fsdecode(destination)
    where = _prefix(path)
    pending = finish_pending(path)
    tensors = [_tensor(name, value) for name, value in variables.items()]
    if step is not None:
        tensors.append(_step(step))
    if object_graph is not None:
        if OBJECT_GRAPH_KEY in variables:
            raise _contradiction("object_graph", f"the variable {OBJECT_GRAPH_KEY}")
        tensors.append(_tensor(OBJECT_GRAPH_KEY, object_graph))
    else:
        object_graph = _given_graph(variables)
    if object_graph is not None:
        if step is not None:
            raise _contradiction("object_graph", "step")
        _require_graph_fits(object_graph, variables.keys() - {OBJECT_GRAPH_KEY}, limits)
    tensors.sort(key=lambda tensor: tensor.key)
    bundle = Bundle(tensors, {}, encode_header(1), False, 1)
    if shards > 1:
        place(bundle, by_bytes(shards), shards)
    options = Options(overwrite=overwrite, verify=verify, progress=progress, limits=limits)
    return carry_out("arrays", bundle, where, (), options, notes=pending)


def _prefix(path: str) -> Destination:
    """Where the checkpoint goes; a name of its own, since there is no source to have it from."""
    there = stat_path(path) if path else None
    if there is not None and there.kind == "directory":
        raise UsageError(
            f"{path} is a directory",
            why="the files of a checkpoint begin with a name of their own, its prefix",
            hint=f"give one in it, for example {os.path.join(path, 'model.ckpt')}",
            id="destination-form",
        )
    where = place_of(path, "")
    if where.saved_model:
        raise UsageError(
            f"{path} are the variables of a SavedModel",
            why="its graph asks for each by its key, dtype and shape",
            hint="write a checkpoint, and convert it with like=",
            id="destination-form",
        )
    return where


def _tensor(name: str, value: ArrayLike | Pieces) -> Tensor:
    why = "the empty key and what begins with a zero byte are an index's own"
    try:
        key = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        key, why = b"", f"it is no Unicode: {error.reason} at {error.start}"
    if not key or key.startswith(b"\0"):
        raise RefusedError(
            f"no variable can be called {name!r}",
            why=why,
            hint="give it another name",
            id="name-unusable",
        )
    dtype, shape, content = array_content(name, value)
    return Tensor(key, key, dtype.number, shape, 0, content, b"")


def _step(step: int) -> Tensor:
    import numpy as np

    if not is_whole(step, -(2**63), 2**63 - 1):
        raise UsageError(f"a step cannot be {step!r}", why="it is written as an int64")
    return _tensor(_STEP, np.int64(index(step)))


def _require_names(variables: Mapping[str, object]) -> None:
    for name in variables:
        if not isinstance(name, str):
            raise UsageError(
                f"no variable can be called {name!r}",
                why=f"it is of type {type(name).__name__}",
                hint="names are str; os.fsdecode makes one of bytes that are no UTF-8",
            )


def _contradiction(one: str, other: str) -> UsageError:
    return UsageError(
        f"{one} and {other} do not go together",
        why="the object graph is one, and has its step among its own variables",
        hint="leave one of them out",
        id="options-contradict",
    )


def _given_graph(variables: Mapping[str, ArrayLike | Pieces]) -> bytes | None:
    """The object graph among the variables, where all of a checkpoint is written anew."""
    value = variables.get(OBJECT_GRAPH_KEY)
    if value is None:
        return None
    graph = value if isinstance(value, bytes) else getattr(value, "tolist", lambda: None)()
    if not isinstance(graph, bytes):
        raise UsageError(
            f"the value of {OBJECT_GRAPH_KEY} is no object graph",
            why="it is one string, a serialised TrackableObjectGraph",
            hint="give object_graph=, or leave it out",
            id="value-shape",
        )
    return graph


def _require_graph_fits(data: bytes, names: Iterable[str], limits: Limits) -> None:
    """Check that every object of the graph finds its values."""
    stems = set(parse_object_graph(data, limits).keys)
    missing = stems - {found for name in names if (found := _key_in_graph(name, stems))}
    if missing:
        named = ", ".join(sorted(missing)[:_NAMED])
        raise UsageError(
            "the object graph names variables that are not given",
            why=f"{len(missing)} of its keys have no value: {named}",
            hint="give every variable under the key that the graph has for it",
            id="object-graph-key-missing",
        )


def _key_in_graph(name: str, stems: set[str]) -> str | None:
    return name if name in stems else saved_under(name, stems)
