"""``prune``, ``rm`` and the writing side of ``state`` on the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.command import ROOT, RunCli
from tests.support.runs import add, contents, make_run, prefixes
from tests.support.terminal import run_in_terminal

SCHEMAS = ROOT / "ckpttool" / "schemas"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {f"ckpt-{n}": 9 - n for n in (1, 2, 3)}, now=time.time())


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return loaded


def check(name: str, text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, schema("envelope"))
    jsonschema.validate(document["data"], schema(name))
    assert document["schema"] == f"ckpttool.{name}/1"
    data: dict[str, Any] = document["data"]
    return data


@pytest.mark.parametrize(
    "args",
    [
        ["-n"],
        ["--check"],
        ["-y"],
        ["-y", "--trash"],
        ["-n", "--recursive"],
        ["-y", "--recursive"],
        ["-n", "--broken", "--scope", "all", "--keep-within", "1h", "--max-total-size", "1KB"],
    ],
)
def test_json_is_what_the_schema_says(run: Path, run_cli: RunCli, args: list[str]) -> None:
    add(run, "ckpt-9", time.time() - 9000, without=[".index"])
    (run / "sub").mkdir()
    (run / "sub" / "checkpoint").write_text('model_checkpoint_path: "x"\n')
    result = run_cli(["prune", run, "--max-to-keep", "1", *args, "--json"])
    data = check("prune", result.stdout)
    assert result.returncode == (1 if "--check" in args else 0)
    assert data["applied"] == ("-y" in args)
    if "--trash" in args:
        assert data["undo"] == f"ckpttool prune {run} --undo"
        assert check("prune", run_cli(["prune", run, "--undo", "--json"]).stdout)["restored"]


def test_records(run: Path, run_cli: RunCli) -> None:
    result = run_cli(["prune", run, "--max-to-keep", "1", "-n", "--ndjson"])
    *records, summary = map(json.loads, result.stdout.splitlines())
    jsonschema.validate(summary, schema("summary"))
    assert [(r["action"], r["prefix"]) for r in records] == [
        ("delete", "ckpt-1"),
        ("delete", "ckpt-2"),
        ("keep", "ckpt-3"),
    ]


def test_quiet_is_the_names_of_what_goes(run: Path, run_cli: RunCli) -> None:
    result = run_cli(["prune", "run", "--max-to-keep", "1", "-n", "-q"], cwd=run.parent)
    assert result.stdout == "run/ckpt-1\nrun/ckpt-2\n"


def test_check_is_for_scripts(run: Path, run_cli: RunCli) -> None:
    before = contents(run)
    assert run_cli(["prune", run, "--max-to-keep", "1", "--check"]).returncode == 1
    assert run_cli(["prune", run, "--max-to-keep", "3", "--check"]).returncode == 0
    assert contents(run) == before


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], 2),
        (["--max-to-keep", "0"], 31),
        (["--max-to-keep", "-1"], 2),
        (["--keep-every-n-hours", "1"], 2),
        (["--max-to-keep", "1", "--since", "2020-01-01"], 2),
        (["--max-to-keep", "1", "--since", "soon", "--policy", "saver"], 2),
        (["--keep-within", "soon"], 2),
        (["--max-total-size", "much"], 2),
        (["--keep-best", "nonsense"], 2),
        (["--keep-best", "absent.json:loss:min:1"], 10),
        (["--undo", "--empty-trash"], 2),
        (["--undo"], 10),
    ],
)
def test_what_is_refused(run: Path, run_cli: RunCli, args: list[str], code: int) -> None:
    before = contents(run)
    result = run_cli(["prune", run, "-y", *args])
    assert result.returncode == code, result.stderr
    assert contents(run) == before


def test_saver_with_since(run: Path, run_cli: RunCli) -> None:
    args = ["prune", str(run), "--policy", "saver", "--max-to-keep", "1", "-n", "-q"]
    args += ["--keep-every-n-hours", "1", "--since"]
    long_ago = run_cli([*args, "2020-01-01T00:00Z"]).stdout
    assert long_ago == ""
    assert len(run_cli([*args, str(time.time())]).stdout.splitlines()) == 2


def test_empty_trash(run: Path, run_cli: RunCli) -> None:
    run_cli(["prune", run, "--max-to-keep", "1", "-y", "--trash"])
    assert run_cli(["prune", run, "--empty-trash"]).returncode == 4
    data = check("prune", run_cli(["prune", run, "--empty-trash", "-y", "--json"]).stdout)
    assert data["emptied"] == ["ckpt-1", "ckpt-2"]
    assert data["freed_bytes"] > 0
    assert not (run / ".ckpttool-trash").exists()
    assert run_cli(["prune", run, "--undo"]).returncode == 10


def test_undo_when_a_name_is_taken_again(run: Path, run_cli: RunCli) -> None:
    run_cli(["prune", run, "--max-to-keep", "1", "-y", "--trash"])
    add(run, "ckpt-1", time.time())
    mine = (run / "ckpt-1.index").read_bytes()
    result = run_cli(["prune", run, "--undo"])
    assert result.returncode == 3
    assert "ckpt-1 stays in the trash" in result.stderr
    assert prefixes(run) == {"ckpt-1", "ckpt-2", "ckpt-3"}
    assert (run / "ckpt-1.index").read_bytes() == mine
    # The other one is moved away: then the rest comes back, and the trash goes.
    for path in run.glob("ckpt-1.*"):
        path.unlink()
    assert run_cli(["prune", run, "--undo"]).returncode == 0
    assert not (run / ".ckpttool-trash").exists()


def test_many_runs(tmp_path: Path, run_cli: RunCli) -> None:
    now = time.time()
    for name in ("a", "b/c"):
        make_run(tmp_path / "root" / name, {"ckpt-1": 9, "ckpt-2": 8}, now=now)
    broken = make_run(tmp_path / "root" / "z", {"ckpt-1": 9}, now=now)
    (broken / "checkpoint").write_bytes(b"{{{")
    (tmp_path / "root" / "link").symlink_to("a")
    result = run_cli(["prune", tmp_path / "root", "-r", "--max-to-keep", "1", "-y", "--json"])
    assert result.returncode == 3
    data = check("prune", result.stdout)
    assert [Path(one["directory"]).name for one in data["runs"]] == ["a", "c", "z"]
    assert data["runs"][2]["error"]["id"] == "state-corrupt"
    assert prefixes(tmp_path / "root" / "b" / "c") == {"ckpt-2"}


class TestTerminal:
    """What a person sees, and what the prompt offers."""

    def test_yes_moves_into_the_trash(self, run: Path) -> None:
        args = ["prune", "run", "--max-to-keep", "1"]
        seen = run_in_terminal(args, cwd=run.parent, columns=120, keys="y\n")
        assert seen.returncode == 0
        before, _, after = seen.output.partition("[y/N]")
        assert "older than the newest 1" in before
        assert "Move 2 checkpoints" in before
        assert "ckpttool prune run --undo" in after
        assert prefixes(run) == {"ckpt-3"}
        assert (run / ".ckpttool-trash").is_dir()

    def test_no_does_nothing(self, run: Path) -> None:
        before = contents(run)
        args = ["prune", "run", "--max-to-keep", "1"]
        assert run_in_terminal(args, cwd=run.parent, keys="\n").returncode == 4
        assert contents(run) == before


def test_rm_json(run: Path, run_cli: RunCli) -> None:
    planned = check("rm", run_cli(["rm", run / "ckpt-3", run / "@1", "-n", "--json"]).stdout)
    assert [one["prefix"] for one in planned["removed"]] == ["ckpt-3", "ckpt-1"]
    assert planned["runs"][0]["latest"] == "ckpt-2"
    done = check("rm", run_cli(["rm", run / "ckpt-3", "-y", "--trash", "--json"]).stdout)
    assert done["trashed_bytes"] == done["removed"][0]["bytes"]
    assert prefixes(run) == {"ckpt-1", "ckpt-2"}


@pytest.mark.parametrize(
    ("name", "code"), [("run", 2), ("run/nope", 10), ("run/checkpoint", 2), ("nowhere/x", 10)]
)
def test_rm_of_what_is_no_checkpoint(run: Path, run_cli: RunCli, name: str, code: int) -> None:
    before = contents(run)
    result = run_cli(["rm", name, "-y"], cwd=run.parent)
    assert result.returncode == code, result.stderr
    assert contents(run) == before


@pytest.mark.parametrize("spelled", ["{}", "{}/", "{}//", "{}/.", "./", "."])
def test_rm_of_a_run_directory_removes_nothing(run: Path, run_cli: RunCli, spelled: str) -> None:
    """Elsewhere a directory means its newest checkpoint; a shell's TAB adds the slash."""
    before = contents(run)
    done = run_cli(["rm", spelled.format(run), "-y", "--min-age", "0"], cwd=run)
    assert done.returncode == 2
    assert "is a directory" in done.stderr
    assert contents(run) == before


