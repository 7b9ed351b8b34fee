"""An HDF5 file through h5py, without trusting it: groups, datasets, where chunks lie.

Only hard links are followed, each group is entered once, everything counted is bounded, and
a dataset that keeps its elements elsewhere is told as such and never asked for them. The
library opens no path: it reads through the file that was opened here.

The library is C and can crash on a file that was made up, so a source uses this in a
process of its own (``hdf5_process.py``). Importing h5py costs an eighth of a second (it
brings numpy), so it happens in functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.formats.hdf5 import ChunkPlace, Contents, Dataset, Filter, Oddity, read_inside
from ckpttool.formats.hdf5_types import element_type
from ckpttool.model import numel

if TYPE_CHECKING:
    from h5py import h5a, h5d, h5g, h5o

    from ckpttool.limits import Limits
    from ckpttool.storage.base import ReadableFile

__all__ = ["Hdf5File"]

#: What opening a part of a damaged file raises in h5py, whatever the damage.
_BROKEN = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


class Hdf5File:
    """An open HDF5 file, or one that lies inside another file.

    Args:
        file: the file; stays the caller's.
        limits: bounds on what it may claim.
        start: where it begins in ``file``.
        size: its bytes; None: up to the end.

    Raises:
        CorruptError: id ``hdf5-unreadable``.
        UnsupportedError: h5py is not installed.
    """

    def __init__(
        self, file: ReadableFile, limits: Limits, *, start: int = 0, size: int | None = None
    ) -> None:
        from h5py import h5f, h5fd, h5p

        self.file = file
        self.start = start
        self.size = file.stat.size - start if size is None else size
        self.limits = limits
        self._last: tuple[str, h5d.DatasetID] | None = None
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        access.set_fileobj_driver(h5fd.fileobj_driver, _Window(file, start, self.size))
        with self.reading("the file"):
            self._id = h5f.open(_NAME, h5f.ACC_RDONLY, access)
            creation = self._id.get_create_plist()
            #: Addresses in the file count from here.
            self.base: int = creation.get_userblock()
            #: Bytes of an address.
            self.address_bytes: int = creation.get_sizes()[0]

    def close(self) -> None:
        if self._id.valid:
            self._id.close()

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Say of an error of the library what was being read."""
        try:
            yield
        except CkpttoolError:
            raise
        except _BROKEN as error:
            raise CorruptError(
                f"{self.file.path} is a damaged HDF5 file: {what} cannot be read",
                why=str(error).replace("\n", " ")[:300],
                hint="copy the file again from where it is whole",
                id="hdf5-unreadable",
            ) from error

    def pread(self, offset: int, size: int) -> bytes:
        return read_inside(self, offset, size)

    def walk(self) -> Contents:
        from h5py import h5d, h5g, h5o

        datasets: list[Dataset] = []
        groups: list[str] = []
        oddities: list[Oddity] = []
        with self.reading("its root"):
            root = h5o.open(self._id, b"/")
            entered = {h5o.get_info(root).addr}
        waiting: list[tuple[h5g.GroupID, str, int]] = [(root, "", 1)]
        budget = _Budget(self.file.path, self.limits)
        while waiting:
            group, path, depth = waiting.pop()
            for name, hard in self._links(group, path, budget):
                where = f"{path}/{name}" if path else name
                if not hard or "/" in name or name in ("", "."):
                    oddities.append(_unfollowed(where, hard))
                    continue
                budget.name(where)
                with self.reading(where):
                    found = h5o.open(group, name.encode("utf-8", "surrogateescape"))
                    if isinstance(found, h5d.DatasetID):
                        budget.dataset()
                        datasets.append(self._dataset(found, where))
                    elif isinstance(found, h5g.GroupID):
                        address = h5o.get_info(found).addr
                        if address in entered:
                            oddities.append(Oddity(where, "loop", "it is a group that was met"))
                            continue
                        entered.add(address)
                        groups.append(where)
                        budget.depth(depth)
                        waiting.append((found, where, depth + 1))
        return Contents(datasets, groups, oddities)

    def attribute(self, path: str, name: str) -> str | None:
        from h5py import h5a

        with self.reading(f"the attribute {name} of /{path}"):
            owner = self._object(path)
            if not h5a.exists(owner, name.encode()):
                return None
            return self._text(h5a.open(owner, name.encode()), f"{path}@{name}")

    def has_attribute(self, path: str, name: str) -> bool:
        from h5py import h5a

        with self.reading(f"the attributes of /{path}"):
            return bool(h5a.exists(self._object(path), name.encode()))

    def chunk_place(self, dataset: Dataset, start: tuple[int, ...]) -> ChunkPlace | None:
        with self.reading(f"a chunk of {dataset.path}"):
            where = self._dataset_id(dataset).get_chunk_info_by_coord(start)
        if where.byte_offset is None:
            return None
        return ChunkPlace(where.byte_offset, where.size, where.filter_mask)

    def fill_value(self, dataset: Dataset) -> bytes:
        import numpy as np

        if dataset.type.name == "string" and not dataset.type.strip:
            return bytes(dataset.type.size)  # of any length: a reference to nothing
        with self.reading(f"the fill value of {dataset.path}"):
            found = self._dataset_id(dataset)
            value = np.zeros(1, found.get_type().dtype)
            found.get_create_plist().get_fill_value(value)
        return value.tobytes()

    def unpacked_chunk(self, dataset: Dataset, start: tuple[int, ...]) -> bytes:
        import numpy as np
        from h5py import h5s

        assert dataset.shape is not None
        shape = dataset.chunk or dataset.shape
        sides = zip(shape, dataset.shape, start or (0,) * len(shape), strict=True)
        count = tuple(min(chunk, size - at) for chunk, size, at in sides)
        whole = np.zeros(shape, f"V{dataset.type.size}")
        inner = np.zeros(count, whole.dtype)
        if not numel(count):
            return b""
        with self.reading(f"the values of {dataset.path}"):
            found = self._dataset_id(dataset)
            here, there = found.get_space(), h5s.create_simple(count or (1,))
            if count:
                here.select_hyperslab(start or (0,) * len(shape), count)
            found.read(there, here, inner, mtype=found.get_type())
        whole[tuple(slice(size) for size in count)] = inner
        return whole.tobytes()

    # ----------------------------------------------------------------------------------

    def _dataset_id(self, dataset: Dataset) -> h5d.DatasetID:
        """The library's identifier; that of the last dataset is kept."""
        if self._last is None or self._last[0] != dataset.path:
            self._last = (dataset.path, self._object(dataset.path))
        return self._last[1]

    def _object(self, path: str) -> h5o.ObjectID:
        from h5py import h5o

        return h5o.open(self._id, path.encode("utf-8", "surrogateescape") or b"/")

    def _links(self, group: h5g.GroupID, path: str, budget: _Budget) -> list[tuple[str, bool]]:
        """The links of a group: name, and whether it is a hard one."""
        from h5py import h5l

        found: list[tuple[str, bool]] = []
        over: list[LimitError] = []

        def take(name: bytes, info: h5l.LinkInfo) -> bool:
            # An exception would have to pass through the library: it is kept instead.
            try:
                budget.link()
            except LimitError as error:
                over.append(error)
                return True
            text = name.decode("utf-8", "surrogateescape")
            found.append((text, info.type == h5l.TYPE_HARD))
            return False

        with self.reading(f"the group /{path}"):
            group.links.iterate(take, info=True)
        if over:
            raise over[0]
        return found

    def _dataset(self, found: h5d.DatasetID, path: str) -> Dataset:
        from h5py import h5d, h5s

        created = found.get_create_plist()
        said = ""
        code = created.get_layout()
        layout = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked"}.get(
            code, "virtual"
        )
        type_id = found.get_type()
        element = element_type(type_id)
        if element.name == "opaque":
            said = self._said(found)
            element = element_type(type_id, said)
        if layout == "virtual":  # its shape may depend on files that it names
            return Dataset(path, element, None, layout, 0, None, None, ())
        if layout == "contiguous" and created.get_external_count():
            layout = "external"
        space = found.get_space()
        null = space.get_simple_extent_type() == h5s.NULL
        shape = (0,) if null else tuple(space.get_simple_extent_dims())
        stored = int(found.get_storage_size())
        # Of what was never written the library gives no address, or a wrong one.
        written = layout == "contiguous" and stored and not null
        offset = found.get_offset() if written else None
        filters = tuple(
            Filter(code, tuple(values))
            for code, _, values, _ in map(created.get_filter, range(created.get_nfilters()))
        )
        chunk = tuple(created.get_chunk()) if layout == "chunked" else None
        return Dataset(path, element, shape, layout, stored, offset, chunk, filters)

    def _said(self, found: h5o.ObjectID) -> str:
        from h5py import h5a

        if not h5a.exists(found, b"dtype"):
            return ""
        return self._text(h5a.open(found, b"dtype"), "dtype") or ""

    def _text(self, attribute: h5a.AttrID, what: str) -> str | None:
        import numpy as np
        from h5py import h5s, h5t

        kind = attribute.get_type()
        if kind.get_class() != h5t.STRING or attribute.get_space().get_simple_extent_type() not in (
            h5s.SCALAR,
            h5s.SIMPLE,
        ):
            return None
        if attribute.get_space().get_simple_extent_npoints() != 1:
            return None
        most = self.limits.keras_config_bytes
        if kind.get_size() > most or attribute.get_storage_size() > most:
            raise LimitError(
                f"an attribute of {self.file.path} is too large",
                why=f"{what} claims {kind.get_size()} bytes, and the limit is {most}",
                hint=f"CKPTTOOL_LIMITS=keras_config_bytes={kind.get_size()} allows it",
                id="limit-keras-config",
            )
        value = np.empty(attribute.shape, kind.dtype)
        attribute.read(value)
        text = value.reshape(-1)[0]
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        return str(text).rstrip("\0")


