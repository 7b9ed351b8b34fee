"""What is replaced is asked for, however the destination was spelled."""

from __future__ import annotations

import shutil

import pytest

COMMANDS = {
    "cp": ["cp", "SRC", "DST"],
    "mv": ["mv", "SRC", "DST"],
    "salvage": ["cp", "SRC", "DST", "--salvage"],
    "repartition": ["repartition", "SRC", "DST", "--shards", "2"],
    "edit": ["edit", "SRC", "DST", "--cast", "float64"],
    "average": ["average", "SRC", "SRC", "-o", "DST"],
    "merge": ["merge", "SRC", "SRC", "-o", "DST", "--on-conflict", "last"],
}
PREFIX = "model.ckpt-1000"


@pytest.fixture
def place(fixtures_dir, tmp_path):
    for name in ("from", "to"):
        shutil.copytree(fixtures_dir / "mlp-v1", tmp_path / name)
    (tmp_path / "to" / f"{PREFIX}.meta").unlink()  # what is there is not what would be written
    return tmp_path


def state_of(place):
    paths = (place / "to").iterdir()
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in paths}


def line(command, place, to, *more):
    words = {"SRC": str(place / "from" / PREFIX), "DST": str(place / to)}
    return [*(words.get(word, word) for word in COMMANDS[command]), "--overwrite", *more]


@pytest.mark.parametrize(
    ("command", "to"),
    [
        *((command, "to") for command in COMMANDS),
        *(("cp", to) for to in ("to/", f"to/{PREFIX}", f"to/{PREFIX}.index")),
    ],
)
def test_replacing_is_asked_for(run_cli, place, command, to):
    before = state_of(place)
    done = run_cli(line(command, place, to))
    assert done.returncode == 4
    assert f"to/{PREFIX}?" in done.stderr
    assert state_of(place) == before


@pytest.mark.parametrize("command", ["cp", "repartition"])
@pytest.mark.parametrize("more", [["-y"], ["-n"]])
def test_nobody_is_asked_who_said_yes_or_only_looks(run_cli, place, command, more):
    before = state_of(place)
    done = run_cli(line(command, place, "to", *more))
    assert done.returncode == 0, done.stderr
    assert (state_of(place) == before) == (more == ["-n"])


def test_where_nothing_is_nothing_is_asked(run_cli, place):
    assert run_cli(line("cp", place, "to/other")).returncode == 0


def test_the_variables_of_a_saved_model_are_asked_for(run_cli, fixtures_dir, tmp_path):
    shutil.copytree(fixtures_dir / "savedmodel", tmp_path / "model")
    variables = tmp_path / "model" / "variables"
    before = {path.name: path.read_bytes() for path in variables.iterdir()}
    done = run_cli(["repartition", tmp_path / "model", tmp_path / "model", "--overwrite"])
    assert done.returncode == 4
    assert {path.name: path.read_bytes() for path in variables.iterdir()} == before


def test_a_v1_checkpoint_is_asked_for(run_cli, fixtures_dir, tmp_path):
    for name in ("from", "to"):
        shutil.copytree(fixtures_dir / "v1", tmp_path / name)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "to").iterdir()}
    done = run_cli(["cp", tmp_path / "from", tmp_path / "to", "--overwrite"])
    assert done.returncode == 4
    assert {path.name: path.stat().st_ino for path in (tmp_path / "to").iterdir()} == before


@pytest.mark.parametrize("more", [[], ["--overwrite"], ["-n", "--overwrite"]])
@pytest.mark.parametrize("command", ["cp", "mv"])
def test_the_source_itself_is_no_destination(run_cli, place, command, more):
    """A dry run says the same as the run, and no question leads to a refusal."""
    source = place / "from" / PREFIX
    done = run_cli([command, source, source, *more])
    assert done.returncode == 31
    assert "[same-place]" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_is_too_long_is_refused_and_others_can_be_written(run_cli, place, command):
    before = sorted(path.name for path in (place / "to").iterdir())
    done = run_cli(line(command, place, f"to/{'n' * 240}"))
    assert done.returncode == 10
    assert "File name too long" in done.stderr
    assert sorted(path.name for path in (place / "to").iterdir()) == before
    assert run_cli(line(command, place, "to/short")).returncode == 0


@pytest.mark.parametrize("name", [f"{PREFIX}.index", f"{PREFIX}.meta", "other.index"])
@pytest.mark.parametrize("command", ["cp", "repartition"])
def test_a_directory_in_the_way_is_not_replaced(run_cli, place, command, name):
    (place / "to" / name).unlink(missing_ok=True)
    (place / "to" / name).mkdir()
    to = f"to/{name.rpartition('.')[0]}"
    before = sorted(path.name for path in (place / "to").iterdir())
    done = run_cli(line(command, place, to, "-y"))
    assert done.returncode == 31
    assert "is a directory" in done.stderr
    assert sorted(path.name for path in (place / "to").iterdir()) == before
