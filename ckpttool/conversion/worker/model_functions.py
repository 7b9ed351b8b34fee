"""The functions of a model in memory: what it is called with, and what it gives.

Keras models (of Keras 3 and of Keras 2) say their inputs, or are told them; of those that
neither say nor are told, and of another ``tf.Module``, what is a ``tf.function`` with an input
signature is meant.
Names that Keras makes up (``keras_tensor_3``) differ from run to run, so they are replaced.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.composite_tensor import CompositeTensor
from tensorflow.python.util.nest import flatten_with_joined_string_paths

from ckpttool.conversion.ports import Port
from ckpttool.conversion.request import Request
from ckpttool.conversion.specs import NamedValue, PortSpec
from ckpttool.conversion.worker.traced_program import TracedFunction, constant_of, traced
from ckpttool.errors import NotFoundError, UnsupportedError, UsageError

__all__ = ["Entry", "entries", "trace_all", "zeros_for"]

_SERVING = "serving_default"
_MADE_UP = re.compile(r"(keras_tensor|input_layer|input|inputs|args|kwargs)(_\d+)*")


class Entry:
    """A way to call a model.

    Attributes:
        name: of the signature.
        inputs: ports with dtype and shape.
        tells: whether the model says what they are; some are called with nothing.
        body: tensors in the order of the inputs → outputs by name.
    """

    def __init__(self, name: str, inputs: Sequence[Port] | None, body: Callable[..., Any]) -> None:
        self.name = name
        self.inputs = tuple(inputs or ())
        self.tells = inputs is not None
        self.body = body


def entries(model: Any, request: Request) -> list[Entry]:  # noqa: ANN401
    """The ways to call a model that a request asks for; its own ones where it asks for none.

    Raises:
        UsageError: id ``model-inputs``: it does not say its inputs, and neither do you.
        NotFoundError: ids ``signature-not-found``, ``model-input-unknown``.
        UnsupportedError: id ``sparse-port``.
    """
    found = _of_keras(model) if is_keras(model) else _of_module(model)
    if is_keras(model) and not request.inputs:
        own = _of_functions(model)
        if own and (not found[0].tells or {one.name for one in own} & set(request.signatures)):
            found = own
    if request.inputs and not any(one.tells for one in found):
        _require_arguments(model, [spec.tensor for spec in request.inputs])
        found = [Entry(_SERVING, [_port(spec) for spec in request.inputs], _flat(model))]
    found = _chosen(found, request.signatures)
    if not found or not all(one.tells for one in found):
        raise UsageError(
            "it is not known what the model is called with",
            why="it has no inputs of its own, and no tf.function with an input_signature",
            hint="say it: --input NAME:DTYPE[SHAPE], such as --input image:float32[?,28,28]",
            id="model-inputs",
        )
    return [_fixed(_with_specs(one, request.inputs), request.freeze) for one in found]


def trace_all(found: Sequence[Entry], outputs: Sequence[PortSpec]) -> list[TracedFunction]:
    """Trace the entries; with chosen outputs, only those, as they are to be called.

    Raises:
        NotFoundError: id ``model-output-unknown``.
        UsageError: id ``model-outputs``: it gives what is no tensor, or two of one name.
        UnsupportedError: id ``sparse-port``.
    """
    functions = [traced(one.name, one.inputs, _named(one.body)) for one in found]
    return [_only(one, outputs) for one in functions] if outputs else functions


def zeros_for(entry: Entry) -> list[Any]:
    """Inputs of zeros, one example each, with which a model can be called to build it."""
    zeros = []
    for port in entry.inputs:
        shape = [1 if size is None else size for size in port.shape or ()]
        zeros.append(tf.zeros(shape, port.dtype))
    return zeros


def is_keras(model: Any) -> bool:  # noqa: ANN401
    """Whether it is a layer of Keras 3 or tf_keras, as all their models are."""
    for name in ("keras", "tf_keras"):
        module = sys.modules.get(name)
        if module is not None and isinstance(model, module.layers.Layer):
            return True
    return False


# Keras -----------------------------------------------------------------------------------


def _of_keras(model: Any) -> list[Entry]:  # noqa: ANN401
    tensors = getattr(model, "inputs", None)
    if not tensors:
        return [Entry(_SERVING, None, _flat(model))]
    ports = [
        Port(one.name.partition(":")[0], tf.as_dtype(one.dtype).name, _sizes(one.shape))
        for one in tensors
    ]
    structure = _structure(model)

    def body(*given: Any) -> Any:  # noqa: ANN401
        return model(tf.nest.pack_sequence_as(structure, list(given)), training=False)

    return [Entry(_SERVING, _renamed(ports), body)]


def _structure(model: Any) -> Any:  # noqa: ANN401
    """How the inputs are nested; a Sequential that was never called does not tell."""
    try:
        return model.input
    except AttributeError:
        return model.inputs[0] if len(model.inputs) == 1 else model.inputs


def _renamed(ports: Sequence[Port]) -> list[Port]:
    """Names that a person gave stay; made-up ones become ``input``, or ``input_0`` and on."""
    if len(ports) == 1:
        (port,) = ports
        return [replace(port, name="input") if _MADE_UP.fullmatch(port.name) else port]
    return [
        replace(port, name=f"input_{at}") if _MADE_UP.fullmatch(port.name) else port
        for at, port in enumerate(ports)
    ]


def _flat(model: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Call a model with its tensors in their order; Keras with ``training=False``."""
    keras = is_keras(model)

    def body(*given: Any) -> Any:  # noqa: ANN401
        return model(*given, training=False) if keras and _takes_training(model) else model(*given)

    return body


