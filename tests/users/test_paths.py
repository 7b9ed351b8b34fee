"""What users meet when they give a path (the cases D01 to D14 that concern reading)."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import RunCli
from tests.support.saved import save, write_state


def inspect(run_cli: RunCli, address: str | Path, **options: Any) -> dict[str, Any]:
    """The data of `inspect --json`, which has to succeed."""
    result = run_cli(["inspect", "--json", address], **options)
    assert result.returncode == 0, result.stderr
    data: dict[str, Any] = json.loads(result.stdout)["data"]
    return data


def refused(run_cli: RunCli, address: str | Path, **options: Any) -> dict[str, Any]:
    """The error of `inspect --json`: code, id, message, why, hint; never a traceback."""
    result = run_cli(["inspect", "--json", address], **options)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    error: dict[str, Any] = json.loads(result.stderr)
    assert result.returncode == error["code"]
    return error


def copy_of(source: Path, target: Path) -> Path:
    """A copy of a directory that may be written to."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


@pytest.mark.parametrize("suffix", [".index", ".meta", ".data-00000-of-00001"])
def test_d01_one_of_the_three_files_stands_for_the_checkpoint(
    run_cli: RunCli, corpus: Path, suffix: str
) -> None:
    prefix = corpus / "v2-widedeep-5steps" / "model.ckpt-15280"
    result = run_cli(["inspect", f"{prefix}{suffix}"])
    assert result.returncode == 0
    assert f"prefix\t{prefix}\n" in result.stdout
    (note,) = result.stderr.splitlines()
    assert note.endswith(f"of {prefix}, which is read")
    assert "sstable" not in result.stderr


def test_d02_an_index_never_has_no_variables(run_cli: RunCli, corpus: Path, hostile: Path) -> None:
    index = corpus / "obj-iris-2shard" / "model.ckpt.index"
    assert inspect(run_cli, index)["variables"] == 18
    error = refused(run_cli, hostile / "empty_table" / "c.index")
    assert error["code"] == 20


def test_d03_the_state_file_stands_for_its_latest(run_cli: RunCli, corpus: Path) -> None:
    for address in ("checkpoint", ""):
        path = corpus / "v2-taxi-tf29-estimator" / address
        result = run_cli(["inspect", path])
        chosen = corpus / "v2-taxi-tf29-estimator" / "model.ckpt-1000"
        assert f"prefix\t{chosen}\n" in result.stdout
        assert f"{chosen} is the latest by the state file" in result.stderr


