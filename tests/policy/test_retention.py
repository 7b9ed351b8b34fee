"""The retention policy as a pure function: reasons, protections, refusals, properties."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, RefusedError, UsageError
from ckpttool.policy.facts import (
    BestRule,
    CheckpointFacts,
    LeftoverFacts,
    Outcome,
    Retention,
    RunFacts,
)
from ckpttool.policy.retention import decide, with_missing

NOW = 1_700_000_000.0
HOUR = 3600.0


def checkpoint(number: int, age: float, **more: Any) -> CheckpointFacts:
    """A checkpoint that was saved ``age`` seconds ago."""
    facts: dict[str, Any] = {
        "prefix": f"ckpt-{number}",
        "series": "ckpt",
        "number": number,
        "saved": NOW - age,
        "changed": NOW - age,
        "nbytes": 1000,
    }
    return CheckpointFacts(**facts | more)


def managed(ages: list[float], last_preserved: float = 0.0, **more: Any) -> RunFacts:
    """A CheckpointManager's directory: ckpt-1 … with the ages given, all listed."""
    return RunFacts(
        tuple(
            checkpoint(place + 1, age, listed=place, stamp=NOW - age, **more)
            for place, age in enumerate(ages)
        ),
        stamped=True,
        last_preserved=last_preserved or NOW - max(ages, default=0) - HOUR,
    )


def numbers(outcome: Outcome, verdict: Any) -> list[int]:
    return sorted(decision.checkpoint.number or 0 for decision in outcome.of(verdict))


def rules(outcome: Outcome, prefix: str) -> list[str]:
    (found,) = [d for d in outcome.decisions if d.checkpoint.prefix == prefix]
    return [reason.rule for reason in found.reasons]


FIVE = managed([5 * HOUR, 4 * HOUR, 3 * HOUR, 2 * HOUR, 1 * HOUR])


def test_manager_keeps_the_newest_n_and_says_what_would_have_kept_the_others() -> None:
    outcome = decide(FIVE, Retention(max_to_keep=2, every_n_hours=9.0), NOW)
    assert numbers(outcome, "delete") == [1, 2, 3]
    assert [d.unless for d in outcome.of("delete")] == [
        "--max-to-keep 5 or --keep-every-n-hours 1",
        "--max-to-keep 4 or --keep-every-n-hours 2",
        "--max-to-keep 3 or --keep-every-n-hours 3",
    ]
    assert outcome.order == "state"
    assert rules(outcome, "ckpt-5") == ["newest", "max-to-keep"]


def test_manager_hours_are_not_strict_and_take_the_preserved_off_the_list() -> None:
    outcome = decide(FIVE, Retention(max_to_keep=1, every_n_hours=1.0), NOW)
    assert outcome.of("delete") == []
    assert outcome.unlisted == {"ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"}
    assert outcome.last_preserved == NOW - 2 * HOUR
    assert rules(outcome, "ckpt-4") == ["keep-every-n-hours"]


def test_saver_hours_are_strict_and_on_a_fixed_grid() -> None:
    facts = replace(FIVE, stamped=False)
    outcome = decide(
        facts,
        Retention(style="saver", max_to_keep=1, every_n_hours=2.0, since=NOW - 6 * HOUR),
        NOW,
    )
    # The grid starts at -4 h: what was saved then is not after it; the next is, and moves it.
    assert numbers(outcome, "delete") == [1, 2, 4]
    assert outcome.unlisted == {"ckpt-3"}


def test_what_a_saver_lists_is_not_managed_and_the_warning_says_so() -> None:
    facts = RunFacts(tuple(replace(c, stamp=None) for c in FIVE.checkpoints))
    outcome = decide(facts, Retention(max_to_keep=2), NOW)
    assert outcome.of("delete") == []
    assert any("--policy saver" in warning for warning in outcome.warnings)
    assert numbers(decide(facts, Retention(style="saver", max_to_keep=2), NOW), "delete") == [
        1,
        2,
        3,
    ]


def test_not_younger_than_the_last_preserved_is_left_to_tensorflows_word() -> None:
    facts = replace(FIVE, last_preserved=NOW - 4 * HOUR)
    outcome = decide(facts, Retention(max_to_keep=1), NOW)
    assert numbers(outcome, "delete") == [3, 4]
    assert rules(outcome, "ckpt-2") == ["not-managed"]


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"pinned": ".ckptpins: ckpt-1"}, "pinned"),
        ({"named_by": ("best_checkpoint",)}, "named"),
        ({"changed": NOW - 5}, "in-flight"),
        ({"changed": NOW + 5}, "future"),
        ({"stamp": NOW + 5}, "future"),
    ],
)
def test_protections_outweigh_every_rule(more: dict[str, Any], rule: str) -> None:
    first, *rest = FIVE.checkpoints
    facts = replace(FIVE, checkpoints=(replace(first, **more), *rest))
    retention = Retention(max_to_keep=1, max_total_bytes=1, order="name")
    outcome = decide(facts, retention, NOW)
    assert numbers(outcome, "delete") == [2, 3, 4]
    assert rules(outcome, "ckpt-1")[-1] == rule


