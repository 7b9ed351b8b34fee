"""Two entries of one name in two directories change places, at once where the system can.

Linux has ``renameat2`` with RENAME_EXCHANGE (man 2 rename), which Python does not offer:
whoever looks finds the old or the new, whole. Elsewhere a directory is absent for the
moment between two renames; a file never is.
"""

from __future__ import annotations

import errno
import os

from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.system import raise_os_error

__all__ = ["exchange"]

_RENAME_EXCHANGE = 2
_UNAVAILABLE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(one: LocalDirectory, other: LocalDirectory, name: str) -> None:
    """Exchange ``name`` in two directories of one file system; both have it.

    Raises:
        NotFoundError, PermissionDeniedError, StorageError: as the system says.
    """
    try:
        if not _at_once(one.descriptor, other.descriptor, name):
            _in_steps(one.descriptor, other.descriptor, name)
    except OSError as error:
        raise_os_error(error, f"cannot replace {os.path.join(other.path, name)}")


def _at_once(one: int, other: int, name: str) -> bool:
    """Whether the system did it in one step."""
    import ctypes  # only what is replaced needs it

    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        return False
    raw = os.fsencode(name)
    if rename(one, raw, other, raw, _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNAVAILABLE:
        return False
    raise OSError(code, os.strerror(code))


def _in_steps(one: int, other: int, name: str) -> None:
    aside = f"{name}.old"
    os.rename(name, aside, src_dir_fd=other, dst_dir_fd=one)
    try:
        os.rename(name, name, src_dir_fd=one, dst_dir_fd=other)
    except OSError:
        os.rename(aside, name, src_dir_fd=one, dst_dir_fd=other)
        raise
    os.rename(aside, name, src_dir_fd=one, dst_dir_fd=one)
