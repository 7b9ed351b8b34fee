"""Snapshots: V2 checkpoints ``snap-N`` in a directory, written here and nowhere else.

A frozen copy passes through in pieces, so that memory does not grow with a variable; parts
come together, since they lie one after the other. (TensorFlow's own saving writes on the
disk of every server, and needs a shared one.) Beside each lies ``snap-N.json``, which says
what the checkpoint cannot: the steps around it, whether it is of one moment, what it took.
That is written last, so a snapshot that has it is whole.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial

from ckpttool.conversion.wire import decode, require
from ckpttool.errors import ChangedError, CkpttoolError
from ckpttool.formats.bundle import SliceSpec
from ckpttool.formats.bundle_writer import encode_header
from ckpttool.formats.dtypes import BY_NAME, STRING
from ckpttool.model import numel
from ckpttool.ops.prune.api import plan_prune
from ckpttool.ops.rewrite.destination import Destination
from ckpttool.ops.rewrite.run import Options, carry_out, recover
from ckpttool.ops.rewrite.tensors import Bundle, Computed, Owner, Tensor, strings_content
from ckpttool.ps.runtime.fetched import chunks_of
from ckpttool.ps.runtime.live import Frozen, LiveVariable
from ckpttool.ps.runtime.pace import Pace
from ckpttool.sources.filenames import index_name
from ckpttool.storage import open_directory
from ckpttool.storage.base import Directory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["Snapshot", "SnapshotStore", "bundle_of_frozen"]

_NAME = "snap"
_RECORD_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is there.

    Attributes:
        number: counted over the life of the directory.
        prefix: absolute.
        step_before, step, step_after: just before the copy, in it, and just after.
        consistent: whether it is of one moment.
        time: when the copy was made, seconds since the epoch.
        seconds: what all of it took.
        pause_seconds: how long training was held.
        bytes: of its data.
        variables: how many.
    """

    number: int
    prefix: str
    step_before: int | None
    step: int | None
    step_after: int | None
    consistent: bool
    time: float
    seconds: float
    pause_seconds: float
    bytes: int
    variables: int

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


class SnapshotStore:
    """The snapshots of one directory, which has to exist. Not for several threads at once.

    Args:
        path: the directory.
        keep: the newest so many stay; those that are in use stay too.
    """

    def __init__(self, path: str, keep: int) -> None:
        self._path = os.path.abspath(path)
        self._keep = keep
        self._recover()
        self._last = self._last_number()
        self._snapshots = self._find()

    @property
    def all(self) -> Sequence[Snapshot]:
        """Every whole one, the oldest first."""
        return tuple(self._snapshots)

    @property
    def newest(self) -> Snapshot | None:
        """The last one that was made; None where there is none."""
        return self._snapshots[-1] if self._snapshots else None

    def take(
        self, frozen: Frozen, started: float, pace: Pace, in_use: Sequence[str] = ()
    ) -> Snapshot:
        """Write a frozen copy, and let old snapshots go.

        Args:
            frozen: what to write; used up.
            started: ``time.monotonic()`` when the work on it began.
            pace: how quickly it is fetched.
            in_use: prefixes that stay whatever their age.

        Raises:
            NoSpaceError, PermissionDeniedError, StorageError: as the system says.
            ClusterError: id ``ps-lost``: a server went away meanwhile.
        """
        self._last += 1
        name = f"{_NAME}-{self._last}"
        variables = len(frozen.variables)
        moment = frozen.moment
        done = carry_out(
            "live parameters",
            bundle_of_frozen(frozen, pace),
            Destination(self._path, name),
            (),
            Options(),
        )
        snapshot = Snapshot(
            number=self._last,
            prefix=os.path.join(self._path, name),
            step_before=moment.step_before,
            step=moment.step,
            step_after=moment.step_after,
            consistent=moment.consistent,
            time=moment.time,
            seconds=time.monotonic() - started,
            pause_seconds=moment.pause_seconds,
            bytes=done.nbytes,
            variables=variables,
        )
        with open_directory(self._path) as directory, directory.create(f"{name}.json") as file:
            file.write(json.dumps(snapshot.as_dict()).encode())
            file.commit()
        self._snapshots.append(snapshot)
        self._prune(in_use)
        return snapshot

    def _prune(self, in_use: Sequence[str]) -> None:
        plan = plan_prune(
            self._path,
            scope="all",
            max_to_keep=self._keep,
            pin=[os.path.basename(prefix) for prefix in in_use],
            min_age=0.0,
            order="name",
        )
        plan.apply()
        with open_directory(self._path) as directory:
            for snapshot in [one for one in self._snapshots if not _is_there(directory, one)]:
                self._snapshots.remove(snapshot)
                _remove_record(directory, snapshot)

    def _recover(self) -> None:
        """Clear away what a killed process was writing: it may be as large as a snapshot."""
        try:
            with open_directory(self._path) as directory, DirectoryLock(directory) as lock:
                recover(directory, lock)
        except ChangedError:
            pass  # somebody works there; the next snapshot does it

    def _find(self) -> list[Snapshot]:
        """What is there; records go whose snapshot one removed that was killed meanwhile."""
        with open_directory(self._path) as directory:
            records = [
                snapshot
                for entry in directory.scan()
                if (snapshot := _read_record(directory, self._path, entry.name)) is not None
            ]
            found = [one for one in records if _is_there(directory, one)]
            for snapshot in records:
                if snapshot not in found:
                    _remove_record(directory, snapshot)
        return sorted(found, key=lambda snapshot: snapshot.number)

    def _last_number(self) -> int:
        """The highest number that was ever given, also to one that was never finished."""
        numbers = [0]
        with open_directory(self._path) as directory:
            for entry in directory.scan():
                stem = entry.name.removeprefix(f"{_NAME}-").partition(".")[0]
                if stem.isascii() and stem.isdigit() and len(stem) < 16:
                    numbers.append(int(stem))
        return max(numbers)


