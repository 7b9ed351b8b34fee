"""``--plan`` and ``--apply``: made now, carried out later, or refused."""

from __future__ import annotations

import json
import os
import shutil

import pytest


@pytest.fixture
def folder(fixtures_dir, tmp_path):
    shutil.copytree(fixtures_dir / "mlp-v1", tmp_path / "run")
    return tmp_path


PLAN = ["repartition", "run", "out", "--shards", "3", "--slice", "hidden/weights=axis0:2"]


def save(run_cli, folder, *more):
    done = run_cli([*PLAN, "--plan", "plan.json", *more], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("out.*"))
    return json.loads((folder / "plan.json").read_text())


def test_a_saved_plan_is_carried_out(run_cli, folder):
    plan = save(run_cli, folder, "--json")
    assert plan["schema"] == "ckpttool.plan/1"
    assert plan["arguments"] == PLAN[1:]
    done = run_cli(["repartition", "--apply", "plan.json", "--json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert data == plan["result"] | {"applied": True}
    assert len(list(folder.glob("out.data-*"))) == 3
    again = run_cli(["repartition", "--apply", "plan.json"], cwd=folder)
    assert again.returncode == 31


@pytest.mark.parametrize("change", ["touch", "replace", "remove", "index"])
def test_a_plan_whose_source_changed_is_stale(run_cli, folder, change):
    save(run_cli, folder)
    data = folder / "run" / "model.ckpt-1000.data-00000-of-00001"
    if change == "touch":
        os.utime(data, (1, 1))
    elif change == "replace":
        shutil.copy2(data, folder / "copy")
        (folder / "copy").replace(data)
    elif change == "remove":
        data.unlink()
    else:
        data.with_name("model.ckpt-1000.index").unlink()
    done = run_cli(["repartition", "--apply", "plan.json"], cwd=folder)
    assert done.returncode == 30
    assert "[plan-stale]" in done.stderr
    assert not list(folder.glob("out.*"))


def test_a_plan_belongs_to_its_command_and_directory(run_cli, folder):
    save(run_cli, folder)
    done = run_cli(["cp", "--apply", "plan.json"], cwd=folder)
    assert done.returncode == 20
    assert "[plan-unreadable]" in done.stderr
    (folder / "elsewhere").mkdir()
    done = run_cli(["repartition", "--apply", "../plan.json"], cwd=folder / "elsewhere")
    assert done.returncode == 30


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": "ckpttool.plan/1"}', "[" * 99999])
def test_what_is_no_plan(run_cli, folder, text):
    (folder / "plan.json").write_text(text)
    done = run_cli(["repartition", "--apply", "plan.json"], cwd=folder)
    assert done.returncode == 20
    assert "[plan-unreadable]" in done.stderr


def test_an_existing_plan_is_not_overwritten(run_cli, folder):
    save(run_cli, folder)
    done = run_cli([*PLAN, "--plan", "plan.json"], cwd=folder)
    assert done.returncode == 31


@pytest.mark.parametrize("more", [["-n"], ["--dry-run"], ["-n", "-y", "--json"]])
def test_a_dry_run_of_a_plan_writes_nothing(run_cli, folder, more):
    save(run_cli, folder)
    for command in (["--apply", "plan.json", *more], [*more, "--apply=plan.json"]):
        done = run_cli(["repartition", *command], cwd=folder)
        assert done.returncode == 0, done.stderr
        assert not list(folder.glob("out.*"))
    (folder / "run" / "model.ckpt-1000.index").touch()
    assert run_cli(["repartition", *command], cwd=folder).returncode == 30


@pytest.mark.parametrize("how", ["-n", "-ny", "--dry-run"])
def test_a_plan_of_a_dry_run_is_carried_out(run_cli, folder, how):
    save(run_cli, folder, how)
    done = run_cli(["repartition", "--apply", "plan.json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("out.data-*"))) == 3


@pytest.mark.parametrize(
    "more", [["--shards", "2"], ["run", "elsewhere"], ["--overwrite"], ["--verify"]], ids=str
)
def test_nothing_is_added_to_a_plan(run_cli, folder, more):
    save(run_cli, folder)
    done = run_cli(["repartition", "--apply", "plan.json", *more], cwd=folder)
    assert done.returncode == 2
    assert "nothing can be added" in done.stderr
    assert not list(folder.glob("out.*"))


def test_a_name_that_looks_like_an_option_stays_in_a_plan(run_cli, folder):
    done = run_cli(["cp", "--plan", "plan.json", "--", "run", "--json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    done = run_cli(["cp", "--apply", "plan.json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "--json.index").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["cp", "run", "out"],
        ["mv", "run/model.ckpt-1000", "out"],
        ["average", "run", "run", "-o", "out"],
        ["merge", "run", "run", "-o", "out", "--on-conflict", "last"],
    ],
)
def test_every_writing_command_has_plans(run_cli, folder, command):
    done = run_cli([*command, "--plan", "plan.json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("out.*"))
    done = run_cli([command[0], "--apply", "plan.json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "out.index").exists()
