"""What a new user stumbled over, working through the reading commands from the README."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ckpttool
from tests.support.command import RunCli


@pytest.fixture
def no_graph(fixtures_dir: Path, tmp_path: Path) -> str:
    """An object-based checkpoint whose data file lost its end, and the object graph with it."""
    for name in ("ckpt-4.index", "ckpt-4.data-00000-of-00001"):
        shutil.copy(fixtures_dir / "keras3" / name, tmp_path / name)
    with (tmp_path / "ckpt-4.data-00000-of-00001").open("r+b") as file:
        file.truncate(400)
    return str(tmp_path / "ckpt-4")


def test_every_name_that_is_listed_is_found_without_the_graph(
    run_cli: RunCli, no_graph: str
) -> None:
    with ckpttool.open(no_graph) as checkpoint:
        names = list(checkpoint)
        assert "save_counter" in names
        assert [checkpoint[name].name for name in names] == names
        assert {name: variable.name for name, variable in checkpoint.items()} == dict(
            zip(names, names, strict=True)
        )
        assert "save_counter/nothing" not in checkpoint
    listed = run_cli(["list", no_graph, "-q"]).stdout.split()
    assert listed == names
    planned = run_cli(["load", no_graph, "save_counter", "--dry-run"])
    assert "save_counter" in planned.stdout + planned.stderr
    assert "there is no variable" not in planned.stderr
