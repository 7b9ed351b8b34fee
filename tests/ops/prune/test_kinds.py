"""V1 checkpoints, Keras files, several series and several state files in one directory."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from ckpttool.ops.prune.api import make_request, plan_prune
from ckpttool.ops.prune.plan import PrunePlan
from ckpttool.ops.prune.plan import plan_prune as plan_request
from tests.support.runs import HOUR, add, hdf5, make_run, state

HDF5 = hdf5()


def deleted(plan: PrunePlan) -> list[str]:
    return [decision.checkpoint.prefix for decision in plan.delete]


def files(plan: PrunePlan) -> set[str]:
    return {file.name for removal in plan.removals for file in removal.files}


def dated(path: Path, age: float) -> None:
    when = time.time() - age * HOUR
    os.utime(path, (when, when))


def test_keras_files_are_series_of_their_own(tmp_path: Path) -> None:
    for number in range(1, 12):
        for suffix in (".weights.h5", ".keras"):
            path = tmp_path / f"epoch-{number:02d}{suffix}"
            path.write_bytes(HDF5)
            dated(path, 20 - number)
    (tmp_path / "model.h5").write_bytes(HDF5)
    dated(tmp_path / "model.h5", 30)
    assert plan_prune(str(tmp_path), max_to_keep=2).removals == ()
    plan = plan_prune(str(tmp_path), max_to_keep=2, scope="all")
    names = {f"epoch-{n:02d}{s}" for n in range(1, 10) for s in (".weights.h5", ".keras")}
    assert files(plan) == names


def test_an_empty_keras_file_fills_no_quota(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        path = tmp_path / f"m-{number}.keras"
        path.write_bytes(b"" if number == 3 else HDF5)
        dated(path, 9 - number)
    assert deleted(plan_prune(str(tmp_path), max_to_keep=2, scope="all")) == []
    assert deleted(plan_prune(str(tmp_path), max_to_keep=1, scope="all")) == ["m-1.keras"]


class TestV1:
    """One table file, or several shards; `.meta` goes with them."""

    @pytest.fixture
    def run(self, tmp_path: Path, corpus: Path) -> Path:
        source = corpus / "v1-halfplustwo-sharded"
        table = next(p for p in source.rglob("export-00000-of-00001") if p.is_file())
        for number in (1, 2):
            names = [f"sharded-{number}-{shard:05d}-of-00002" for shard in (0, 1)]
            for name in [f"plain-{number}", *names]:
                shutil.copyfile(table, tmp_path / name)
                dated(tmp_path / name, 9 - number)
            for name in (f"plain-{number}.meta", f"sharded-{number}.meta"):
                (tmp_path / name).write_bytes(b"graph")
                dated(tmp_path / name, 9 - number)
        return tmp_path

    def test_all_of_its_files_go(self, run: Path) -> None:
        plan = plan_prune(str(run), max_to_keep=1, scope="all")
        assert files(plan) == {
            "plain-1",
            "plain-1.meta",
            "sharded-1-00000-of-00002",
            "sharded-1-00001-of-00002",
            "sharded-1.meta",
        }

    def test_listed_as_a_saver_lists_it(self, run: Path) -> None:
        names = [f"sharded-{number}-?????-of-00002" for number in (1, 2)]
        state(run, names, when=time.time() - HOUR)
        plan = plan_prune(str(run), max_to_keep=1, policy="saver")
        assert files(plan) == {
            "sharded-1-00000-of-00002",
            "sharded-1-00001-of-00002",
            "sharded-1.meta",
        }

    def test_a_file_of_that_name_that_is_none_is_not_touched(self, run: Path) -> None:
        (run / "plain-0").write_bytes(b"my notes")
        dated(run / "plain-0", 99)
        assert "plain-0" not in files(plan_prune(str(run), max_to_keep=1, scope="all"))


def test_another_state_file_by_its_name(tmp_path: Path) -> None:
    """`latest_filename`: what it lists is its; the run's own protects what it names."""
    now = time.time()
    run = make_run(tmp_path / "run", {"ckpt-1": 9, "ckpt-2": 8}, now=now)
    for number in (1, 2, 3):
        add(run, f"best-{number}", now - (9 - number) * HOUR)
    state(run, ["best-1", "best-2", "best-3"], name="best_checkpoint", when=now - HOUR)
    request = make_request(policy="saver", max_to_keep=1, state_name="best_checkpoint")
    assert deleted(plan_request(str(run), request)) == ["best-1", "best-2"]
    assert deleted(plan_prune(str(run), max_to_keep=1)) == ["ckpt-1"]


def test_a_run_in_a_run_is_left_to_itself(tmp_path: Path) -> None:
    now = time.time()
    run = make_run(tmp_path / "run", {"ckpt-1": 9, "ckpt-2": 8}, now=now)
    make_run(run / "eval", {"ckpt-1": 9, "ckpt-2": 8}, now=now)
    plan = plan_prune(str(run), max_to_keep=1)
    assert deleted(plan) == ["ckpt-1"]
    assert ("eval", "it is a run of its own (--recursive)") in plan.left_alone


def test_the_step_inside_when_asked(fixtures_dir: Path, tmp_path: Path) -> None:
    """Names without an order; the step that is stored says it."""
    run = tmp_path / "run"
    run.mkdir()
    for number, name in ((2, "c"), (3, "a"), (4, "b")):
        for path in (fixtures_dir / "keras3").glob(f"ckpt-{number}.*"):
            target = run / path.name.replace(f"ckpt-{number}", f"{name}-0")
            shutil.copyfile(path, target)
            dated(target, 5)
    state(run, ["a-0", "c-0", "b-0"], when=time.time() - HOUR)
    plan = plan_prune(str(run), max_to_keep=1, policy="saver", order="step")
    assert deleted(plan) == ["c-0", "a-0"]
    assert plan.outcome.order == "step"
