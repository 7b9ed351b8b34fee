"""Writes one data file: the bytes of its entries, one behind the other, and their messages.

Ranges that are kept as they are are copied inside the kernel, neighbours at once. Small ones
would cost a system call each, and there may be a million: they are read and written in
windows instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from ckpttool.formats.bundle_writer import encode_entry, patch_entry
from ckpttool.formats.crc32c import combine, extend, mask, unmask
from ckpttool.formats.dtypes import STRING, VARIANT
from ckpttool.ops.rewrite.part_sums import PartSums, check_opaque, mismatch
from ckpttool.ops.rewrite.tensors import Computed, Joined, Stored, Tensor
from ckpttool.sources.shard_files import ShardFiles
from ckpttool.storage.base import NewFile, ReadableFile
from ckpttool.storage.copying import up_to_border

__all__ = ["Reporter", "ShardWriter", "Stopped"]

#: Bytes read at once where they pass through this process, as in ``storage.copying``.
_WINDOW = 2**19
#: Bytes copied between two calls of ``progress``.
_REPORT = 64 * 2**20
#: A range up to this is small.
_SMALL = 2**14
#: Read at once for small ranges.
_SMALL_WINDOW = 2**16


class Stopped(Exception):
    """Another thread has failed; what this one makes is not wanted any more."""


class Reporter:
    """Passes on how much is done of ``total`` bytes, and to every thread that it should stop."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._stopped = False
        self._one_at_a_time = Lock()

    def stop(self) -> None:
        """Have whoever adds something next stop."""
        self._stopped = True

    def add(self, nbytes: int) -> None:
        """So many bytes more have been written.

        Raises:
            Stopped: after ``stop``.
        """
        if self._stopped:
            raise Stopped
        if self._progress is not None:
            with self._one_at_a_time:
                self._done += nbytes
                self._progress(self._done, self._total)


