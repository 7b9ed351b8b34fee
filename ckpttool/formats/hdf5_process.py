"""An HDF5 file whose library runs in a process of its own.

The library is C and was not written for hostile files: one flipped byte can make it write
past its memory. There it can only end its own process, which is an error here like any
other damage; and its memory is bounded by the system. What lies plainly in the file is read
without it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ckpttool import errors
from ckpttool.errors import CkpttoolError, CorruptError
from ckpttool.formats.hdf5 import ChunkPlace, Contents, Dataset, Oddity, read_inside
from ckpttool.formats.hdf5_child import FILE, dataset_of, plain, receive, send

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.storage.base import ReadableFile

__all__ = ["Hdf5Process"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Runs the child whatever ``sys.path`` is, without putting anything before the library.
_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from ckpttool.formats.hdf5_child import main; main()"
)


class Hdf5Process:
    """An open HDF5 file; raises as ``Hdf5`` says.

    Args:
        file: the file, which has a descriptor; stays the caller's.
        limits: bounds on what it may claim.
        start: where it begins in ``file``.
        size: its bytes; None: up to the end.

    Raises:
        CorruptError: id ``hdf5-unreadable``.
        UnsupportedError: id ``package-missing``: there is no h5py.
    """

    def __init__(
        self, file: ReadableFile, limits: Limits, *, start: int = 0, size: int | None = None
    ) -> None:
        self.file = file
        self.start = start
        self.size = file.stat.size - start if size is None else size
        self.limits = limits
        descriptor = file.fileno()
        assert descriptor is not None, "a file without a descriptor cannot be handed over"
        self._process, self._ask, self._hear = _spawn(descriptor)
        bounds = limits._asdict()
        try:
            hello = (file.path, file.stat.size, start, self.size, bounds)
            self.base, self.address_bytes = self._exchange(hello)
        except BaseException:
            self.close()
            raise

    def pread(self, offset: int, size: int) -> bytes:
        return read_inside(self, offset, size)

    def walk(self) -> Contents:
        datasets, groups, oddities = self._exchange(("walk", ()))
        return Contents(
            [dataset_of(values) for values in datasets],
            list(groups),
            [Oddity(*values) for values in oddities],
        )

    def attribute(self, path: str, name: str) -> str | None:
        found: str | None = self._exchange(("attribute", (path, name)))
        return found

    def has_attribute(self, path: str, name: str) -> bool:
        return bool(self._exchange(("has_attribute", (path, name))))

    def chunk_place(self, dataset: Dataset, start: tuple[int, ...]) -> ChunkPlace | None:
        found = self._exchange(("chunk_place", (plain(dataset), start)))
        return None if found is None else ChunkPlace(*found)

    def unpacked_chunk(self, dataset: Dataset, start: tuple[int, ...]) -> bytes:
        return bytes(self._exchange(("unpacked_chunk", (plain(dataset), start))))

    def fill_value(self, dataset: Dataset) -> bytes:
        return bytes(self._exchange(("fill_value", (plain(dataset),))))

    def close(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            self._ended()

    def _exchange(self, message: object) -> Any:  # noqa: ANN401 - each question has its answer
        """Ask, and hear the answer."""
        if not self._process:
            raise self._gone("it was ended before")
        try:
            send(self._ask, message)
            done, *answer = receive(self._hear)
        except (EOFError, BrokenPipeError):
            raise self._gone(self._ended()) from None
        except BaseException:
            self.close()  # the next question would hear the answer to this one
            raise
        if done:
            return answer[0]
        kind, what, why, hint, id = answer
        found: type[CkpttoolError] = getattr(errors, kind)
        raise found(what, why=why, hint=hint, id=id)

    def _ended(self) -> str:
        """Let go of a child that has ended, or is about to; says how it did."""
        os.close(self._ask)
        os.close(self._hear)
        process, self._process = self._process, 0
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        except ChildProcessError:  # somebody else waits for all children of this process
            return "it was ended"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"it was ended by {how}"

    def _gone(self, how: str) -> CorruptError:
        return CorruptError(
            f"{self.file.path} cannot be read by the HDF5 library",
            why=f"{how}: the file is damaged, or was made to do that",
            hint="copy the file again from where it is whole",
            id="hdf5-unreadable",
        )


def _spawn(file: int) -> tuple[int, int, int]:
    """Start the child: its id, where to write questions, where to read answers."""
    theirs, ask = os.pipe()
    hear, answers = os.pipe()
    silence = os.open(os.devnull, os.O_WRONLY)
    # Numbers that are taken over must not be among those that are given.
    lifted = [_above(descriptor) for descriptor in (theirs, answers, silence, file)]
    targets = (0, 1, 2, FILE)
    actions = [
        (os.POSIX_SPAWN_DUP2, source, target)
        for source, target in zip(lifted, targets, strict=True)
    ]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        process = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-c", _START, _ROOT],
            environment,
            file_actions=actions,
        )
    except BaseException:
        os.close(ask)
        os.close(hear)
        raise
    finally:
        for descriptor in (*lifted, theirs, answers, silence):
            os.close(descriptor)
    return process, ask, hear


def _above(descriptor: int) -> int:
    """A copy of a descriptor with a number that the child does not use."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FILE + 1)
