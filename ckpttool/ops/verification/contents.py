"""The entries of an index: checked one by one, and kept as ranges for what comes after.

Goes through a whole index once, past bad blocks and bad entries, and holds little: flat
arrays of ranges, and what is needed of partitioned variables and their parts. Looks at no
data file.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ckpttool.errors import (
    CkpttoolError,
    CorruptError,
    IncompleteError,
    LimitError,
    StorageError,
    UnsupportedError,
)
from ckpttool.formats.bundle import BundleIndex, Entry
from ckpttool.formats.dtypes import BY_NUMBER, STRING, VARIANT, dtype_name
from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY
from ckpttool.formats.ordered_code import decode_slice_key
from ckpttool.limits import Limits
from ckpttool.model import shape_text
from ckpttool.ops.verification.extents import Extents
from ckpttool.ops.verification.report import Report
from ckpttool.storage import ReadableFile

__all__ = ["GRAPH_KEY", "Contents", "Part", "name_of"]

GRAPH_KEY = OBJECT_GRAPH_KEY.encode()
#: The fewest bytes that a string variable has besides one an element: the checksum of the
#: lengths; and the fewest of an element of a variant: a length and a checksum.
_STRING_REST = 4
_VARIANT_ELEMENT = 5
_ITEM_SIZES = {number: dtype.size for number, dtype in BY_NUMBER.items() if dtype.size}


def name_of(key: bytes) -> str:
    """A key as findings name it; a part's as ``NAME[2:4, :]``, as `load` takes it."""
    sides = ""
    if key[:1] == b"\0":
        try:
            key, dimensions = decode_slice_key(key)
        except CorruptError:
            pass  # a variable whose name happens to begin with NUL
        else:
            spelled = (":" if n < 0 else f"{start}:{start + n}" for start, n in dimensions)
            sides = f"[{', '.join(spelled)}]"
    return key.decode("utf-8", "surrogateescape") + sides


class Part:
    """An entry whose key could be that of a part; ``owner`` is set when it is one."""

    __slots__ = ("dtype", "ordinal", "owner", "shape")

    def __init__(self, ordinal: int, dtype: int, shape: tuple[int, ...] | None) -> None:
        self.ordinal = ordinal
        self.dtype = dtype
        self.shape = shape
        self.owner: bytes | None = None