class ShardWriter:
    """Writes one data file and makes the entries of what is in it.

    Args:
        file: not committed here; None where a finished one is there: the entries are
            made, the source is read where it takes that, and nothing is written.
        shard: its number.
        report: told of what is written.
        sums: collects the checksums of parts, for a look at the whole.
        big_endian: the byte order of what is stored.
        check: compare everything that is read with its stored checksum.
    """

    def __init__(
        self,
        file: NewFile | None,
        shard: int,
        report: Reporter,
        sums: PartSums,
        big_endian: bool,
        *,
        check: bool,
    ) -> None:
        self._file = _Buffered(file)
        self._shard = shard
        self._big_endian = big_endian
        self._check = check
        self._report = report
        self._sums = sums
        self._small = _SmallReader()
        self._offset = 0
        self._uncounted = 0
        #: A range that waits to be copied at once: files, shard, start, end, variable.
        self._waiting: tuple[ShardFiles, int, int, int, bytes] | None = None

    def write(self, tensors: Sequence[Tensor]) -> Iterator[tuple[bytes, bytes]]:
        """The key and the message of every entry, each after its bytes.

        Raises:
            CorruptError: id ``checksum-mismatch``.
            CkpttoolError: as reading and writing files.
        """
        for tensor in tensors:
            content = tensor.content
            if isinstance(content, Stored):
                if content.nbytes == content.entry_bytes and not self._check:
                    self._copy(content, tensor)
                    yield tensor.key, self._same_entry(tensor)
                    self._offset += content.nbytes
                    continue
                crc32c = self._stored(content, tensor)
            elif isinstance(content, Joined):
                crc32c = self._joined(content, tensor)
            else:
                crc32c = self._computed(content)
            yield tensor.key, self._entry(tensor, crc32c)
            self._offset += content.nbytes
        self._copy_waiting()
        self._file.flush()
        self._report.add(self._uncounted)

    def _same_entry(self, tensor: Tensor) -> bytes:
        """The message of an entry that is copied: its checksum stays, also a wrong one."""
        if tensor.raw:
            return patch_entry(tensor.raw, shard=self._shard, offset=self._offset)
        return self._entry(tensor, None)

    def _entry(self, tensor: Tensor, crc32c: int | None) -> bytes:
        shard, offset, size = self._shard, self._offset, tensor.content.nbytes
        if tensor.raw:
            return patch_entry(tensor.raw, shard=shard, offset=offset, size=size, crc32c=crc32c)
        if crc32c is None and isinstance(tensor.content, Stored):
            crc32c = tensor.content.crc32c
        return encode_entry(
            tensor.dtype, tensor.shape, shard=shard, offset=offset, size=size, crc32c=crc32c
        )

    def _stored(self, content: Stored, tensor: Tensor) -> int | None:
        if tensor.dtype in {STRING, VARIANT}:
            check_opaque(content, tensor, big_endian=self._big_endian)
            self._copy(content, tensor)
            return None
        found = self._summed(content, tensor)
        if not content.is_whole:
            self._sums.add(content, tensor, found)
        elif content.crc32c is not None and mask(found) != content.crc32c:
            raise mismatch(content, tensor, mask(found))
        return mask(found)

    def _joined(self, content: Joined, tensor: Tensor) -> int:
        """Copy the pieces and combine their checksums."""
        value = 0
        for piece in content.pieces:
            if self._check or piece.crc32c is None:
                found = self._summed(piece, tensor)
                if piece.crc32c is not None and mask(found) != piece.crc32c:
                    raise mismatch(piece, tensor, mask(found))
            else:
                self._copy(piece, tensor)
                found = unmask(piece.crc32c)
            value = combine(value, found, piece.nbytes)
        return mask(value)

    def _computed(self, content: Computed) -> int:
        self._copy_waiting()
        value = written = 0
        for chunk in content.chunks():
            self._file.write(chunk)
            value = extend(value, chunk)
            written += len(chunk)
            self._report.add(len(chunk))
        assert written == content.nbytes, "a computed tensor has the size that was planned"
        return mask(value) if content.crc32c is None else content.crc32c

    def _summed(self, content: Stored, tensor: Tensor) -> int:
        """Copy through this process; returns the checksum (not masked)."""
        self._copy_waiting()
        files, shard, offset, nbytes = content.files, content.shard, content.offset, content.nbytes
        if nbytes <= _SMALL:
            data = self._small.read(files, shard, offset, nbytes, tensor.variable)
            self._file.write(data)
            self._count(nbytes)
            return extend(0, data)
        name = _text(tensor.variable)
        value = done = 0
        while done < nbytes:
            size = min(up_to_border(self._file.place, _WINDOW), nbytes - done)
            data = files.read(shard, offset + done, size, name)
            self._file.write(data)
            value = extend(value, data)
            del data  # so that the next one takes its memory, which is in the cache
            done += size
            self._report.add(size)
        return value

    def _count(self, nbytes: int) -> None:
        """Report small ranges when they have become many."""
        self._uncounted += nbytes
        if self._uncounted >= _WINDOW:
            self._report.add(self._uncounted)
            self._uncounted = 0

    def _copy(self, content: Stored, tensor: Tensor) -> None:
        """Leave a range to be copied, together with what follows it in the same file."""
        start = content.offset
        end = start + content.nbytes
        if self._waiting is not None:
            files, shard, first, last, variable = self._waiting
            if last == start and shard == content.shard and files is content.files:
                self._waiting = (files, shard, first, end, variable)
                return
            self._copy_waiting()
        self._waiting = (content.files, content.shard, start, end, tensor.variable)

    def _copy_waiting(self) -> None:
        if self._waiting is None:
            return
        files, shard, start, end, variable = self._waiting
        self._waiting = None
        if self._file.file is None:
            self._report.add(end - start)
            return
        if end - start <= _SMALL:
            self._file.write(self._small.read(files, shard, start, end - start, variable))
            self._count(end - start)
            return
        name = _text(variable)
        source = files.open(shard, name)
        files.require(source, shard, start, end - start, name)
        while start < end:
            size = min(_REPORT, end - start)
            self._file.copy(source, start, size)
            start += size
            self._report.add(size)


class _SmallReader:
    """Reads small ranges out of a window of their file, for mostly they rise in it."""

    def __init__(self) -> None:
        self._of: tuple[ShardFiles, int] | None = None
        self._start = 0
        self._window = b""

    def read(self, files: ShardFiles, shard: int, offset: int, size: int, variable: bytes) -> bytes:
        """Exactly ``size`` bytes; raises as ``ShardFiles.read``."""
        at = offset - self._start
        if at < 0 or at + size > len(self._window) or self._of != (files, shard):
            if not size:
                return b""
            name = _text(variable)
            file = files.open(shard, name)
            files.require(file, shard, offset, size, name)
            length = min(_SMALL_WINDOW, file.stat.size - offset)
            self._window = files.read(shard, offset, length, name)
            self._of, self._start, at = (files, shard), offset, 0
        return self._window[at : at + size]


class _Buffered:
    """Collects small writes.

    What is written where there is no file is dropped.

    Attributes:
        place: where in the file the next byte goes.
    """

    def __init__(self, file: NewFile | None) -> None:
        self.file = file
        self.place = 0
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        if self.file is None:
            return
        self.place += len(data)
        if len(data) >= _SMALL_WINDOW:
            self.flush()
            self.file.write(data)
            return
        self._buffer += data
        if len(self._buffer) >= _SMALL_WINDOW:
            self.flush()

    def copy(self, source: ReadableFile, offset: int, size: int) -> None:
        self.flush()
        if self.file is not None:
            self.file.copy(source, offset, size)
            self.place += size

    def flush(self) -> None:
        if self._buffer and self.file is not None:
            self.file.write(bytes(self._buffer))
            self._buffer.clear()


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
