"""Did-you-mean: the names that are most like one that does not exist.

Pure. A cheap pass over all candidates picks some hundred, and only those are compared
closely, so that a million names take about a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

__all__ = ["likeness", "nearest"]

#: Candidates that are compared closely.
_SHORTLIST = 100
#: Characters at the end of long names that are compared: comparing costs their square.
_COMPARED = 200
#: Below this likeness a name is no help.
_CUTOFF = 0.6


def nearest(name: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """At most ``n`` of the candidates, the most similar first; none that is far off.

    A candidate that holds ``name``, or that ``name`` holds, counts as similar whatever the
    lengths: part of the name left out, or a suffix too many (``:0``).
    """
    folded = name.casefold()
    if not folded:
        return []
    # Quarters of the name: a slip of the pen leaves most of them whole, wherever it is.
    step = max(1, len(folded) // 4)
    pieces = tuple({folded[at : at + step] for at in range(0, len(folded), step)})
    length = len(folded)

    def likely(candidate: str) -> int:
        other = candidate.casefold()
        score = -2 * abs(len(other) - length)
        for piece in pieces:
            if piece in other:
                score += length
        if folded in other or (other and other in folded):
            score += 4 * length
        return score

    ranked: list[tuple[float, int, str]] = []
    for place, candidate in enumerate(nlargest(_SHORTLIST, candidates, key=likely)):
        other = candidate.casefold()
        ratio = likeness(folded, other)
        if len(other) > 2 and (folded in other or other in folded):
            ratio = max(ratio, _CUTOFF)
        if ratio >= _CUTOFF:
            ranked.append((-ratio, place, candidate))
    return [candidate for _, _, candidate in sorted(ranked)[:n]]


def likeness(a: str, b: str) -> float:
    """From 0 to 1 (equal), as ``difflib`` has it; in bounded time for names of any length."""
    from difflib import SequenceMatcher

    a, b = a[-_COMPARED:], b[-_COMPARED:]
    total = len(a) + len(b)
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    a, b = a[same:], b[same:]
    tail = 0
    while tail < min(len(a), len(b)) and a[-tail - 1] == b[-tail - 1]:
        tail += 1
    a, b = a[: len(a) - tail], b[: len(b) - tail]
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return 2 * (same + tail + sum(block.size for block in blocks)) / total