def _require_arguments(model: Any, names: Sequence[str]) -> None:  # noqa: ANN401
    """Check that a model of Keras takes so many tensors: many take one dict, or list, of them.

    Raises:
        UsageError: id ``model-inputs``.
    """
    if not is_keras(model) or len(names) == 1:
        return
    kinds = {"training", "mask"}
    taken = [
        one for one in inspect.signature(model.call).parameters.values() if one.name not in kinds
    ]
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in taken) or len(taken) >= len(
        names
    ):
        return
    given = ", ".join(names)
    pairs = ", ".join(f"'{name}': {name}" for name in names)
    raise UsageError(
        f"the model takes {len(taken)} of the {len(names)} inputs {given}",
        why=f"its call is call({', '.join(one.name for one in taken)}): what goes into a dict or "
        "a list there, only code can say",
        hint=f"return one of a class derived from it, with: def call(self, {given}): "
        f"return super().call({{{pairs}}})",
        id="model-inputs",
    )


def _takes_training(model: Any) -> bool:  # noqa: ANN401
    return "training" in inspect.signature(model.call).parameters


# Other modules ---------------------------------------------------------------------------


def _of_module(model: Any) -> list[Entry]:  # noqa: ANN401
    found = _of_functions(model)
    if not found and callable(model):
        return [Entry(_SERVING, None, _flat(model))]
    return found


def _of_functions(model: Any) -> list[Entry]:  # noqa: ANN401
    """What a class, or a model itself, has of ``tf.function`` with an input signature."""
    found = []
    for name in dict.fromkeys([*dir(type(model)), *vars(model)]):
        held = vars(model).get(name, inspect.getattr_static(type(model), name, None))
        signature = getattr(held, "input_signature", None)
        if signature is not None and isinstance(held, tf.types.experimental.GenericFunction):
            function = getattr(model, name)
            found.append(Entry(name, _of_signature(signature), _packed(function, signature)))
    for one in found:
        if one.name == "__call__" or len(found) == 1:
            one.name = _SERVING
    return sorted(found, key=lambda one: (one.name != _SERVING, one.name))


def _of_signature(signature: Any) -> list[Port]:  # noqa: ANN401
    """The inputs of a ``tf.function``, however they are nested; of a dict by their keys."""
    pairs = flatten_with_joined_string_paths(signature, separator="/")
    for path, spec in pairs:
        if not isinstance(spec, tf.TensorSpec):
            raise _composite("input", f"input {path}", type(spec).__name__)
    keys = [path.rpartition("/")[2] for path, _ in pairs]
    names = [
        spec.name or (key if not key.isdecimal() else "input" if len(pairs) == 1 else f"input_{at}")
        for at, (key, (_, spec)) in enumerate(zip(keys, pairs, strict=True))
    ]
    if len(set(names)) < len(names):
        names = [f"input_{at}" for at in range(len(pairs))]
    return [
        Port(name, spec.dtype.name, _sizes(spec.shape))
        for name, (_, spec) in zip(names, pairs, strict=True)
    ]


