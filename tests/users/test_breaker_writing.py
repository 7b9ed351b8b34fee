"""Files that are written while something goes wrong: what a breaker found."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpttool
from ckpttool.conversion import weights_h5, weights_npz, weights_safetensors
from ckpttool.conversion.request import CheckSettings, Request, Settings
from ckpttool.conversion.worker.array_data import read_arrays
from ckpttool.errors import CkpttoolError, ResultDiffersError
from ckpttool.ops.convert import convert
from ckpttool.ops.convert_apart import require_apart
from ckpttool.storage import NewFile
from tests.support.command import RunCli

WRITERS = {"safetensors": weights_safetensors, "npz": weights_npz, "h5": weights_h5}


def _checkpoint(folder: Path) -> str:
    prefix = folder / "m"
    pieces = ckpttool.Pieces("bfloat16", (2,), [b"abcd"])
    ckpttool.write_checkpoint(prefix, {"a": pieces, "b": np.arange(3, dtype="i4")}, step=7)
    return str(prefix)


# What a file of weights says about its arrays is checked, too -------------------------


@pytest.mark.parametrize(
    ("ending", "wrong"),
    [
        ("safetensors", {"step": "5"}),
        ("safetensors", {"raw_dtypes": '{"a": "float16"}'}),
        ("safetensors", {"more": "x"}),
        ("npz", {"raw_dtypes": '{"a": "float16"}'}),
        ("h5", {"step": "5"}),
        ("h5", {"raw_dtypes": '{"a": "float16"}'}),
    ],
)
def test_what_is_said_about_arrays_is_compared(
    ending: str, wrong: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = WRITERS[ending].write

    def write(arrays: Any, file: NewFile, about: Any) -> None:
        real(arrays, file, {**about, **wrong})

    to = tmp_path / f"m.{ending}"
    settings = Settings(dtypes="error" if ending == "safetensors" else "raw")
    request = Request(_checkpoint(tmp_path), str(to), "", settings=settings)
    monkeypatch.setattr(WRITERS[ending], "write", write)
    with pytest.raises(ResultDiffersError) as caught:
        convert(request)
    assert "what it says about its arrays" in caught.value.why
    assert not to.exists()
    monkeypatch.undo()
    assert convert(request).check.state == "passed"


def test_a_type_of_as_many_bytes_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are the same, and what they mean is not."""
    real = weights_safetensors.write

    def write(arrays: Any, file: NewFile, about: Any) -> None:
        changed = {"int32": "float32", "bfloat16": "float16"}
        real([one._replace(dtype=changed.get(one.dtype, one.dtype)) for one in arrays], file, about)

    monkeypatch.setattr(weights_safetensors, "write", write)
    with pytest.raises(CkpttoolError) as caught:
        convert(Request(_checkpoint(tmp_path), str(tmp_path / "m.safetensors"), ""))
    assert caught.value.exit_code == 52
    assert "b has another type" in caught.value.why
    assert not (tmp_path / "m.safetensors").exists()


# Nothing takes the place of what it is made of ---------------------------------------


