from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.ops.latest import latest
from tests.support.command import RunCli
from tests.support.saved import save, write_state
from tests.support.terminal import run_in_terminal


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    for number in (1, 2, 3, 10):
        save(folder, f"ckpt-{number}", step=number * 100)
    write_state(folder, "ckpt-3", ["ckpt-1", "ckpt-2", "ckpt-3"])
    monkeypatch.chdir(tmp_path)
    return folder


def break_(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / f"ckpt-{number}.data-00000-of-00001").unlink()


def failure(address: str) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        latest(address)
    return caught.value


@pytest.mark.parametrize("address", ["run", "run/", "run/checkpoint"])
def test_what_the_state_file_calls_latest(run_dir: Path, address: str) -> None:
    found = latest(address)
    assert (found.prefix, found.step, found.number) == ("run/ckpt-3", 300, 3)
    assert found.warnings == ()


def test_here(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_dir)
    assert latest(".").prefix == "ckpt-3"


def test_the_newest_whole_of_the_list(run_dir: Path) -> None:
    break_(run_dir, 3)
    found = latest("run")
    assert (found.prefix, found.number) == ("run/ckpt-2", 2)
    (warning,) = found.warnings
    assert "the state file calls ckpt-3 the latest" in warning
    assert "run/ckpt-3 is not whole: ckpt-3.data-00000-of-00001 is missing" in warning
    assert warning.endswith("run/ckpt-2 is the newest whole checkpoint")


def test_then_what_is_not_listed_by_number(run_dir: Path) -> None:
    break_(run_dir, 1, 2, 3)
    save(run_dir, "ckpt-9")
    found = latest("run")
    assert found.prefix == "run/ckpt-10"
    assert "; nor are" not in found.warnings[0]
    break_(run_dir, 10)
    found = latest("run")
    assert found.prefix == "run/ckpt-9"
    assert "; nor are 1 more" in found.warnings[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "run has no state file"),
        (b"junk", "line 1"),
        (b"", "names no checkpoint"),
        (b'model_checkpoint_path: "ckpt-77"', "calls ckpt-77 the latest, which is not there"),
    ],
)
def test_without_a_usable_state_file(run_dir: Path, text: bytes | None, why: str) -> None:
    state = run_dir / "checkpoint"
    state.unlink() if text is None else state.write_bytes(text)
    found = latest("run")
    assert found.prefix == "run/ckpt-10"
    assert why in found.warnings[0]


def test_numbers_are_numbers(run_dir: Path) -> None:
    (run_dir / "checkpoint").unlink()
    save(run_dir, "ckpt-9")
    assert latest("run").number == 10


def test_a_moved_path_is_said(run_dir: Path) -> None:
    write_state(run_dir, "/gone/ckpt-2")
    found = latest("run")
    assert found.prefix == "run/ckpt-2"
    assert "/gone/ckpt-2" in found.warnings[0]


def test_the_step_inside_where_the_name_has_none(run_dir: Path) -> None:
    save(run_dir, "best", step=4321)
    save(run_dir, "bare")
    write_state(run_dir, "best")
    assert (latest("run").step, latest("run").number) == (4321, None)
    write_state(run_dir, "bare")
    assert (latest("run").step, latest("run").number) == (None, None)
    save(run_dir, "epoch-7", step=4321)
    write_state(run_dir, "epoch-7")
    assert (latest("run").step, latest("run").number) == (4321, 7)


def test_another_state_file(run_dir: Path) -> None:
    write_state(run_dir, "ckpt-1", name="best_checkpoint")
    assert latest("run/best_checkpoint").prefix == "run/ckpt-1"


def test_none_is_whole(run_dir: Path) -> None:
    break_(run_dir, 1, 2, 3, 10)
    error = failure("run")
    assert isinstance(error, NotFoundError)
    assert (error.id, error.exit_code) == ("no-whole-checkpoint", 10)
    assert "ckpt-3.data-00000-of-00001 is missing" in error.why
    assert "nor are 1 more" in error.why


def test_only_leftovers(tmp_path: Path) -> None:
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(b"x")
    (tmp_path / "ckpt-1_temp").mkdir()
    error = failure(str(tmp_path))
    assert (error.id, error.why) == (
        "no-whole-checkpoint",
        "it has no .index file of a checkpoint",
    )


def test_not_a_run(run_dir: Path) -> None:
    assert failure("run/ckpt-1").id == "not-a-run"
    assert failure("nowhere").exit_code == 10
    assert failure("").exit_code == 2


def test_v1_beside_v2(corpus: Path, tmp_path: Path) -> None:
    for path in (corpus / "mixed-v1-v2-tdgammon").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_state(tmp_path, "checkpoint-447880")
    found = latest(str(tmp_path))
    assert (found.prefix, found.step) == (f"{tmp_path}/checkpoint-447880", 447880)
    os.truncate(tmp_path / "checkpoint-447880", 100_000)
    found = latest(str(tmp_path))
    assert found.step == 462746
    assert "checkpoint-447880 is not whole" in found.warnings[0]
    for path in tmp_path.glob("checkpoint-462746*"):
        path.unlink()
    assert failure(str(tmp_path)).id == "no-whole-checkpoint"


def test_the_usual_case_lists_nothing(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert latest("run").prefix == "run/ckpt-3"


# For scripts ---------------------------------------------------------------------------


def test_exact_bytes_in_a_pipe_and_none_on_a_terminal(run_cli: RunCli, tmp_path: Path) -> None:
    folder = tmp_path / "a\udcff\x1b[31m"
    save(folder, "ckpt-1")
    for options in ([], ["-q"]):
        args = ["latest", *options, str(folder)]
        assert run_cli(args).stdout == f"{folder}/ckpt-1\n"
        shown = run_in_terminal(args).output
        assert "a\\xff\\x1b[31m/ckpt-1" in shown
        assert "\x1b[31m" not in shown


def test_the_prefix_alone_on_stdout(run_cli: RunCli, run_dir: Path) -> None:
    break_(run_dir, 3)
    result = run_cli(["latest", "run"], cwd=run_dir.parent)
    assert (result.returncode, result.stdout) == (0, "run/ckpt-2\n")
    assert result.stderr.startswith("warning: ")