def _packed(function: Any, signature: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Call a ``tf.function`` with its tensors in their order."""

    def body(*given: Any) -> Any:  # noqa: ANN401
        return function(*tf.nest.pack_sequence_as(signature, list(given)))

    return body


# What was asked for ----------------------------------------------------------------------


def _chosen(found: list[Entry], names: Sequence[str]) -> list[Entry]:
    if not names:
        return found
    by_name = {one.name: one for one in found}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise NotFoundError(
            f"the model has no signature {unknown[0]}",
            why=f"it has {', '.join(by_name)}",
            hint="give one of those with --signature",
            id="signature-not-found",
        )
    return [by_name[name] for name in names]


def _with_specs(entry: Entry, specs: Sequence[PortSpec]) -> Entry:
    """The entry with the names, dtypes and shapes that were asked for."""
    ports = list(entry.inputs)
    places = {port.name: at for at, port in enumerate(ports)}
    for spec in specs:
        at = places.get(spec.tensor)
        if at is None:
            from ckpttool.sources.nearest import nearest

            near = nearest(spec.tensor, places)
            raise NotFoundError(
                f"the model has no input {spec.tensor}",
                why=f"it has {', '.join(port.text for port in ports)}",
                hint=f"did you mean: {near[0]}" if near else "give one of those",
                id="model-input-unknown",
            )
        port = ports[at]
        ports[at] = Port(
            spec.name, spec.dtype or port.dtype, port.shape if spec.shape is None else spec.shape
        )
    return Entry(entry.name, ports, entry.body)


def _fixed(entry: Entry, frozen: Sequence[NamedValue]) -> Entry:
    """The entry without the inputs that are fixed."""
    values = {one.name: one for one in frozen}
    unknown = values.keys() - {port.name for port in entry.inputs}
    if unknown:
        raise NotFoundError(
            f"the model has no input {min(unknown)}",
            why=f"it has {', '.join(port.text for port in entry.inputs)}",
            hint="--freeze-input fixes one of those",
            id="model-input-unknown",
        )
    constants = {
        at: constant_of(values[port.name], tf.as_dtype(port.dtype))
        for at, port in enumerate(entry.inputs)
        if port.name in values
    }
    body, count = entry.body, len(entry.inputs)

    def called(*tensors: Any) -> Any:  # noqa: ANN401
        rest = iter(tensors)
        return body(*(constants[at] if at in constants else next(rest) for at in range(count)))

    left = [port for port in entry.inputs if port.name not in values]
    return Entry(entry.name, left, called)


def _port(spec: PortSpec) -> Port:
    return Port(spec.tensor, spec.dtype or "float32", spec.shape)


def _named(body: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
    """The same, with its outputs by name: of a dict its keys, else ``output``, ``output_1``.

    What is None is no output: some models have a place for what they give in training only.
    """

    def named(*tensors: Any) -> Mapping[str, Any]:  # noqa: ANN401
        result = body(*tensors)
        if isinstance(result, Mapping):
            found = [(path, one) for path, one in _paths(result) if one is not None]
        else:
            parts = [one for one in tf.nest.flatten(result) if one is not None]
            names = ["output"] if len(parts) == 1 else [f"output_{at}" for at in range(len(parts))]
            found = list(zip(names, parts, strict=True))
        _require_outputs([name for name, _ in found])
        return {name: _dense(name, one) for name, one in found}

    return named


def _require_outputs(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if names and not twice:
        return
    raise UsageError(
        f"two outputs of the model are called {twice[0]}" if twice else "the model gives nothing",
        why="an output of a dict in a dict is called by both keys: OUTER/INNER"
        if twice
        else "all that it returns is None",
        hint="return a dict with a name of its own for each",
        id="model-outputs",
    )


def _dense(name: str, value: Any) -> Any:  # noqa: ANN401
    """An output as a tensor."""
    if isinstance(value, CompositeTensor):
        raise _composite("output", name, type(value).__name__)
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the output {name} of the model is no tensor",
            why=f"it is a {type(value).__name__}: {' '.join(str(error).split())[:200]}",
            hint="return tensors, in a dict, a list or alone",
            id="model-outputs",
        ) from None


def _composite(role: str, name: str, kind: str) -> UnsupportedError:
    """The refusal of a sparse or ragged tensor, which is several in one."""
    return UnsupportedError(
        f"an {role} of the model is no plain tensor",
        why=f"{name} is a {kind.removesuffix('Spec')}, made of several, which no target takes",
        hint="make it dense in the model: tf.sparse.to_dense, or to_tensor of what is ragged",
        id="sparse-port",
    )


def _paths(result: Any, above: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """The tensors of nested dicts and lists, by the path that leads to each."""
    if isinstance(result, Mapping):
        parts = list(result.items())
    elif isinstance(result, (list, tuple)):
        parts = list(enumerate(result))
    else:
        yield above, result
        return
    for name, part in parts:
        yield from _paths(part, f"{above}/{name}" if above else str(name))


def _only(function: TracedFunction, outputs: Sequence[PortSpec]) -> TracedFunction:
    known = [port.name for port in function.signature.outputs]
    for spec in outputs:
        if spec.tensor not in known:
            raise NotFoundError(
                f"the model has no output {spec.tensor}",
                why=f"it has {', '.join(known)}",
                hint="give one of those with --output",
                id="model-output-unknown",
            )
    body = function.body

    def chosen(*tensors: Any) -> Mapping[str, Any]:  # noqa: ANN401
        all_of_them = body(*tensors)
        return {spec.name: all_of_them[spec.tensor] for spec in outputs}

    return traced(function.signature.name, function.signature.inputs, chosen)


def _sizes(shape: Any) -> tuple[int | None, ...] | None:  # noqa: ANN401
    shape = tf.TensorShape(shape)
    return None if shape.rank is None else tuple(shape.as_list())
