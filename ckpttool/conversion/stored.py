"""What a graph file says of itself: its signatures, as ports; and operations it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ckpttool.conversion.ports import Port, Signature
from ckpttool.errors import NoGraphError, NotFoundError, UnsupportedError, UsageError
from ckpttool.formats.graphdef import Graph, Node
from ckpttool.formats.metagraph import Signature as StoredSignature
from ckpttool.formats.metagraph import TensorInfo
from ckpttool.sources.tensorflow_ops import listed_version, unknown_ops

__all__ = [
    "INIT_SIGNATURE",
    "SERVING",
    "of_stored",
    "require_inputs",
    "require_known_ops",
    "require_no_python",
    "sizes_of",
    "wanted_signatures",
]

SERVING = "serving_default"
#: What TensorFlow 2 keeps its initialiser under; nobody calls it.
INIT_SIGNATURE = "__saved_model_init_op"
#: Operations that are spelled out in an error.
_NAMED = 4
#: What has no value but that which it is fed.
_FED = {"Placeholder", "PlaceholderV2"}
#: What calls a function of Python (tensorflow/core/ops/script_ops.cc).
_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


def wanted_signatures(
    names: Sequence[str], stored: Sequence[StoredSignature], folder: str
) -> Sequence[StoredSignature]:
    """The signatures of these names, or all, the usual one first.

    Raises:
        NotFoundError: id ``signature-not-found``. NoGraphError: id ``no-outputs``: it has none.
    """
    by_name = {one.name: one for one in stored}
    for name in names:
        if name not in by_name:
            from ckpttool.sources.nearest import nearest

            near = nearest(name, by_name)
            raise NotFoundError(
                f"there is no signature {name} in {folder}",
                why=f"it has {', '.join(by_name) or 'none'}",
                hint=f"did you mean: --signature {near[0]}"
                if near
                else "give one of those"
                if by_name
                else "leave --signature out; --output says what is computed",
                id="signature-not-found",
            )
    if not stored:
        raise NoGraphError(
            f"{folder} has no signatures",
            why="so it does not say what goes in and what comes out",
            hint="export it again with signatures",
            id="no-outputs",
        )
    if names:
        return [by_name[name] for name in names]
    # The one that is asked for by default comes first.
    return sorted(stored, key=lambda one: (one.name != SERVING, one.name))


def of_stored(signature: StoredSignature, *, by_name: bool = False) -> Signature:
    """A signature as it is stored, as ours; ``by_name``: its ports stand for its own names."""

    def ports(stored: Iterable[TensorInfo]) -> tuple[Port, ...]:
        return tuple(
            Port(one.name, one.dtype, sizes_of(one.shape), one.name if by_name else one.tensor)
            for one in stored
        )

    return Signature(signature.name, ports(signature.inputs), ports(signature.outputs))


def sizes_of(shape: tuple[int, ...] | None) -> tuple[int | None, ...] | None:
    """A shape as it is stored, with None for a size that may be any."""
    return None if shape is None else tuple(None if size < 0 else size for size in shape)


def require_inputs(path: str, needed: Iterable[Node], given: Collection[str]) -> None:
    """Check that nothing has to be fed besides what is given.

    Args:
        path: of the graph, for the error.
        needed: the nodes of what is computed.
        given: operations that are inputs, or fixed.

    Raises:
        UsageError: id ``input-missing``: the result could not be run by anybody.
    """
    missing = [one.name for one in needed if one.op in _FED and one.name not in given]
    if missing:
        raise UsageError(
            f"what is computed of {path} needs more inputs",
            why=f"{', '.join(missing[:_NAMED])} would have to be fed, and is no input",
            hint=f"add --input {missing[0]}, or fix it: --freeze-input {missing[0]}=VALUE",
            id="input-missing",
        )


def require_no_python(path: str, nodes: Iterable[Node]) -> None:
    """Check that no function of Python is called: a graph has a number in its place.

    Raises:
        UnsupportedError: id ``op-python``.
    """
    names = [one.name for one in nodes if one.op in _PYTHON]
    if names:
        raise UnsupportedError(
            f"{path} calls Python",
            why=f"{', '.join(names[:_NAMED])}: what a py_function does was only in the memory of "
            "the program that made it",
            hint="choose outputs before it, or inputs behind it; or write it with TensorFlow's "
            "operations",
            id="op-python",
        )


def require_known_ops(path: str, ops: set[str], graph: Graph) -> None:
    """Check that today's TensorFlow has the operations that it would have to run.

    Raises:
        UnsupportedError: id ``op-unknown``.
    """
    functions = {function.name for function in graph.functions}
    unknown = unknown_ops(ops - functions)
    if unknown:
        raise UnsupportedError(
            f"{path} needs operations that TensorFlow no longer has",
            why=f"TensorFlow {listed_version()} lacks {', '.join(unknown[:_NAMED])}",
            hint="choose an output before them with --output, or convert with the TensorFlow "
            "that wrote it",
            id="op-unknown",
        )
