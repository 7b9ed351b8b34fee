"""Exports: a snapshot → ``convert`` in a process of its own → a version directory.

``exports/NAME/VERSION`` appears by one rename and holds what TensorFlow Serving loads (a
SavedModel) or a file ``model.…``; the report of the check is ``NAME/VERSION.json``. Where a
SavedModel of that name is there already its values are exchanged (``--like``), which takes a
tenth of the time; only where that fails the graph is made anew. Whatever goes wrong, nothing
half stands in ``exports``, and the training goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from ckpttool.conversion.targets import find_target
from ckpttool.errors import CkpttoolError, ConversionError, LimitError, NoSpaceError, UsageError
from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.durations import Durations
from ckpttool.ps.runtime.snapshot import Snapshot
from ckpttool.ps.runtime.versions import VersionFolder
from ckpttool.ps.tied import end_tied, spawn_tied

__all__ = ["Export", "Exporter", "said_of"]

#: Exports that are remembered.
_REMEMBERED = 50
#: Exports that may wait for the one under way.
_WAITING = 16
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
#: Of an export's name: its log is called by it too, and a file's name has 255.
_NAME_BYTES = 200
#: What follows the reason in an error as the command prints it.
_NEXT = "\n  next: "


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
        keep: the newest so many versions of each name stay; 0: all.
        failed: called with what went wrong in an export.
    """

    def __init__(
        self,
        run: RunDirectory,
        snapshot: Callable[[], Snapshot],
        keep: int,
        failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._run = run
        self._snapshot = snapshot
        self._keep = keep
        self._failed = failed
        #: Of those that were made.
        self.durations = Durations()
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()
        self._exports: list[Export] = []
        self._numbers: dict[str, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._in_use: str | None = None
        self._closed = False

    @property
    def all(self) -> Sequence[Export]:
        """The last ones, the oldest first; without versions that have been removed."""
        with self._lock:
            return tuple(self._exports)

    @property
    def in_use(self) -> Sequence[str]:
        """Prefixes of snapshots that an export reads just now."""
        used = self._in_use
        return () if used is None else (used,)

    def is_busy(self, name: str) -> bool:
        """Whether an export of this name is under way, or waits."""
        return any(one.name == name and one.state == "running" for one in self.all)

    def export(self, to: str, name: str, options: Sequence[str], *, wait: bool) -> Export:
        """Make an export; without ``wait`` the answer says ``running``.

        Raises:
            UsageError: id ``export-name``; what ``convert`` says of an unknown target.
            LimitError: id ``exports-waiting``: too many are.
        """
        find_target(to, "")
        if not _is_usable(name):
            raise UsageError(
                f"an export cannot be called {name[:_NAME_BYTES]!r}",
                why="its name is that of a directory: not empty, no '/', no '.' in front, "
                f"at most {_NAME_BYTES} bytes",
                id="export-name",
            )
        export = self._begin(to, name)
        if wait:
            return self._make(export, options)
        threading.Thread(target=self._make, args=(export, options), daemon=True).start()
        return export

    def close(self) -> None:
        """End what is under way."""
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            end_tied(child)

    def _begin(self, to: str, name: str) -> Export:
        """Give an export its number, one that no other has had."""
        folder = self._folder(name)
        with self._lock:
            waiting = sum(one.state == "running" for one in self._exports)
            if waiting > _WAITING:
                raise LimitError(
                    "too many exports wait",
                    why=f"one is made at a time, and {waiting} were asked for",
                    hint="ask again when some are done",
                    id="exports-waiting",
                )
            number = 1 + max(folder.newest, self._numbers.get(name, 0))
            self._numbers[name] = number
            export = Export(name, number, to, "running", folder.version(number))
            self._exports.append(export)
            return export

    def _make(self, export: Export, options: Sequence[str]) -> Export:
        with self._one_at_a_time:
            started = time.monotonic()
            folder = self._folder(export.name)
            try:
                if self._closed:
                    raise _ended_meanwhile(export.name)
                folder.make()
                snapshot = self._snapshot()
                self._in_use = snapshot.prefix
                export = replace(export, snapshot=snapshot.number, step=snapshot.step)
                self._remember(export)
                refreshed = self._convert(export, snapshot, options)
                export = replace(export, state="done", refreshed=refreshed)
            except Exception as error:  # noqa: BLE001 - nobody waits where it could be raised
                if not isinstance(error, CkpttoolError | OSError):
                    traceback.print_exc()
                export = replace(export, state="failed", why=said_of(error))
            finally:
                self._in_use = None
            removed = self._tidy(folder, made=export.state == "done")
            export = replace(export, seconds=time.monotonic() - started)
            if export.state == "done":
                self.durations.add(export.seconds)
            self._remember(export, removed)
            if export.state == "failed":
                what = f"the export {export.name} failed: "
                self._failed(what + export.why.removeprefix(what))
            return export

    def _convert(self, export: Export, snapshot: Snapshot, options: Sequence[str]) -> bool:
        """Convert and move into place; says whether it was a refresh.

        Raises:
            ConversionError: id ``export-failed``.
        """
        folder = self._folder(export.name)
        part = folder.part(export.version)
        file = _FILES.get(export.to)
        if file is not None:
            os.mkdir(part, 0o700)
        goal = os.path.join(part, file) if file is not None else part
        words = [
            *("convert", snapshot.prefix, goal, "--to", export.to, "--no-input"),
            *("--report", folder.report(export.version), "--overwrite"),
        ]
        earlier = folder.newest_savedmodel() if export.to == "savedmodel" else None
        ended = None
        if earlier is not None:
            like = ("--like", earlier)
            ended = self._run_convert(export.name, [*words, *like, *_without_graph(options)])
        refreshed = ended is not None and ended.well
        if ended is None or ended.may_be_tried_anew:
            ended = self._run_convert(export.name, [*words, *options])
        if not ended.well:
            raise ConversionError(
                f"the export {export.name} failed",
                why=ended.why,
                hint=f"see {self._log(export.name)}",
                id="export-failed",
            )
        os.rename(part, folder.version(export.version))
        return refreshed

    def _run_convert(self, name: str, words: Sequence[str]) -> _Ended:
        log = self._log(name)
        before = os.path.getsize(log) if os.path.exists(log) else 0
        with self._lock:
            if self._closed:
                raise _ended_meanwhile(name)
            child = self._child = spawn_tied("ckpttool", words, log=log)
        try:
            code = child.wait()
        finally:
            with self._lock:
                self._child = None
            end_tied(child)
        said = "" if code < 0 else _last_words(log, before)
        return _Ended(code, said or _of_code(code))

    def _tidy(self, folder: VersionFolder, *, made: bool) -> list[int]:
        """Remove what a failed export left, or old versions; gives those."""
        try:
            if made and self._keep:
                return folder.keep(self._keep)
            folder.tidy()
        except (OSError, CkpttoolError) as error:
            sys.stderr.write(f"cannot tidy up after an export: {error}\n")
        return []

    def _log(self, name: str) -> str:
        return self._run.log(f"export-{name}")

    def _folder(self, name: str) -> VersionFolder:
        return VersionFolder(os.path.join(self._run.exports, name))

    def _remember(self, export: Export, removed: Sequence[int] = ()) -> None:
        """Say how an export stands; versions that were removed are forgotten."""
        with self._lock:
            self._exports = [
                export if (one.name, one.version) == (export.name, export.version) else one
                for one in self._exports
                if one.name != export.name or one.version not in removed
            ][-_REMEMBERED:]


@dataclass(frozen=True, slots=True)
class _Ended:
    """How ``convert`` ended: its exit code, negative for a signal, and why if not well."""

    code: int
    why: str

    @property
    def well(self) -> bool:
        return self.code == 0

    @property
    def may_be_tried_anew(self) -> bool:
        """Whether a conversion of the whole graph may do what a refresh did not."""
        return self.code not in {0, NoSpaceError.exit_code, -signal.SIGTERM}


def _is_usable(name: str) -> bool:
    """Whether a directory can be called so, and a log."""
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:  # half a character
        return False
    return 0 < size <= _NAME_BYTES and name[0] != "." and not {"/", "\0"} & {*name}


def said_of(error: Exception) -> str:
    """An error in a line of text."""
    if isinstance(error, CkpttoolError):
        return f"{error.what}: {error.why}"
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def _ended_meanwhile(name: str) -> ConversionError:
    return ConversionError(
        f"the export {name} failed", why="the training ended meanwhile", id="export-failed"
    )


def _last_words(log: str, start: int) -> str:
    """The error at the end of what was added to a log; nothing where the disk is full."""
    with open(log, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(start, size - _LOG_TAIL))
        said = file.read().decode("utf-8", "replace")
    _, found, error = said.rpartition("error: ")
    if not found:
        return said.strip().rpartition("\n")[2][:500]
    what, _, more = error.partition("\n")
    _, found, why = more.partition("  why: ")
    return f"{what}: {why.partition(_NEXT)[0].strip()}"[:500] if found else what[:500]


def _of_code(code: int) -> str:
    """What is known of a ``convert`` that could not say why it ended."""
    if code < 0:
        return f"the conversion was ended by signal {-code}"
    if code == NoSpaceError.exit_code:
        return "there is no space left"
    return f"the conversion ended with exit code {code}"


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