def test_min_age_zero_lifts_every_refusal_for_recency() -> None:
    facts = managed([50.0, 40.0, 30.0])
    assert decide(facts, Retention(max_to_keep=1), NOW).of("delete") == []
    assert numbers(decide(facts, Retention(max_to_keep=1, min_age=0), NOW), "delete") == [1, 2]


def test_incomplete_ones_do_not_count_and_go_only_with_broken() -> None:
    facts = with_missing(
        FIVE, {"ckpt-5": "shard 0 is missing", "ckpt-1": "shard 0 is missing"}, {}, {}
    )
    outcome = decide(facts, Retention(max_to_keep=2), NOW)
    assert numbers(outcome, "delete") == [2]
    assert numbers(outcome, "leave") == [1, 5]
    assert numbers(decide(facts, Retention(broken=True), NOW), "delete") == [1, 5]


def test_leftovers_go_with_broken_when_they_are_old() -> None:
    facts = replace(
        FIVE,
        leftovers=(
            LeftoverFacts("ckpt-9_temp", NOW - HOUR, 10, "an interrupted save"),
            LeftoverFacts("ckpt-10_temp", NOW - 5, 10, "an interrupted save"),
        ),
    )
    verdicts = [d.verdict for d in decide(facts, Retention(broken=True), NOW).leftovers]
    assert verdicts == ["delete", "leave"]
    assert all(d.verdict == "leave" for d in decide(facts, Retention(max_to_keep=1), NOW).leftovers)


def test_scope_all_takes_each_series_by_itself_and_spares_the_preserved() -> None:
    facts = RunFacts(
        (
            *(checkpoint(n, (20 - n) * HOUR) for n in (1, 9, 10)),
            *(checkpoint(n, (20 - n) * HOUR, prefix=f"best-{n}", series="best") for n in (2, 3)),
            replace(checkpoint(0, 90 * HOUR), prefix="final", series="final", number=None),
            checkpoint(8, 12 * HOUR, preserved="it may have been preserved"),
        )
    )
    outcome = decide(facts, Retention(scope="all", max_to_keep=1), NOW)
    assert [d.checkpoint.prefix for d in outcome.of("delete")] == ["best-2", "ckpt-1", "ckpt-9"]


def test_numbers_are_numbers_d31() -> None:
    facts = RunFacts(tuple(checkpoint(n, HOUR) for n in (1, 10, 2, 9)))
    outcome = decide(facts, Retention(scope="all", max_to_keep=2), NOW)
    assert outcome.order == "name"
    assert numbers(outcome, "delete") == [1, 2]


class TestOrder:
    """Steps against times."""

    ROLLED_BACK = RunFacts(
        tuple(checkpoint(n, age * HOUR) for n, age in [(100, 9), (110, 8), (60, 2), (70, 1)])
    )

    def test_disagreement_is_refused_with_both_choices(self) -> None:
        with pytest.raises(RefusedError) as caught:
            decide(self.ROLLED_BACK, Retention(scope="all", max_to_keep=2), NOW)
        assert caught.value.id == "order-disagrees"
        assert "--order name or --order time" in caught.value.hint

    @pytest.mark.parametrize(("order", "gone"), [("name", [60, 70]), ("time", [100, 110])])
    def test_the_order_asked_for_is_used(self, order: Any, gone: list[int]) -> None:
        retention = Retention(scope="all", max_to_keep=2, order=order)
        assert numbers(decide(self.ROLLED_BACK, retention, NOW), "delete") == gone

    def test_disagreement_that_changes_nothing_is_no_matter(self) -> None:
        assert (
            decide(self.ROLLED_BACK, Retention(scope="all", max_to_keep=4), NOW).of("delete") == []
        )

    def test_an_order_that_is_unknown_is_refused(self) -> None:
        with pytest.raises(RefusedError) as caught:
            decide(self.ROLLED_BACK, Retention(scope="all", max_to_keep=2, order="step"), NOW)
        assert caught.value.id == "order-unknown"

    def test_a_stamp_that_is_no_number_falls_back_to_the_files_time(self) -> None:
        first, *rest = FIVE.checkpoints
        facts = replace(FIVE, checkpoints=(replace(first, stamp=math.nan), *rest))
        outcome = decide(facts, Retention(max_to_keep=2), NOW)
        assert numbers(outcome, "delete") == [2, 3]
        assert rules(outcome, "ckpt-1") == ["not-managed"]


