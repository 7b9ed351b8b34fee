"""What lies in a run directory, for commands that remove: a `Run`, and all that it leaves out.

Adds V1 checkpoints, Keras files, further state files and nested runs to the facts of
``sources/run.py``. Nothing is classified by guessing: what fits no known pattern, a link or
a pipe is never touched. One pass, linear in the number of files; no name is ever a pattern.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field

from ckpttool.errors import CkpttoolError
from ckpttool.formats.sniff import sniff_file
from ckpttool.limits import Limits
from ckpttool.ops.prune.file_kinds import keras_flaw, v1_flaw
from ckpttool.ops.prune.pins import PINS_NAME
from ckpttool.ops.prune.removal import Removal
from ckpttool.ops.prune.state_files import is_state, linked_state, may_be_state, names_in
from ckpttool.sources.filenames import (
    STATE_FILE,
    graph_name,
    is_sharded_v1,
    join,
    split_number,
    split_part,
)
from ckpttool.sources.run import Checkpoint, Leftover, Run, StateFile, read_run, read_state_file
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import TEMPORARY_SUFFIX

__all__ = ["OWN", "PART_OF_SAVE", "Stored", "Survey", "leftover_removal", "removal_of", "survey"]

#: How the names of our own files in a run directory begin.
OWN = ".ckpttool-"
_KERAS = (".weights.h5", ".keras", ".h5")
#: The files in a ``_temp`` directory (tensorflow/python/checkpoint/functional_saver.py).
PART_OF_SAVE = re.compile(
    r"part-[0-9]{5}-of-[0-9]{5}\.(?:index|data-[0-9]{5}-of-[0-9]{5})(?:\.tempstate[0-9]+)?"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One checkpoint of any kind.

    ``names`` are its files in the order in which they go: the index, data, the graph. Times
    in nanoseconds; ``v2`` are the facts of a V2 checkpoint, ``prefix`` a file name for Keras.
    Whether a V2 checkpoint is whole is asked later; ``flaw`` says why one of another kind,
    of which the ends were read, is not.
    """

    prefix: str
    series: str
    number: int | None
    saved_ns: int
    changed_ns: int
    nbytes: int
    names: tuple[str, ...]
    v2: Checkpoint | None = None
    flaw: str = ""


@dataclass(slots=True)
class Survey:
    """What lies in a directory.

    ``opaque`` are checkpoints of which a file is a link or a pipe or cannot be read, and why
    that is so: they are not in ``stored``. ``others`` are the state files besides the run's
    own, those that cannot be read too; ``named`` says which links and state files of
    directories below stand for a prefix; ``nested`` are directories that are runs of their own.
    ``unclassified`` are files with a checkpoint's name that are none; ``left_ns`` is when
    anything of a leftover changed last, by its name.
    """

    run: Run
    state_name: str
    state_stat: FileStat | None = None
    stored: dict[str, Stored] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)
    others: list[StateFile] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    named: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unclassified: dict[str, str] = field(default_factory=dict)
    left_ns: dict[str, int] = field(default_factory=dict)

    @property
    def newest_change(self) -> float:
        """When anything of a checkpoint or a save changed last, in seconds; 0 if never.

        What ckpttool itself left when it was killed is no save.
        """
        times = [item.changed_ns for item in self.stored.values()]
        times += [
            changed for name, changed in self.left_ns.items() if not name.endswith(TEMPORARY_SUFFIX)
        ]
        return max(times, default=0) / 1e9


def survey(directory: LocalDirectory, limits: Limits, state_name: str = STATE_FILE) -> Survey:
    """Look at every entry of the directory once, and into those few that need it.

    ``state_name`` is the run's own state file (``latest_filename``).

    Raises:
        LimitError: id ``limit-directory``: more entries than the limit.
        PermissionDeniedError, StorageError, NotFoundError: as the system says.
    """
    # Before the run is read, so that a state file that is replaced meanwhile is noticed.
    state_stat = directory.stat(state_name)
    rest: list[FileStat] = []
    run = read_run(directory, limits, state_name, others=rest)
    found = Survey(run, state_name, state_stat)
    for leftover in run.leftovers:
        found.left_ns[leftover.name] = leftover.mtime_ns
        # A data file that is elsewhere is as good as one that is here, to TensorFlow.
        part = split_part(leftover.name)
        entry = directory.stat(leftover.name) if part else None
        if entry is None or entry.kind == "file":
            changed = directory.newest_change(leftover.name)
            found.left_ns[leftover.name] = max(leftover.mtime_ns, changed)
        if part and entry is not None and entry.kind != "file":
            found.opaque[part.prefix] = f"{leftover.name} is {leftover.why}"
            if entry.kind == "link":
                _look_at_link(directory, entry, found)
    for item in run.checkpoints:
        if item.prefix in found.opaque:
            continue
        found.stored[item.prefix] = Stored(
            item.prefix,
            item.series,
            item.number,
            item.mtime_ns,
            item.changed_ns,
            item.nbytes,
            tuple(item.files),
            item,
        )
    v1: dict[str, list[FileStat]] = {}
    flaws: dict[str, str] = {}
    for entry in rest:
        if entry.name.startswith(OWN) or entry.name == PINS_NAME:
            continue
        if entry.kind == "directory":
            _look_at_folder(directory, entry, found, limits)
        elif entry.kind == "link":
            _look_at_link(directory, entry, found)
        elif entry.kind == "file" and entry.name != state_name:
            _look_into(directory, entry, found, limits, v1, flaws)
    for prefix, files in v1.items():
        # A V2 checkpoint of the same name is the newer one.
        if prefix in found.stored or prefix in found.opaque:
            continue
        if is_sharded_v1(prefix) and (lack := int(prefix.rpartition("-of-")[2]) - len(files)):
            flaws.setdefault(prefix, f"{lack} of its {lack + len(files)} shards are missing")
        graph = directory.stat(graph_name(prefix))
        if graph is not None and graph.kind == "file":
            files.append(graph)
        _add(found, prefix, files, flaws.get(prefix, ""))
    return found


