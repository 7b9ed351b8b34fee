"""An address → what it names: a checkpoint's prefix, a run, a SavedModel.

Knows the forms of an address and in which order they are tried: what literally exists
comes first, and a name is never a pattern. It opens files only to see what they are.
A prefix is the usual case and must start fast: what reads runs, and what explains that
something is absent, is imported where it is needed.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.errors import (
    CkpttoolError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from ckpttool.formats.sniff import Sniffed, sniff_file
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Oddity
from ckpttool.sources.file_kinds import FILES, ResolvedKind
from ckpttool.sources.filenames import (
    SAVED_MODEL_FILES,
    STATE_FILE,
    graph_name,
    index_name,
    is_sharded_v1,
    join,
    shard_name,
    split_part,
)
from ckpttool.storage import Directory, open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.sources.choose import Choice, Via
    from ckpttool.sources.state_paths import Version

__all__ = ["Address", "Resolved", "ResolvedKind", "RunAddress", "require_run", "resolve", "run_of"]

#: An address as Python gives it; ``os.fsdecode`` makes the text of it that `resolve` takes.
Address = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_TFJS_MODEL = "model.json"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
#: A gateway of `serve-ps`; with TLS.
_GATEWAY = re.compile(r"pss?://", re.IGNORECASE)
_VARIABLES = "variables"
#: A Git-LFS pointer is smaller than this (its specification).
_POINTER_BYTES = 1024


class Resolved(NamedTuple):
    """What an address came to: one checkpoint, or one file that has variables.

    Attributes:
        address: as it was given.
        kind: what the address names; of a run, ``prefix`` is the checkpoint it stands for.
        directory: path of the directory in which the checkpoint's files lie.
        prefix: its base name there; of what is one file, the name of that. A sharded V1
            checkpoint is spelled as in a state file (``v1_files.py``).
        via: how it was found.
        notes: what a person should be told about that.
        version: which format the checkpoint has; means nothing where it is none.
    """

    address: str
    kind: ResolvedKind
    directory: str
    prefix: str
    via: Via
    notes: tuple[str, ...] = ()
    version: Version = "v2"

    @property
    def location(self) -> str:
        """The prefix with its directory, as a person would type it."""
        return self.address if self.kind == "ps" else join(self.directory, self.prefix)


class RunAddress(NamedTuple):
    """A run directory that an address names, and the name of its state file."""

    directory: str
    state_name: str = STATE_FILE


def resolve(address: str, limits: Limits | None = None) -> Resolved:
    """Find out what an address means.

    Raises:
        UsageError: ids ``empty-address``, ``step-ambiguous``, ``address-of-series``.
        NotFoundError: nothing is there; the message says what was looked for and what is
            near. Also ``no-checkpoint`` and ``step-not-found``.
        ForeignFormatError: something is there, and it is not ours; the message names it.
        UnsupportedError: ids ``index-misnamed``, ``remote-address``.
        IncompleteError: ids ``index-missing``, ``latest-incomplete``.
        UnsafeError: a link or a pipe where a file should be.
    """
    limits = limits or default_limits()
    if not address:
        raise _empty()
    there = stat_path(address)
    if there is not None and there.kind == "directory":
        return _directory(address, limits)
    folder, base = os.path.split(address)
    if there is None and _GATEWAY.match(address):
        # Its name stands where a prefix does, so that nothing takes it for a path.
        return Resolved(address, "ps", ".", address.partition("://")[2].strip("/"), "prefix")
    if there is None and _SCHEME.match(address):
        raise UnsupportedError(
            f"{address} is not on this machine",
            why="only local files, and gateways (ps://HOST:PORT), are read",
            hint="copy it here first; every file of the checkpoint is needed",
            id="remote-address",
        )
    if "\0" in address:
        raise NotFoundError(f"no such checkpoint: {address}", why="no path has a NUL byte")
    above = stat_path(folder or ".")
    if above is None or above.kind != "directory" or not base:
        from ckpttool.sources.absent import no_folder

        raise no_folder(address, folder)
    with open_directory(folder or ".") as directory:
        return _Name(directory, base, address, limits).resolve(there is not None)


def run_of(address: str) -> RunAddress | None:
    """The run that an address names, whether or not it has a checkpoint; else None.

    A directory that is no SavedModel, or a state file. ``run/@1000`` is one checkpoint.
    """
    there = stat_path(address)
    if there is None:
        return None
    if there.kind == "directory":
        with open_directory(_without_slash(address)) as directory:
            return None if _is_saved_model(directory) else RunAddress(directory.path)
    folder, base = os.path.split(address)
    with open_directory(folder or ".") as directory:
        found = directory.stat(base)
        if found is None or found.kind != "file" or not _is_state(base, _look(directory, base)):
            return None
        return RunAddress(directory.path, base)


def require_run(address: str) -> RunAddress:
    """As ``run_of``, for commands that are about a whole run.

    Raises:
        NotFoundError: nothing is there, or (id ``not-a-run``) something else.
        UsageError: id ``empty-address``.
    """
    if not address:
        raise _empty()
    run = run_of(address)
    if run is not None:
        return run
    there = stat_path(address)
    if there is None and stat_path(index_name(address)) is None:
        from ckpttool.sources.absent import no_folder

        raise no_folder(address, _without_slash(address), "run directory")
    if there is not None and there.kind == "directory":
        why, hint = "it is a SavedModel", f"ckpttool inspect {shlex.quote(address)}"
    else:
        why = "it is one file or one checkpoint"
        hint = f"give its directory: {os.path.dirname(address) or '.'}"
    raise NotFoundError(f"{address} is not a run directory", why=why, hint=hint, id="not-a-run")


def _without_slash(address: str) -> str:
    return address.rstrip("/") or "/"


def _empty() -> UsageError:
    return UsageError(
        "the address is empty",
        why="an empty path stands for no file; a shell variable may not be set",
        hint="give a prefix such as run/model.ckpt-1000, or a directory (. is this one)",
        id="empty-address",
    )


def _directory(address: str, limits: Limits) -> Resolved:
    """A directory: a SavedModel, its variables, or a run."""
    with open_directory(_without_slash(address)) as directory:
        if _is_saved_model(directory):
            return _saved_model(directory, address, limits)
        if (
            (parent := _saved_model_above(address)) is not None
            and directory.stat(index_name(_VARIABLES)) is not None
            and any(stat_path(join(parent, name)) for name in SAVED_MODEL_FILES)
        ):
            return _checkpoint(directory, _VARIABLES, address, "savedmodel", "prefix")
        if _is_tfjs(directory):
            return Resolved(address, "tfjs", directory.path, _TFJS_MODEL, "prefix")
        from ckpttool.sources.choose import choose

        try:
            return _chosen(choose(directory, limits), address, "run")
        except NotFoundError:
            if address.endswith("/") or stat_path(index_name(address)) is None:
                raise
    # A directory without checkpoints beside the index of that very name.
    folder, base = os.path.split(address)
    with open_directory(folder or ".") as directory:
        return _checkpoint(directory, base, address, "checkpoint", "prefix")


def _saved_model_above(address: str) -> str | None:
    """The directory above, of one that has the name of a SavedModel's variables; else None."""
    try:
        parent, base = os.path.split(os.path.abspath(address))
    except FileNotFoundError:
        return None  # relative to a working directory that was removed
    return parent if base == _VARIABLES else None


