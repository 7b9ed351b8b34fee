"""Ways in which a prune could lose somebody's work after all, each found by trying to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ckpttool.errors import RefusedError
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import plan_prune
from ckpttool.ops.prune.undo import take_back
from ckpttool.ops.rm import plan_rm, rm
from ckpttool.policy.facts import Retention
from ckpttool.sources.whole import flaws
from ckpttool.storage import open_directory
from tests.support.killing import killed_at_every_change
from tests.support.runs import contents, make_run, prefixes

AGES = {f"ckpt-{n}": 20 - n for n in range(1, 6)}
KEEP_TWO = Request(Retention(max_to_keep=2))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    make_run(directory, AGES, now=time.time())
    return directory


@pytest.mark.parametrize("look", ["-n", "--check"])
@pytest.mark.parametrize("mode", ["--undo", "--empty-trash", "--watch=1"])
def test_only_looking_never_acts(run_cli, run, look, mode):
    assert run_cli(["prune", run, "--max-to-keep", "2", "-y", "--trash"]).returncode == 0
    before = contents(run)
    done = run_cli(["prune", run, mode, look, "-y", "--max-to-keep", "1"])
    assert done.returncode == 2
    assert contents(run) == before


@pytest.mark.parametrize(
    "spelled",
    [
        "ckpt-1",
        "{run}/ckpt-1",
        "./ckpt-1",
        "ckpt-1.index",
        "ckpt-1.meta",
        "ckpt-1.data-00000-of-00001",
        "{run}/ckpt-1.index",
        "ckpt-[1]",
    ],
)
@pytest.mark.parametrize("where", ["option", "file"])
def test_a_pin_is_understood_however_it_is_spelled(run, spelled, where):
    pin = spelled.format(run=run)
    if where == "file":
        (run / ".ckptpins").write_text(f"# mine\n{pin}  # the best one\n")
        request = KEEP_TWO
    else:
        request = Request(KEEP_TWO.retention, pins=(pin,))
    apply_plan(plan_prune(str(run), request))
    assert prefixes(run) == {"ckpt-1", "ckpt-4", "ckpt-5"}


def test_a_pin_that_matches_nothing_is_refused_or_said(run):
    with pytest.raises(RefusedError) as caught:
        plan_prune(str(run), Request(KEEP_TWO.retention, pins=("ckpt-77",)))
    assert caught.value.id == "pin-matches-nothing"
    (run / ".ckptpins").write_text("ckpt-77\n")
    assert any("ckpt-77" in text for text in plan_prune(str(run), KEEP_TWO).warnings)


def test_nothing_can_be_added_to_a_saved_plan(run_cli, run, tmp_path):
    plan = tmp_path / "plan.json"
    assert run_cli(["prune", run, "--max-to-keep", "2", "--plan", plan]).returncode == 0
    for more in (["--pin", "ckpt-1"], ["--max-to-keep", "4"], ["--keep-within", "7d"]):
        done = run_cli(["prune", run, "--apply", plan, "-y", *more])
        assert done.returncode == 2, more
        assert "does not go with --apply" in done.stderr
    assert prefixes(run) == set(AGES)
    assert run_cli(["prune", run, "--apply", plan, "-y"]).returncode == 0
    assert prefixes(run) == {"ckpt-4", "ckpt-5"}


@pytest.mark.parametrize("values", [["nan"] * 5, ["inf", "nan", "-inf", "nan", "inf"]])
def test_what_diverged_is_no_best(run, values):
    lines = [f'{{"step": {n}, "loss": "{value}"}}' for n, value in enumerate(values, 1)]
    (run / "m.jsonl").write_text("\n".join(lines))
    with pytest.raises(RefusedError) as caught:
        plan_prune(str(run), Request(Retention(), best=("m.jsonl:loss:min:1",)))
    assert caught.value.id == "metrics-match-nothing"


def test_metrics_as_programs_write_them(run):
    (run / "m.csv").write_bytes(
        b"\xef\xbb\xbfcheckpoint,loss\nckpt-1.data-00000-of-00001,0.1\nckpt-2.index,-inf\n"
    )
    plan = plan_prune(str(run), Request(Retention(), best=("m.csv:loss:min:1",)))
    assert {item.prefix for item in plan.removals} == {"ckpt-2", "ckpt-3", "ckpt-4"}


def test_a_killed_undo_is_finished_by_whatever_comes_next(run):
    """And never gives back an index without its data."""

    def prepare() -> None:
        shutil.rmtree(run, ignore_errors=True)
        make_run(run, AGES, shards=2, now=time.time())
        apply_plan(plan_prune(str(run), KEEP_TWO), trash=True)

    broken = Request(Retention(max_to_keep=5, broken=True, min_age=0.0))
    for _ in killed_at_every_change(prepare, lambda: take_back(str(run))):
        apply_plan(plan_prune(str(run), broken))
        with open_directory(str(run)) as directory:
            for prefix in prefixes(run):
                assert flaws(directory, prefix, Limits()) == (), prefix
        if (run / ".ckpttool-trash").exists():
            take_back(str(run))
        assert prefixes(run) == set(AGES)


def test_what_is_not_complete_any_more_stays_in_the_trash(run):
    apply_plan(plan_prune(str(run), KEEP_TWO), trash=True)
    lost = next((run / ".ckpttool-trash").rglob("ckpt-2.data-*"))
    lost.unlink()
    done = take_back(str(run))
    assert [prefix for prefix, _ in done.refused] == ["ckpt-2"]
    assert prefixes(run) == set(AGES) - {"ckpt-2"}


def test_a_killed_rm_is_finished_by_the_same_command(run):
    def prepare() -> None:
        shutil.rmtree(run, ignore_errors=True)
        make_run(run, AGES, shards=2, graph=True, now=time.time())

    def work() -> None:
        rm(plan_rm([str(run / "ckpt-2"), str(run / "ckpt-3")], min_age=0))

    for _ in killed_at_every_change(prepare, work):
        left = [name for name in ("ckpt-2", "ckpt-3") if _is_there(run, name)]
        if left:
            rm(plan_rm([str(run / name) for name in left], min_age=0))
        rest = [name for name in os.listdir(run) if name.startswith(("ckpt-2.", "ckpt-3."))]
        assert rest == []
        assert prefixes(run) == {"ckpt-1", "ckpt-4", "ckpt-5"}


def _is_there(run: Path, prefix: str) -> bool:
    return any(name.startswith(f"{prefix}.") for name in os.listdir(run))


def test_a_full_disk_can_be_pruned(run_cli, tmp_path):
    """On a real full file system: deleting needs no room, and makes some."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a tmpfs needs privileges")
    try:
        make_run(mount / "run", AGES, now=time.time())
        filler = os.open(mount / "filler", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError, match="space"):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)
        done = run_cli(["prune", mount / "run", "--max-to-keep", "2", "-y", "--json"])
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["data"]["freed_bytes"] > 0
        assert prefixes(mount / "run") == {"ckpt-4", "ckpt-5"}
        assert not (mount / "run" / ".ckpttool-lock").exists()
    finally:
        subprocess.run(["umount", str(mount)], check=True)
