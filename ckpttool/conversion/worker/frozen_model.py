"""Frozen functions as one SavedModel: the intermediate form that converters take.

Every converter has a way into which a frozen function with plain names fits, while what
it makes of a model as it is depends on who wrote that, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ckpttool.conversion.worker.program import Frozen, Function
from ckpttool.conversion.worker.traced_program import require_names, spec_of

__all__ = ["concrete", "save_frozen"]


def concrete(frozen: Frozen) -> Any:  # noqa: ANN401
    """A ConcreteFunction of a frozen graph: tensors in the order of the inputs → a dict.

    Weights that were left out are no part of it: ask for a function that has them all.
    """
    assert not frozen.weights, "a function cannot be run without its weights"
    signature = frozen.signature
    imported = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(frozen.graph, name=""), []
    )
    pruned = imported.prune(
        [port.tensor for port in signature.inputs], [port.tensor for port in signature.outputs]
    )
    names = [port.name for port in signature.outputs]
    function = tf.function(
        lambda *tensors: dict(zip(names, pruned(*tensors), strict=True)),
        input_signature=[spec_of(port) for port in signature.inputs],
        autograph=False,
    )
    return function.get_concrete_function()


def save_frozen(functions: Sequence[Function], path: str, *, batch: int | None = None) -> None:
    """Write a SavedModel of frozen functions; its graph holds all weights as constants.

    Raises:
        LimitError: id ``graph-too-large``. UnsupportedError: id ``stateful-graph``.
        UsageError: id ``port-name``.
    """
    for one in functions:
        require_names(one.signature)
    signatures = {one.signature.name: concrete(one.frozen(batch=batch)) for one in functions}
    module = tf.Module()
    module.held = list(signatures.values())
    # Of what serves no gradients are needed, and those of int8 layers could not be saved.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, path, signatures=signatures, options=options)