def _is_saved_model(directory: Directory) -> bool:
    return any(directory.stat(name) is not None for name in SAVED_MODEL_FILES)


def _is_tfjs(directory: Directory) -> bool:
    """Whether a directory is a TensorFlow.js model and no run."""
    stat = directory.stat(_TFJS_MODEL)
    if stat is None or stat.kind != "file" or directory.stat(STATE_FILE) is not None:
        return False
    return _look(directory, _TFJS_MODEL).kind == "tfjs"


def _saved_model(directory: Directory, address: str, limits: Limits) -> Resolved:
    if directory.stat(_VARIABLES) is None:
        # It can be looked into; only values cannot be had of it.
        name = next(name for name in SAVED_MODEL_FILES if directory.stat(name) is not None)
        note = Oddity(
            f"{address} has no directory {_VARIABLES}: its graph needs none, or the copy is "
            "incomplete"
        )
        return Resolved(address, "graph", directory.path, name, "prefix", (note,))
    with closing(directory.directory(_VARIABLES)) as inside:
        if inside.stat(index_name(_VARIABLES)) is None:
            from ckpttool.sources.absent import no_prefix

            raise no_prefix(inside, _VARIABLES, join(inside.path, _VARIABLES), limits)
        return _checkpoint(inside, _VARIABLES, address, "savedmodel", "prefix")


