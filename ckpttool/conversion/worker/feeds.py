"""Inputs for the check: seeded, of a wanted batch size, in ranges that a graph allows.

An integer that picks a row of a table has to lie inside it, or TensorFlow refuses to run
and other runtimes read past the end; the frozen graph says how many rows there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpttool.conversion.ports import Port
from ckpttool.conversion.worker.graph_facts import GraphFacts, facts_of
from ckpttool.conversion.worker.program import Function
from ckpttool.formats.dtypes import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OPEN_SIZES", "is_count", "make_feeds"]

#: Sizes of dimensions, other than the first, that may be any, in the order in which they
#: are tried: a text or series is short; a picture that is pooled five times is not.
OPEN_SIZES = (8, 64, 224)
#: Integers that are no index that we know of: small enough to be one all the same.
_SMALL = 2
_WORDS = (b"alpha", b"Beta", b"gamma delta", b"", "Gr\u00fc\u00dfe".encode())


def make_feeds(
    function: Function,
    batch: int,
    seed: int,
    *,
    size: int = OPEN_SIZES[0],
    facts: GraphFacts | None = None,
    scalar: int | None = None,
) -> dict[str, np.ndarray]:
    """Inputs by name.

    Args:
        function: what they are for.
        batch: the first dimension of every input where it is open; of an input of unknown
            rank the only one.
        seed: the same seed gives the same inputs.
        size: the other dimensions that may be any, the same for all inputs, since those of
            one series have to agree.
        facts: of the function's graph, where they are known already.
        scalar: what an integer without dimensions is, of whose range nothing is known; None:
            any small one.
    """
    import numpy as np

    generator = np.random.default_rng([seed % 2**32, batch])
    facts = facts_of(function) if facts is None else facts
    found = {}
    for port in function.signature.inputs:
        shape = tuple(
            (batch if at == 0 else size) if one is None else one
            for at, one in enumerate((None,) if port.shape is None else port.shape)
        )
        rows = facts.rows.get(port.name)
        if scalar is not None and is_count(port) and rows is None:
            found[port.name] = np.asarray(scalar, numpy_dtype(port.dtype))
        else:
            found[port.name] = _values(port, shape, rows, generator)
    return found


def is_count(port: Port) -> bool:
    """Whether an input is an integer without dimensions: a number of steps, most often."""
    return port.shape == () and port.dtype.startswith(("int", "uint"))


def _values(
    port: Port, shape: tuple[int, ...], rows: int | None, generator: np.random.Generator
) -> np.ndarray:
    import numpy as np

    if port.dtype == "string":
        words = np.empty(len(_WORDS), object)
        words[:] = _WORDS
        return np.asarray(words[generator.integers(0, len(words), shape)], object)
    if port.dtype == "bool":
        return np.asarray(generator.integers(0, 2, shape) > 0)
    kind = numpy_dtype(port.dtype)
    if port.dtype == "uint8" and rows is None:
        rows = 256  # a picture, most often
    if port.dtype.startswith(("int", "uint", "qint", "quint")):
        return np.asarray(generator.integers(0, rows or _SMALL, shape)).astype(kind)
    if port.dtype.startswith("complex"):
        pair = generator.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1]).astype(kind)
    if shape == ():  # a rate or a share, most often
        return np.asarray(generator.uniform(0.5, 1.0)).astype(kind)
    return np.asarray(generator.standard_normal(shape)).astype(kind)
