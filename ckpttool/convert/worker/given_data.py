"""Real inputs for the check: an ``.npz`` with an array for each input, by name.

``label:OUTPUT`` beside them (or ``label``, where there is one output) are right answers:
then the check also says how often the source and the result give them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckpttool.convert.ports import Port, Signature
from ckpttool.errors import NotFoundError, UsageError
from ckpttool.formats.dtypes import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["GivenData", "read_given"]

_LABEL = "label"
#: What may stand for what: NumPy has no bfloat16, and counts in int64.
_KINDS = {"f": "f", "i": "iu", "u": "iu", "b": "b", "c": "cf", "O": "SUO", "V": "f"}


@dataclass(frozen=True, slots=True)
class GivenData:
    """The arrays of a file, and its path for errors."""

    path: str
    arrays: Mapping[str, np.ndarray]

    def feeds(self, signature: Signature) -> dict[str, np.ndarray]:
        """The inputs of a signature, in its dtypes.

        Raises:
            NotFoundError, UsageError: id ``check-data``: an input is missing, or does not fit.
        """
        missing = [one.name for one in signature.inputs if one.name not in self.arrays]
        if missing:
            raise NotFoundError(
                f"{self.path} lacks inputs",
                why=f"there is no {', '.join(missing)}; it has "
                f"{', '.join(self.arrays) or 'nothing'}",
                hint="name the arrays as the inputs of the signature are named",
                id="check-data",
            )
        return {port.name: self._fitted(port, self.arrays[port.name]) for port in signature.inputs}

    def labels(self, signature: Signature) -> dict[str, np.ndarray]:
        """The right answers for outputs of a signature, by output."""
        found = {
            port.name: self.arrays[f"{_LABEL}:{port.name}"]
            for port in signature.outputs
            if f"{_LABEL}:{port.name}" in self.arrays
        }
        if not found and len(signature.outputs) == 1 and _LABEL in self.arrays:
            found[signature.outputs[0].name] = self.arrays[_LABEL]
        return found

    def _fitted(self, port: Port, array: np.ndarray) -> np.ndarray:
        import numpy as np

        kind = np.dtype(object) if port.dtype == "string" else numpy_dtype(port.dtype)
        shape = port.shape
        sizes = array.shape if shape is None else shape
        fits = array.dtype.kind in _KINDS[kind.kind] and len(sizes) == array.ndim
        fits = fits and all(a in {None, b} for a, b in zip(sizes, array.shape, strict=True))
        if kind.kind == "O" and fits:
            return _as_bytes(array)
        found = array.astype(kind) if fits else array
        if fits and kind.kind in "iu":
            fits = bool(np.array_equal(found, array))
        if not fits:
            raise UsageError(
                f"{port.name} of {self.path} does not fit",
                why=f"it is {array.dtype.name}{list(array.shape)}, and the input is {port.text}",
                hint="an array is a batch: its first dimension counts the examples",
                id="check-data",
            )
        return found


def read_given(path: str, names: Sequence[str]) -> GivenData:
    """Read the arrays of these names, and labels.

    Raises:
        NotFoundError: id ``check-data``: there is no such file.
        UsageError: id ``check-data``: it is no ``.npz`` of plain arrays.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as data:
            wanted = [one for one in data if one in names or one.partition(":")[0] == _LABEL]
            return GivenData(path, {name: data[name] for name in wanted})
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no {path}",
            hint="give an .npz of inputs by name, or leave --check-data out",
            id="check-data",
        ) from None
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path} cannot be used as data",
            why=f"it is no .npz of plain arrays: {str(error)[:200]}",
            hint="write one with numpy.savez(path, NAME=array); text as numpy.bytes_",
            id="check-data",
        ) from None


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """Text as TensorFlow takes it: objects that are bytes in UTF-8."""
    import numpy as np

    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    return array.astype(object)