class _Name:
    """A name in a directory that exists: the forms of an address that end in a name."""

    def __init__(self, directory: Directory, base: str, address: str, limits: Limits) -> None:
        self._directory = directory
        self._base = base
        self._address = address
        self._limits = limits

    def resolve(self, exists: bool) -> Resolved:
        directory, base, address = self._directory, self._base, self._address
        part = split_part(base)
        if exists and part is not None:
            return self._part(part.prefix, _PARTS[part.kind])
        sniffed = self._look() if exists else None
        if sniffed is not None and _is_state(base, sniffed):
            from ckpttool.sources.choose import choose

            return _chosen(choose(directory, self._limits, base), address, "run")
        if directory.stat(index_name(base)) is not None:
            return _checkpoint(directory, base, address, "checkpoint", "prefix")
        if sniffed is not None:
            return self._file(sniffed)
        if base.startswith("@"):
            return self._of_run(base[1:])
        if (v1 := self._v1(base)) is not None:
            return v1
        from ckpttool.sources.absent import no_prefix

        raise no_prefix(directory, base, address, self._limits)

    def _look(self) -> Sniffed | None:
        # A link may stand beside the index of the same name: then it does not matter.
        if self._directory.stat(index_name(self._base)) is not None:
            stat = self._directory.stat(self._base)
            if stat is None or stat.kind != "file":
                return None
        return _look(self._directory, self._base)

    def _part(self, prefix: str, what: str) -> Resolved:
        """One of a checkpoint's files was named."""
        directory = self._directory
        if directory.stat(index_name(prefix)) is None:
            if directory.stat(index_name(self._base)) is not None:  # a prefix x.index, say
                return _checkpoint(directory, self._base, self._address, "checkpoint", "prefix")
            from ckpttool.sources.absent import no_prefix

            if (v1 := self._v1(prefix, what)) is not None:
                return v1
            sniffed = _look(directory, self._base)
            if sniffed.kind == "metagraph":
                return self._resolved("graph")
            if sniffed.named and not sniffed.ours:
                raise sniffed.error(self._address)
            raise no_prefix(directory, prefix, join(directory.path, prefix), self._limits)
        note = f"{self._address} is {what} of {join(directory.path, prefix)}, which is read"
        return _checkpoint(directory, prefix, self._address, "checkpoint", "part", (note,))

    def _file(self, sniffed: Sniffed) -> Resolved:
        """A file that is not named like a part of a V2 checkpoint."""
        if v1 := self._v1(self._base, "a file" if is_sharded_v1(self._base) else ""):
            return v1
        if self._base in SAVED_MODEL_FILES:
            return _saved_model(self._directory, self._address, self._limits)
        if sniffed.kind == "tf-v2-index":
            raise UnsupportedError(
                f"{self._address} is the index of a V2 checkpoint, but is not named like one",
                why="data files are found by the index's name, which has to be PREFIX.index",
                hint="give it the name that goes with its data files, PREFIX.data-00000-of-…",
                id="index-misnamed",
            )
        if (kind := FILES.get(sniffed.kind)) is not None:
            return self._resolved(kind)
        raise sniffed.error(self._address)

    def _resolved(self, kind: ResolvedKind) -> Resolved:
        return Resolved(self._address, kind, self._directory.path, self._base, "prefix")

    def _v1(self, name: str, what: str = "") -> Resolved | None:
        """The V1 checkpoint that a name stands for, if there is one; ``what`` of it was given."""
        from ckpttool.sources.v1_files import v1_prefix

        prefix, where = v1_prefix(self._directory, name), self._directory.path
        if prefix is None:
            return None
        note = f"{self._address} is {what} of {join(where, prefix)}, which is read"
        via: Via = "part" if what else "prefix"
        notes = (note,) if what else ()
        return Resolved(self._address, "tf-v1", where, prefix, via, notes, "v1")

    def _of_run(self, which: str) -> Resolved:
        from ckpttool.sources.choose import choose_latest, choose_step

        if which == "*":
            from ckpttool.sources.series import several

            raise several(self._address)
        if which == "latest":
            return _chosen(
                choose_latest(self._directory, self._limits), self._address, "checkpoint"
            )
        if which.isascii() and which.isdigit() and len(which) < 20:
            chosen = choose_step(self._directory, int(which), self._limits)
            return _chosen(chosen, self._address, "checkpoint")
        raise NotFoundError(
            f"no such checkpoint: {self._address}",
            why=f"after @ comes a step or the word latest, not '{which}'",
            hint=f"for example {join(self._directory.path, '@latest')}",
            id="step-not-found",
        )


