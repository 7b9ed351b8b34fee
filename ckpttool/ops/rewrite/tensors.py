"""What a rewritten checkpoint is made of: entries, and where the bytes of each come from.

A command that changes a checkpoint turns one ``Bundle`` into another; ``write`` puts it
on the disk. Bytes are not read here: most of them never pass through this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ckpttool.formats.bundle import BundleIndex, SliceSpec
from ckpttool.formats.bundle_writer import encode_entry, encode_strings, patch_shard
from ckpttool.sources.shard_files import ShardFiles
from ckpttool.sources.v2 import BundleSource
from ckpttool.storage.base import FileStat, ReadableFile

__all__ = [
    "Bundle",
    "Computed",
    "Content",
    "Input",
    "Joined",
    "Owner",
    "Stored",
    "Tensor",
    "bundle_of",
    "for_threads",
    "inputs_of",
    "read_bundle",
    "require_present",
    "strings_content",
]


class Stored(NamedTuple):
    """Bytes that lie in a data file and are kept as they are.

    ``crc32c`` is the stored (masked) checksum of the whole entry they belong to, whose
    bytes start at ``offset - skipped`` and are ``entry_bytes`` long; None where none is
    stored. Usually they are the whole entry.
    """

    files: ShardFiles
    shard: int
    offset: int
    nbytes: int
    crc32c: int | None
    skipped: int
    entry_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all the bytes of an entry, so that its checksum is theirs."""
        return self.nbytes == self.entry_bytes

    def whole(self) -> Stored:
        """All the bytes of the entry that these belong to."""
        return self._replace(offset=self.offset - self.skipped, nbytes=self.entry_bytes, skipped=0)

    def part(self, skip: int, nbytes: int) -> Stored:
        """A range of these bytes."""
        return self._replace(offset=self.offset + skip, nbytes=nbytes, skipped=self.skipped + skip)


class Joined(NamedTuple):
    """Whole entries one after the other; the checksum is combined, not computed."""

    pieces: tuple[Stored, ...]
    nbytes: int


class Computed(NamedTuple):
    """New bytes, in the byte order of their bundle, made while they are written.

    ``crc32c`` is the masked checksum where it is not that of the bytes: of strings, which
    are known before. ``for_threads`` says that other contents may be read or made meanwhile.
    ``read`` gives ``size`` bytes of whole elements from ``offset``, where that can be had
    without all before them: such a content can be cut and joined.
    """

    chunks: Callable[[], Iterator[bytes]]
    nbytes: int
    crc32c: int | None = None
    for_threads: bool = False
    read: Callable[[int, int], bytes] | None = None


Content = Stored | Joined | Computed


def strings_content(values: Sequence[bytes]) -> Computed:
    """Strings that are in memory, as the content of an entry."""
    head, crc32c, nbytes = encode_strings(values)
    return Computed(partial(iter, (head, *values)), nbytes, crc32c)


def for_threads(content: Content) -> bool:
    """Whether a content can be read or made while others are, in other threads."""
    if isinstance(content, Computed):
        return content.for_threads
    if isinstance(content, Joined):
        return all(piece.files.for_threads for piece in content.pieces)
    return content.files.for_threads


class Tensor(NamedTuple):
    """One entry that has bytes: a variable, or one part of a partitioned one.

    Attributes:
        key: the entry's literal key; of a part the one that encodes its slice.
        variable: the key of the variable it belongs to; of a whole one the same.
        dtype: TensorFlow's number.
        shape: of the entry: a part's is its extent.
        shard: the data file that it is in, or goes to.
        content: its bytes.
        raw: the stored message, kept but for place and checksum; empty to encode anew.
    """

    key: bytes
    variable: bytes
    dtype: int
    shape: tuple[int, ...] | None
    shard: int
    content: Content
    raw: bytes


class Owner(NamedTuple):
    """The entry of a partitioned variable, which has no bytes of its own.

    ``raw`` is the stored message; empty to encode it anew.
    """

    key: bytes
    dtype: int
    shape: tuple[int, ...] | None
    slices: tuple[SliceSpec, ...]
    raw: bytes

    def message(self, shard: int) -> bytes:
        """What stands in the index; ``shard`` is the first one that has a part of it.

        Nobody reads that number, but MergeV2Checkpoints writes it (tensor_bundle.cc:
        MergeOneBundle).
        """
        if self.raw:
            return patch_shard(self.raw, shard)
        return encode_entry(self.dtype, self.shape, shard=shard, slices=self.slices)


