"""The weights of a TensorFlow.js model: the dtypes it has, quantised elements, weight files.

Knows no graph and no TensorFlow; ``formats/tfjs.py`` reads what is written here. Weights
pass in pieces of some MiB: their sizes, and the range that quantisation needs, are known
before the first file is made (tfjs-core/src/io/types.ts and io_utils.ts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from ckpttool.errors import UnsupportedError, UsageError
from ckpttool.formats.dtypes import numpy_dtype
from ckpttool.formats.tfjs import Quantisation, Weight
from ckpttool.model import numel

if TYPE_CHECKING:
    import numpy as np

    from ckpttool.conversion.request import Quantization
    from ckpttool.storage.base import Directory

__all__ = ["PlannedWeight", "StoredWeight", "js_dtype", "plan_numbers", "plan_texts", "write_files"]

#: TensorFlow's dtype → the one that stands for it; what is not here has none.
_DTYPES = {
    **dict.fromkeys(("float32", "float64", "float16", "bfloat16"), "float32"),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "int32"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "int32"),
    **dict.fromkeys(("complex64", "complex128"), "complex64"),
    "bool": "bool",
    "string": "string",
}
#: Elements below which a weight stays as it is, as in TensorFlow Lite
#: (tensorflow/lite/tools/optimize/quantize_weights.h): constants of formulas, biases and
#: statistics are small, and need their digits more than a page needs the bytes.
_QUANTISED_FROM = 1024
_FLOAT16_MAX = 65504.0
_SHARD_BYTES = 4 * 2**20
#: A page that has to fetch more files than this is a slip in a unit.
_MOST_FILES = 10_000


class StoredWeight(Protocol):
    """Where the values come from, as ``worker.program.Weight`` has them."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def chunks(self) -> Iterator[bytes]:
        """Elements in C order, little-endian, in pieces of whole elements; read anew."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedWeight:
    """A weight that is going to be written: its entry, its bytes, and what gives them."""

    weight: Weight
    nbytes: int
    pieces: Callable[[], Iterator[bytes]]

    def entry(self) -> dict[str, object]:
        """What the manifest says of it."""
        weight = self.weight
        entry: dict[str, object] = {
            "name": weight.name,
            "shape": list(weight.shape),
            "dtype": weight.dtype,
        }
        stored = weight.quantisation
        if stored is not None:
            affine = {"min": stored.minimum, "scale": stored.scale}
            entry["quantization"] = {
                "dtype": stored.dtype,
                "original_dtype": weight.dtype,
                **({} if stored.dtype == "float16" else affine),
            }
        return entry


def js_dtype(dtype: str, what: str) -> str:
    """The dtype of TensorFlow.js that stands for one of TensorFlow's.

    Raises:
        UnsupportedError: id ``dtype-not-representable``, naming ``what``.
    """
    if dtype not in _DTYPES:
        raise UnsupportedError(
            f"{what} is {dtype}",
            why="TensorFlow.js has float32, int32, bool, complex64 and string, and nothing that "
            f"{dtype} could become",
            hint="cast it in the model, or convert it --to savedmodel",
            id="dtype-not-representable",
        )
    return _DTYPES[dtype]


def plan_numbers(name: str, stored: StoredWeight, quantize: Quantization | None) -> PlannedWeight:
    """Decide how a weight of numbers is stored; reads it where it may be quantised.

    Args:
        name: as the manifest is to have it.
        stored: its values.
        quantize: ``float16``, ``uint8``, ``uint16``, or None.

    Raises:
        UnsupportedError: id ``dtype-not-representable``. While it is read or written, id
            ``number-too-large``: an integer that int32 does not hold, or a number that
            is finite and that float32 does not hold.
    """
    dtype = js_dtype(stored.dtype, f"the weight {name}")

    def numbers() -> Iterator[np.ndarray]:
        return _numbers(name, stored, dtype)

    quantisation = None
    if quantize is not None and dtype == "float32" and numel(stored.shape) >= _QUANTISED_FROM:
        quantisation = _quantisation(quantize, numbers())
    weight = Weight(name, dtype, stored.shape, quantisation)

    def pieces() -> Iterator[bytes]:
        for array in numbers():
            yield (array if quantisation is None else _codes(array, quantisation)).tobytes()

    return PlannedWeight(weight, weight.nbytes, pieces)


def plan_texts(name: str, shape: tuple[int, ...], texts: Sequence[bytes]) -> PlannedWeight:
    """A weight of strings: of each its length in four bytes, and itself."""
    data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    return PlannedWeight(Weight(name, "string", shape, None), len(data), lambda: iter((data,)))


def write_files(
    weights: Sequence[PlannedWeight], directory: Directory, shard_bytes: int | None
) -> list[dict[str, object]]:
    """Write the weights, one after the other, into files of one size.

    Args:
        weights: in the order in which they are to lie.
        directory: for ``group1-shard1of2.bin`` and so on.
        shard_bytes: the size of a file; None: 4 MiB, which browsers keep in their caches.

    Returns:
        The ``weightsManifest``; empty where there are no weights.

    Raises:
        UsageError: id ``shard-bytes``: that would be too many files.
        UnsupportedError: as ``plan_numbers``. NoSpaceError and so on: as the system says.
    """
    if not weights:
        return []
    size = shard_bytes or _SHARD_BYTES
    total = sum(one.nbytes for one in weights)
    count = max(1, -(-total // size))
    if count > _MOST_FILES:
        raise UsageError(
            f"--shard-bytes {size} makes {count} files",
            why=f"the weights have {total} bytes, and more than {_MOST_FILES} files are no use",
            hint="leave it out for files of 4 MiB",
            id="shard-bytes",
        )
    names = [f"group1-shard{number}of{count}.bin" for number in range(1, count + 1)]
    data = _Bytes(chain.from_iterable(one.pieces() for one in weights))
    for number, name in enumerate(names):
        with directory.create(name) as file:
            for piece in data.take(min(size, total - number * size)):
                file.write(piece)
            file.commit()
    return [{"paths": names, "weights": [one.entry() for one in weights]}]


class _Bytes:
    """Pieces of bytes, cut anew."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def take(self, count: int) -> Iterator[memoryview]:
        """The next so many bytes."""
        while count:
            if not self._rest:
                self._rest = memoryview(next(self._pieces))
            part, self._rest = self._rest[:count], self._rest[count:]
            count -= len(part)
            yield part


