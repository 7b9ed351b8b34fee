"""Retention: which checkpoints of a directory stay, which go, and why.

Pure: facts, settings and a clock in, decisions out. It refuses rather than guesses, and
what protects a checkpoint is never outweighed by a rule that would let it go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge

from ckpttool.errors import RefusedError
from ckpttool.policy.facts import (
    CheckpointFacts,
    Decision,
    LeftoverDecision,
    LeftoverFacts,
    Order,
    Outcome,
    Reason,
    Retention,
    RunFacts,
    Verdict,
)
from ckpttool.policy.ordering import arrange, choose_order, inversion, other_order
from ckpttool.policy.rules import keep_best, keep_every_n_steps, keep_within, over_total
from ckpttool.policy.settings import check_retention
from ckpttool.policy.tensorflow import tensorflow_keeps
from ckpttool.policy.words import at_least, duration

__all__ = ["decide", "with_missing"]

#: Rules whose choice is worth only as much as the checkpoint that it fell on.
_COUNTED = {"newest", "max-to-keep", "keep-every-n-hours", "keep-every-n-steps", "keep-best"}


@dataclass(slots=True)
class _Chosen:
    """What the rules make of the series: reasons for and against, by prefix.

    ``against`` are reasons against those that stay for another one; ``safe`` those that
    stay whatever space they take.
    """

    keep: dict[str, list[Reason]] = field(default_factory=dict)
    drop: dict[str, list[Reason]] = field(default_factory=dict)
    against: dict[str, list[Reason]] = field(default_factory=dict)
    safe: set[str] = field(default_factory=set)
    unless: dict[str, str] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    last_preserved: float = 0.0


def decide(facts: RunFacts, retention: Retention, now: float) -> Outcome:
    """Decide about every checkpoint and leftover.

    Raises:
        UsageError, RefusedError: the settings (see `check_retention`); id
            ``order-disagrees``: steps and times contradict each other, and it matters;
            ``order-unknown``; ``policy-keeps-nothing``: nothing whole would be left.
    """
    check_retention(retention)
    shields = {
        item.prefix: reasons
        for item in facts.checkpoints
        if (reasons := _protections(item, retention.min_age, now))
    }
    groups = _groups(facts, retention, shields)
    chosen = _Chosen(last_preserved=facts.last_preserved)
    arranged: list[Sequence[CheckpointFacts]] = []
    places: dict[str, int] = {}
    orders: list[Order] = []
    for members in groups:
        order = retention.order or _agreed_order(members, facts, retention, shields, now)
        orders.append(order)
        ordered = arrange(members, order)
        _choose(ordered, facts, retention, shields, now, into=chosen)
        arranged.append(ordered)
        for item in ordered:
            places[item.prefix] = len(places)
    _fit(arranged, retention, chosen)
    decisions = [
        _decision(item, item.prefix in places, chosen, shields, retention)
        for item in sorted(
            facts.checkpoints,
            # Series by series, oldest first; at last those that no rule speaks about.
            key=lambda item: (
                places.get(item.prefix, len(places)),
                item.series,
                -1 if item.number is None else item.number,
                item.prefix,
            ),
        )
    ]
    leftovers = tuple(_leftover(item, retention, now) for item in facts.leftovers)
    _refuse_nothing_left(decisions)
    return Outcome(
        decisions=tuple(decisions),
        leftovers=leftovers,
        order=max(orders, key=orders.count) if orders else retention.order or "state",
        counted=frozenset(
            decision.checkpoint.prefix
            for decision in decisions
            if decision.verdict == "keep" and {r.rule for r in decision.reasons} & _COUNTED
        ),
        unlisted=frozenset(chosen.unlisted),
        last_preserved=chosen.last_preserved,
        warnings=tuple(_warnings(facts, retention, groups, decisions)),
    )


def _protections(item: CheckpointFacts, min_age: float, now: float) -> list[Reason]:
    """What keeps a checkpoint whatever the rules say."""
    reasons = []
    if item.pinned:
        reasons.append(Reason("pinned", f"pinned by {item.pinned}"))
    reasons += [Reason("named", f"named by {who}") for who in item.named_by]
    if item.preserved:
        reasons.append(Reason("preserved", item.preserved))
    young = _recency(item.changed, min_age, now)
    if young is None and item.stamp is not None:
        young = _future(item.stamp, min_age, now)
    if young is not None:
        reasons.append(young)
    return reasons


def _recency(changed: float, min_age: float, now: float) -> Reason | None:
    """A file that changed lately may still be being written."""
    if min_age > 0 and 0 <= now - changed < min_age:
        return Reason(
            "in-flight",
            f"changed {duration(now - changed)} ago: a save may be under way",
        )
    return _future(changed, min_age, now)


def _future(when: float, min_age: float, now: float) -> Reason | None:
    """A time in the future says nothing about an age."""
    if min_age > 0 and when > now:
        return Reason("future", f"its time lies {duration(when - now)} in the future")
    return None


def _groups(
    facts: RunFacts, retention: Retention, shields: dict[str, list[Reason]]
) -> list[list[CheckpointFacts]]:
    """What the rules apply to: the whole ones in scope; under --scope all, series by series."""
    series: dict[str, list[CheckpointFacts]] = {}
    for item in facts.checkpoints:
        if item.missing or item.unknown or item.preserved:
            continue
        rules = {reason.rule for reason in shields.get(item.prefix, ())}
        if "future" in rules or ("in-flight" in rules and item.listed is None):
            continue
        if retention.scope == "all":
            series.setdefault(item.series, []).append(item)
        elif item.listed is not None:
            series.setdefault("", []).append(item)
    return [members for _, members in sorted(series.items())]


def _agreed_order(
    members: Sequence[CheckpointFacts],
    facts: RunFacts,
    retention: Retention,
    shields: dict[str, list[Reason]],
    now: float,
) -> Order:
    """The order to use, unless steps and times disagree so that other ones would go."""
    order = choose_order(members, retention.scope)
    other = other_order(members, order)
    pair = inversion(members, order, other) if other else None
    if other is None or pair is None:
        return order
    going = []
    for ordered in (arrange(members, by) for by in (order, other)):
        chosen = _choose(ordered, facts, retention, shields, now, into=_Chosen())
        going.append(_fit([ordered], retention, chosen).drop.keys())
    if going[0] == going[1]:
        return order
    first, second = pair
    raise RefusedError(
        "the steps and the times of the checkpoints disagree, so which are old is not certain",
        why=f"{second.prefix} comes after {first.prefix}, but was saved "
        f"{duration(first.time - second.time)} before it",
        hint=f"say which is right: --order {order} or --order {other}",
        id="order-disagrees",
    )


def _choose(
    ordered: Sequence[CheckpointFacts],
    facts: RunFacts,
    retention: Retention,
    shields: dict[str, list[Reason]],
    now: float,
    *,
    into: _Chosen,
) -> _Chosen:
    """Let the rules speak about one series, oldest first."""
    keep: dict[str, list[Reason]] = {item.prefix: [] for item in ordered}
    drop: dict[str, list[Reason]] = {item.prefix: [] for item in ordered}
    if retention.max_to_keep is not None:
        base = tensorflow_keeps(ordered, facts, retention, now)
        for prefix, reason in base.keep.items():
            keep[prefix].append(reason)
        for prefix, reason in base.drop.items():
            drop[prefix].append(reason)
        into.unless.update(base.unless)
        into.unlisted |= base.unlisted
        into.last_preserved = max(into.last_preserved, base.last_preserved)
    for kept in _extra_keeps(ordered, retention, now):
        for prefix, reason in kept.items():
            keep[prefix].append(reason)
    if retention.within is not None:
        sane = max((item.time for item in ordered if item.time <= now), default=now)
        for item in ordered:
            enough = f"--keep-within {at_least(sane - item.time)}"
            into.unless.setdefault(item.prefix, enough)
    if not retention.has_keep_rule:
        for item in ordered:
            keep[item.prefix].append(Reason("no-keep-rule", "no rule lets it go"))
    newest = ordered[-1].prefix
    keep[newest].insert(0, Reason("newest", "the newest whole checkpoint"))
    # V1 cannot be gone on from by `latest`, nor by TensorFlow 2.
    newest_v2 = next((item.prefix for item in reversed(ordered) if item.v2), newest)
    if newest_v2 != newest:
        keep[newest_v2].insert(0, Reason("newest", "the newest whole one that is not V1 or Keras"))
    into.safe |= {item.prefix for item in ordered if item.prefix in shields} | {newest, newest_v2}
    into.safe |= {p for p, reasons in keep.items() if any(r.rule == "keep-best" for r in reasons)}
    for prefix, reasons in keep.items():
        if not reasons and prefix not in shields:
            into.drop[prefix] = drop[prefix] or [Reason("no-rule", "no rule keeps it")]
        else:
            into.keep[prefix] = reasons
            into.against[prefix] = drop[prefix]
    return into


def _fit(
    series: Sequence[Sequence[CheckpointFacts]], retention: Retention, chosen: _Chosen
) -> _Chosen:
    """Let the oldest of what stays go until all series together fit into the size that is given.

    Which of two series has the older one is told by their times; within one its order holds.
    """
    if retention.max_total_bytes is None:
        return chosen
    by_age = merge(*series, key=lambda item: item.time)
    staying = [item for item in by_age if item.prefix in chosen.keep]
    given_up = over_total(staying, dict.fromkeys(chosen.safe), retention.max_total_bytes)
    for prefix, reason in given_up.items():
        del chosen.keep[prefix]
        chosen.drop[prefix] = [*chosen.against[prefix], reason]
        chosen.unless[prefix] = "a larger --max-total-size"
        chosen.unlisted.discard(prefix)
    return chosen


def _extra_keeps(
    ordered: Sequence[CheckpointFacts], retention: Retention, now: float
) -> Iterable[dict[str, Reason]]:
    if retention.every_n_steps is not None:
        yield keep_every_n_steps(ordered, retention.every_n_steps)
    if retention.within is not None:
        yield keep_within(ordered, retention.within, now)
    for rule in retention.best:
        yield keep_best(ordered, rule)


def _decision(
    item: CheckpointFacts,
    ruled: bool,
    chosen: _Chosen,
    shields: dict[str, list[Reason]],
    retention: Retention,
) -> Decision:
    protected = shields.get(item.prefix, [])
    if ruled:
        if item.prefix in chosen.drop:
            return Decision(
                item,
                "delete",
                tuple(chosen.drop[item.prefix]),
                chosen.unless.get(item.prefix, "") or f"--pin {item.prefix}",
            )
        return Decision(item, "keep", (*chosen.keep[item.prefix], *protected))
    if item.unknown:
        return Decision(
            item,
            "keep" if protected else "leave",
            (Reason("unknown", f"whether it is whole is not known: {item.unknown}"), *protected),
        )
    if item.missing:
        reason = Reason("incomplete", item.missing)
        if protected:
            return Decision(item, "keep", (reason, *protected))
        if retention.broken:
            return Decision(item, "delete", (reason,), "no --broken")
        return Decision(
            item, "leave", (Reason("incomplete", f"{item.missing} (--broken removes it)"),)
        )
    if protected:
        return Decision(item, "keep", tuple(protected))
    return Decision(
        item,
        "leave",
        (Reason("unlisted", "the state file does not list it (--scope all includes it)"),),
    )


def _leftover(item: LeftoverFacts, retention: Retention, now: float) -> LeftoverDecision:
    young = _recency(item.changed, retention.min_age, now)
    verdict: Verdict = "leave"
    if young is not None:
        return LeftoverDecision(item, verdict, young)
    text = item.why
    if item.unproven:
        return LeftoverDecision(item, verdict, Reason("unproven", item.unproven))
    if retention.broken:
        verdict = "delete"
    else:
        text += " (--broken removes it)"
    return LeftoverDecision(item, verdict, Reason("leftover", text))


def _refuse_nothing_left(decisions: Sequence[Decision]) -> None:
    staying = [d.checkpoint for d in decisions if d.verdict != "delete"]
    if any(not (item.missing or item.unknown) for item in staying):
        return
    going = sum(1 for d in decisions if d.verdict == "delete")
    if going:
        raise RefusedError(
            "nothing whole would be left",
            why=f"all {going} checkpoints that would go are all there is",
            hint="look at them with ckpttool verify; ckpttool rm PREFIX removes one by name",
            id="policy-keeps-nothing",
        )


def _warnings(
    facts: RunFacts,
    retention: Retention,
    groups: Sequence[Sequence[CheckpointFacts]],
    decisions: Sequence[Decision],
) -> Iterable[str]:
    rules = [decision.reasons[0].rule for decision in decisions if decision.reasons]
    if unlisted := rules.count("unlisted"):
        yield _left_alone(unlisted, "--scope all includes {them}")
    if preserved := rules.count("preserved"):
        yield _left_alone(preserved, "TensorFlow may have preserved {them}")
    if (
        retention.style == "manager"
        and retention.scope == "listed"
        and retention.max_to_keep is not None
        and not facts.stamped
        and sum(map(len, groups)) > retention.max_to_keep
    ):
        yield (
            "the state file has no times, so a Saver wrote it, and a CheckpointManager deletes "
            "nothing that it lists: use --policy saver"
        )
    for rule in retention.best:
        members = [item for group in groups for item in group]
        without = sum(1 for item in members if item.prefix not in rule.scores)
        if without:
            yield f"{rule.label} has no number for {without} of {len(members)} checkpoints"


def _left_alone(count: int, what: str) -> str:
    one = count == 1
    return (
        f"{count} checkpoint{'' if one else 's'} that the state file does not list "
        f"{'was' if one else 'were'} left alone; {what.format(them='it' if one else 'them')}"
    )


def with_missing(
    facts: RunFacts,
    missing: Mapping[str, str],
    unknown: Mapping[str, str],
    changed: Mapping[str, float],
) -> RunFacts:
    """The same facts, with checkpoints that turned out not to be whole, or not to be known.

    ``changed`` is when any file of one that is not whole changed last.
    """
    return replace(
        facts,
        checkpoints=tuple(
            replace(
                item,
                missing=missing.get(item.prefix, item.missing),
                unknown=unknown.get(item.prefix, item.unknown),
                changed=max(item.changed, changed.get(item.prefix, 0.0)),
                preserved="" if item.prefix in missing else item.preserved,
            )
            if item.prefix in missing or item.prefix in unknown
            else item
            for item in facts.checkpoints
        ),
    )
