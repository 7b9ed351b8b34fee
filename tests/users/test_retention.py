"""What users run into when checkpoints pile up: cases D09 to D14 and D27 to D33."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ckpttool.formats.state import parse_state
from tests.support.command import RunCli
from tests.support.runs import HOUR, add, contents, make_run, prefixes, state


def run_json(run_cli: RunCli, *args: str | Path, code: int = 0) -> dict[str, Any]:
    result = run_cli([*args, "--json"])
    assert result.returncode == code, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)["data"]
    return document


def listed(run: Path) -> tuple[str, ...]:
    return parse_state((run / "checkpoint").read_bytes()).all_model_checkpoint_paths


def deleted(data: dict[str, Any]) -> list[str]:
    return [entry["prefix"] for entry in data["delete"]]


@pytest.fixture
def now() -> float:
    return time.time()


@pytest.mark.parametrize("name", ["run_[lr=1]", "st*r", "a?b", "{x,y}", "-n", "a b", "r\\d"])
def test_d09_special_characters_in_directory_and_prefix(
    run_cli: RunCli, tmp_path: Path, now: float, name: str
) -> None:
    """D09: pruning works there, and never reaches a sibling that a pattern would match."""
    siblings = ["run_l", "star", "axb", "x", "rd"]
    for sibling in siblings:
        make_run(tmp_path / sibling, {"ckpt[1]-1": 5, "ckpt1-1": 5}, now=now)
    before = {sibling: contents(tmp_path / sibling) for sibling in siblings}
    run = make_run(tmp_path / name, {"ckpt[1]-1": 9, "ckpt[1]-2": 8}, now=now)
    add(run, "ckpt1-1", now - 7 * HOUR)
    result = run_cli(["prune", "--max-to-keep", "1", "-y", "--", name], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert prefixes(run) == {"ckpt[1]-2", "ckpt1-1"}
    assert listed(run) == ("ckpt[1]-2",)
    assert {sibling: contents(tmp_path / sibling) for sibling in siblings} == before


class TestD10MovedRun:
    """D10: absolute paths of the old place."""

    def moved(self, tmp_path: Path, now: float) -> Path:
        run = make_run(tmp_path / "new", {f"ckpt-{n}": 9 - n for n in (1, 2, 3)}, now=now)
        old = tmp_path / "old"
        state(run, [f"{old}/ckpt-{n}" for n in (1, 2, 3)], when=now - HOUR)
        return run

    def test_prune_acts_here_and_says_so(self, run_cli: RunCli, tmp_path: Path, now: float) -> None:
        run = self.moved(tmp_path, now)
        result = run_cli(["prune", run, "--policy", "saver", "--max-to-keep", "2", "-y"])
        assert result.returncode == 0
        assert "--fix" in result.stderr
        assert prefixes(run) == {"ckpt-2", "ckpt-3"}

    def test_nothing_is_done_at_or_for_an_old_place_that_exists(
        self, run_cli: RunCli, tmp_path: Path, now: float
    ) -> None:
        run = self.moved(tmp_path, now)
        make_run(tmp_path / "old", {f"ckpt-{n}": 9 - n for n in (1, 2, 3)}, now=now)
        before = contents(tmp_path)
        data = run_json(run_cli, "prune", run, "--policy", "saver", "--max-to-keep", "1", "-y")
        assert deleted(data) == []
        assert any("out of the directory" in left["why"] for left in data["left_alone"])
        assert contents(tmp_path) == before

    def test_fix_makes_the_paths_relative_and_tensorflow_finds_them(
        self, run_cli: RunCli, tmp_path: Path, now: float
    ) -> None:
        run = self.moved(tmp_path, now)
        assert run_cli(["state", run, "--check"]).returncode == 1
        data = run_json(run_cli, "state", run, "--fix", "-y")
        assert data["changed"]
        assert Path(data["backup"]).read_bytes().count(b"/old/ckpt") == 4
        assert listed(run) == ("ckpt-1", "ckpt-2", "ckpt-3")
        assert run_cli(["state", run, "--check"]).returncode == 0
        tf = pytest.importorskip("tensorflow")
        assert tf.train.latest_checkpoint(str(run)) == str(run / "ckpt-3")


def test_d11_paths_relative_to_the_training_directory(
    run_cli: RunCli, tmp_path: Path, now: float
) -> None:
    """D11: `saved/ckpt-1` in `saved/checkpoint` means `ckpt-1` beside it."""
    run = make_run(tmp_path / "saved", {"ckpt-1": 3, "ckpt-2": 2}, now=now)
    state(run, ["saved/ckpt-1", "saved/ckpt-2"], when=now - HOUR)
    data = run_json(run_cli, "prune", run, "--policy", "saver", "--max-to-keep", "1", "-n")
    assert deleted(data) == ["ckpt-1"]
    run_json(run_cli, "state", run, "--fix", "-y")
    assert listed(run) == ("ckpt-1", "ckpt-2")


@pytest.mark.parametrize("damage", ["missing", "garbage", "stale"])
def test_d12_state_file_missing_or_stale(
    run_cli: RunCli, tmp_path: Path, now: float, damage: str
) -> None:
    """D12: rebuilt from the files, in the order of their numbers."""
    run = make_run(tmp_path / "run", {"ckpt-2": 4, "ckpt-10": 3}, now=now)
    if damage == "missing":
        (run / "checkpoint").rename(run / "checkpoint.txt")
    elif damage == "garbage":
        (run / "checkpoint").write_bytes(b"\0\1 not this")
    else:
        state(run, ["ckpt-99"], when=now - HOUR)
    if damage == "garbage":
        # What it protects is not known, so nothing is pruned.
        assert run_cli(["prune", run, "--max-to-keep", "1", "-y"]).returncode == 20
    data = run_json(run_cli, "state", run, "--fix", "-y", "--min-age", "0")
    assert data["latest"] == "ckpt-10"
    assert listed(run)[-1] == "ckpt-10"
    assert run_cli(["latest", run, "-q"]).stdout.strip() == str(run / "ckpt-10")


def test_d13_only_whole_ones_count(run_cli: RunCli, tmp_path: Path, now: float) -> None:
    """D13: the newest lacks a shard, so the two before it are the two that stay."""
    run = make_run(tmp_path / "run", {f"ckpt-{n}": 9 - n for n in range(1, 5)}, shards=2, now=now)
    (run / "ckpt-4.data-00001-of-00002").unlink()
    # One that is cut off is found by its index alone.
    add(run, "ckpt-5", now - 3 * HOUR)
    (run / "ckpt-5.data-00000-of-00001").write_bytes(b"\1")
    os.utime(run / "ckpt-5.data-00000-of-00001", (now - 3 * HOUR,) * 2)
    names = [f"ckpt-{n}" for n in range(1, 6)]
    times = [now - (9 - n) * HOUR for n in range(1, 6)]
    state(run, names, times, last_preserved=now - 20 * HOUR, when=now - HOUR)
    data = run_json(run_cli, "prune", run, "--max-to-keep", "2", "-n", "--min-age", "0")
    assert deleted(data) == ["ckpt-1"]
    keep = {entry["prefix"]: [r["rule"] for r in entry["reasons"]] for entry in data["keep"]}
    assert keep["ckpt-3"][0] == "newest"
    # The state file calls it the latest, so it stays even with --broken.
    assert keep["ckpt-5"] == ["incomplete", "named"]
    left = {entry["path"]: entry["why"] for entry in data["left_alone"]}
    assert "ckpt-4.data-00001-of-00002 is missing" in left["ckpt-4"]


def test_d14_leftovers_go_only_when_asked_and_old(
    run_cli: RunCli, tmp_path: Path, now: float
) -> None:
    """D14: `.tempstate`, `_temp/`, `checkpoint.tmp…`: listed apart, never taken for one."""
    run = make_run(tmp_path / "run", {"ckpt-1": 3, "ckpt-2": 2}, now=now)
    old = now - 2 * HOUR
    leftovers = [
        "ckpt-3.data-00000-of-00001.tempstate5599",
        "checkpoint.tmp0123456789abcdef0123456789abcdef",
        "ckpt-3_temp/part-00000-of-00001.data-00000-of-00001",
    ]
    (run / "ckpt-3_temp").mkdir()
    (run / "ckpt-4_temp_08f0aaaa").mkdir()
    for name in [*leftovers, "ckpt-4_temp_08f0aaaa/part-00000-of-00002.index"]:
        (run / name).write_bytes(b"x")
    for name in [*leftovers, "ckpt-3_temp"]:
        os.utime(run / name, (old, old))
    data = run_json(run_cli, "prune", run, "--max-to-keep", "5", "-n")
    assert {Path(entry["path"]).name for entry in data["left_alone"]} == {
        "ckpt-3.data-00000-of-00001.tempstate5599",
        "checkpoint.tmp0123456789abcdef0123456789abcdef",
        "ckpt-3_temp",
        "ckpt-4_temp_08f0aaaa",
    }
    # They were made now, as a copy that keeps times makes them: it may be under way.
    data = run_json(run_cli, "prune", run, "--broken", "-y")
    assert data["leftovers"] == []
    data = run_json(run_cli, "prune", run, "--broken", "-y", "--min-age", "0")
    assert {entry["path"] for entry in data["leftovers"]} == {
        "ckpt-3.data-00000-of-00001.tempstate5599",
        "checkpoint.tmp0123456789abcdef0123456789abcdef",
        "ckpt-3_temp",
        "ckpt-4_temp_08f0aaaa",
    }
    assert not (run / "ckpt-3_temp").exists()
    assert prefixes(run) == {"ckpt-1", "ckpt-2"}


def test_d27_old_runs_after_a_restart(run_cli: RunCli, tmp_path: Path, now: float) -> None:
    """D27: what is not listed is counted and left; it goes only when that is said."""
    run = make_run(
        tmp_path / "run",
        {f"model.ckpt-{n}": 20 - n for n in range(1, 8)},
        listed=["model.ckpt-6", "model.ckpt-7"],
        stamped=False,
        now=now,
    )
    result = run_cli(["prune", run, "--policy", "saver", "--max-to-keep", "2", "-n"])
    assert "5 checkpoints that the state file does not list" in result.stderr
    # A Saver takes what it keeps for ever off its list: these may be such.
    every: list[str | Path] = ["prune", run, "--scope", "all", "--max-to-keep", "2", "-y"]
    assert deleted(run_json(run_cli, *every)) == []
    data = run_json(run_cli, *every, "--include-preserved")
    assert deleted(data) == [f"model.ckpt-{n}" for n in range(1, 6)]


def test_d28_nothing_without_asking_and_nothing_that_is_being_written(
    run_cli: RunCli, tmp_path: Path, now: float
) -> None:
    """D28: reasons before anything goes; no terminal and no -y ends with 4."""
    run = make_run(tmp_path / "run", {"ckpt-1": 3, "ckpt-2": 2}, now=now)
    before = contents(run)
    assert run_cli(["prune", run, "--max-to-keep", "1"]).returncode == 4
    assert contents(run) == before
    plan = run_cli(["prune", run, "--max-to-keep", "1", "-n"])
    assert "older than the newest 1" in plan.stdout
    add(run, "ckpt-1", now - 5)
    data = run_json(run_cli, "prune", run, "--max-to-keep", "1", "-y", "--order", "state")
    assert deleted(data) == []
    (kept,) = [entry for entry in data["keep"] if entry["prefix"] == "ckpt-1"]
    assert kept["reasons"][-1]["rule"] == "in-flight"


def test_d29_lowering_comes_down_in_one_go(run_cli: RunCli, tmp_path: Path, now: float) -> None:
    """D29: from 50 to 5 at once, the state file too."""
    ages = {f"model.ckpt-{n}": 60 - n for n in range(1, 51)}
    run = make_run(tmp_path / "run", ages, stamped=False, graph=True, now=now)
    run_json(run_cli, "prune", run, "--policy", "saver", "--max-to-keep", "5", "-y")
    left = {f"model.ckpt-{n}" for n in range(46, 51)}
    assert prefixes(run) == left
    assert set(listed(run)) == left
    assert {path.name for path in run.glob("*.meta")} == {f"{name}.meta" for name in left}


def test_d30_hours_survivors_are_extra_and_say_why(
    run_cli: RunCli, tmp_path: Path, now: float
) -> None:
    """D30: `kept: 2 h after the last preserved one`."""
    run = make_run(tmp_path / "run", {f"ckpt-{n}": 10 - n for n in range(1, 7)}, now=now)
    args = ["--max-to-keep", "2", "--keep-every-n-hours", "2"]
    data = run_json(run_cli, "prune", run, *args, "-y")
    hourly = {
        entry["prefix"]: entry["reasons"][0]["text"]
        for entry in data["keep"]
        if entry["reasons"][0]["rule"] == "keep-every-n-hours"
    }
    assert set(hourly) == {"ckpt-2", "ckpt-4"}
    assert "2 h after the last preserved" in hourly["ckpt-2"]
    assert listed(run) == ("ckpt-5", "ckpt-6")
    # They are protected now, though the state file does not list them.
    data = run_json(run_cli, "prune", run, "--scope", "all", "--max-to-keep", "1", "-y")
    assert deleted(data) == ["ckpt-5"]
    assert {e["prefix"] for e in data["keep"]} == {"ckpt-2", "ckpt-4", "ckpt-6"}


def test_d31_numbers_not_letters(run_cli: RunCli, tmp_path: Path, now: float) -> None:
    """D31: 10 and 11 are the newest, not 9."""
    run = make_run(tmp_path / "run", {f"trained_weights_{n}": 5 for n in range(1, 12)}, now=now)
    (run / "checkpoint").unlink()
    data = run_json(run_cli, "prune", run, "--scope", "all", "--max-to-keep", "2", "-n")
    assert [e["prefix"] for e in data["keep"]] == ["trained_weights_10", "trained_weights_11"]
    assert data["order"] == "name"


class TestD32KeepBest:
    """D32: the best by a metric, pins, and what another file points to."""

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("m.jsonl", '{"step": 1, "loss": 0.5}\n{"step": 3, "loss": 0.1}\n'),
            ("m.json", '[{"checkpoint": "/elsewhere/ckpt-3", "loss": 0.1}]'),
            ("m.json", '{"ckpt-3": {"loss": 0.1}, "ckpt-1": {"loss": 0.5}}'),
            ("m.json", '{"3": 0.1, "1": 0.5}'),
            ("m.json", '{"loss": {"ckpt-3": 0.1}}'),
            ("m.csv", "epoch,loss\n1,0.5\n3,0.1\n"),
        ],
    )
    def test_keep_best(
        self, run_cli: RunCli, tmp_path: Path, now: float, name: str, text: str
    ) -> None:
        run = make_run(tmp_path / "run", {f"ckpt-{n}": 9 - n for n in range(1, 6)}, now=now)
        (tmp_path / name).write_text(text)
        best = f"{tmp_path / name}:loss:min:1"
        data = run_json(run_cli, "prune", run, "--max-to-keep", "1", "--keep-best", best, "-n")
        assert [entry["prefix"] for entry in data["keep"]] == ["ckpt-3", "ckpt-5"]

    def test_a_metric_that_matches_nothing_is_refused(
        self, run_cli: RunCli, tmp_path: Path, now: float
    ) -> None:
        run = make_run(tmp_path / "run", {"ckpt-1": 3, "ckpt-2": 2}, now=now)
        (run / "m.jsonl").write_text('{"step": 900, "loss": 1}\n')
        result = run_cli(["prune", run, "--keep-best", "m.jsonl:loss:min:1", "-y"])
        assert result.returncode == 31
        assert "metrics-match-nothing" in result.stderr
        assert prefixes(run) == {"ckpt-1", "ckpt-2"}

    def test_pins_and_other_state_files(self, run_cli: RunCli, tmp_path: Path, now: float) -> None:
        run = make_run(tmp_path / "run", {f"ckpt-{n}": 9 - n for n in range(1, 7)}, now=now)
        (run / ".ckptpins").write_text("# the paper's\nckpt-1\n")
        state(run, ["ckpt-2"], name="best_checkpoint")
        data = run_json(run_cli, "prune", run, "--max-to-keep", "1", "--pin", "*-3", "-y")
        rules = {e["prefix"]: e["reasons"][-1] for e in data["keep"]}
        assert set(rules) == {"ckpt-1", "ckpt-2", "ckpt-3", "ckpt-6"}
        assert rules["ckpt-1"]["text"] == "pinned by .ckptpins: ckpt-1"
        assert rules["ckpt-2"]["text"] == "named by best_checkpoint"
        assert rules["ckpt-3"]["text"] == "pinned by --pin *-3"


class TestD33RemoveOne:
    """D33: one checkpoint, all of its files, the state file kept right."""

    def test_the_latest(self, run_cli: RunCli, tmp_path: Path, now: float) -> None:
        run = make_run(tmp_path / "run", {"ckpt-1": 3, "ckpt-10": 2}, graph=True, now=now)
        data = run_json(run_cli, "rm", run / "ckpt-10.index", "-y")
        assert data["runs"][0]["latest"] == "ckpt-1"
        assert sorted(contents(run)) == [
            "checkpoint",
            "ckpt-1.data-00000-of-00001",
            "ckpt-1.index",
            "ckpt-1.meta",
        ]
        assert listed(run) == ("ckpt-1",)

    def test_the_last_one(self, run_cli: RunCli, tmp_path: Path, now: float) -> None:
        run = make_run(tmp_path / "run", {"ckpt-1": 3}, now=now)
        before = contents(run)
        data = run_json(run_cli, "rm", run / "ckpt-1", "-y", "--trash")
        assert data["runs"][0]["state"] == "removed"
        assert [name for name in contents(run) if not name.startswith(".")] == []
        assert run_cli(["prune", run, "--undo"]).returncode == 0
        assert contents(run) == before

    def test_its_neighbours_stay(self, run_cli: RunCli, tmp_path: Path, now: float) -> None:
        names = ["ckpt-1", "ckpt-10", "ckpt-1-best", "ckpt-1.data"]
        run = make_run(tmp_path / "run", dict.fromkeys(names, 3), now=now)
        run_json(run_cli, "rm", run / "ckpt-1", "-y")
        assert prefixes(run) == set(names[1:])

    def test_a_pinned_one_is_refused(self, run_cli: RunCli, tmp_path: Path, now: float) -> None:
        run = make_run(tmp_path / "run", {"ckpt-1": 3, "ckpt-2": 2}, now=now)
        (run / ".ckptpins").write_text("ckpt-1\n")
        result = run_cli(["rm", run / "ckpt-1", "-y"])
        assert (result.returncode, "pinned" in result.stderr) == (31, True)
        assert prefixes(run) == {"ckpt-1", "ckpt-2"}

    def test_one_that_was_just_written_is_refused(
        self, run_cli: RunCli, tmp_path: Path, now: float
    ) -> None:
        run = make_run(tmp_path / "run", {"ckpt-1": 3}, now=now)
        add(run, "ckpt-2", now - 3)
        assert run_cli(["rm", run / "ckpt-2", "-y"]).returncode == 31
        assert run_cli(["rm", run / "ckpt-2", "-y", "--min-age", "0"]).returncode == 0
        assert prefixes(run) == {"ckpt-1"}
