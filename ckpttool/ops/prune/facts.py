"""From what lies in a directory to the facts that the retention policy is told.

Here, and not in the policy, is known what protects a checkpoint: pins, other state files,
and what a CheckpointManager preserved and took off its list.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ckpttool.limits import Limits
from ckpttool.ops.prune.metrics import best_rule
from ckpttool.ops.prune.pins import PINS_NAME, match_pins, read_pins
from ckpttool.ops.prune.survey import Stored, Survey
from ckpttool.ops.prune.wholeness import missing, missing_by_names
from ckpttool.policy.facts import (
    CheckpointFacts,
    LeftoverFacts,
    Outcome,
    Retention,
    RunFacts,
)
from ckpttool.policy.retention import decide, with_missing
from ckpttool.sources.filenames import STATE_FILE
from ckpttool.sources.run import ListedPath
from ckpttool.sources.state_paths import Located, Lost, StatePaths
from ckpttool.sources.step import step_inside
from ckpttool.storage import stat_path
from ckpttool.storage.local import LocalDirectory

__all__ = ["Gathered", "Request", "decide_proven", "gather", "own_name"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks for: settings, and what is still to be read from files.

    ``best`` are texts ``FILE:METRIC:min|max:N``; ``state_name`` is the run's state file.
    """

    retention: Retention
    pins: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    state_name: str = STATE_FILE


@dataclass(slots=True)
class Gathered:
    """The facts of a directory, with the request's files read.

    ``foreign`` are paths of state files that lead out of the directory, and where to.
    """

    facts: RunFacts
    retention: Retention
    foreign: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def gather(directory: LocalDirectory, found: Survey, request: Request, limits: Limits) -> Gathered:
    """Everything that the policy has to know.

    Raises:
        CorruptError: the state file cannot be read, so what it protects is not known.
        CkpttoolError: pins or metrics cannot be read; see there.
    """
    state_file = found.run.state_file
    if state_file is not None and state_file.error is not None:
        raise state_file.error
    result = Gathered(RunFacts(()), request.retention)
    listed = _listed(found, result)
    named = _named(directory, found, result)
    pins = read_pins(directory)
    pinned_here, _ = match_pins(pins, found.stored)
    pinned, idle = match_pins(request.pins, found.stored)
    result.warnings += [f"--pin {pin} matches no checkpoint" for pin in idle]
    labels = {name: f"{PINS_NAME}: {pin}" for name, pin in pinned_here.items()}
    labels |= {name: f"--pin {pin}" for name, pin in pinned.items()}
    state = state_file.state if state_file else None
    stamped = bool(state and state.all_model_checkpoint_timestamps)
    last_preserved = (state.last_preserved_timestamp or 0.0) if state else 0.0
    preserved = _preserved(found, listed, last_preserved) if stamped else {}
    by_step = request.retention.order == "step"
    checkpoints = []
    for prefix, stored in found.stored.items():
        place, stamp = listed.get(prefix, (None, None))
        lack = missing(directory, stored, limits) if missing_by_names(stored) else ""
        step = step_inside(directory, prefix, limits) if by_step and stored.v2 else None
        checkpoints.append(
            CheckpointFacts(
                prefix=prefix,
                series=stored.series,
                number=stored.number,
                saved=stored.saved_ns / 1e9,
                changed=stored.changed_ns / 1e9,
                nbytes=stored.nbytes,
                step=step,
                missing=lack,
                listed=place,
                stamp=stamp,
                named_by=tuple(named.get(prefix, ())),
                pinned=labels.get(prefix, ""),
                preserved="" if lack else preserved.get(prefix, ""),
            )
        )
    result.facts = RunFacts(
        tuple(checkpoints),
        tuple(
            LeftoverFacts(item.name, item.mtime_ns / 1e9, item.nbytes, item.why)
            for item in found.run.leftovers
            if item.prefix not in found.opaque
        ),
        stamped,
        last_preserved,
    )
    rules = tuple(best_rule(text, directory.path, checkpoints) for text in request.best)
    result.retention = replace(request.retention, best=rules)
    return result


