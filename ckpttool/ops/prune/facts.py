"""From what lies in a directory to the facts that the retention policy is told.

Here, and not in the policy, is known what protects a checkpoint: pins, other state files,
and what a CheckpointManager preserved and took off its list.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field, replace

from ckpttool.errors import CkpttoolError, RefusedError
from ckpttool.limits import Limits
from ckpttool.ops.prune.metrics import best_rule
from ckpttool.ops.prune.pins import PINS_NAME, match_pins, read_pins
from ckpttool.ops.prune.preserved import preserved
from ckpttool.ops.prune.proof import Proof
from ckpttool.ops.prune.state_files import names_in, refuse_unreadable, states_in
from ckpttool.ops.prune.survey import Stored, Survey
from ckpttool.ops.prune.wholeness import Judgement, judge, missing_by_names
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
from ckpttool.storage import open_directory, stat_path
from ckpttool.storage.local import LocalDirectory

__all__ = ["Gathered", "Request", "decide_proven", "gather", "own_name"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks for: settings, and what is still to be read from files.

    ``best`` are texts ``FILE:METRIC:min|max:N``; ``state_name`` is the run's state file.
    State files of the directories from the run's own up to ``root`` may name its checkpoints
    too; empty where none above is of interest. ``idle_pins`` is whether pins that match
    nothing are a warning and no error.
    """

    retention: Retention
    pins: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    state_name: str = STATE_FILE
    root: str = ""
    idle_pins: bool = False


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
        CorruptError: a state file cannot be read, so what it protects is not known.
        CkpttoolError: pins or metrics cannot be read; see there.
    """
    state_file = found.run.state_file
    if state_file is not None and state_file.error is not None:
        raise state_file.error
    for other in found.others:
        refuse_unreadable(other)
    result = Gathered(RunFacts(()), request.retention)
    listed = _listed(found, result)
    named = _named(directory, found, result)
    if request.root:
        _name_from_above(directory, request.root, limits, named)
    pins = read_pins(directory)
    pinned_here, idle = match_pins(directory, pins, found.stored)
    result.warnings += [f"{PINS_NAME}: {pin} matches no checkpoint" for pin in idle]
    pinned, idle = match_pins(directory, request.pins, found.stored)
    if idle and request.idle_pins:
        result.warnings += [f"--pin {pin} matches no checkpoint" for pin in idle]
    elif idle:
        raise RefusedError(
            f"--pin {idle[0]} matches no checkpoint of {directory.path}",
            why="what it was to protect would go",
            hint="look at the names with ckpttool inspect; or leave the pin out",
            id="pin-matches-nothing",
        )
    labels = {name: f"{PINS_NAME}: {pin}" for name, pin in pinned_here.items()}
    labels |= {name: f"--pin {pin}" for name, pin in pinned.items()}
    state = state_file.state if state_file else None
    stamped = bool(state and state.all_model_checkpoint_timestamps)
    last_preserved = (state.last_preserved_timestamp or 0.0) if state else 0.0
    kept: dict[str, str] = {}
    if not request.retention.include_preserved:
        kept = preserved(directory, found, listed, last_preserved if stamped else None, limits)
    proof = Proof(directory, found)
    changes: dict[str, int] = defaultdict(int)
    for item in found.run.leftovers:
        changes[item.prefix] = max(changes[item.prefix], found.left_ns[item.name])
    by_step = request.retention.order == "step"
    checkpoints = []
    for prefix, stored in found.stored.items():
        place, stamp = listed.get(prefix, (None, None))
        judgement = Judgement()
        changed = stored.changed_ns
        if missing_by_names(stored):
            judgement = proven_broken(directory, proof, stored, limits)
            if judgement.broken:
                # A copy that is under way may have given its files old times.
                now_there = map(directory.newest_change, stored.names)
                changed = max([changed, changes[prefix], *now_there])
        step = step_inside(directory, prefix, limits) if by_step and stored.v2 else None
        checkpoints.append(
            CheckpointFacts(
                prefix=prefix,
                series=stored.series,
                number=stored.number,
                saved=stored.saved_ns / 1e9,
                changed=changed / 1e9,
                nbytes=stored.nbytes,
                step=step,
                missing=judgement.broken,
                unknown=judgement.unknown,
                v2=stored.v2 is not None,
                listed=place,
                stamp=stamp,
                named_by=tuple(named.get(prefix, ())),
                pinned=labels.get(prefix, ""),
                preserved="" if judgement.broken else kept.get(prefix, ""),
            )
        )
    result.facts = RunFacts(
        tuple(checkpoints),
        tuple(
            LeftoverFacts(
                item.name,
                found.left_ns[item.name] / 1e9,
                item.nbytes,
                item.why,
                proof.leftover(item),
            )
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
    found: Survey,
    limits: Limits,
    now: float,
) -> Outcome:
    """Decide, and decide again until all that counts is whole, and all that goes a checkpoint.

    Raises:
        CkpttoolError: as ``policy.retention.decide``.
    """
    facts = gathered.facts
    proof = Proof(directory, found)
    judged: set[str] = set()
    proven: set[str] = set()
    while True:
        outcome = decide(facts, gathered.retention, now)
        broken: dict[str, str] = {}
        unknown: dict[str, str] = {}
        changed: dict[str, float] = {}
        for prefix in outcome.counted - judged:
            stored = found.stored[prefix]
            judgement = proven_broken(directory, proof, stored, limits)
            if judgement.broken:
                broken[prefix] = judgement.broken
                changed[prefix] = max(map(directory.newest_change, stored.names)) / 1e9
            if judgement.unknown:
                unknown[prefix] = judgement.unknown
            judged.add(prefix)
        for decision in outcome.of("delete"):
            prefix = decision.checkpoint.prefix
            if prefix not in proven | judged and not decision.checkpoint.missing:
                if why := proof.checkpoint(found.stored[prefix]):
                    unknown[prefix] = why
                proven.add(prefix)
        if not broken and not unknown:
            return outcome
        facts = with_missing(facts, broken, unknown, changed)


def proven_broken(
    directory: LocalDirectory, proof: Proof, stored: Stored, limits: Limits
) -> Judgement:
    """As ``judge``, but what is not proven to be a checkpoint of the run is not broken either."""
    judgement = judge(directory, stored, limits)
    if judgement.broken and (why := proof.checkpoint(stored)):
        return Judgement(unknown=why)
    return judgement


def own_name(item: ListedPath) -> str:
    """The name of a checkpoint of this directory that a stored path means; else empty.

    A path that leads to something elsewhere is that, even if a checkpoint of its name is
    here too: what is elsewhere is never acted on, nor on its strength what is here.
    """
    place = item.found
    if not isinstance(place, Located) or not place.own:
        return ""
    if place.how == "moved" and (
        _leads_somewhere(os.path.join(place.directory, item.stored))
        or ("/" in item.stored and _leads_somewhere(item.stored))
    ):
        return ""
    return place.prefix


def _leads_somewhere(prefix: str) -> bool:
    """Whether something is there; also where nobody may look, for then it may be."""
    try:
        return stat_path(prefix + ".index") is not None or stat_path(prefix) is not None
    except CkpttoolError:
        return True


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
    for prefix, who in found.named.items():
        named[prefix] += who
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


def _name_from_above(
    directory: LocalDirectory, root: str, limits: Limits, named: dict[str, list[str]]
) -> None:
    """What the state files of the directories above name, as far up as ``root``."""
    own = directory.itself()
    top = os.path.realpath(root)
    path = os.path.realpath(directory.path or ".")
    while path != top and path.startswith(os.path.join(top, "")):
        path = os.path.dirname(path)
        with open_directory(path) as above:
            for state in states_in(above, limits):
                refuse_unreadable(state)
                for prefix in names_in(above, state, own):
                    named[prefix].append(state.path)
