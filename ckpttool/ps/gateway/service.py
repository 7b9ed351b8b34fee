"""What the gateway can do, whatever asks: status, list, read, snapshot, export.

One event loop; what blocks runs in threads. Values come from a snapshot that is at most
``max_age`` seconds old, and requests that come together cause one; while it is read, the next
one is made before it is too old. Knows neither HTTP nor gRPC.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from ckpttool.errors import CkpttoolError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.model import Variable
from ckpttool.ps.gateway.held import Held, Shelf
from ckpttool.ps.live_client import LiveClient
from ckpttool.sources.listed import selection_shape
from ckpttool.sources.selection import Index, Selection

__all__ = ["PIECE_BYTES", "Body", "Service", "item_bytes", "sayable"]

#: So many bytes are sent at once.
PIECE_BYTES = 2**20
#: Seconds that a snapshot may take, at the slowest ``--drain-rate`` that is of use, and an
#: export.
_SNAPSHOT_SECONDS = 3600.0
_EXPORT_SECONDS = 6 * 3600.0
#: Exports that are waited for at a time; the training makes one after the other.
_EXPORTS = 16
#: The training is asked for its status at most so often,
_STATUS_SECONDS = 0.5
#: and for a newer snapshot too, where it has none.
_AGAIN_SECONDS = 1.0
#: A snapshot that is read is followed by the next one this part of its age early, or earlier
#: where the last one took longer.
_LEAD = 0.1
_STATUS_PATIENCE = 10.0

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Body:
    """Elements on their way to a reader.

    Attributes:
        variable: whose they are.
        shape: of what was asked for.
        rows: positions along the first axis of it; 1 of a scalar.
        nbytes: of ``pieces`` together.
        pieces: in C order, little-endian; of strings, each behind its length (eight bytes).
    """

    variable: Variable
    shape: tuple[int, ...]
    rows: int
    nbytes: int
    pieces: Iterator[bytes]


class Service:
    """Serves the training of a run directory.

    Args:
        run_dir: absolute path.
        max_age: seconds that a snapshot may be old.
    """

    def __init__(self, run_dir: str, max_age: float) -> None:
        self._run_dir = run_dir
        self._max_age = max_age
        self._shelf = Shelf(run_dir)
        self._asks = LiveClient(run_dir, _STATUS_PATIENCE)
        self._snapshots = LiveClient(run_dir, _SNAPSHOT_SECONDS)
        # Those who wait for exports, for hours, take no thread from those who read.
        self._waiting = ThreadPoolExecutor(_EXPORTS)
        self._exporting: set[LiveClient] = set()
        self._closed = False
        self._refreshing = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._asked = self._tried = -math.inf
        self._took = 0.0
        self._ahead: asyncio.Task[None] | None = None
        self._status: dict[str, Any] = {}
        self._status_at = -math.inf

    async def status(self) -> dict[str, Any]:
        """What the training says of itself (docs/architecture.md, ``status``).

        Raises:
            UnreachableError: there is none.
        """
        return await _alone(self._asking, self._fresh_status)

    async def current(self) -> Held:
        """A snapshot that is new enough.

        Raises:
            UnreachableError: the training does not answer.
            CkpttoolError: as it says.
        """
        held = self._new_enough()
        if held is not None:
            self._look_ahead(held)
            return held
        return await _alone(self._refreshing, self._newest)

    async def snapshot(self, *, consistent: bool | None) -> Held:
        """Make a new one; raises as ``current``."""
        refresh = partial(self._refresh, max_age=None, consistent=consistent)
        return await _alone(self._refreshing, refresh)

    async def pinned(self, tag: str | None) -> Held:
        """The snapshot of that tag; a new enough one where there is none.

        Raises:
            ChangedError: id ``snapshot-gone``.
            CkpttoolError: as ``current``.
        """
        return self._shelf.tagged(tag) if tag else await self.current()

    async def export(self, to: str, name: str, *, wait: bool) -> dict[str, Any]:
        """Have the training make an export, or make that of this name once more.

        Raises:
            CkpttoolError: as the training says.
        """

        def ask() -> dict[str, Any]:
            with LiveClient(self._run_dir, _EXPORT_SECONDS) as client:
                self._exporting.add(client)
                if self._closed:
                    client.interrupt()
                try:
                    return client.ask("export", to=to, name=name, wait=wait)
                finally:
                    self._exporting.discard(client)

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._waiting if wait else None, ask)

    def read(self, held: Held, name: str, index: Index) -> Body:
        """Elements of a variable; blocks, and so do the pieces of its answer.

        Raises:
            NotFoundError: id ``variable-not-found``.
            UsageError: id ``bad-index``.
            UnsupportedError, LimitError, CorruptError: as ``Source.chunks``.
        """
        variable = held.find(name)
        selection = Selection.of(selection_shape(variable), index, variable.name)
        rows = selection.axes[0].length if selection.axes else 1
        if variable.dtype == "string":
            return _strings(held, variable, selection, rows)
        pieces = held.pieces(variable, selection)
        first = next(pieces, b"")  # what cannot be read is said before an answer begins
        nbytes = selection.size * item_bytes(variable.dtype)
        return Body(variable, selection.result_shape, rows, nbytes, chain((first,), pieces))

    def close(self) -> None:
        """Close all snapshots and connections; what waits for an answer fails."""
        self._closed = True
        for client in (self._asks, self._snapshots, *self._exporting):
            client.interrupt()
        self._waiting.shutdown(cancel_futures=True)
        self._asks.close()
        self._snapshots.close()
        self._shelf.close()

    async def _fresh_status(self) -> dict[str, Any]:
        if time.monotonic() - self._status_at > _STATUS_SECONDS:
            self._status = await asyncio.to_thread(self._asks.ask, "status")
            self._status_at = time.monotonic()
        return self._status

    async def _newest(self) -> Held:
        held = self._new_enough()  # who waited gets what the first one brought
        return held or await self._refresh(max_age=self._max_age)

    def _new_enough(self) -> Held | None:
        held = self._shelf.newest
        if held is None:
            return None
        young = _age(held) < self._max_age
        patience = min(_AGAIN_SECONDS, self._max_age)
        return held if young or time.monotonic() - self._asked < patience else None

    def _look_ahead(self, held: Held) -> None:
        """Have the next one made before this one is too old, so that nobody has to wait for it."""
        lead = min(max(_LEAD * self._max_age, 1.5 * self._took), self._max_age / 2)
        patient = time.monotonic() - self._tried > _AGAIN_SECONDS
        if patient and _age(held) > self._max_age - lead and not self._refreshing.locked():
            self._tried = time.monotonic()
            self._ahead = asyncio.create_task(self._refresh_ahead(self._max_age - lead))

    async def _refresh_ahead(self, max_age: float) -> None:
        try:
            async with self._refreshing:
                await self._refresh(max_age=max_age)
        except CkpttoolError as error:  # who needs it asks again, and is told
            _log.info("no newer snapshot: %s", error)

    async def _refresh(self, max_age: float | None, consistent: bool | None = None) -> Held:
        began = time.monotonic()
        record = await asyncio.to_thread(
            self._snapshots.ask, "snapshot", max_age=max_age, consistent=consistent
        )
        held = await self._shelf.put(record)
        self._asked = time.monotonic()
        self._took = self._asked - began
        return held


async def _alone(lock: asyncio.Lock, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Do what nobody else may do meanwhile.

    Once begun it goes on to its end under the lock, though who asked for it is gone: its
    thread cannot be called back, and its connection is for one thread at a time.
    """

    async def to_the_end() -> _T:
        try:
            return await work()
        finally:
            lock.release()

    await lock.acquire()
    return await asyncio.shield(asyncio.create_task(to_the_end()))


def sayable(value: object) -> object:
    """What JSON can say: NaN and the infinities, which a loss may be, become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: sayable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [sayable(item) for item in value]
    return value


def _age(held: Held) -> float:
    return time.time() - float(held.record["time"])


def item_bytes(dtype: str) -> int:
    """Bytes of an element; 0 of what has no fixed size."""
    return BY_NAME[dtype].size if dtype in BY_NAME else 0


def _strings(held: Held, variable: Variable, selection: Selection, rows: int) -> Body:
    with held.using() as source:
        strings = source.strings(variable, selection)
    data = b"".join(len(one).to_bytes(8, "little") + one for one in strings)
    return Body(variable, selection.result_shape, rows, len(data), iter((data,)))
