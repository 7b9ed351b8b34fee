"""Runs a SavedModel for the check, as whoever serves it would: loaded, by its signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ckpttool.conversion.ports import Port, Signature

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SavedModelRunner", "open_result"]


class SavedModelRunner:
    """A loaded SavedModel."""

    runtime = "tensorflow"

    def __init__(self, path: str) -> None:
        self._loaded = tf.saved_model.load(path)  # its resources live as long as it does

    def signatures(self) -> Sequence[Signature]:
        return [_signature(name, one) for name, one in self._loaded.signatures.items()]

    def run(self, signature: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        function = self._loaded.signatures[signature]
        specs = function.structured_input_signature[1]
        given = {name: tf.constant(feeds[name], spec.dtype) for name, spec in specs.items()}
        return {name: tensor.numpy() for name, tensor in function(**given).items()}


def open_result(path: str) -> SavedModelRunner:
    """Load a SavedModel directory."""
    return SavedModelRunner(path)


def _signature(name: str, function: Any) -> Signature:  # noqa: ANN401
    return Signature(
        name,
        _ports(function.structured_input_signature[1]),
        _ports(function.structured_outputs),
    )


def _ports(specs: Mapping[str, Any]) -> tuple[Port, ...]:
    return tuple(
        Port(name, one.dtype.base_dtype.name, _sizes(one.shape)) for name, one in specs.items()
    )


def _sizes(shape: Any) -> tuple[int | None, ...] | None:  # noqa: ANN401
    return None if shape.rank is None else tuple(shape.as_list())
