"""Numbers that no rule can reckon with, wherever they come from, and what a plan file may hold."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpttool.cli.main import main
from ckpttool.errors import CkpttoolError, CorruptError, UsageError
from ckpttool.ops.prune.api import plan_prune
from ckpttool.ops.rm import plan_rm
from tests.support.runs import add, make_run, prefixes

#: What a number, word or list in a plan may have become.
ODD: list[object] = [
    0, -1, 10**400, float("inf"), float("nan"), 0.5, True, None,
    "", "x", "../x", "a\0b", [], [[]], {},
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {f"ckpt-{n}": 9 - n for n in (1, 2, 3)}, now=time.time())


@pytest.mark.parametrize(
    "option",
    ["--keep-every-n-hours", "--keep-within", "--min-age", "--max-total-size", "--since"],
)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_not_finite_is_a_usage_error(run, option, value, capsys):
    given = ["prune", str(run), "--max-to-keep", "1", "--policy", "saver", f"{option}={value}"]
    assert main([*given, "-n"]) == 2
    assert value.strip("-") in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        {"keep_every_n_hours": float("nan"), "max_to_keep": 1},
        {"keep_within": float("inf")},
        {"keep_within": -1.0},
        {"keep_every_n_steps": 0},
        {"max_total_size": -1},
        {"max_to_keep": 1, "min_age": float("nan")},
    ],
)
def test_from_python_it_is_the_same(run, given: dict[str, Any]):
    with pytest.raises(UsageError, match="makes no sense"):
        plan_prune(run, **given)


def _changed(value: Any) -> Iterator[Any]:
    """The same JSON with one of its leaves, lists or objects replaced."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in (*ODD, *_changed(inner)))
            yield {name: kept for name, kept in value.items() if name != key}
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            changed = (*ODD, *_changed(inner))
            yield from ([*value[:at], other, *value[at + 1 :]] for other in changed)


def test_a_plan_with_anything_odd_in_it_is_refused_or_carried_out_as_it_says(run, tmp_path, capsys):
    """Any member of the file, replaced by anything: a clear error, or what the run allows."""
    plan = tmp_path / "plan.json"
    given = ["--max-to-keep", "2", "--keep-every-n-steps", "100", "--pin", "ckpt-2"]
    assert main(["prune", str(run), *given, "--plan", str(plan)]) == 0
    record = json.loads(plan.read_text())
    codes = set()
    for changed in _changed(record):
        plan.write_text(json.dumps(changed))
        code = main(["prune", str(run), "--apply", str(plan), "-n"])
        error = capsys.readouterr().err
        assert code in {0, 2, 10, 20, 21, 22, 30, 31}, (changed, error)
        codes.add(code)
    assert {0, 20} <= codes
    assert prefixes(run) == {"ckpt-1", "ckpt-2", "ckpt-3"}


def test_a_plan_of_every_0_steps(run, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    assert main(["prune", str(run), "--keep-every-n-steps", "1", "--plan", str(plan)]) == 0
    plan.write_text(plan.read_text().replace('"every_n_steps": 1', '"every_n_steps": 0'))
    assert '"every_n_steps": 0' in plan.read_text()
    assert main(["prune", str(run), "--apply", str(plan), "-y"]) == 20
    assert "record-corrupt" in capsys.readouterr().err


def test_many_runs_without_a_policy_are_a_usage_error(run, capsys):
    assert main(["prune", "-r", str(run.parent), "-n"]) == 2
    assert "no-policy" in capsys.readouterr().err


def test_all_series_together_fit_into_the_size(tmp_path):
    """Two series of three each: the oldest of all go, and not the oldest of each."""
    ages = {"a-1": 90, "a-2": 80, "a-3": 70, "b-1": 30, "b-2": 20, "b-3": 10}
    run = make_run(tmp_path / "run", ages, now=time.time())
    one = sum(path.stat().st_size for path in run.iterdir() if path.name.startswith("a-1."))
    plan = plan_prune(run, scope="all", max_total_size=4 * one)
    assert {removal.prefix for removal in plan.removals} == {"a-1", "a-2"}
    plan = plan_prune(run, scope="all", max_total_size=one)
    assert {removal.prefix for removal in plan.removals} == {"a-1", "a-2", "b-1", "b-2"}


def test_rm_refuses_where_another_state_file_cannot_be_read(run):
    (run / "best_checkpoint").write_text('model_checkpoint_path: "ckpt-1\n')
    with pytest.raises(CorruptError) as caught:
        plan_rm([str(run / "ckpt-1")])
    assert caught.value.id == "state-unreadable"


@pytest.mark.parametrize("mode", [0o640, 0o664, 0o444])
def test_a_rewritten_state_file_keeps_its_mode_and_owner(run, mode):
    state = run / "checkpoint"
    state.chmod(mode)
    if os.geteuid() == 0:
        os.chown(state, 1234, 4321)
    before = state.stat()
    plan_prune(run, max_to_keep=1).apply()
    assert prefixes(run) == {"ckpt-3"}
    after = state.stat()
    assert "ckpt-1" not in state.read_text()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


def test_a_time_in_the_future_is_called_that(run):
    later = time.time() + 7200
    add(run, "ckpt-4", later)
    for path in run.glob("ckpt-4*"):
        os.utime(path, (later, later))
    with pytest.raises(CkpttoolError, match="2 h in the future"):
        plan_rm([str(run / "ckpt-4")])
