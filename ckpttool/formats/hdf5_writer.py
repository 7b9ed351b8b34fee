"""Arrays as an HDF5 file: h5py lays the file out, and the elements are streamed into it.

A ``/`` in a name makes groups, as Keras has it. Where one name goes on from another
(``weights`` and ``weights/Adam``: HDF5 has no dataset that is a group too), the longer one
takes ``:`` for the slash that follows the shorter one, and its exact name is the dataset's
attribute ``name``. Imports h5py and numpy inside; knows no source and no path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from ckpttool.errors import CorruptError
from ckpttool.formats.elements import npy_descr
from ckpttool.formats.named_array import (
    NamedArray,
    name_not_representable,
    not_representable,
    refuse_dtypes,
    require_distinct,
)
from ckpttool.storage.system import raise_os_error

if TYPE_CHECKING:
    import h5py

__all__ = ["NAME_ATTRIBUTE", "check_hdf5", "hdf5_paths", "write_hdf5"]

#: The attribute that holds the name of an array whose path is another.
NAME_ATTRIBUTE = "name"
#: H5S_MAX_RANK
_MOST_DIMENSIONS = 32


def check_hdf5(arrays: Sequence[NamedArray]) -> None:
    """Refuse what a file cannot hold, before anything is written.

    Raises:
        UnsupportedError: id ``dtype-not-representable`` or ``name-not-representable``.
        UsageError: id ``output-twice``.
    """
    misfits = [a for a in arrays if a.dtype != "string" and npy_descr(a.dtype) is None]
    refuse_dtypes("h5", "HDF5", misfits)
    for array in arrays:
        if len(array.shape) > _MOST_DIMENSIONS:
            raise not_representable(
                "h5",
                f"{array.name} has {len(array.shape)} dimensions, and HDF5 takes "
                f"{_MOST_DIMENSIONS}",
                "save it by itself as .npy",
            )
    require_distinct("h5", [array.name for array in arrays])
    hdf5_paths([array.name for array in arrays])


def hdf5_paths(names: Sequence[str]) -> list[str]:
    """The path in the file of each name; raises as `check_hdf5`."""
    known = set(names)
    paths: list[str] = []
    for name in names:
        parts = name.split("/")
        if "" in parts or "." in parts or "\0" in name:
            raise name_not_representable(
                "h5", name, "its parts between slashes are the names of HDF5 groups"
            )
        path = begun = parts[0]
        for part in parts[1:]:
            path += (":" if begun in known else "/") + part
            begun += "/" + part
        paths.append(path)
    twice = {path for path in paths if path not in known} & known
    if twice or len(set(paths)) < len(paths):
        name = next(n for n, path in zip(names, paths, strict=True) if n != path)
        raise name_not_representable("h5", name, "the path it would get is another one's name")
    return paths


def write_hdf5(
    arrays: Sequence[NamedArray], file: BinaryIO, attributes: Mapping[str, str] | None = None
) -> None:
    """Write a whole file.

    Args:
        arrays: in any order.
        file: empty, unbuffered, open for reading and writing; not closed.
        attributes: text that goes with them, as attributes of the root.

    Raises:
        UnsupportedError, UsageError: as `check_hdf5`; nothing is written then.
        UnsupportedError: id ``dtype-not-representable``: a string with a zero byte in it.
        CorruptError: id ``size-mismatch``: an array gave more or fewer elements than its
            shape has.
        NoSpaceError, StorageError: as the system says.
        CkpttoolError: from the arrays.
    """
    check_hdf5(arrays)
    paths = hdf5_paths([array.name for array in arrays])
    watched = _Watched(file)
    try:
        offsets = _lay_out(arrays, paths, watched, attributes or {})
    except (OSError, AttributeError, RuntimeError):  # what HDF5 makes of the system's
        if watched.error is None:
            raise
        raise_os_error(watched.error, "cannot write the HDF5 file")
    try:
        for array, (offset, nbytes) in zip(arrays, offsets, strict=True):
            if nbytes:
                _fill(array, file, offset, nbytes)
    except OSError as error:
        raise_os_error(error, "cannot write the HDF5 file")


class _Watched:
    """A file that remembers the system's first error, for HDF5 hides it behind others."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Callable[..., object]:
        call: Callable[..., object] = getattr(self._file, name)

        def remembering(*arguments: object) -> object:
            try:
                return call(*arguments)
            except OSError as error:
                self.error = self.error or error
                raise

        return remembering


def _lay_out(
    arrays: Sequence[NamedArray],
    paths: Sequence[str],
    file: _Watched,
    attributes: Mapping[str, str],
) -> list[tuple[int, int]]:
    """Make everything but the numbers; where those of each array go, and how many bytes."""
    import h5py

    offsets: list[tuple[int, int]] = []
    with h5py.File(file, "w") as target:
        target.attrs.update(attributes)
        for array, path in zip(arrays, paths, strict=True):
            encoded = path.encode("utf-8", "surrogateescape")
            if array.dtype == "string":
                dataset, placed = _strings(target, encoded, array), (0, 0)
            else:
                dataset, placed = _reserve(target, encoded, array)
            if path != array.name:
                dataset.attrs[NAME_ATTRIBUTE] = array.name.encode("utf-8", "surrogateescape")
            offsets.append(placed)
    return offsets


def _reserve(
    target: h5py.File, path: bytes, array: NamedArray
) -> tuple[h5py.Dataset, tuple[int, int]]:
    """A dataset with room for its elements, in one piece, that nothing is written to yet."""
    import h5py
    import numpy as np

    dtype = np.dtype(npy_descr(array.dtype))
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5py.h5t.CSET_UTF8)
    space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = h5py.h5t.py_create(dtype, logical=True)
    made = h5py.h5d.create(target.id, path, kind, space, creation, links)
    return h5py.Dataset(made), (made.get_offset() or 0, made.get_storage_size())


def _strings(target: h5py.File, path: bytes, array: NamedArray) -> h5py.Dataset:
    """A dataset of strings of variable length."""
    import h5py
    import numpy as np

    strings = array.strings()
    if any(b"\0" in value for value in strings):
        raise not_representable(
            "h5",
            f"a string of {array.name} holds a zero byte, which ends it there",
            "save as .json",
        )
    values: Any = np.empty(len(strings), object)
    values[:] = strings
    return target.create_dataset(
        path, data=values.reshape(array.shape), dtype=h5py.string_dtype("ascii")
    )


def _fill(array: NamedArray, file: BinaryIO, offset: int, nbytes: int) -> None:
    """Write the elements of an array to their place."""
    done = 0
    file.seek(offset)
    for piece in array.chunks():
        done += len(piece)
        if done > nbytes:
            break
        view = memoryview(piece)
        while view:
            view = view[file.write(view) :]
    if done != nbytes:
        raise CorruptError(
            f"the elements of {array.name} do not fit its shape",
            why=f"{done} bytes came, and {nbytes} are needed",
            id="size-mismatch",
        )