def removal_of(directory: LocalDirectory, stored: Stored) -> Removal | None:
    """The files of a checkpoint as they are now; None when they are not as surveyed."""
    files = []
    for name in stored.names:
        now = directory.stat(name)
        if now is None or now.kind != "file" or now.mtime_ns > stored.changed_ns:
            return None
        files.append(now)
    if sum(file.size for file in files) != stored.nbytes:
        return None
    return Removal(stored.prefix, tuple(files))


def leftover_removal(directory: LocalDirectory, leftover: Leftover) -> Removal | str:
    """The files of a leftover as they are now, or why it is left alone.

    A directory goes only when it holds nothing but plain files that a save put there.
    """
    now = directory.stat(leftover.name)
    if now is None or now.mtime_ns > leftover.mtime_ns:
        return "it changed while it was looked at"
    if now.kind == "file":
        return Removal(leftover.name, (now,))
    if now.kind != "directory":
        return "it is no regular file"
    with directory.directory(leftover.name) as inside:
        entries = sorted(inside.scan(), key=lambda entry: entry.name)
    for entry in entries:
        if entry.kind != "file" or not PART_OF_SAVE.fullmatch(entry.name):
            return f"{entry.name} in it is no part of a save"
    # The indexes first here too, so that what is left never looks whole.
    entries.sort(key=lambda entry: not entry.name.endswith(".index"))
    return Removal(leftover.name, tuple(entries), leftover.name)


def _add(found: Survey, prefix: str, files: list[FileStat], flaw: str) -> None:
    suffix = next((s for s in _KERAS if prefix.endswith(s)), "")
    stem = is_sharded_v1(prefix) or _stem(prefix)
    series, number = split_number(stem)
    found.stored[prefix] = Stored(
        prefix,
        series + suffix,
        number,
        max(file.mtime_ns for file in files if not file.name.endswith(".meta")),
        max(file.mtime_ns for file in files),
        sum(file.size for file in files),
        tuple(file.name for file in files),
        flaw=flaw,
    )


def _look_into(
    directory: LocalDirectory,
    entry: FileStat,
    found: Survey,
    limits: Limits,
    v1: dict[str, list[FileStat]],
    flaws: dict[str, str],
) -> None:
    """What a file is that is named like no part of a V2 checkpoint, by its bytes.

    A V1 checkpoint or a state file may have any name.
    """
    name = entry.name
    sharded = is_sharded_v1(name)
    may_be_v1 = bool(sharded) or name in found.run.v1 or split_number(name)[1] is not None
    keras = name.endswith(_KERAS)
    if not (keras or may_be_v1 or may_be_state(name)) and entry.size > limits.state_bytes:
        return
    prefix = f"{sharded}-?????-of-{name.rpartition('-of-')[2]}" if sharded else name
    flaw: str | None = None
    try:
        file = directory.open(name)
        try:
            kind = sniff_file(file)
            if keras:
                flaw = keras_flaw(file)
            elif kind.kind == "tf-v1":
                flaw = v1_flaw(file)
        finally:
            file.close()
    except CkpttoolError as error:
        if may_be_state(name):
            found.others.append(StateFile(name, join(directory.path, name), None, error))
        elif keras or may_be_v1:
            found.opaque[prefix] = f"{name} cannot be read: {error}"
        return
    if keras:
        if flaw is not None:
            _add(found, name, [entry], flaw)
        elif may_be_v1 or split_number(_stem(name))[1] is not None:
            found.unclassified[name] = "its bytes are not those of a model that Keras saved"
    elif kind.kind == "tf-v1" and may_be_v1:
        v1.setdefault(prefix, []).append(entry)
        if flaw:
            flaws[prefix] = f"{name}: {flaw}"
    elif is_state(name, kind):
        state = read_state_file(directory, limits, name)
        if state is not None:
            found.others.append(state)


def _stem(name: str) -> str:
    return name.removesuffix(next((s for s in _KERAS if name.endswith(s)), ""))


def _look_at_link(directory: LocalDirectory, entry: FileStat, found: Survey) -> None:
    """A link is not followed, but what it stands for here is somebody's."""
    real = os.path.realpath(join(directory.path, entry.name))
    if os.path.dirname(real) == os.path.realpath(directory.path or "."):
        base = os.path.basename(real)
        part = split_part(base)
        found.named[part.prefix if part else base].append(f"{entry.name}, a link")
    state = linked_state(directory, entry.name, found.state_name)
    if state is not None and entry.name != found.state_name:
        found.others.append(state)


def _look_at_folder(
    directory: LocalDirectory, folder: FileStat, found: Survey, limits: Limits
) -> None:
    """A run below is left to itself; what its state file names up here stays."""
    try:
        with directory.directory(folder.name) as inside:
            if inside.stat(STATE_FILE) is None:
                return
            found.nested.append(folder.name)
            state = read_state_file(inside, limits)
            if state is None:
                return
            named = names_in(inside, state, directory.itself())
    except CkpttoolError:
        return
    if state.error is not None:
        found.others.append(state)
    for prefix in named:
        found.named[prefix].append(join(folder.name, STATE_FILE))