class Contents:
    """What an index holds; `scan` fills it in.

    Args:
        file: the open index; it stays the caller's.
        limits: bounds on what it may claim.
        report: takes the findings.
        deep: whether the bytes will be checked, which then tells of missing checksums.

    Attributes:
        num_shards: data files that the header claims; None where it is lost.
        big_endian: the byte order of the data files.
        shards: the ranges claimed of each data file.
        owners: the entries of partitioned variables.
        parts: by key, what a key says may be a part of one.
        graph: the entry of the object graph.
        entries: how many entries could be read, those of parts too.
        nowhere: how many of them are in no range of `shards`, besides the owners.
        whole: whether every block and every entry could be read.

    Raises:
        CorruptError, IncompleteError: nothing of the index can be read.
        LimitError, UnsupportedError, StorageError: it cannot be judged.
    """

    def __init__(self, file: ReadableFile, limits: Limits, report: Report, *, deep: bool) -> None:
        self.whole = True
        self.shards: dict[int, Extents] = {}
        self.owners: list[Entry] = []
        self.parts: dict[bytes, Part] = {}
        self.graph: Entry | None = None
        self.entries = 0
        self.nowhere = 0
        self._path = file.path
        self._limits = limits
        self._report = report
        self._deep = deep
        self._scanned = False
        self._index = BundleIndex(file, limits, self._damaged)
        self._check_spare()
        header = self._index.found_header
        self.num_shards = header.num_shards if header else None
        self.big_endian = self._index.header.big_endian

    def _damaged(self, error: CkpttoolError) -> None:
        if isinstance(error, (LimitError, UnsupportedError, StorageError)):
            raise error
        if self._scanned and not self.whole:
            return  # told already; what was whole and now is not, is told now
        self.whole = False
        self._report.add_error(error, self._path)

    def _check_spare(self) -> None:
        """The bytes of the index that no checksum covers."""
        table = self._index.table
        if not table.padding_clean:
            self._report.add(
                "footer-padding",
                "error",
                self._path,
                "its footer is not what a writer makes of its two block addresses: the rest of "
                "it should be zeros",
            )
        if table.spare_bytes:
            self._report.add(
                "index-spare-bytes",
                "warning",
                self._path,
                f"{table.spare_bytes} of its bytes lie in no block, and nothing reads them",
            )

    def scan(self) -> None:
        """Go through all entries, once.

        Raises:
            LimitError, UnsupportedError, StorageError: as the constructor.
        """
        ordinal = -1
        last_shard, extents = -1, Extents()
        item_sizes = _ITEM_SIZES.get
        for block in self._index.blocks():
            for entry in block:
                key, dtype, shape, shard, offset, size, checksum, slices, _ = entry
                ordinal += 1
                item_size = item_sizes(dtype)
                if (
                    item_size is None
                    or shape is None
                    or slices
                    or not checksum
                    or not key[0]
                    or prod(shape) * item_size != size
                ):
                    self._unusual(ordinal, entry)
                    continue
                if shard != last_shard:
                    last_shard, extents = shard, self._extents(shard)
                extents.add(ordinal, offset, size, checksum)
        self.entries = ordinal + 1
        self._scanned = True
        try:
            self.graph = self._index.get(GRAPH_KEY)
        except (CorruptError, IncompleteError) as error:
            self._damaged(error)

    def again(self) -> Iterator[Entry]:
        """All entries once more, in the same order, so that they have the same ordinals."""
        return self._index.entries()

    def lookup(self, ordinals: set[int]) -> dict[int, Entry]:
        """The entries of some ordinals; an index that changed meanwhile may give others."""
        found = ((number, entry) for number, entry in enumerate(self.again()))
        return {number: entry for number, entry in found if number in ordinals}

    def _extents(self, shard: int) -> Extents:
        extents = self.shards.get(shard)
        if extents is None:
            if len(self.shards) >= self._limits.shards:
                raise LimitError(
                    f"{self._path} is over a limit",
                    why=f"its entries lie in more than {self._limits.shards} data files",
                    hint="if the file is trusted, raise shards in CKPTTOOL_LIMITS",
                    id="limit-shards",
                )
            extents = self.shards[shard] = Extents()
        return extents

    def _unusual(self, ordinal: int, entry: Entry) -> None:
        """Take in an entry that is not a whole variable of a known size."""
        key, dtype, shape, shard, offset, size, checksum, slices, _ = entry
        if dtype not in BY_NUMBER:
            self._report.add(
                "unknown-dtype",
                "error",
                name_of(key),
                f"its dtype has number {dtype}, which no TensorFlow up to 2.21 knows",
            )
        if slices:
            self.owners.append(entry)
            return
        if not key[0]:
            self.parts[key] = Part(ordinal, dtype, shape)
        if not checksum and not self._deep:
            self._report.add(
                "checksum-missing",
                "warning",
                name_of(key),
                "it has no checksum: TensorFlow takes it for damaged and does not restore it",
            )
        opaque = dtype in {STRING, VARIANT}
        if shape is None:
            self._report.add(
                "shape-unknown",
                "error",
                name_of(key),
                f"its shape is unknown, so its {size} bytes mean nothing",
            )
            if opaque:
                self.nowhere += 1
                self._report.skip(name_of(key), "its shape is unknown", 1, size)
                return
        else:
            self._check_size(entry, shape)
        extents = self._extents(shard)
        if opaque:
            count = prod(shape or ())
            extents.add_opaque(ordinal, offset, size, checksum or 0, dtype, count)
        else:
            extents.add(ordinal, offset, size, checksum or 0)

    def _check_size(self, entry: Entry, shape: tuple[int, ...]) -> None:
        count, size = prod(shape), entry.size
        item_size = _ITEM_SIZES.get(entry.dtype)
        least = 0
        if item_size is not None:
            least = count * item_size
        elif entry.dtype == STRING:
            least = count + _STRING_REST
        elif entry.dtype == VARIANT:
            least = count * _VARIANT_ELEMENT
        if size < least or (item_size is not None and size != least):
            self._report.add(
                "size-mismatch",
                "error",
                name_of(entry.key),
                f"{dtype_name(entry.dtype)} {shape_text(shape)} takes "
                f"{'at least ' if item_size is None else ''}{least} bytes, and its entry "
                f"says {size}",
            )
