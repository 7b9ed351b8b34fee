"""Real inputs for the check: an ``.npz`` with an array for each input, by name.

``label:OUTPUT`` beside them (or ``label``, where there is one output) are right answers:
then the check also says how often the source and the result give them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.worker.array_data import in_dtype, read_arrays
from ckpttool.conversion.worker.calibration import open_calibration
from ckpttool.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["GivenData", "calibration_feeds", "read_given"]

_LABEL = "label"
#: Examples of the calibration that are enough for a check.
_EXAMPLES = 64


@dataclass(frozen=True, slots=True)
class GivenData:
    """The arrays of a file that are inputs or labels; its path and all names, for errors."""

    path: str
    arrays: Mapping[str, np.ndarray]
    names: Sequence[str]

    def feeds(self, signature: Signature) -> dict[str, np.ndarray]:
        """The inputs of a signature, in its dtypes; any number of rows but none.

        Raises:
            NotFoundError, UsageError: id ``check-data``: an input is missing, or does not fit.
        """
        missing = [one.name for one in signature.inputs if one.name not in self.arrays]
        if missing:
            raise NotFoundError(
                f"{self.path} lacks inputs",
                why=f"there is no {', '.join(missing)}; it has "
                f"{', '.join(self.names) or 'nothing'}",
                hint="name the arrays as the inputs of the signature are named",
                id="check-data",
            )
        return {port.name: self._fitted(port, self.arrays[port.name]) for port in signature.inputs}

    def labels(
        self, signature: Signature, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The right answers for outputs of a signature, by output: a class for each row.

        Args:
            signature: whose outputs they are of.
            outputs: what it gives for these inputs.

        Raises:
            UsageError: id ``check-data``: they are no classes, or not as many as rows.
        """
        found = {
            port.name: self.arrays[f"{_LABEL}:{port.name}"]
            for port in signature.outputs
            if f"{_LABEL}:{port.name}" in self.arrays
        }
        if not found and len(signature.outputs) == 1 and _LABEL in self.arrays:
            found[signature.outputs[0].name] = self.arrays[_LABEL]
        return {name: self._classes(name, one, outputs[name]) for name, one in found.items()}

    def require_outputs(self, names: Container[str]) -> None:
        """Check that all labels are of outputs that there are.

        Raises:
            UsageError: id ``check-data``.
        """
        for key in self.arrays:
            label, _, name = key.partition(":")
            if label == _LABEL and name and name not in names:
                raise self._no_label(key, "there is no such output")

    def _classes(self, name: str, given: np.ndarray, output: np.ndarray) -> np.ndarray:
        rows = output.shape[:-1]
        column = given.reshape(rows) if given.shape == (*rows, 1) else given
        if given.dtype.kind not in "iu" or column.shape != rows or not rows:
            raise self._no_label(
                f"{_LABEL} of {name}",
                f"it is {given.dtype.name}{list(given.shape)}, and the output has the shape "
                f"{list(output.shape)}",
            )
        return column

    def _no_label(self, key: str, why: str) -> UsageError:
        return UsageError(
            f"{key} of {self.path} cannot be used",
            why=why,
            hint="a label is the number of the right class, an integer for each row: "
            f"{_LABEL}:OUTPUT",
            id="check-data",
        )

    def _fitted(self, port: Port, array: np.ndarray) -> np.ndarray:
        sizes = array.shape if port.shape is None else port.shape
        fits = len(sizes) == array.ndim
        fits = fits and all(a in {None, b} for a, b in zip(sizes[1:], array.shape[1:], strict=True))
        found = in_dtype(array, port.dtype) if fits else None
        if found is None:
            raise UsageError(
                f"{port.name} of {self.path} does not fit",
                why=f"it is {array.dtype.name}{list(array.shape)}, and the input is {port.text}",
                hint="an array is a batch: its first dimension counts the examples",
                id="check-data",
            )
        if not found.size:
            raise UsageError(
                f"{port.name} of {self.path} has nothing in it",
                why=f"it is {array.dtype.name}{list(array.shape)}",
                hint="its first dimension counts the examples: give one or more",
                id="check-data",
            )
        return found


def read_given(path: str, names: Sequence[str]) -> GivenData:
    """Read the arrays of these names, and labels.

    Raises:
        NotFoundError: id ``check-data``: there is no such file.
        UsageError: id ``check-data``: it is no ``.npz`` of plain arrays.
    """
    found: list[str] = []

    def is_wanted(name: str) -> bool:
        found.append(name)
        return name in names or name.partition(":")[0] == _LABEL

    arrays = read_arrays(path, is_wanted, option="--check-data", id="check-data")
    return GivenData(path, arrays, found)


def calibration_feeds(
    spec: str, signatures: Sequence[Signature]
) -> dict[str, dict[str, np.ndarray]]:
    """Inputs out of ``--calibration``: a model whose ranges were measured is right in them only.

    Returns:
        Signature → its inputs, some examples as one batch.

    Raises:
        CkpttoolError: as ``calibration.open_calibration`` and its ``samples``.
    """
    found: dict[str, list[dict[str, np.ndarray]]] = {one.name: [] for one in signatures}
    for name, sample in open_calibration(spec, signatures).samples():
        if len(found[name]) < _EXAMPLES:
            found[name].append(sample)
        elif all(len(one) >= _EXAMPLES for one in found.values()):
            break
    return {
        signature.name: {
            port.name: _together(port, [one[port.name] for one in found[signature.name]])
            for port in signature.inputs
        }
        for signature in signatures
    }


def _together(port: Port, parts: Sequence[np.ndarray]) -> np.ndarray:
    import numpy as np

    return parts[0] if port.shape == () else np.concatenate(parts)
