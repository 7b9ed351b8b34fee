"""The run directory of a cluster: names, ``run.json``, the token.

``run.json`` is what the supervisor says of itself and its processes; it appears as a whole
each time. Knows neither processes at work nor sockets.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from dataclasses import dataclass
from typing import Literal

from ckpttool.conversion.wire import decode, plain, require
from ckpttool.errors import CorruptError, NotFoundError, UnsafeError
from ckpttool.ps.process import start_of
from ckpttool.storage.local import open_directory
from ckpttool.storage.lock import is_locked
from ckpttool.storage.system import raise_os_error

__all__ = ["STATE_NAME", "RunDirectory", "RunState", "Standing", "TaskState"]

STATE_NAME = "run.json"
_TOKEN_NAME = "token"  # noqa: S105 - a file's name
_STATE_BYTES = 2**20

State = Literal["starting", "ready", "stopping", "stopped", "failed"]
Standing = Literal["running", "ended", "elsewhere"]


@dataclass(frozen=True, slots=True)
class TaskState:
    """A process of the cluster: ``chief`` is the one with the live parameters.

    ``state`` is one of ``waiting starting ready done restarting ended elsewhere``; ``port``
    is None where it listens on none, ``pid`` where it is not there.
    """

    job: str
    index: int
    pid: int | None
    port: int | None
    state: str
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """What ``run.json`` says.

    Attributes:
        state: of the whole; ``ready``: every task is, and the gateway.
        pid, start, node: who supervises: its number, ``process.start_of``, the host's name.
        created: seconds since the epoch at which it was started.
        tasks: every task of the cluster.
        cluster: addresses by job.
        tf_config: for a coordinator of the user's own; None: the cluster has one.
        train: the training function; None: a coordinator of the user's own.
        gateway: the URL of the gateway, when it listens.
        gateway_grpc: ``host:port`` of its gRPC interface, where it was asked for.
        token_file: absolute path of its token.
        error: why it failed: an error as ``--json`` prints it.
    """

    state: State
    pid: int
    start: str
    node: str
    created: float
    tasks: tuple[TaskState, ...] = ()
    cluster: dict[str, list[str]] | None = None
    tf_config: str | None = None
    train: str | None = None
    gateway: str | None = None
    gateway_grpc: str | None = None
    token_file: str | None = None
    error: dict[str, object] | None = None


class RunDirectory:
    """A run directory by its absolute path."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    @property
    def token_file(self) -> str:
        """The file with the gateway's token."""
        return os.path.join(self.path, _TOKEN_NAME)

    @property
    def snapshots(self) -> str:
        """Where snapshots lie: V2 checkpoints ``snap-N``."""
        return os.path.join(self.path, "snapshots")

    @property
    def exports(self) -> str:
        """Where exports lie: ``NAME/VERSION``."""
        return os.path.join(self.path, "exports")

    def log(self, name: str) -> str:
        """The log of a process."""
        return os.path.join(self.path, "logs", f"{name}.log")

    def prepare(self) -> None:
        """Make the directory and what is in it, for this user alone.

        Raises:
            UnsafeError: id ``run-dir-shared``: it is there already, and others may write in it.
            NotFoundError, PermissionDeniedError, NoSpaceError, StorageError: as the system says.
        """
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
            self.require_own()
            for name in ("logs", "snapshots", "exports"):
                os.makedirs(os.path.join(self.path, name), 0o700, exist_ok=True)
        except OSError as error:
            raise_os_error(error, f"cannot make the run directory {self.path}")

    def require_own(self) -> None:
        """Check that nobody else can have written what it says.

        Raises:
            UnsafeError: id ``run-dir-shared``: others may write in it.
        """
        found = os.stat(self.path)
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeError(
                f"{self.path} is no place for a cluster",
                why="others may write in it, and its files say what is run",
                hint=f"chmod go-w {self.path}, or give another --run-dir",
                id="run-dir-shared",
            )

    def standing(self, state: RunState) -> Standing:
        """Whether the supervisor that wrote ``state`` lives; ``elsewhere``: another host's.

        It holds the directory's lock: what a copy of its ``run.json`` names is not this one's.
        """
        if state.node != os.uname().nodename:
            return "elsewhere"
        if start_of(state.pid) != state.start:
            return "ended"
        directory = open_directory(self.path)
        try:
            return "running" if is_locked(directory) else "ended"
        finally:
            directory.close()

    def make_token(self) -> str:
        """The path of the token's file, which is made where there is none, or an empty one.

        The caller holds the directory's lock: an empty one was left by a supervisor that was
        killed before it could write it.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if os.path.lexists(self.token_file):
                found = os.lstat(self.token_file)
                if found.st_size or not stat.S_ISREG(found.st_mode):
                    return self.token_file
                os.unlink(self.token_file)
            descriptor = os.open(self.token_file, flags, 0o600)
        except OSError as error:
            raise_os_error(error, f"cannot write {self.token_file}")
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        return self.token_file

    def write(self, state: RunState) -> None:
        """Write ``run.json`` in one step.

        Raises:
            PermissionDeniedError, NoSpaceError, StorageError: as the system says.
        """
        directory = open_directory(self.path)
        try:
            with directory.create(STATE_NAME, overwrite=True) as file:
                file.write((json.dumps(plain(state), indent=2) + "\n").encode())
                file.commit()
        finally:
            directory.close()

    def read(self) -> RunState:
        """What ``run.json`` says.

        Raises:
            NotFoundError: id ``no-cluster``: there is none.
            CorruptError: id ``run-state``: it is not what a supervisor writes.
        """
        path = os.path.join(self.path, STATE_NAME)
        try:
            directory = open_directory(self.path)
        except NotFoundError:
            raise self._none(path) from None
        try:
            file = directory.open(STATE_NAME)
        except NotFoundError:
            raise self._none(path) from None
        finally:
            directory.close()
        try:
            if file.stat.size > _STATE_BYTES:
                raise ValueError(f"it has {file.stat.size} bytes")
            state = decode(RunState, file.pread(0, file.stat.size))
            require(state, RunState)
            return state
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CorruptError(
                f"{path} is not what serve-ps writes",
                why=str(error)[:200],
                hint="remove it, and start the cluster again",
                id="run-state",
            ) from None
        finally:
            file.close()

    def _none(self, path: str) -> NotFoundError:
        return NotFoundError(
            f"no cluster was started in {self.path}",
            why=f"there is no {path}",
            hint=f"ckpttool serve-ps up --run-dir {self.path}",
            id="no-cluster",
        )
