"""``--keep-best FILE:METRIC:min|max:N``: a number for each checkpoint out of a metrics file.

Reads JSON (records, or a mapping of checkpoints to numbers or records), JSON lines and CSV
with a header. A record belongs to the checkpoint that it names, or to the one of its step.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from ckpttool.errors import CorruptError, LimitError, NotFoundError, RefusedError, UsageError
from ckpttool.policy.facts import BestRule, CheckpointFacts
from ckpttool.sources.filenames import split_part
from ckpttool.storage import open_directory, stat_path

__all__ = ["best_rule", "parse_best"]

_BYTES = 256 * 2**20
_NAMES = ("checkpoint", "prefix", "path", "ckpt", "file", "name")
_STEPS = ("step", "global_step", "epoch", "iteration", "steps")


def parse_best(text: str) -> tuple[str, str, Literal["min", "max"], int]:
    """``FILE:METRIC:min|max:N`` → its four parts; N may be left out (1).

    Raises:
        UsageError: not of that form.
    """
    head, _, last = text.rpartition(":")
    count = 1
    if last.isascii() and last.isdigit():
        count = int(last)
        head, _, last = head.rpartition(":")
    path, _, metric = head.rpartition(":")
    if last not in {"min", "max"} or not path or not metric or count < 1:
        raise UsageError(
            f"--keep-best {text} cannot be understood",
            why="it is not FILE:METRIC:min|max:N",
            hint="for example --keep-best metrics.jsonl:val_loss:min:3",
        )
    return path, metric, cast(Literal["min", "max"], last), count


def best_rule(text: str, directory: str, checkpoints: Sequence[CheckpointFacts]) -> BestRule:
    """Read the metrics file (as given, else in the run's directory) and match it.

    Raises:
        UsageError, NotFoundError, LimitError: as they say.
        CorruptError: id ``metrics-unreadable``.
        RefusedError: id ``metrics-match-nothing``: no checkpoint has a number, so that
            keeping the best would keep none.
    """
    path, metric, mode, count = parse_best(text)
    if stat_path(path) is None and not os.path.isabs(path):
        path = os.path.join(directory, path)
    by_name: dict[str, float] = {}
    by_step: dict[int, float] = {}
    records = 0
    for name, step, value in _readings(path, metric):
        records += 1
        if name is not None:
            base = os.path.basename(name)
            part = split_part(base)
            by_name[part.prefix if part else base] = value
        elif step is not None:
            by_step[step] = value
    scores = {}
    for item in checkpoints:
        score = by_name.get(item.prefix)
        if score is None and item.position is not None:
            score = by_step.get(item.position)
        if score is not None:
            scores[item.prefix] = score
    if not scores:
        raise RefusedError(
            f"--keep-best {text} matches no checkpoint",
            why=f"{records} records of {path} have a finite number {metric}, and none of "
            "them names a checkpoint or the step of one",
            hint=f"records need one of {', '.join(_NAMES)}, or of {', '.join(_STEPS)}",
            id="metrics-match-nothing",
        )
    return BestRule(text, mode, count, scores)


def _readings(path: str, metric: str) -> Iterator[tuple[str | None, int | None, float]]:
    """Name, step and number of every record that has the metric."""
    for key, record in _records(path, metric):
        value = _number(record.get(metric))
        if value is None:
            continue
        name = next((record[k] for k in _NAMES if isinstance(record.get(k), str)), None)
        step = next((s for k in _STEPS if (s := _step(record.get(k))) is not None), None)
        if key is not None and name is None and step is None:
            step = _step(key)
            name = key if step is None else None
        yield name, step, value


def _records(path: str, metric: str) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """Records, with the key they stand under where the file is a mapping."""
    import json

    text = _read(path)
    if path.lower().endswith(".csv"):
        import csv

        for row in csv.DictReader(text.splitlines()):
            yield None, row
        return
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = [_line(path, number, line) for number, line in _lines(text)]
    if isinstance(document, Mapping):
        if metric in document:
            inner = document[metric]
            if isinstance(inner, Mapping):  # {"val_loss": {"ckpt-1": 0.1}}
                yield from ((str(key), {metric: value}) for key, value in inner.items())
            else:
                yield None, document
            return
        for key, value in document.items():
            yield str(key), value if isinstance(value, Mapping) else {metric: value}
        return
    for record in document if isinstance(document, list) else []:
        if isinstance(record, Mapping):
            yield None, record


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip())


def _line(path: str, number: int, line: str) -> object:
    import json

    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptError(
            f"{path} cannot be read as metrics",
            why=f"line {number} is not JSON: {error}",
            hint="JSON, JSON lines and CSV with a header (.csv) are read",
            id="metrics-unreadable",
        ) from None


def _read(path: str) -> str:
    folder, name = os.path.split(path)
    found = stat_path(path)
    if found is None or not name:
        raise NotFoundError(f"there is no metrics file {path}", hint="check the path")
    if found.size > _BYTES:
        raise LimitError(
            f"{path} is too large for a metrics file",
            why=f"it has {found.size} bytes, and the limit is {_BYTES}",
        )
    with open_directory(folder) as directory:
        file = directory.open(name)
        try:
            return file.pread(0, file.stat.size).decode("utf-8-sig", "replace")
        finally:
            file.close()


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # What has diverged is no best, whichever way it is looked for.
    return number if math.isfinite(number) else None


def _step(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None
