from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.ops.state import StateEntry, StateResult, state
from tests.support.saved import save, write_state


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    for number in (1, 2, 3):
        save(folder, f"ckpt-{number}")
    write_state(folder, "ckpt-3", ["ckpt-2", "ckpt-3"], [1e9, 1e9 + 1])
    monkeypatch.chdir(tmp_path)
    return folder


def ids(found: StateResult) -> list[str]:
    return [problem.id for problem in found.problems]


def failure(address: str) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        state(address)
    return caught.value


@pytest.mark.parametrize("address", ["run", "run/", "run/checkpoint"])
def test_a_healthy_state_file(run_dir: Path, address: str) -> None:
    found = state(address)
    assert found == StateResult(
        "run/checkpoint",
        "ckpt-3",
        "run/ckpt-3",
        (
            StateEntry("ckpt-2", 1e9, "run/ckpt-2"),
            StateEntry("ckpt-3", 1e9 + 1, "run/ckpt-3"),
        ),
        None,
        ("ckpt-1",),
        (),
    )
    assert found.checkpoints[0].exists


def test_last_preserved(run_dir: Path) -> None:
    with (run_dir / "checkpoint").open("a") as file:
        file.write("last_preserved_timestamp: 12.5\n")
    assert state("run").last_preserved == 12.5


def test_a_latest_that_is_gone(run_dir: Path) -> None:
    write_state(run_dir, "ckpt-9", ["ckpt-8", "ckpt-9"])
    found = state("run")
    assert ids(found) == ["state-latest-missing", "state-path-missing"]
    assert found.latest_location is None
    assert not found.checkpoints[0].exists
    assert found.problems[1].message == "not there: ckpt-8, ckpt-9"
    assert found.unlisted == ("ckpt-1", "ckpt-2", "ckpt-3")


def test_a_latest_that_is_not_whole(run_dir: Path) -> None:
    os.truncate(run_dir / "ckpt-3.data-00000-of-00001", 3)
    found = state("run")
    assert ids(found) == ["state-latest-incomplete"]
    assert "ckpt-3.data-00000-of-00001 has 3 bytes of at least 8" in found.problems[0].message


def test_a_latest_that_is_not_in_the_list(run_dir: Path) -> None:
    write_state(run_dir, "ckpt-3", ["ckpt-1"])
    assert ids(state("run")) == ["state-latest-unlisted"]


@pytest.mark.parametrize("text", ["", 'all_model_checkpoint_paths: "ckpt-1"', "# nothing"])
def test_no_latest(run_dir: Path, text: str) -> None:
    (run_dir / "checkpoint").write_text(text)
    assert "state-no-latest" in ids(state("run"))


def test_moved_paths(run_dir: Path) -> None:
    write_state(run_dir, "/gone/ckpt-3", ["/gone/ckpt-1", "/gone/ckpt-3"])
    found = state("run")
    assert ids(found) == ["state-path-moved"]
    assert found.checkpoints[0] == StateEntry("/gone/ckpt-1", None, "run/ckpt-1")
    assert found.latest_location == "run/ckpt-3"


def test_paths_that_lead_elsewhere(run_dir: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", "model")
    write_state(run_dir, "ckpt-3", [f"{tmp_path}/other/model", "ckpt-3"])
    found = state("run")
    assert ids(found) == ["state-path-outside"]
    assert found.checkpoints[0].location == f"{tmp_path}/other/model"


def test_paths_that_can_be_no_checkpoint(run_dir: Path) -> None:
    write_state(run_dir, "ckpt-3", [".", "checkpoint", "a\\000b", "", "ckpt-3"])
    found = state("run")
    assert ids(found) == ["state-path-foreign"]
    message = found.problems[0].message
    assert "'.' is a directory" in message
    assert "'checkpoint' is the state file itself" in message
    assert "NUL" in message
    assert "and 1 more" in message


def test_listed_twice(run_dir: Path) -> None:
    write_state(run_dir, "ckpt-3", ["ckpt-3", "ckpt-3"])
    assert ids(state("run")) == ["state-duplicate"]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1.0], "1 timestamps for 2 paths"),
        ([1.0, 2.0, 3.0], "3 timestamps for 2 paths"),
        ([2.0, 1.0], "not in the order"),
        ([1.0, math.nan], "not a finite number"),
        ([1.0, math.inf], "not a finite number"),
        ([1.0, time.time() + 1e6], "in the future"),
    ],
)
def test_odd_times(run_dir: Path, times: list[float], words: str) -> None:
    write_state(run_dir, "ckpt-3", ["ckpt-2", "ckpt-3"], times)
    found = state("run")
    assert ids(found) == ["state-timestamps"]
    assert words in found.problems[0].message


def test_many_paths_make_few_problems(run_dir: Path) -> None:
    write_state(run_dir, "ckpt-3", [f"gone-{number}" for number in range(5000)] + ["ckpt-3"])
    found = state("run")
    assert ids(found) == ["state-path-missing"]
    assert len(found.problems[0].message) < 200
    assert "and 4997 more" in found.problems[0].message


def test_no_state_file(run_dir: Path) -> None:
    (run_dir / "checkpoint").unlink()
    error = failure("run")
    assert (error.id, error.exit_code) == ("state-missing", 10)
    assert "holds 3 checkpoints" in error.why
    assert "ckpttool latest run" in error.hint


def test_a_state_file_that_cannot_be_read(run_dir: Path) -> None:
    (run_dir / "checkpoint").write_bytes(b'model_checkpoint_path: "ckpt-3"\nnonsense')
    error = failure("run")
    assert (error.id, error.exit_code) == ("state-corrupt", 20)
    assert error.why.startswith("line 2: ")


def test_a_linked_state_file(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "checkpoint").rename(tmp_path / "real")
    (run_dir / "checkpoint").symlink_to(tmp_path / "real")
    assert failure("run").exit_code == 22


def test_a_v1_checkpoint_exists(corpus: Path) -> None:
    found = state(str(corpus / "v1-acrobot-adam"))
    assert found.checkpoints[0].exists
    assert found.problems == ()


def test_a_dangling_state_file_of_the_corpus(corpus: Path) -> None:
    found = state(str(corpus / "bad-lfs-pointers"))
    assert ids(found) == ["state-latest-missing", "state-path-missing"]
    assert found.unlisted == ("network_01239000", "network_01900000")