class Input(NamedTuple):
    """A file that a bundle was read from, as it was then."""

    path: str
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: str, stat: FileStat) -> Input:
        """What is remembered of an open file."""
        return cls(path, stat.size, stat.mtime_ns, stat.inode)


@dataclass(slots=True)
class Bundle:
    """A checkpoint to be written.

    Attributes:
        tensors: in the order in which their bytes are laid out, shard by shard.
        owners: the partitioned variables, by key.
        header: the stored message of the empty key, patched when it is written.
        big_endian: the byte order of everything that is stored.
        shards: how many data files there are.
        inputs: the files that it was read from.
    """

    tensors: list[Tensor]
    owners: dict[bytes, Owner]
    header: bytes
    big_endian: bool
    shards: int
    inputs: tuple[Input, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all data files together."""
        return sum(tensor.content.nbytes for tensor in self.tensors)

    @property
    def variables(self) -> int:
        """How many there are; a partitioned one is one."""
        whole = sum(tensor.variable not in self.owners for tensor in self.tensors)
        return whole + len(self.owners)


def read_bundle(source: BundleSource) -> Bundle:
    """Every entry of an open checkpoint, in the order of the bytes in its data files.

    Raises:
        CorruptError, IncompleteError, LimitError: as ``BundleIndex``.
    """
    bundle = bundle_of(source.index, source.files)
    bundle.inputs = inputs_of(source.index_file, source.files)
    return bundle


def inputs_of(index: ReadableFile, files: ShardFiles) -> tuple[Input, ...]:
    """The files of a checkpoint as they are now: its open index, and its data files."""
    on_disk = sorted(files.on_disk().items())
    data = (Input.of(files.path(number), stat) for number, stat in on_disk if stat.kind == "file")
    return (Input.of(index.path, index.stat), *data)


def require_present(bundle: Bundle) -> None:
    """Check that the data files are there, and long enough for all that is kept of them.

    A plan that cannot be carried out is none, and room for bytes that nobody has need not be
    looked for. What is computed finds out when it reads.

    Raises:
        IncompleteError: ids ``shard-missing``, ``shard-short``.
        CkpttoolError: as ``ShardFiles.open`` and ``ShardFiles.require``.
    """
    last: dict[tuple[int, int], tuple[int, Stored, bytes]] = {}
    for tensor in bundle.tensors:
        content = tensor.content
        if isinstance(content, Computed):
            continue
        for piece in content.pieces if isinstance(content, Joined) else (content,):
            end = piece.offset + piece.nbytes
            at = (id(piece.files), piece.shard)
            if piece.nbytes and (at not in last or last[at][0] < end):
                last[at] = (end, piece, tensor.variable)
    sizes = {one.path: one.size for one in bundle.inputs}
    for end, piece, variable in last.values():
        if sizes.get(piece.files.path(piece.shard), 0) < end:
            name = variable.decode("utf-8", "surrogateescape")
            file = piece.files.open(piece.shard, name)
            piece.files.require(file, piece.shard, piece.offset, piece.nbytes, name)


def bundle_of(index: BundleIndex, files: ShardFiles) -> Bundle:
    """Every entry of an index whose data files are ``files``; as ``read_bundle``."""
    owners: dict[bytes, Owner] = {}
    part_of: dict[bytes, bytes] = {}
    tensors: list[Tensor] = []
    for block in index.blocks():
        for key, dtype, shape, shard, offset, size, crc32c, slices, raw in block:
            if slices:
                owners[key] = Owner(key, dtype, shape, slices, raw)
                part_of |= {spec.key(key): key for spec in slices}
            else:
                content = Stored(files, shard, offset, size, crc32c, 0, size)
                tensors.append(Tensor(key, key, dtype, shape, shard, content, raw))
    if part_of:  # a part stands before its owner in an index
        for at, tensor in enumerate(tensors):
            owner = part_of.get(tensor.key)
            if owner is not None:
                tensors[at] = tensor._replace(variable=owner)
    tensors.sort(key=_nbytes)  # what is empty was written before what starts at its place
    tensors.sort(key=_offset)
    tensors.sort(key=_shard)
    header = index.header
    return Bundle(tensors, owners, header.raw, header.big_endian, header.num_shards)


def _shard(tensor: Tensor) -> int:
    return tensor.shard


def _nbytes(tensor: Tensor) -> int:
    return tensor.content.nbytes


def _offset(tensor: Tensor) -> int:
    assert isinstance(tensor.content, Stored), "nothing has been changed yet"
    return tensor.content.offset
