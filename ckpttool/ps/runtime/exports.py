"""Exports: a snapshot → ``convert`` in a process of its own → a version directory.

``exports/NAME/VERSION`` appears by one rename and holds what TensorFlow Serving loads (a
SavedModel) or a file ``model.…``; the report of the check is ``NAME/VERSION.json``. Where a
SavedModel of that name is there already its values are exchanged (``--like``), which takes a
tenth of the time; only where that fails the graph is made anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from ckpttool.conversion.targets import find_target
from ckpttool.errors import CkpttoolError, ConversionError, UsageError
from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.snapshot import Snapshot
from ckpttool.ps.tied import end_tied, spawn_tied

__all__ = ["Export", "Exporter"]

#: Exports that are remembered.
_REMEMBERED = 50
#: What a version is called while it is made.
_PART = ".ckpttool-"
#: The file of a version, of targets that are one.
_FILES = {
    "tflite": "model.tflite",
    "onnx": "model.onnx",
    "h5": "model.h5",
    "safetensors": "model.safetensors",
    "npz": "model.npz",
    "checkpoint": "model.ckpt",
}
_GRAPH_OPTIONS = ("--model", "--graph", "--like")
_LOG_TAIL = 4096


@dataclass(frozen=True, slots=True)
class Export:
    """An export, under way or ended.

    Attributes:
        name, version, to: which, and its target.
        state: ``running``, ``done`` or ``failed``.
        path: where it is, or is going to be.
        snapshot: the number of the snapshot it was made of; None before there is one.
        step: the step of that.
        seconds: what it took.
        why: why it failed.
        refreshed: whether only values were exchanged.
    """

    name: str
    version: int
    to: str
    state: str
    path: str
    snapshot: int | None = None
    step: int | None = None
    seconds: float = 0.0
    why: str = ""
    refreshed: bool = False

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


class Exporter:
    """Makes exports, one after the other, for any number of threads that ask.

    Args:
        run: the run directory.
        snapshot: makes the snapshot that an export is of.
    """

    def __init__(self, run: RunDirectory, snapshot: Callable[[], Snapshot]) -> None:
        self._run = run
        self._snapshot = snapshot
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()
        self._exports: list[Export] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._in_use: str | None = None
        self._closed = False

    @property
    def all(self) -> Sequence[Export]:
        """The last ones, the oldest first."""
        with self._lock:
            return tuple(self._exports)

    @property
    def in_use(self) -> Sequence[str]:
        """Prefixes of snapshots that an export reads just now."""
        used = self._in_use
        return () if used is None else (used,)

    def export(self, to: str, name: str, options: Sequence[str], *, wait: bool) -> Export:
        """Make an export; without ``wait`` the answer says ``running``.

        Raises:
            UsageError: id ``export-name``; what ``convert`` says of an unknown target.
        """
        find_target(to, "")
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise UsageError(
                f"an export cannot be called {name!r}",
                why="its name is that of a directory: not empty, no '/', no '.' in front",
                id="export-name",
            )
        if wait:
            return self._make(to, name, options)
        pending = Export(name, self._next_version(name), to, "running", "")
        threading.Thread(target=self._make, args=(to, name, options), daemon=True).start()
        return replace(pending, path=os.path.join(self._run.exports, name, str(pending.version)))

    def close(self) -> None:
        """End what is under way."""
        self._closed = True
        child = self._child
        if child is not None:
            end_tied(child)

    def _make(self, to: str, name: str, options: Sequence[str]) -> Export:
        with self._one_at_a_time:
            started = time.monotonic()
            folder = os.path.join(self._run.exports, name)
            version = self._next_version(name)
            export = Export(name, version, to, "running", os.path.join(folder, str(version)))
            self._remember(export)
            try:
                os.makedirs(folder, 0o700, exist_ok=True)
                self._tidy(folder)
                snapshot = self._snapshot()
                self._in_use = snapshot.prefix
                export = replace(export, snapshot=snapshot.number, step=snapshot.step)
                self._remember(export)
                refreshed = self._convert(export, snapshot, options)
                export = replace(export, state="done", refreshed=refreshed)
            except (CkpttoolError, OSError) as error:
                why = f"{error}" if isinstance(error, OSError) else f"{error.what}: {error.why}"
                export = replace(export, state="failed", why=why)
            finally:
                self._in_use = None
                self._tidy(folder)
            export = replace(export, seconds=time.monotonic() - started)
            self._remember(export)
            return export

    def _convert(self, export: Export, snapshot: Snapshot, options: Sequence[str]) -> bool:
        """Convert and move into place; says whether it was a refresh."""
        folder = os.path.dirname(export.path)
        part = os.path.join(folder, f"{_PART}{export.version}")
        file = _FILES.get(export.to)
        if file is not None:
            os.mkdir(part, 0o700)
        goal = os.path.join(part, file) if file is not None else part
        words = [
            *("convert", snapshot.prefix, goal, "--to", export.to, "--no-input"),
            *("--report", f"{export.path}.json", "--overwrite"),
        ]
        earlier = self._earlier(folder) if export.to == "savedmodel" else None
        if earlier is not None and self._run_convert(
            export.name, [*words, "--like", earlier, *_without_graph(options)]
        ):
            refreshed = True
        else:
            refreshed = False
            if not self._run_convert(export.name, [*words, *options]):
                raise ConversionError(
                    f"the export {export.name} failed",
                    why=self._last_words(export.name),
                    hint=f"see {self._log(export.name)}",
                    id="export-failed",
                )
        os.rename(part, export.path)
        return refreshed

    def _run_convert(self, name: str, words: Sequence[str]) -> bool:
        if self._closed:
            return False
        self._child = spawn_tied("ckpttool", words, log=self._log(name))
        try:
            return self._child.wait() == 0
        finally:
            end_tied(self._child)
            self._child = None

    def _log(self, name: str) -> str:
        return self._run.log(f"export-{name}")

    def _last_words(self, name: str) -> str:
        """The error at the end of the log."""
        with open(self._log(name), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
        errors = [line for line in lines if "rror" in line]
        return (errors or lines or ["it said nothing"])[-1][:500]

    def _next_version(self, name: str) -> int:
        return 1 + max(_versions(os.path.join(self._run.exports, name)), default=0)

    def _earlier(self, folder: str) -> str | None:
        """The newest version that is a SavedModel."""
        for version in sorted(_versions(folder), reverse=True):
            path = os.path.join(folder, str(version))
            if os.path.exists(os.path.join(path, "saved_model.pb")):
                return path
        return None

    def _tidy(self, folder: str) -> None:
        """Remove what a failed or killed export left."""
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            if entry.startswith(_PART):
                shutil.rmtree(os.path.join(folder, entry), ignore_errors=True)

    def _remember(self, export: Export) -> None:
        with self._lock:
            same = [
                number
                for number, one in enumerate(self._exports)
                if (one.name, one.version) == (export.name, export.version)
                and one.state == "running"
            ]
            if same:
                self._exports[same[-1]] = export
            else:
                self._exports.append(export)
            del self._exports[:-_REMEMBERED]


def _versions(folder: str) -> list[int]:
    """The versions of an export: directories that are called by a number."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 16]


def _without_graph(options: Sequence[str]) -> list[str]:
    """Options for a refresh, which has its graph."""
    kept: list[str] = []
    skip = False
    for word in options:
        if skip:
            skip = False
        elif word in _GRAPH_OPTIONS:
            skip = True
        elif not word.startswith(tuple(f"{option}=" for option in _GRAPH_OPTIONS)):
            kept.append(word)
    return kept
