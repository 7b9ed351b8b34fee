"""The long text behind an error id or an exit code.

One Markdown file an id in ``ckpttool/explanations``: its first line is ``# <title>``, its
first paragraph ``Exit code: <number>`` (several with commas). The files are the only list
of ids; tests compare them with what the code raises.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ckpttool.errors import NotFoundError

__all__ = ["EXIT_CODES", "ExplainResult", "Explanation", "explain", "explanation_ids"]

#: What the exit codes mean, for every command.
EXIT_CODES = {
    0: "Done; for diff: the same; for verify: healthy.",
    1: "The answer is no: verify found damage, diff a difference, --check something to report.",
    2: "The command line makes no sense.",
    3: "Partly done, and what was done is kept.",
    4: "Cancelled, or a question had to be asked and nobody could answer.",
    10: "Not found: no such path, checkpoint, step or variable.",
    11: "A file of a kind that ckpttool does not read; the message says which kind.",
    12: "One of our kinds, but a version or a feature that is not supported.",
    20: "Corrupt or incomplete, so that the command could not do its work.",
    21: "A size or count is over a limit, or memory ran out.",
    22: "Unsafe: a path, a link or code that leads out of the checkpoint.",
    30: "Busy, or changed by another program while it was read.",
    31: "Refused by a rule; where a flag may allow it, the message names the flag.",
    40: "Storage: the operating system failed to read or write.",
    41: "No space left on the device.",
    42: "Permission denied.",
    50: "A library that the conversion needs, or the check asked for, is not installed.",
    51: "TensorFlow or a converter failed.",
    52: "The result of a conversion differs from its source; nothing is in place.",
    53: "There is no graph to convert with: the source holds values only.",
    60: "A parameter server, or what answers for it, cannot be reached.",
    61: "A process of a parameter-server cluster failed, and it cannot go on.",
    70: "A bug in ckpttool.",
    130: "Stopped by SIGINT (Ctrl-C).",
    141: "The reader of the output closed the pipe.",
    143: "Stopped by SIGTERM.",
}

_HOME = os.path.join(os.path.dirname(os.path.dirname(__file__)), "explanations")
_CODES = re.compile(r"^Exit code: (\d+(?:, \d+)*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """One id: its title, the exit codes it comes with, and its text (Markdown)."""

    id: str
    title: str
    exit_codes: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """What was found: one explanation, all of an exit code's, or all.

    ``exit_code`` and ``meaning`` are None unless an exit code was asked for.
    """

    entries: tuple[Explanation, ...]
    single: bool
    exit_code: int | None = None
    meaning: str | None = None


def explain(topic: str | None = None) -> ExplainResult:
    """The explanation of an id (``shard-missing``), of an exit code (``20``), or all ids.

    Raises:
        NotFoundError: id ``no-explanation``: there is no such id or code.
    """
    ids = explanation_ids()
    if topic is None:
        return ExplainResult(tuple(map(_read, ids)), single=False)
    if topic in map(str, EXIT_CODES):
        code = int(topic)
        entries = tuple(entry for entry in map(_read, ids) if code in entry.exit_codes)
        return ExplainResult(entries, False, code, EXIT_CODES[code])
    wanted = topic.strip("[]").lower()
    if wanted not in ids:
        raise _unknown(topic, wanted, ids)
    return ExplainResult((_read(wanted),), single=True)


def explanation_ids() -> list[str]:
    """Every id that is explained, sorted."""
    return sorted(name[:-3] for name in os.listdir(_HOME) if name.endswith(".md"))


def _read(id: str) -> Explanation:
    with open(os.path.join(_HOME, f"{id}.md"), encoding="utf-8") as file:
        text = file.read()
    codes = _CODES.search(text)
    return Explanation(
        id,
        title=text.partition("\n")[0].removeprefix("# ").strip(),
        exit_codes=tuple(map(int, codes[1].split(", "))) if codes else (),
        text=text,
    )


def _unknown(topic: str, wanted: str, ids: list[str]) -> NotFoundError:
    from difflib import get_close_matches

    near = get_close_matches(wanted, ids, n=3, cutoff=0.5)
    return NotFoundError(
        f"there is no explanation of '{topic}'",
        why=f"it is none of the {len(ids)} error ids and no exit code",
        hint=f"did you mean: {', '.join(near)}" if near else "ckpttool explain lists them all",
        id="no-explanation",
    )