def bundle_of_frozen(frozen: Frozen, pace: Pace) -> Bundle:
    """The checkpoint of a frozen copy; its bytes are fetched while it is written."""
    fetch = partial(_parts, frozen, pace)
    owners: dict[bytes, Owner] = {}
    tensors: list[Tensor] = []
    for variable in frozen.variables:
        key = variable.key.encode("utf-8", "surrogateescape")
        dtype = BY_NAME[variable.dtype]
        if dtype.number == STRING:
            content = strings_content(frozen.string_values(variable))
            tensors.append(Tensor(key, key, STRING, variable.shape, 0, content, b""))
        elif variable.stacked:
            content = fetch(variable, range(len(variable.parts)), dtype.size)
            tensors.append(Tensor(key, key, dtype.number, variable.shape, 0, content, b""))
        else:
            specs = tuple(SliceSpec(part.start, part.extent) for part in variable.parts)
            owners[key] = Owner(key, dtype.number, variable.shape, specs, b"")
            for number, spec in enumerate(specs):
                extent = variable.parts[number].extent
                content = fetch(variable, (number,), dtype.size)
                tensors.append(Tensor(spec.key(key), key, dtype.number, extent, 0, content, b""))
    for name, value in frozen.strings.items():
        scalar = strings_content((value,))
        tensors.append(Tensor(name.encode(), name.encode(), STRING, (), 0, scalar, b""))
    tensors.sort(key=lambda tensor: tensor.key)
    return Bundle(tensors, owners, encode_header(1), False, 1)


def _parts(
    frozen: Frozen, pace: Pace, variable: LiveVariable, numbers: Sequence[int], itemsize: int
) -> Computed:
    """Parts of a variable, one after the other; its copy goes when the last has been fetched."""

    def chunks() -> Iterator[bytes]:
        for number in numbers:
            for piece in frozen.pieces(variable, number):
                yield from chunks_of(piece)
                pace.passed(piece.nbytes)
        if numbers[-1] == len(variable.parts) - 1:
            frozen.release(variable)

    elements = sum(numel(variable.parts[number].extent) for number in numbers)
    return Computed(chunks, elements * itemsize)


def _is_there(directory: Directory, snapshot: Snapshot) -> bool:
    return directory.stat(index_name(os.path.basename(snapshot.prefix))) is not None


def _remove_record(directory: Directory, snapshot: Snapshot) -> None:
    record = directory.stat(f"{os.path.basename(snapshot.prefix)}.json")
    if record is not None:
        directory.remove(record)


def _read_record(directory: Directory, path: str, name: str) -> Snapshot | None:
    """What a record says; None of any other file, and of one that makes no sense."""
    stem, dot, ending = name.rpartition(".")
    if (dot, ending) != (".", "json") or not stem.startswith(f"{_NAME}-"):
        return None
    try:
        with closing(directory.open(name)) as file:
            data = file.pread(0, min(file.stat.size, _RECORD_BYTES))
        snapshot = decode(Snapshot, data)
        require(snapshot, Snapshot)
    except (CkpttoolError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return replace(snapshot, prefix=os.path.join(path, stem))  # the directory may have been moved
