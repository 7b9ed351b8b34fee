"""The HDF5 library's side of ``hdf5_process.py``: answers questions until nobody asks.

Questions come in on descriptor 0 and answers go out on descriptor 1, each as its length
and then plain values (``marshal``); the file is descriptor 3. A process of this module
runs nothing else, so it may be killed, and may crash, at any time.
"""

from __future__ import annotations

import marshal
import os
import resource
import signal
from typing import TYPE_CHECKING, Any

from ckpttool.errors import CkpttoolError, missing_package
from ckpttool.formats.hdf5 import Dataset, Filter
from ckpttool.formats.hdf5_types import ElementType
from ckpttool.limits import Limits
from ckpttool.storage.base import FileStat
from ckpttool.storage.local_files import LocalFile

if TYPE_CHECKING:
    from ckpttool.formats.hdf5 import Hdf5

__all__ = ["FILE", "dataset_of", "main", "plain", "receive", "send"]

#: The descriptor that holds the file.
FILE = 3
#: Bytes of a message's length.
_LENGTH = 8
#: What the process may take besides its largest chunks: Python, numpy and the names.
_MEMORY = 2 * 2**30


def send(descriptor: int, message: Any) -> None:  # noqa: ANN401 - whatever marshal takes
    """Write a message of plain values."""
    data = marshal.dumps(message)
    view = memoryview(len(data).to_bytes(_LENGTH, "little") + data)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> Any:  # noqa: ANN401 - what is in it is known to its reader
    """Read a message.

    Raises:
        EOFError: the other side is gone.
    """
    length = int.from_bytes(_exactly(descriptor, _LENGTH), "little")
    return marshal.loads(_exactly(descriptor, length))  # noqa: S302 - from our own process


def _exactly(descriptor: int, size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(descriptor, min(size, 2**20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def plain(value: object) -> object:
    """A record as a tuple of plain values, for ``marshal`` knows no records."""
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    return value


def dataset_of(values: Any) -> Dataset:  # noqa: ANN401 - its fields have types of their own
    """The `Dataset` that `plain` made a tuple of."""
    path, element, shape, layout, stored, offset, chunk, filters = values
    return Dataset(
        path,
        ElementType(*element),
        shape,
        layout,
        stored,
        offset,
        chunk,
        tuple(Filter(*step) for step in filters),
    )


def main() -> None:
    """Answer until the other side closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the one who asks
    path, size, start, inner, bounds = receive(0)
    limits = Limits(**bounds)
    most = _MEMORY + 4 * limits.hdf5_chunk_bytes
    try:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):
        pass  # a lower limit stands already, or the system has none
    _bound_time(limits)
    file = LocalFile(FILE, path, FileStat(path, "file", size, 0, 0, 0))
    try:
        hdf5 = _open(file, limits, start, inner)
    except CkpttoolError as error:
        send(1, _failure(error))
        return
    send(1, (True, (hdf5.base, hdf5.address_bytes)))
    while True:
        try:
            method, arguments = receive(0)
        except EOFError:
            return
        _bound_time(limits)
        send(1, _answer(hdf5, method, arguments))


def _bound_time(limits: Limits) -> None:
    """Let the system end this process when the next answer takes too much of the processor.

    Made-up structures can send the library round in circles for ever.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + limits.hdf5_seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)  # a person's own bound (ulimit -t) cannot be raised
    resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _open(file: LocalFile, limits: Limits, start: int, size: int) -> Hdf5:
    from ckpttool.formats.hdf5_library import Hdf5File

    try:
        return Hdf5File(file, limits, start=start, size=size)
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        raise missing from error


def _answer(hdf5: Hdf5, method: str, arguments: tuple[Any, ...]) -> object:
    if method in {"chunk_place", "fill_value", "unpacked_chunk"}:
        arguments = (dataset_of(arguments[0]), *arguments[1:])
    try:
        return True, plain(getattr(hdf5, method)(*arguments))
    except CkpttoolError as error:
        return _failure(error)
    except MemoryError:
        return False, "LimitError", f"{hdf5.file.path} does not fit into memory", "", "", _MEMORY_ID


_MEMORY_ID = "out-of-memory"


def _failure(error: CkpttoolError) -> tuple[bool, str, str, str, str, str]:
    return False, type(error).__name__, error.what, error.why, error.hint, error.id