#: The library wants some name; it is never looked up.
_NAME = b"ckpttool"


class _Window:
    """What the library reads through: bytes of a file from ``start`` on.

    Past the end there are zeros, as h5py's driver has it for any file object that ends.
    """

    def __init__(self, file: ReadableFile, start: int, size: int) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (self._size if whence == 2 else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:
        size = max(0, min(len(buffer), self._size - self._at))
        if size:
            buffer[:size] = self._file.pread(self._start + self._at, size)
            self._at += size
        return size

    def read(self, size: int) -> bytes:
        size = max(0, min(size, self._size - self._at))
        data = self._file.pread(self._start + self._at, size)
        self._at += size
        return data


class _Budget:
    """Counts what a walk meets, and ends it at the limits."""

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._links = 0
        self._datasets = 0
        self._names = 0

    def link(self) -> None:
        self._links += 1
        self._require(self._links, "links", "hdf5_objects")

    def dataset(self) -> None:
        self._datasets += 1
        self._require(self._datasets, "datasets", "entries")

    def name(self, where: str) -> None:
        self._names += len(where)
        self._require(self._names, "bytes of paths", "hdf5_path_bytes")

    def depth(self, depth: int) -> None:
        self._require(depth, "groups inside each other", "hdf5_depth")

    def _require(self, count: int, what: str, limit: str) -> None:
        most: int = getattr(self._limits, limit)
        if count > most:
            raise LimitError(
                f"{self._path} has too many {what}",
                why=f"more than {most}",
                hint=f"CKPTTOOL_LIMITS={limit}={2 * count} allows more",
                id="limit-hdf5",
            )


def _unfollowed(where: str, hard: bool) -> Oddity:
    if hard:
        return Oddity(where, "name", "its name is no plain name")
    return Oddity(where, "link", "only what lies in the file itself is read")
