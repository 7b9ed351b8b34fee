"""Snapshots that the gateway has open, so that a reader keeps the one that it began with.

The training removes all but its newest snapshots. Each that is served here has links of its
own in ``DIR/served``, until nobody has asked for it for a while. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ckpttool.errors import ChangedError, CkpttoolError, NotFoundError
from ckpttool.model import Variable
from ckpttool.policy.words import count
from ckpttool.sources.base import Source
from ckpttool.sources.nearest import nearest
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from ckpttool.storage.system import raise_os_error

__all__ = ["Held", "Shelf"]

#: A snapshot that is not the newest stays so many seconds after it was last asked for,
_UNUSED_SECONDS = 60.0
#: and at most so many of them, whose disk space only comes free then.
_MOST = 8
#: Variables of each that are found without its index.
_REMEMBERED = 4096

_T = TypeVar("_T")


class Held:
    """An open snapshot.

    Attributes:
        record: what the training says of it (docs/architecture.md, ``snapshot``).
        tag: what readers call it by.
        used: when it was last read, by the monotonic clock.
    """

    def __init__(self, record: dict[str, Any], source: Source) -> None:
        self.record = record
        self.number = int(record["number"])
        self.tag = f"{self.number}-{record.get('step')}"
        self._source = source  # which is not for several threads at once
        self._lock = threading.Lock()
        self.used = time.monotonic()
        self._closed = False
        self._found: dict[str, Variable] = {}
        self._forms: dict[object, Any] = {}

    @contextmanager
    def using(self) -> Iterator[Source]:
        """The source, for as short a time as can be.

        Raises:
            ChangedError: id ``snapshot-gone``: it was closed meanwhile.
        """
        with self._lock:
            if self._closed:
                raise _gone(self.tag)
            self.used = time.monotonic()
            yield self._source

    def find(self, name: str) -> Variable:
        """As ``Source.find``; what was asked for lately is remembered.

        Raises:
            NotFoundError: id ``variable-not-found``, in words for readers on other machines.
        """
        variable = self._found.get(name)
        if variable is None:
            with self.using() as source:
                variable = source.lookup(name)
                if variable is None:
                    raise _no_variable(name, source)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[name] = variable
        return variable

    def form(self, write: Callable[[Held, Source], _T]) -> _T:
        """What is said of it in some form, which is remembered; blocks the first time."""
        made: _T | None = self._forms.get(write)
        if made is None:
            with self.using() as source:
                made = self._forms.get(write)  # of who held the source until now
                if made is None:
                    made = self._forms[write] = write(self, source)
        return made

    def pieces(self, variable: Variable, selection: Selection) -> Iterator[bytes]:
        """As ``Source.chunks``, for several threads at once."""
        with self.using() as source:
            pieces = source.chunks(variable, selection)
        while True:
            with self.using():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        """Close the source."""
        with self._lock:
            self._closed = True
            self._source.close()


def _no_variable(name: str, source: Source) -> NotFoundError:
    names = [one.name for one in source.variables()]
    near = nearest(name, names)
    return NotFoundError(
        f"there is no variable {name} in this snapshot",
        why=f"none of its {count(len(names), 'variable')} has this name, key or path",
        hint=f"did you mean: {', '.join(near)}"
        if near
        else "GET /v1/variables, or ListVariables of gRPC, says what there is",
        id="variable-not-found",
    )


class Shelf:
    """The open snapshots, by number.

    Only to be used on the loop's thread; opening one is done in another.

    Args:
        run_dir: absolute path of the run directory.

    Raises:
        NotFoundError, PermissionDeniedError, StorageError: as the system says.
    """

    def __init__(self, run_dir: str) -> None:
        self._place = os.path.join(run_dir, "served")
        self._held: dict[int, Held] = {}
        shutil.rmtree(self._place, ignore_errors=True)  # of a gateway that was killed
        try:
            os.mkdir(self._place, 0o700)
        except OSError as error:
            raise_os_error(error, f"cannot make {self._place}")

    @property
    def newest(self) -> Held | None:
        """The last one that was put here."""
        return next(reversed(self._held.values()), None)

    def tagged(self, tag: str) -> Held:
        """The snapshot that a reader has begun with.

        Raises:
            ChangedError: id ``snapshot-gone``.
        """
        for held in self._held.values():
            if held.tag == tag:
                return held
        raise _gone(tag)

    async def put(self, record: dict[str, Any]) -> Held:
        """Open a snapshot, unless it is open; let go of those that nobody wants.

        Raises:
            CkpttoolError: it cannot be read.
        """
        number = int(record["number"])
        held = self._held.get(number)
        if held is None:
            held = Held(record, await asyncio.to_thread(self._open, record))
        self._held.pop(number, None)
        self._held[number] = held
        for other in self._superfluous():
            self._drop(other)
        return held

    def close(self) -> None:
        """Close them all."""
        for held in [*self._held.values()]:
            self._drop(held)
        shutil.rmtree(self._place, ignore_errors=True)

    def _superfluous(self) -> list[Held]:
        now = time.monotonic()
        others = sorted([*self._held.values()][:-1], key=lambda held: held.used)
        too_many = len(self._held) - _MOST
        return [
            held
            for index, held in enumerate(others)
            if index < too_many or now - held.used > _UNUSED_SECONDS
        ]

    def _open(self, record: dict[str, Any]) -> Source:
        prefix = str(record["prefix"])
        folder, base = os.path.split(prefix)
        place = os.path.join(self._place, str(int(record["number"])))
        try:
            os.makedirs(place, 0o700, exist_ok=True)
            with os.scandir(folder) as entries:
                names = [one.name for one in entries if one.name.startswith(f"{base}.")]
            for name in names:
                try:
                    os.link(os.path.join(folder, name), os.path.join(place, name))
                except FileExistsError:
                    pass  # this snapshot was served before
            return open_source(os.path.join(place, base))
        except FileNotFoundError:
            raise NotFoundError(
                f"the snapshot {prefix} is gone",
                why="the training has removed it while it was opened",
                hint="ask again",
                id="snapshot-removed",
            ) from None
        except OSError as error:
            raise_os_error(error, f"cannot open the snapshot {prefix}")
        except CkpttoolError:
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _drop(self, held: Held) -> None:
        del self._held[held.number]
        held.close()
        shutil.rmtree(os.path.join(self._place, str(held.number)), ignore_errors=True)


def _gone(tag: str) -> ChangedError:
    return ChangedError(
        f"the snapshot {tag[:60]} is no longer served",
        why=f"newer ones have come, and it was not read for {_UNUSED_SECONDS:g} seconds",
        hint="run the command again; it begins with a newer snapshot",
        id="snapshot-gone",
    )