class TestRules:
    """Beyond TensorFlow."""

    def test_keep_rules_unite(self) -> None:
        best = BestRule("m.json:loss:min", "min", 1, {"ckpt-1": 0.1, "ckpt-2": math.nan})
        outcome = decide(FIVE, Retention(max_to_keep=1, best=(best,), every_n_steps=2), NOW)
        assert numbers(outcome, "keep") == [1, 2, 4, 5]
        assert rules(outcome, "ckpt-1") == ["keep-every-n-steps", "keep-best"]
        assert any("no number for 3 of 5" in warning for warning in outcome.warnings)

    def test_keep_within_counts_from_the_newest_that_is_sane(self) -> None:
        first, *rest = FIVE.checkpoints
        facts = replace(FIVE, checkpoints=(replace(first, stamp=NOW + HOUR), *rest))
        outcome = decide(facts, Retention(within=1.5 * HOUR, order="name"), NOW)
        assert numbers(outcome, "delete") == [2, 3]

    def test_keep_best_prefers_the_newer_of_equals(self) -> None:
        best = BestRule("m:acc:max", "max", 2, dict.fromkeys([f"ckpt-{n}" for n in (1, 2, 3)], 1.0))
        outcome = decide(FIVE, Retention(best=(best,)), NOW)
        assert numbers(outcome, "keep") == [2, 3, 5]

    def test_total_size_gives_up_the_oldest_but_never_the_best(self) -> None:
        best = BestRule("m:acc:max", "max", 1, {"ckpt-1": 1.0})
        outcome = decide(FIVE, Retention(best=(best,), max_to_keep=4, max_total_bytes=2000), NOW)
        assert numbers(outcome, "keep") == [1, 5]
        alone = decide(FIVE, Retention(max_total_bytes=3999), NOW)
        assert numbers(alone, "delete") == [1, 2]

    def test_total_size_keeps_the_newest_even_when_it_does_not_fit(self) -> None:
        outcome = decide(FIVE, Retention(max_total_bytes=0), NOW)
        assert numbers(outcome, "keep") == [5]


@pytest.mark.parametrize(
    ("retention", "error", "id"),
    [
        (Retention(), UsageError, "no-policy"),
        (Retention(max_to_keep=0), RefusedError, "policy-keeps-nothing"),
        (Retention(every_n_hours=1.0), UsageError, "no-policy"),
        (Retention(every_n_hours=1.0, broken=True), UsageError, "usage"),
        (Retention(max_to_keep=1, since=1.0), UsageError, "usage"),
    ],
)
def test_settings_that_make_no_sense(
    retention: Retention, error: type[CkpttoolError], id: str
) -> None:
    with pytest.raises(error) as caught:
        decide(FIVE, retention, NOW)
    assert caught.value.id == id


def test_broken_never_takes_all_there_is() -> None:
    facts = with_missing(FIVE, {item.prefix: "no data" for item in FIVE.checkpoints}, {}, {})
    with pytest.raises(RefusedError) as caught:
        decide(facts, Retention(broken=True), NOW)
    assert caught.value.id == "policy-keeps-nothing"


checkpoints = st.builds(
    checkpoint,
    st.integers(0, 12),
    st.floats(-HOUR, 20 * HOUR),
    nbytes=st.integers(0, 5000),
    missing=st.sampled_from(["", "", "no data"]),
    pinned=st.sampled_from(["", "", "", "a pin"]),
    listed=st.none() | st.integers(0, 20),
    stamp=st.none() | st.floats(NOW - 30 * HOUR, NOW + HOUR) | st.just(math.nan),
)
retentions = st.builds(
    Retention,
    style=st.sampled_from(["manager", "saver"]),
    scope=st.sampled_from(["listed", "all"]),
    max_to_keep=st.integers(1, 6),
    every_n_hours=st.none() | st.floats(0, 5),
    every_n_steps=st.none() | st.integers(1, 5),
    within=st.none() | st.floats(0, 9 * HOUR),
    max_total_bytes=st.none() | st.integers(0, 20000),
    broken=st.booleans(),
    order=st.sampled_from(["name", "time"]),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(checkpoints, max_size=12, unique_by=lambda c: c.prefix),
    retentions,
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_properties(
    found: list[CheckpointFacts], retention: Retention, stamped: bool, rng: random.Random
) -> None:
    facts = RunFacts(tuple(found), stamped=stamped, last_preserved=NOW - 25 * HOUR)
    try:
        outcome = decide(facts, retention, NOW)
    except RefusedError:  # only ever because nothing whole would be left
        assert all(item.missing for item in found)
        return
    assert len(outcome.decisions) == len(found)
    assert all(decision.reasons for decision in outcome.decisions)
    going = {decision.checkpoint.prefix for decision in outcome.of("delete")}
    for item in found:
        if item.pinned or item.named_by or 0 <= NOW - item.changed < 60 or item.changed > NOW:
            assert item.prefix not in going
    whole = [item for item in found if not item.missing]
    if whole:
        assert any(item.prefix not in going for item in whole)
    # The order of the facts plays no part.
    shuffled = list(found)
    rng.shuffle(shuffled)
    again = decide(replace(facts, checkpoints=tuple(shuffled)), retention, NOW)
    assert {d.checkpoint.prefix for d in again.of("delete")} == going
    # One more keep rule never lets more go.
    if retention.max_total_bytes is None:
        more = decide(facts, replace(retention, within=9 * HOUR), NOW)
        if retention.within is None:
            assert {d.checkpoint.prefix for d in more.of("delete")} <= going
