"""Arrays that a person gives, for the check and for calibration: read, and fitted to a dtype.

Knows nothing of what they are for; whoever asks says which option gave them.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ckpttool.errors import NotFoundError, UsageError
from ckpttool.formats.dtypes import numpy_dtype
from ckpttool.storage.system import raise_os_error

if TYPE_CHECKING:
    import numpy as np

__all__ = ["in_dtype", "read_arrays"]

#: What may stand for what: NumPy has no bfloat16, and counts in int64.
_KINDS = {"f": "f", "i": "iu", "u": "iu", "b": "b", "c": "cf", "O": "SUO", "V": "f"}

#: What NumPy and the archive's reader raise of a file that is damaged, or is something else; a
#: RuntimeError of one with a password, or an unknown compression.
_UNREADABLE = (
    ValueError,
    EOFError,
    AttributeError,
    TypeError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(
    path: str, is_wanted: Callable[[str], bool], *, option: str, id: str
) -> dict[str, np.ndarray]:
    """Read the members of an ``.npz`` whose names are wanted.

    Args:
        path: of the file.
        is_wanted: what of it is read.
        option: that named the file, for errors.
        id: of the errors.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is no ``.npz`` of plain arrays.
        PermissionDeniedError, StorageError: as the system says.
    """
    import numpy as np

    try:
        # NumPy would leave a file open that it opened itself and cannot read.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as data:
            found = {name: data[name] for name in data if is_wanted(name)}
        if other := [name for name, value in found.items() if not isinstance(value, np.ndarray)]:
            raise ValueError(f"{other[0]} is no array")
        return found
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no {path}",
            why=f"{option} names it",
            hint="give an .npz with an array for each input, by name",
            id=id,
        ) from None
    except OSError as error:
        raise_os_error(error, f"cannot read {path}")
    except _UNREADABLE as error:
        raise UsageError(
            f"{option} {path} cannot be used as data",
            why=f"it is no .npz of plain arrays: {str(error)[:200]}",
            hint="write one with numpy.savez(path, NAME=array); text as numpy.bytes_",
            id=id,
        ) from None


def in_dtype(array: np.ndarray, dtype: str) -> np.ndarray | None:
    """An array in TensorFlow's dtype of the same kind; None where its values do not fit."""
    import numpy as np

    kind = np.dtype(object) if dtype == "string" else numpy_dtype(dtype)
    if array.dtype.kind not in _KINDS[kind.kind]:
        return None
    if kind.kind == "O":
        return _as_bytes(array)
    found = array.astype(kind)
    if kind.kind in "iu" and not np.array_equal(found, array):
        return None
    return found


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """Text as TensorFlow takes it: objects that are bytes in UTF-8."""
    import numpy as np

    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    return array.astype(object)