def test_d04_what_is_no_tensorflow_checkpoint_is_named(
    run_cli: RunCli, corpus: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "lightning.ckpt", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    (tmp_path / "model.ckpt.tar.gz").write_bytes(b"\x1f\x8b\x08\0")
    for path, words in [
        (corpus / "bad-pytorch-ckpt" / "model.ckpt", "a PyTorch checkpoint (zip)"),
        (corpus / "bad-pytorch-ckpt", "a PyTorch checkpoint (zip)"),
        (tmp_path / "lightning.ckpt", "a PyTorch checkpoint (zip)"),
        (tmp_path / "model.ckpt.tar.gz", "a gzip-compressed file"),
    ]:
        error = refused(run_cli, path)
        assert error["code"] == 11
        assert words in error["message"] + error["why"]
        assert error["hint"]
    # What other programs of TensorFlow write is no checkpoint either, and is read all the same.
    for name, kind in [
        ("keras3-mnist-keras/mnist.keras", "keras-v3"),
        ("h5-tfjs-fsrcnn/trained_model/SRCNN.h5", "keras-h5"),
        ("pb-frozen-rnn-fc/gru/frozen.pb", "frozen-graph"),
        ("multi-regression-allformats/regression/tflite/model.tflite", "tflite"),
    ]:
        result = run_cli(["inspect", "--json", corpus / name])
        assert json.loads(result.stdout)["data"]["kind"] == kind


def test_d05_git_lfs_pointers_say_their_size_and_how_to_fetch_them(
    run_cli: RunCli, corpus: Path, tmp_path: Path
) -> None:
    folder = corpus / "bad-lfs-pointers"
    for suffix in ("", ".index", ".meta", ".data-00000-of-00001"):
        error = refused(run_cli, folder / f"network_01900000{suffix}")
        assert (error["code"], error["id"]) == (11, "git-lfs-pointer")
        assert "1420 bytes" in error["why"]
        assert error["hint"] == f"git -C {folder} lfs pull --include 'network_01900000*'"
    # Only the large files are pointers: listing works, and says so.
    save(tmp_path, "m")
    pointer = folder / "network_01900000.data-00000-of-00001"
    for name in ("m.data-00000-of-00001", "m.meta"):
        (tmp_path / name).write_bytes(pointer.read_bytes())
    result = run_cli(["inspect", tmp_path / "m"])
    assert result.returncode == 0
    assert f"{tmp_path / 'm.data-00000-of-00001'} is a Git-LFS pointer" in result.stderr
    assert f"{tmp_path / 'm.meta'} is a Git-LFS pointer" in result.stderr
    assert "lfs pull --include 'm*'" in result.stderr


def test_d08_a_wrong_prefix_gets_the_nearest_ones(run_cli: RunCli, corpus: Path) -> None:
    folder = corpus / "v2-linear-part0-slots"
    for wrong in ("model", "model.ckpt", "model.ckpt-586", "model-5865"):
        error = refused(run_cli, folder / wrong)
        assert error["code"] == 10
        assert f"{wrong}.index" in error["why"]
        assert f"did you mean {folder / 'model.ckpt-5'}" in error["hint"]
    assert "model.ckpt-5865" in refused(run_cli, folder / "model.ckpt-586")["hint"]
    error = refused(run_cli, "")
    assert (error["code"], error["id"]) == (2, "empty-address")
    assert refused(run_cli, corpus)["id"] == "no-checkpoint"


@pytest.mark.parametrize(
    "folder",
    ["run_[lr=1]", "st*r", "wh?t", "{a,b}", "a+b", "two words", "naïve", "b\udcffd", "back\\slash"],
)
def test_d09_special_characters_in_folders_and_prefixes_are_literal(
    run_cli: RunCli, corpus: Path, tmp_path: Path, folder: str
) -> None:
    run = copy_of(corpus / "obj-iris-2shard", tmp_path / folder)
    copy_of(corpus / "obj-iris-2shard", tmp_path / "star")
    for path in list(run.iterdir()):
        if path.name != "checkpoint":
            path.rename(run / path.name.replace("model.ckpt", "m[1]*?"))
    write_state(run, "m[1]*?")
    for address in (run, run / "m[1]*?", run / "m[1]*?.index"):
        data = inspect(run_cli, address)
        assert data["variables"] == 18
        assert data["prefix"].endswith("/m[1]*?")
    result = run_cli(["latest", run])
    assert os.fsencode(result.stdout) == os.fsencode(run / "m[1]*?") + b"\n"


def test_d10_a_moved_run_is_found_by_its_names(
    run_cli: RunCli, corpus: Path, tmp_path: Path
) -> None:
    """Also when the old place still exists: the copy's own files are meant."""
    original = copy_of(corpus / "obj-a2c-2shard-unlisted", tmp_path / "original")
    write_state(original, f"{original}/ckpt-5")
    moved = copy_of(original, tmp_path / "copy")
    for _ in range(2):
        result = run_cli(["inspect", moved])
        assert f"prefix\t{moved}/ckpt-5\n" in result.stdout
        assert f"the state file says {original}/ckpt-5, which was found by its name" in (
            result.stderr
        )
        assert run_cli(["latest", moved]).stdout == f"{moved}/ckpt-5\n"
        shutil.rmtree(original, ignore_errors=True)
    before = (moved / "checkpoint").read_bytes()
    problems = json.loads(run_cli(["state", "--json", moved]).stdout)["data"]["problems"]
    assert [problem["id"] for problem in problems] == ["state-path-moved"]
    assert (moved / "checkpoint").read_bytes() == before


def test_d11_paths_relative_to_where_training_ran(
    run_cli: RunCli, corpus: Path, tmp_path: Path
) -> None:
    # The corpus's own file of this kind, whose checkpoint is of the first format.
    old = corpus / "v1-deepq-dotdot-path"
    result = run_cli(["latest", old])
    assert result.stdout == f"{old}/karpathy_game.ckpt\n"
    assert "the state file says ../saved_models/karpathy_game.ckpt" in result.stderr
    save(tmp_path / "test", "model-0")
    write_state(tmp_path / "test", "test/model-0")  # joined: test/test/model-0
    for cwd in (tmp_path, tmp_path / "test", Path("/")):
        result = run_cli(["latest", tmp_path / "test"], cwd=cwd)
        assert result.stdout == f"{tmp_path}/test/model-0\n"
        assert "the state file says test/model-0, which was found" in result.stderr


def test_d12_without_a_usable_state_file_the_newest_by_number(
    run_cli: RunCli, corpus: Path, tmp_path: Path
) -> None:
    run = copy_of(corpus / "obj-trained-weights-1to10" / "saved_models", tmp_path / "run")
    (run / "checkpoint").rename(run / "checkpoint.txt")
    for text in (None, b"", b"nonsense", b'model_checkpoint_path: "trained_weights_11"\n'):
        if text is not None:
            (run / "checkpoint").write_bytes(text)
        data = inspect(run_cli, run)
        assert data["prefix"] == f"{run}/trained_weights_10"  # not _9
        stderr = run_cli(["inspect", run]).stderr
        assert f"{run}/trained_weights_10 is the newest, by the number in its name" in stderr
        assert "state file" in stderr
    # The file under its other name still says what it said.
    assert inspect(run_cli, run / "checkpoint.txt")["prefix"] == f"{run}/trained_weights_10"


def test_d13_latest_is_the_newest_whole_one(run_cli: RunCli, corpus: Path, tmp_path: Path) -> None:
    run = copy_of(corpus / "obj-manager-timestamps" / "ckpt_nstep", tmp_path / "run")
    (run / "ckpt-6.data-00000-of-00001").unlink()
    os.truncate(run / "ckpt-5.data-00000-of-00001", 1000)
    result = run_cli(["latest", run])
    assert (result.returncode, result.stdout) == (0, f"{run}/ckpt-4\n")
    assert "ckpt-6.data-00000-of-00001 is missing" in result.stderr
    assert "ckpt-5.data-00000-of-00001 has 1000 bytes" in result.stderr
    quiet = run_cli(["latest", "-q", run])
    assert quiet.stdout == f"{run}/ckpt-4\n"
    document = json.loads(run_cli(["latest", "--json", run]).stdout)
    assert document["data"] == {"prefix": f"{run}/ckpt-4", "step": 28404, "number": 4}
    assert document["ok"] is True
    assert len(document["warnings"]) == 1
    error = refused(run_cli, f"{run}/@latest")
    assert (error["code"], error["id"]) == (20, "latest-incomplete")
    assert error["hint"] == f"the newest whole one is {run}/ckpt-4"
    for path in run.glob("*.index"):
        path.write_bytes(b"")
    none = run_cli(["latest", run])
    assert (none.returncode, none.stdout) == (10, "")
    assert "[no-whole-checkpoint]" in none.stderr


def test_d14_leftovers_are_listed_apart(run_cli: RunCli, corpus: Path, tmp_path: Path) -> None:
    run = copy_of(corpus / "obj-a2c-2shard-unlisted", tmp_path / "run")
    (run / "ckpt-6_temp_08f0").mkdir()
    (run / "variables_temp").mkdir()
    stray = "ckpt-6.data-00000-of-00002.tempstate5599"
    for name in (stray, "ckpt-7.data-00000-of-00002", "checkpoint.tmp" + "0f" * 16):
        (run / name).write_bytes(b"x")
    data = inspect(run_cli, run)["run"]
    assert [item["prefix"] for item in data["checkpoints"]] == [f"{run}/ckpt-1", f"{run}/ckpt-5"]
    leftovers = {os.path.basename(item["path"]): item["why"] for item in data["leftovers"]}
    assert set(leftovers) == {
        "ckpt-6_temp_08f0",
        "variables_temp",
        stray,
        "ckpt-7.data-00000-of-00002",
        "checkpoint.tmp" + "0f" * 16,
    }
    assert all(leftovers.values())
    assert run_cli(["latest", run]).stdout == f"{run}/ckpt-5\n"
