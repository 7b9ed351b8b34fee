"""What is installed here, what works with it, and whether storage keeps its promises.

Looks at metadata only: no library is imported, so a broken TensorFlow cannot break this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError, StorageError, UnsafeError, UsageError
from ckpttool.limits import Limits, default_limits
from ckpttool.storage import open_directory
from ckpttool.version import __version__

__all__ = ["Check", "DoctorResult", "Library", "LimitSetting", "doctor"]

#: Distribution, whether nothing works without it, what needs it.
_LIBRARIES = (
    ("click", True, "every command"),
    ("rich", True, "explain on a terminal"),
    ("fastcrc", True, "checksums"),
    ("cramjam", True, "compressed index blocks"),
    ("numpy", False, "values as arrays: ckpttool.open(…).read; average, edit --cast"),
    ("ml_dtypes", False, "bfloat16 and float8 values as arrays"),
    ("tensorflow", False, "convert: what must run a graph; nothing that reads or checks"),
    ("keras", False, "convert --model with Keras 3, and Keras files"),
    ("tf_keras", False, "convert of what only Keras 2 can load"),
    ("tf2onnx", False, "convert --to onnx"),
    ("onnxruntime", False, "the check of convert --to onnx"),
    ("ai-edge-litert", False, "the check of convert --to tflite"),
)


@dataclass(frozen=True, slots=True)
class Library:
    """A library, its version (None: not installed) and what needs it."""

    name: str
    version: str | None
    required: bool
    needed_for: str


@dataclass(frozen=True, slots=True)
class Check:
    """Something that was tried; ``detail`` says what came of it."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """A limit of `ckpttool/limits.py` as it holds in this process."""

    name: str
    value: int
    default: int


@dataclass(frozen=True, slots=True)
class DoctorResult:
    """All that ``doctor`` found out. ``system`` and ``python`` are for people to report."""

    version: str
    python: str
    system: str
    encodings: dict[str, str]
    libraries: tuple[Library, ...]
    limits: tuple[LimitSetting, ...]
    process_limits: dict[str, int | None]
    directory: str
    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


def doctor(directory: str | None = None) -> DoctorResult:
    """Look at this installation, and try what writing needs in a directory.

    Args:
        directory: where to try it, with one small file that is removed again; default
            the directory of temporary files.
    """
    import locale
    import platform
    import tempfile

    where = tempfile.gettempdir() if directory is None else directory
    libraries = tuple(_library(*known) for known in _LIBRARIES)
    limits, limits_check = _limits()
    return DoctorResult(
        version=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        encodings={
            "filesystem": sys.getfilesystemencoding(),
            "locale": locale.getpreferredencoding(False),
        },
        libraries=libraries,
        limits=limits,
        process_limits=_process_limits(),
        directory=where,
        checks=(_installed(libraries), limits_check, *_storage(where)),
    )


def _library(name: str, required: bool, needed_for: str) -> Library:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Library(name, version(name), required, needed_for)
    except PackageNotFoundError:
        return Library(name, None, required, needed_for)


def _installed(libraries: tuple[Library, ...]) -> Check:
    missing = [lib.name for lib in libraries if lib.required and lib.version is None]
    if missing:
        return Check("required libraries", False, f"missing: {', '.join(missing)}")
    return Check("required libraries", True, "all installed")


def _limits() -> tuple[tuple[LimitSetting, ...], Check]:
    """The limits in force, and whether CKPTTOOL_LIMITS can be understood."""
    default = Limits()
    try:
        current = default_limits()
        changed = [
            name for name in Limits._fields if getattr(current, name) != getattr(default, name)
        ]
        check = Check("CKPTTOOL_LIMITS", True, ", ".join(changed) or "not set: the defaults hold")
    except UsageError as error:
        current = default
        check = Check("CKPTTOOL_LIMITS", False, f"{error}; {error.hint}")
    settings = tuple(
        LimitSetting(name, getattr(current, name), getattr(default, name))
        for name in Limits._fields
    )
    return settings, check


def _process_limits() -> dict[str, int | None]:
    """Soft limits that ``ulimit`` shows; None is unlimited."""
    import resource

    kinds = {
        "address_space": resource.RLIMIT_AS,
        "file_size": resource.RLIMIT_FSIZE,
        "open_files": resource.RLIMIT_NOFILE,
    }
    soft = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    return {
        name: None if value == resource.RLIM_INFINITY else value for name, value in soft.items()
    }


def _storage(where: str) -> list[Check]:
    """Try what reading safely and writing whole files ask of a file system."""
    import shutil
    import tempfile

    try:
        private = tempfile.mkdtemp(prefix=".ckpttool-doctor-", dir=where)
    except OSError as error:
        return [Check("storage", False, f"cannot create a file in {where}: {error.strerror}")]
    try:
        return [
            _try("files appear whole (fsync, link)", lambda: _write_one(private)),
            _try("links are not followed (O_NOFOLLOW)", lambda: _refuse_link(private)),
        ]
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _write_one(private: str) -> str:
    with open_directory(private) as directory:
        with directory.create("written") as file:
            file.write(b"ckpttool")
            file.commit()
        opened = directory.open("written")
        try:
            if opened.pread(0, 8) != b"ckpttool":
                raise StorageError("what was read is not what was written")
        finally:
            opened.close()
    free = os.statvfs(private)
    return f"yes; {free.f_bavail * free.f_frsize} bytes free"


def _refuse_link(private: str) -> str:
    os.symlink("written", os.path.join(private, "link"))
    with open_directory(private) as directory:
        try:
            directory.open("link").close()
        except UnsafeError:
            return "yes"
    raise StorageError("a symbolic link was opened")


def _try(name: str, action: Callable[[], str]) -> Check:
    try:
        return Check(name, True, action())
    except (CkpttoolError, OSError) as error:
        return Check(name, False, str(error))
