"""What an HDF5 file holds, as plain records, and what is asked of an open one.

HDF5 can lead out of its file (external links, external storage, virtual datasets, links
of user-defined classes) and round in circles; the records say where it would. Facts:
https://support.hdfgroup.org/documentation (HDF5 file format specification, version 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ckpttool.errors import IncompleteError
from ckpttool.formats.hdf5_types import ElementType

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.storage.base import ReadableFile

__all__ = ["ChunkPlace", "Contents", "Dataset", "Filter", "Hdf5", "Oddity", "read_inside"]


class Filter(NamedTuple):
    """A step of the pipeline that every chunk goes through."""

    code: int
    values: tuple[int, ...]


#: The filter that sums up a chunk.
_FLETCHER32 = 3


class Dataset(NamedTuple):
    """A dataset of the file.

    Attributes:
        path: from the root, without a leading slash; surrogate escapes keep odd bytes.
        type: of its elements.
        shape: None where it is not asked for, since that would open other files.
        layout: ``contiguous``, ``chunked``, ``compact``; ``virtual`` and ``external`` keep
            their elements in other files.
        stored: bytes that the file has of it.
        offset: where a contiguous one starts; None while nothing was ever written.
        chunk: shape of its chunks, or None.
        filters: in the order in which they were applied.
    """

    path: str
    type: ElementType
    shape: tuple[int, ...] | None
    layout: str
    stored: int
    offset: int | None
    chunk: tuple[int, ...] | None
    filters: tuple[Filter, ...]

    @property
    def checksummed(self) -> bool:
        """Whether each chunk has a checksum (H5Z_FILTER_FLETCHER32)."""
        return any(step.code == _FLETCHER32 for step in self.filters)


class Oddity(NamedTuple):
    """Something that was met and not followed: where, a word for what, and why."""

    path: str
    what: str
    why: str


class ChunkPlace(NamedTuple):
    """Where a chunk lies: offset and bytes as stored; a bit set is a filter left out."""

    offset: int
    nbytes: int
    skipped: int


class Contents(NamedTuple):
    """What a walk met: datasets, the paths of groups, and what was not followed."""

    datasets: list[Dataset]
    groups: list[str]
    oddities: list[Oddity]


class Hdf5(Protocol):
    """An open HDF5 file, or one that lies inside another file.

    Attributes:
        file: the file that it lies in.
        start: where it begins there.
        size: its bytes.
        limits: bounds on what it may claim.
        base: what addresses inside it count from.
        address_bytes: bytes of such an address.
    """

    file: ReadableFile
    start: int
    size: int
    limits: Limits
    base: int
    address_bytes: int

    def pread(self, offset: int, size: int) -> bytes:
        """Bytes at an offset that counts from where the HDF5 file begins.

        Raises:
            IncompleteError: id ``short-read``: it ends before.
        """
        ...

    def walk(self) -> Contents:
        """Everything that hard links lead to, in no order, and what was not followed.

        A dataset with two names is given twice; a group that is met again is not entered.

        Raises:
            LimitError: id ``limit-hdf5``. CorruptError: id ``hdf5-unreadable``.
        """
        ...

    def attribute(self, path: str, name: str) -> str | None:
        """A text attribute of one value; None where there is none, or one of another type.

        Args:
            path: of an object that `walk` met, or empty for the root.
            name: of the attribute.

        Raises:
            CorruptError: id ``hdf5-unreadable``: it is there and cannot be read.
            LimitError: id ``limit-keras-config``: it is over ``limits.keras_config_bytes``.
        """
        ...

    def has_attribute(self, path: str, name: str) -> bool:
        """Whether an object that `walk` met has an attribute of this name."""
        ...

    def chunk_place(self, dataset: Dataset, start: tuple[int, ...]) -> ChunkPlace | None:
        """Where the chunk that begins at ``start`` lies; None where it was never written."""
        ...

    def unpacked_chunk(self, dataset: Dataset, start: tuple[int, ...]) -> bytes:
        """A chunk as the library unpacks it, filled up to its shape where it is an outer one.

        Of a dataset that is not chunked, all of it.
        """
        ...

    def fill_value(self, dataset: Dataset) -> bytes:
        """What each element holds that was never written, as it would be stored."""
        ...

    def close(self) -> None:
        """Release everything but the file; a second call does nothing."""
        ...


def read_inside(hdf5: Hdf5, offset: int, size: int) -> bytes:
    """As `Hdf5.pread`, for any kind of it."""
    if offset < 0 or size < 0 or offset + size > hdf5.size:
        raise IncompleteError(
            f"{hdf5.file.path} ends too early",
            why=f"{size} bytes wanted at offset {offset}, but it has {hdf5.size}",
            hint="copy the file again from where it is whole",
            id="short-read",
        )
    return hdf5.file.pread(hdf5.start + offset, size)