def decide_proven(
    directory: LocalDirectory,
    gathered: Gathered,
    stored: Mapping[str, Stored],
    limits: Limits,
    now: float,
) -> Outcome:
    """Decide, and decide again until every checkpoint that counts is proven to be whole.

    Raises:
        CkpttoolError: as ``policy.retention.decide``.
    """
    facts = gathered.facts
    proven: set[str] = set()
    while True:
        outcome = decide(facts, gathered.retention, now)
        broken = {}
        for prefix in outcome.counted - proven:
            why = missing(directory, stored[prefix], limits)
            if why:
                broken[prefix] = why
            proven.add(prefix)
        if not broken:
            return outcome
        facts = with_missing(facts, broken)


def own_name(item: ListedPath) -> str:
    """The name of a checkpoint of this directory that a stored path means; else empty.

    An absolute path that leads to something is that, even if a checkpoint of its name is
    here too: what is elsewhere is never acted on, nor on its strength what is here.
    """
    place = item.found
    if not isinstance(place, Located) or not place.own:
        return ""
    if place.how == "moved" and os.path.isabs(item.stored) and _leads_somewhere(item.stored):
        return ""
    return place.prefix


def _leads_somewhere(prefix: str) -> bool:
    return stat_path(prefix + ".index") is not None or stat_path(prefix) is not None


def _listed(found: Survey, result: Gathered) -> dict[str, tuple[int, float | None]]:
    """Name → place in the state file's list, and time.

    Of a name given twice the first place and the last time count, as in TensorFlow's memory.
    """
    listed: dict[str, tuple[int, float | None]] = {}
    moved = []
    for place, item in enumerate(found.run.listed):
        name = own_name(item)
        if not name:
            if isinstance(item.found, Located) or item.found.foreign:
                result.foreign.append((item.stored, _where(item)))
            continue
        if isinstance(item.found, Located) and item.found.how != "stored":
            moved.append(name)
        listed[name] = (listed[name][0] if name in listed else place, item.timestamp)
    if moved:
        result.warnings.append(
            f"{len(moved)} paths of the state file are those of another place; the checkpoints "
            f"of their names are here (ckpttool state {found.run.path} --fix writes them right)"
        )
    return listed


def _where(item: ListedPath) -> str:
    if isinstance(item.found, Lost):
        return f"the state file lists it, and it is {item.found.why}"
    place = item.found
    where = item.stored if place.own else place.path
    return f"the state file lists it, and it leads out of the directory, to {where}"


def _named(directory: LocalDirectory, found: Survey, result: Gathered) -> dict[str, list[str]]:
    """Name → what points to it, besides the list of the run's own state file."""
    named: dict[str, list[str]] = defaultdict(list)
    latest = found.run.latest
    if latest is not None:
        # Protected also where the path itself leads elsewhere: it costs nothing.
        name = latest.found.prefix if isinstance(latest.found, Located) else ""
        if name in found.stored:
            named[name].append(f"{found.state_name} as the latest")
    for other in found.others:
        if other.state is None:
            continue
        paths = StatePaths(directory, other.name)
        stored = [other.state.model_checkpoint_path, *other.state.all_model_checkpoint_paths]
        for path in dict.fromkeys(filter(None, stored)):
            place = paths.find(path)
            if isinstance(place, Located) and place.prefix in found.stored:
                named[place.prefix].append(other.name)
            else:
                result.foreign.append((path, f"{other.name} lists it, and it is not here"))
    return named


def _preserved(
    found: Survey, listed: Mapping[str, tuple[int, float | None]], last_preserved: float
) -> dict[str, str]:
    """Unlisted ones that a CheckpointManager may have preserved.

    What it preserves it takes off its list, so "unlisted" can mean "protected". It is
    older than all that is listed; a copied file's time does not show that, but its number does.
    """
    here = [name for name in listed if name in found.stored]
    series = {found.stored[name].series for name in here}
    lowest: dict[str, int] = {}
    for name in here:
        number = found.stored[name].number
        if number is not None:
            kind = found.stored[name].series
            lowest[kind] = min(number, lowest.get(kind, number))
    preserved = {}
    for name, stored in found.stored.items():
        if name in listed or (series and stored.series not in series):
            continue
        early = stored.number is not None and stored.number < lowest.get(stored.series, 0)
        if early or stored.saved_ns / 1e9 <= last_preserved + 1:
            preserved[name] = (
                "unlisted and older than what is listed: TensorFlow may have preserved it"
            )
    return preserved