def _numbers(name: str, stored: StoredWeight, dtype: str) -> Iterator[np.ndarray]:
    """The elements as what TensorFlow.js has, in flat pieces."""
    import numpy as np

    ours, theirs = numpy_dtype(stored.dtype), numpy_dtype(dtype)
    for chunk in stored.chunks():
        array = np.frombuffer(chunk, ours)
        if ours == theirs:
            yield array
            continue
        with np.errstate(over="ignore"):
            cast = array.astype(theirs)
        if dtype == "int32":
            lost = cast.astype(ours) != array
            if ours.kind == "u":  # a large one and a negative int32 have the same bits
                lost |= cast < 0
        else:
            lost = np.isfinite(array) & ~np.isfinite(cast)
        if lost.any():
            raise UnsupportedError(
                f"{array[lost][0]} in the weight {name} does not fit",
                why=f"it is {stored.dtype}, and TensorFlow.js has {dtype} in its place",
                hint="use a smaller number in the model, or convert it --to savedmodel",
                id="number-too-large",
            )
        yield cast


def _quantisation(quantize: Quantization, pieces: Iterator[np.ndarray]) -> Quantisation | None:
    """How to store a weight, after its range; None: as it is, since codes could not say it."""
    import numpy as np

    low, high = math.inf, -math.inf
    for array in pieces:
        if not np.isfinite(array).all():
            return None
        low, high = min(low, float(array.min())), max(high, float(array.max()))
    if quantize == "float16":
        return None if max(-low, high) > _FLOAT16_MAX else Quantisation("float16", 0.0, 1.0)
    if low == high:
        return Quantisation(quantize, low, 1.0)
    scale = (high - low) / _codes_of(quantize)
    if low <= 0.0 <= high:
        low = -round(-low / scale) * scale  # so that zero has a code, and stays zero
    return Quantisation(quantize, low, scale)


def _codes(array: np.ndarray, stored: Quantisation) -> np.ndarray:
    import numpy as np

    kind = numpy_dtype(stored.dtype)
    if stored.dtype == "float16":
        return array.astype(kind)
    codes = np.rint((array.astype(np.float64) - stored.minimum) / stored.scale)
    return codes.clip(0, _codes_of(stored.dtype)).astype(kind)


def _codes_of(dtype: str) -> int:
    """The largest code."""
    return 2**8 - 1 if dtype == "uint8" else 2**16 - 1
