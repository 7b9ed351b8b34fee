"""The same work on several files, in threads that have all ended when it returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["in_order"]

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


def in_order(
    work: Callable[[_Piece], _Result],
    pieces: Sequence[_Piece],
    jobs: int,
    stop: Callable[[], object],
) -> list[_Result]:
    """``work`` of every piece, ``jobs`` at a time; the results in the order of the pieces.

    Args:
        work: may be called by several threads at once when ``jobs`` is more than 1.
        pieces: each is worked on once.
        jobs: how many threads; with 1 it is done here.
        stop: called when one has failed, or the caller is interrupted, so that the others
            end soon; no new piece is begun then.

    Raises:
        BaseException: the first that ``work`` raised.
    """
    if min(jobs, len(pieces)) <= 1:
        return [work(piece) for piece in pieces]
    from threading import Thread  # one thread is the rule, and a start counts every millisecond

    waiting = deque(enumerate(pieces))
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while (piece := _next(waiting)) is not None:
                results[piece[0]] = work(piece[1])
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)
            end()

    def end() -> None:
        waiting.clear()
        stop()

    threads = [Thread(target=run) for _ in range(min(jobs, len(pieces)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        end()
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        raise
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(pieces))]


def _next(waiting: deque[tuple[int, _Piece]]) -> tuple[int, _Piece] | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None  # another thread took the last