@pytest.mark.parametrize(
    "to", ["m.index", "m.data-00000-of-00001", "./sub/../m.index", "sub/up/m.index"]
)
@pytest.mark.parametrize("source", ["m", "m.index", "."])
@pytest.mark.parametrize("run", [True, False])
def test_no_file_of_the_source_is_replaced(
    to: str, source: str, run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _checkpoint(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("m.*")}
    check = CheckSettings(run=run)
    with pytest.raises(CkpttoolError) as caught:
        convert(Request(source, to, "npz", check=check, overwrite=True))
    assert (caught.value.exit_code, caught.value.id) == (31, "output-is-source")
    assert {path: path.read_bytes() for path in tmp_path.glob("m.*")} == before


@pytest.mark.parametrize("to", ["m", "m.index", "./sub/../m", "sub/up/m", "."])
@pytest.mark.parametrize("source", ["m", "m.index", "."])
def test_a_checkpoint_does_not_take_its_own_place(
    to: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _checkpoint(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("m.*")}
    with pytest.raises(CkpttoolError) as caught:
        convert(Request(source, to, "checkpoint", overwrite=True))
    assert (caught.value.exit_code, caught.value.id) == (31, "output-is-source")
    assert {path: path.read_bytes() for path in tmp_path.glob("m.*")} == before


@pytest.mark.parametrize(
    ("fixture", "source", "to"),
    [
        ("v1-sharded", "model.ckpt-30", "model.ckpt-30-00000-of-00002"),
        ("models", "dense.onnx", "dense.bin"),
        ("models/tfjs", ".", "*1of2.bin"),
    ],
)
def test_no_data_file_of_any_source_is_replaced(
    fixture: str, source: str, to: str, fixtures_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(fixtures_dir / fixture, folder)
    (path,) = folder.glob(to)
    before = path.read_bytes()
    with pytest.raises(CkpttoolError) as caught:
        convert(Request(str(folder / source), str(path), "npz", overwrite=True))
    assert (caught.value.exit_code, caught.value.id) == (31, "output-is-source")
    assert path.read_bytes() == before


@pytest.mark.parametrize("given", ["model", "like", "maps", "log"])
def test_what_else_was_given_does_not_go_either(given: str, tmp_path: Path) -> None:
    """Code, a map or an export inside the former result; a log that would be added to a source."""
    prefix = _checkpoint(tmp_path)
    export = tmp_path / "export"
    (export / "old").mkdir(parents=True)
    for name in ("saved_model.pb", "build.py", "map.json"):
        (export / name).write_text("{}")
    words: dict[str, Any] = {
        "model": f"{export / 'build.py'}:make",
        "like": str(export / "old"),
        "maps": (str(export / "map.json"),),
        "log": f"{prefix}.index",
    }
    before = (tmp_path / f"{prefix}.index").read_bytes()
    asked = Request(prefix, str(export), "savedmodel", overwrite=True, **{given: words[given]})
    with pytest.raises(CkpttoolError) as caught:
        require_apart(asked)
    assert (caught.value.exit_code, caught.value.id) == (31, "output-is-source")
    assert (tmp_path / f"{prefix}.index").read_bytes() == before


def test_nothing_in_a_saved_model_and_nothing_around_the_source(tmp_path: Path) -> None:
    (tmp_path / "sm" / "variables").mkdir(parents=True)
    (tmp_path / "sm" / "saved_model.pb").write_bytes(b"")
    prefix = _checkpoint(tmp_path / "sm" / "variables")
    inside = tmp_path / "sm" / "saved_model.pb"
    for source, to in (
        (str(tmp_path / "sm"), str(inside)),
        (prefix, str(tmp_path / "sm")),
    ):
        with pytest.raises(CkpttoolError) as caught:
            convert(Request(source, to, "npz", overwrite=True))
        assert (caught.value.exit_code, caught.value.id) == (31, "output-is-source")


def test_another_checkpoint_of_a_name_that_begins_so_is_no_source(tmp_path: Path) -> None:
    source = _checkpoint(tmp_path)
    (tmp_path / "m.npz").write_bytes(b"former")
    settings = Settings(dtypes="cast")
    convert(Request(source, str(tmp_path / "m.npz"), "", settings=settings, overwrite=True))
    with ckpttool.open(tmp_path / "m.npz") as result:
        assert result.read("b").tolist() == [0, 1, 2]


# Data that a person gives --------------------------------------------------------------


@pytest.mark.parametrize("damage", ["no array", "password", "compression", "deflate"])
def test_an_archive_of_something_else_is_no_data(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    if damage == "no array":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", b"")
    else:
        np.savez_compressed(path, x=np.arange(1000))
        data = bytearray(path.read_bytes())
        directory = data.index(b"PK\1\2")
        if damage == "password":
            data[6] |= 1
            data[directory + 8] |= 1
        elif damage == "compression":
            data[8] = data[directory + 10] = 99
        else:
            start = data.index(b"x.npy") + len("x.npy") + int.from_bytes(data[28:30], "little")
            data[start : start + 8] = b"\xff" * 8
        path.write_bytes(data)
    with pytest.raises(CkpttoolError) as caught:
        read_arrays(str(path), lambda _: True, option="--check-data", id="check-data")
    assert (caught.value.exit_code, caught.value.id) == (2, "check-data")


# Bytes that are not there --------------------------------------------------------------


def _cut(folder: Path, fixtures_dir: Path) -> Path:
    """A checkpoint whose second data file has lost its last byte, and with it a slot."""
    run = folder / "cut"
    shutil.copytree(fixtures_dir / "two-shards", run)
    data = run / "model.ckpt-42.data-00001-of-00002"
    data.write_bytes(data.read_bytes()[:-1])
    return run / "model.ckpt-42"


@pytest.mark.parametrize("dry_run", [True, False], ids=["plan", "write"])
@pytest.mark.parametrize("to", ["shards", "slices", "renamed", "merged"])
def test_what_a_data_file_has_not_is_no_plan(
    to: str, dry_run: bool, tmp_path: Path, fixtures_dir: Path, run_cli: RunCli
) -> None:
    """It was planned with exit code 0, and could not be carried out."""
    source, out = str(_cut(tmp_path, fixtures_dir)), str(tmp_path / "out")
    command = {
        "shards": ["repartition", source, out, "--shards", "1"],
        "slices": ["repartition", source, out, "--slice", "tower/kernel*=axis0:2"],
        "renamed": ["edit", source, out, "--rename", "s/tower/roof/"],
        "merged": [
            "merge",
            source,
            str(fixtures_dir / "mlp-v1"),
            "-o",
            out,
            "--on-conflict",
            "first",
        ],
    }[to]
    result = run_cli([*command, *(["-n"] if dry_run else [])], cwd=tmp_path)
    assert result.returncode == 20, result.stderr
    assert "[shard-short]" in result.stderr
    assert "/kernel/Momentum" in result.stderr  # as it is called in the result
    assert not list(tmp_path.glob("out*"))


def test_what_is_left_out_may_be_lost(tmp_path: Path, fixtures_dir: Path, run_cli: RunCli) -> None:
    source, out = str(_cut(tmp_path, fixtures_dir)), str(tmp_path / "out")
    result = run_cli(["edit", source, out, "--strip-optimizer"], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert run_cli(["verify", out], cwd=tmp_path).returncode == 0


def test_a_claim_of_an_exbibyte_is_no_full_disk(
    hostile: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    source = str(hostile / "huge_shape_2p60" / "c")
    result = run_cli(["repartition", source, str(tmp_path / "out"), "--shards", "2"], cwd=tmp_path)
    assert result.returncode == 20, result.stderr
    assert "[shard-short]" in result.stderr
