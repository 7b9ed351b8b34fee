"""The same work on many pieces in a few threads; nothing of what the work is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["each"]

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


def each(
    work: Callable[[_Piece], _Result], pieces: Iterator[_Piece], jobs: int
) -> Iterator[_Result]:
    """``work`` of every piece, in no order when ``jobs`` is more than one.

    Results come out in the caller's thread, so a bar can be drawn between them. An error
    of ``work`` is raised there. Threads take no new piece when it is, or when the caller
    stops early; they are not waited for, since a piece may be large.
    """
    if jobs == 1:
        yield from map(work, pieces)
        return
    # Imported here because one thread is the rule, and a start counts every millisecond.
    from queue import SimpleQueue
    from threading import Event, Lock, Thread

    results: SimpleQueue[tuple[_Result] | BaseException | None] = SimpleQueue()
    lock, stop = Lock(), Event()

    def run() -> None:
        try:
            while not stop.is_set():
                with lock:
                    piece = next(pieces, None)
                if piece is None:
                    break
                results.put((work(piece),))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            results.put(error)
        results.put(None)

    for _ in range(jobs):
        Thread(target=run, daemon=True).start()
    try:
        running = jobs
        while running:
            result = results.get()
            if result is None:
                running -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result[0]
    finally:
        stop.set()
