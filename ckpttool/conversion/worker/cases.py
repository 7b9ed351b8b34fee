"""A case of the check as a file: an ``.npz`` of ``in:NAME`` and ``out:NAME`` (``job.Case``).

Any NumPy can read it without pickles. No TensorFlow here: most runtimes need none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["plain_array", "save_case"]


def save_case(
    path: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a case."""
    import numpy as np

    arrays = {f"in:{name}": plain_array(array) for name, array in inputs.items()}
    arrays |= {f"out:{name}": plain_array(array) for name, array in outputs.items()}
    arrays |= {f"label:{name}": array for name, array in (labels or {}).items()}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def plain_array(array: np.ndarray) -> np.ndarray:
    """The same values in a dtype of NumPy's own: strings of fixed width, narrow floats wide."""
    import numpy as np

    array = np.asarray(array)
    if array.dtype == object:
        return array.astype(np.bytes_)
    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8", "float4")):
        return array.astype(np.float32)
    return array