def test_state_set_latest(run: Path, run_cli: RunCli) -> None:
    planned = check(
        "state", run_cli(["state", run, "--set-latest", "ckpt-1", "-n", "--json"]).stdout
    )
    assert not planned["changed"]
    done = check("state", run_cli(["state", run, "--set-latest", "ckpt-1", "-y", "--json"]).stdout)
    assert (done["latest"], done["changed"]) == ("ckpt-1", True)
    assert Path(done["backup"]).is_file()
    assert run_cli(["latest", run, "-q"]).stdout.strip() == str(run / "ckpt-1")
    assert run_cli(["state", run, "--set-latest", "ckpt-7", "-y"]).returncode == 10
    (run / "ckpt-2.data-00000-of-00001").unlink()
    assert run_cli(["state", run, "--set-latest", "ckpt-2", "-y"]).returncode == 20


def test_state_fix_of_a_right_one_changes_nothing(run: Path, run_cli: RunCli) -> None:
    before = contents(run)
    data = check("state", run_cli(["state", run, "--fix", "-y", "--json"]).stdout)
    assert (data["changes"], data["changed"]) == ([], False)
    assert contents(run) == before


def test_state_is_not_written_under_a_living_trainer(run: Path, run_cli: RunCli) -> None:
    add(run, "ckpt-4", time.time())
    before = contents(run)
    assert run_cli(["state", run, "--set-latest", "ckpt-1", "-y"]).returncode == 31
    assert contents(run) == before
