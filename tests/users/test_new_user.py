"""What a new user stumbled over, working through the reading commands from the README."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

import ckpttool
from tests.support.command import RunCli, clean_environment
from tests.support.handmade import EntryFields, write_bundle
from tests.support.terminal import run_in_terminal


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


def test_a_cast_is_never_silently_left_out(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.npy"
    for where, name, target in (
        ("dtypes", "array/int64", "float32"),
        ("mlp-v1", "hidden/biases", "int32"),
    ):
        refused = run_cli(
            ["load", str(fixtures_dir / where), name, "--cast", target, "-o", str(out)]
        )
        assert refused.returncode == 2
        assert f"{target} does not hold every value of {name} (" in refused.stderr
        assert not out.exists()


def test_the_hint_to_cast_can_be_followed(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "d.npz"
    wanted = ["load", str(fixtures_dir / "dtypes"), "array/*", "-o", str(out)]
    assert "add --cast auto" in run_cli(wanted).stderr
    done = run_cli([*wanted, "--cast", "auto"])
    assert done.returncode == 0, done.stderr
    archive = np.load(out)
    kept = {"int64", "float64", "float32", "uint32", "complex128", "bool"}
    assert all(archive[f"array/{name}"].dtype == name for name in kept)
    assert archive["array/bfloat16"].dtype == np.float32
    assert archive["array/int4"].dtype == np.int8
    assert archive["array/uint4"].dtype == np.uint8


@pytest.fixture
def linked(fixtures_dir: Path, tmp_path: Path) -> Path:
    """A snapshot of a download cache: a directory of links to the files themselves."""
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in (fixtures_dir / "two-shards").iterdir():
        if file.name != "checkpoint":
            (snapshot / file.name).symlink_to(file)
    return snapshot


@pytest.mark.parametrize("command", ["inspect", "list", "verify", "latest"])
@pytest.mark.parametrize("state_file", [False, True])
def test_a_directory_of_links_is_said_to_be_one(
    run_cli: RunCli, linked: Path, command: str, state_file: bool
) -> None:
    if state_file:
        (linked / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-42"\n')
    result = run_cli([command, str(linked)])
    assert result.returncode == 22, result.stdout + result.stderr
    assert "model.ckpt-42.index is a symbolic link" in result.stderr
    assert f"cp -rL {linked} COPY  [unsafe-link]" in result.stderr
    assert run_cli([command, str(linked / "model.ckpt-42")]).returncode == (
        10 if command == "latest" else 22
    )


def test_linked_data_files_are_not_checked_rather_than_damaged(
    run_cli: RunCli, linked: Path, fixtures_dir: Path
) -> None:
    index = linked / "model.ckpt-42.index"
    index.unlink()
    shutil.copy(fixtures_dir / "two-shards" / index.name, index)
    result = run_cli(["verify", str(linked), "--json"])
    assert result.returncode == 3
    data = json.loads(result.stdout)["data"]
    assert [(found["id"], found["severity"]) for found in data["findings"]] == [
        ("unsafe-link", "warning"),
        ("unsafe-link", "warning"),
    ]
    assert sum(item["variables"] for item in data["not_checked"]) == 4
    latest = run_cli(["latest", str(linked)])
    assert latest.returncode == 22
    assert f"cp -rL {linked} COPY  [unsafe-link]" in latest.stderr
    (linked / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-42"\n')
    assert run_cli(["list", f"{linked}/@latest"]).returncode == 22


@pytest.mark.parametrize(
    "name", ["model.ckpt", "model.ckpt.index", "model.ckpt.meta", "model.ckpt.data-00000-of-00001"]
)
def test_a_missing_index_is_missing_by_every_name(
    run_cli: RunCli, tmp_path: Path, name: str
) -> None:
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(bytes(8))
    result = run_cli(["inspect", str(tmp_path / name)])
    assert result.returncode == 20, result.stderr
    assert f"error: {tmp_path / 'model.ckpt'} has no index" in result.stderr
    assert result.stderr.rstrip().endswith("[index-missing]")


@pytest.mark.parametrize("command", ["list", "inspect", "verify"])
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mlp-v1x", "did you mean mlp-v1?"),
        ("mlpv1/", "did you mean mlp-v1?"),
        ("mlp-v1@1000", "did you mean mlp-v1/@1000?"),
        ("mlp-v1/model.ckpt-1000/", "did you mean mlp-v1/model.ckpt-1000?"),
        ("mlp-v1/model.ckpt1000/", "did you mean mlp-v1/model.ckpt-1000?"),
        ("mlp-v1/modelckpt-1000", "did you mean mlp-v1/model.ckpt-1000?"),
    ],
)
def test_a_slip_of_the_pen_is_met_with_what_was_meant(
    run_cli: RunCli, fixtures_dir: Path, command: str, typed: str, meant: str
) -> None:
    result = run_cli([command, typed], cwd=fixtures_dir)
    assert result.returncode == 10
    assert f"  next: {meant}" in result.stderr


def test_step_means_one_thing(run_cli: RunCli, fixtures_dir: Path) -> None:
    """The step inside; what the number in the name counts (here saves) stands beside it."""
    run = str(fixtures_dir / "keras3")

    def data(command: str) -> Any:
        return json.loads(run_cli([command, run, "--json"]).stdout)["data"]

    inspected, latest = data("inspect"), data("latest")
    assert (inspected["step"], inspected["number"]) == (16, 4)
    assert (latest["step"], latest["number"]) == (16, 4)
    checkpoints = inspected["run"]["checkpoints"]
    assert [(item["step"], item["number"]) for item in checkpoints] == [(8, 2), (12, 3), (16, 4)]
    with ckpttool.open(run) as checkpoint:
        assert (checkpoint.step, checkpoint.number) == (16, 4)
    with ckpttool.open(f"{run}/@12") as checkpoint:  # no name has this number
        assert (checkpoint.step, checkpoint.number) == (12, 3)


def test_a_prefix_that_is_not_utf_8_is_exact_in_json(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    run = os.path.join(os.fsencode(tmp_path), b"r\xfcn")
    shutil.copytree(fixtures_dir / "keras3", os.fsdecode(run))
    exact = b64encode(run + b"/ckpt-4").decode()
    latest = json.loads(run_cli(["latest", run, "--json"]).stdout)["data"]
    assert latest["prefix"] == f"{tmp_path}/r\ufffdn/ckpt-4"
    assert latest["prefix_base64"] == exact
    inspected = json.loads(run_cli(["inspect", run, "--json"]).stdout)["data"]
    assert inspected["prefix_base64"] == exact
    assert inspected["run"]["checkpoints"][-1]["prefix_base64"] == exact
    assert (
        "prefix_base64" not in run_cli(["inspect", str(fixtures_dir / "keras3"), "--json"]).stdout
    )


def test_a_run_is_told_of_even_when_its_checkpoint_cannot_be_read(
    run_cli: RunCli, fixtures_dir: Path
) -> None:
    """The one case, as docs/json.md has it, of a document beside an error."""
    run = str(fixtures_dir / "damaged" / "truncated-index")
    result = run_cli(["inspect", run, "--json"])
    document, error = json.loads(result.stdout), json.loads(result.stderr)
    assert result.returncode == error["code"] == 20
    data = document["data"]
    assert document["ok"] is False
    assert (data["prefix"], data["style"], data["variables"]) == (None, None, None)
    assert [item["whole"] for item in data["run"]["checkpoints"]] == [False]
    assert data["problems"][0]["id"] == error["id"]
    # By the checkpoint's own name there is nothing else to tell.
    alone = run_cli(["inspect", f"{run}/model.ckpt-42", "--json"])
    assert (alone.returncode, alone.stdout) == (20, "")
    assert json.loads(alone.stderr)["id"] == error["id"]
    for command in ("list", "verify"):
        other = run_cli([command, run, "--json"])
        assert bool(other.stdout) != bool(other.stderr)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("hidden/weights[0:2", "it has no closing bracket"),
        ("hidden/weights[[0,2]]", "a list of positions is not supported"),
        ("hidden/w*[0:2", "it has no closing bracket"),
    ],
)
def test_a_wrong_index_is_no_missing_variable(
    run_cli: RunCli, fixtures_dir: Path, name: str, why: str
) -> None:
    result = run_cli(["load", str(fixtures_dir / "mlp-v1"), name])
    assert result.returncode == 2
    assert f"why: {why}" in result.stderr
    assert result.stderr.rstrip().endswith("[bad-index]")


def test_an_index_that_chooses_nothing_is_said(run_cli: RunCli, fixtures_dir: Path) -> None:
    load = ["load", str(fixtures_dir / "mlp-v1"), "hidden/weights[800:900]"]
    result = run_cli(load)
    assert (result.returncode, result.stdout) == (0, "")
    warning = "no value is chosen of hidden/weights[800:900] (its shape is [784,16])"
    assert f"warning: {warning}" in result.stderr
    assert json.loads(run_cli([*load, "--json"]).stdout)["warnings"] == [warning]
    empty = run_cli(["load", str(fixtures_dir / "dtypes"), "empty/float32"])
    assert "no value" not in empty.stderr, "there is nothing that could be chosen"


def test_usual_notes_can_be_left_out_and_odd_ones_are_warnings(
    run_cli: RunCli, fixtures_dir: Path
) -> None:
    run, no_state_file = str(fixtures_dir / "mlp-v1"), str(fixtures_dir / "dtypes")
    for command in (["inspect"], ["verify", "--quick"], ["load"]):
        usual = [*command, run, *(["global_step"] if command == ["load"] else [])]
        assert "is the latest by the state file" in run_cli(usual).stderr
        assert run_cli([*usual, "-q"]).stderr == ""
        odd = [*command, no_state_file, *(["scalar/float32"] if command == ["load"] else [])]
        said = f"{no_state_file} has no state file; {no_state_file}/all is the newest, by its time"
        assert run_cli([*odd, "-q"]).stderr == f"warning: {said}\n"
        assert json.loads(run_cli([*odd, "--json"]).stdout)["warnings"] == [said]
    assert run_cli(["latest", no_state_file]).stderr.startswith(
        f"warning: {no_state_file} has no state file; "
    )


def test_what_is_guessed_is_a_warning(run_cli: RunCli, no_graph: str) -> None:
    assert "\nwarning: names and kinds are guessed" in "\n" + run_cli(["list", no_graph]).stderr


def test_ages_have_a_unit(run_cli: RunCli) -> None:
    for command in ("prune", "rm", "state"):
        assert "[default: 60s]" in run_cli([command, "--help"]).stdout


def test_the_words_fit(run_cli: RunCli, fixtures_dir: Path, tmp_path: Path) -> None:
    run = str(fixtures_dir / "mlp-v1")
    none = run_cli(["list", run, "--include", "nothing"]).stderr
    assert f"none of the 17 variables of {run}/model.ckpt-1000 matches" in none
    planned = run_cli(["load", run, "global_step", "-n", "--color", "always"]).stdout
    assert "global_step: 8 B in 1 read\n" in planned
    (tmp_path / "a.txt").write_text("text")
    assert "its only entry is not the .index file" in run_cli(["list", str(tmp_path)]).stderr
    assert "error: no such run directory: nope" in run_cli(["state", "nope"]).stderr
    problems = run_cli(["inspect", str(fixtures_dir / "dtypes"), "--json"])
    assert json.loads(problems.stdout)["data"]["problems"][0]["message"].startswith(
        "it has no state file: "
    )
    torch = tmp_path / "it's.pt"
    with ZipFile(torch, "w") as archive:
        for name in ("archive/data.pkl", "archive/data/0", "archive/version"):
            archive.writestr(name, "3")
    refused = run_cli(["inspect", str(torch)])
    assert refused.returncode == 11
    assert f"next: torch.load({str(torch)!r}, weights_only=True) reads it" in refused.stderr


@pytest.mark.parametrize("length", [0, 400, 6736])
@pytest.mark.parametrize("option", [[], ["--sort", "name"], ["--json"]])
def test_list_warns_of_a_data_file_that_is_cut_off(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path, length: int, option: list[str]
) -> None:
    shutil.copytree(fixtures_dir / "keras3", tmp_path / "run")
    data = tmp_path / "run" / "ckpt-4.data-00000-of-00001"
    os.truncate(data, length)
    listed = run_cli(["list", str(tmp_path / "run"), *option])
    assert listed.returncode == 0
    said = f"{data} ({length} bytes of at least 6737) is cut off: "
    if option == ["--json"]:
        assert json.loads(listed.stdout)["warnings"][-1].startswith(said)
    else:
        assert f"\nwarning: {said}" in listed.stderr


def test_list_warns_of_a_cut_in_a_long_listing(run_cli: RunCli, tmp_path: Path) -> None:
    count = 3000
    entries: dict[bytes, EntryFields] = {
        b"v%05d" % number: {"shape": (1,), "size": 4, "offset": 4 * number}
        for number in range(count)
    }
    prefix = str(write_bundle(tmp_path, "m", entries, [bytes(4 * count - 1)]))
    listed = run_cli(["list", prefix])
    assert len(listed.stdout.splitlines()) == count
    assert f"({4 * count - 1} bytes of at least {4 * count}) is cut off" in listed.stderr


def test_a_directory_that_is_not_there_is_to_be_made(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "no dir" / "x.npy"
    refused = run_cli(["load", str(fixtures_dir / "mlp-v1"), "global_step", "-o", str(out)])
    assert refused.returncode == 10
    assert f"why: there is no directory {out.parent}" in refused.stderr
    assert f"next: mkdir -p '{out.parent}'  [destination-directory]" in refused.stderr


@pytest.mark.parametrize("format", ["npy", "npz", "raw"])
def test_bytes_are_not_for_a_terminal(fixtures_dir: Path, format: str) -> None:
    load = ["load", str(fixtures_dir / "mlp-v1"), "global_step", "-o", "-", "--format"]
    refused = run_in_terminal([*load, format], env={"NO_COLOR": "1"})
    assert refused.returncode == 2
    assert "[output-terminal]" in refused.output
    shown = run_in_terminal([*load, "csv"], env={"NO_COLOR": "1"})
    assert shown.returncode == 0
    assert shown.lines[-1] == "1000"


def test_a_listing_into_a_closed_stream_is_no_success(fixtures_dir: Path) -> None:
    command = [sys.executable, "-m", "ckpttool", "list", str(fixtures_dir / "mlp-v1")]
    script = 'exec "$@" >&-'
    listed = subprocess.run(
        ["sh", "-c", script, "sh", *command],
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert listed.returncode == 40
    assert "cannot write to standard output" in listed.stderr


def test_latest_in_python(fixtures_dir: Path) -> None:
    run = fixtures_dir / "keras3"
    found = ckpttool.latest(run)
    assert (found.prefix, found.step, found.number) == (f"{run}/ckpt-4", 16, 4)
    assert found.warnings == ()
    with ckpttool.open(found.prefix) as checkpoint:
        array = checkpoint.read("regressor/hidden/kernel")
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
        own = checkpoint.read("regressor/hidden/kernel", copy=True)
        own[0] = 0