_PARTS = {"index": "the index", "meta": "the graph", "shard": "a data file"}


def _chosen(choice: Choice, address: str, kind: ResolvedKind) -> Resolved:
    with open_directory(choice.directory) as directory:
        if choice.version == "v1":
            kind = kind if kind == "run" else "tf-v1"
            return Resolved(
                address, kind, directory.path, choice.prefix, choice.via, choice.notes, "v1"
            )
        return _checkpoint(directory, choice.prefix, address, kind, choice.via, choice.notes)


def _checkpoint(
    directory: Directory,
    prefix: str,
    address: str,
    kind: ResolvedKind,
    via: Via,
    notes: tuple[str, ...] = (),
) -> Resolved:
    """A prefix whose index is there: refused where the index is something else."""
    name = index_name(prefix)
    sniffed = _look(directory, name)
    if sniffed.kind == "tf-v1":  # whose prefix has an odd ending
        return Resolved(address, "tf-v1", directory.path, name, "part", notes, "v1")
    if sniffed.named and not sniffed.ours:
        raise sniffed.error(join(directory.path, name))
    notes += tuple(
        Oddity(f"{error.what}: {error.why}; {error.hint}")
        for other in (shard_name(prefix, 0, 1), graph_name(prefix))
        if (error := _pointer(directory, other)) is not None
    )
    return Resolved(address, kind, directory.path, prefix, via, notes)


def _pointer(directory: Directory, name: str) -> CkpttoolError | None:
    """The error of a file that is only a Git-LFS pointer; None for any other file."""
    stat = directory.stat(name)
    if stat is None or stat.kind != "file" or stat.size > _POINTER_BYTES:
        return None
    try:
        sniffed = _look(directory, name)
    except CkpttoolError:
        return None  # whoever needs the file will say what is wrong with it
    return sniffed.error(join(directory.path, name)) if sniffed.kind == "git-lfs" else None


def _is_state(base: str, sniffed: Sniffed) -> bool:
    """A state file by its text; by its name too, where what is in it is no known kind."""
    return sniffed.kind == "state" or (base == STATE_FILE and not sniffed.named)


def _look(directory: Directory, name: str) -> Sniffed:
    file = directory.open(name)
    try:
        return sniff_file(file)
    finally:
        file.close()
