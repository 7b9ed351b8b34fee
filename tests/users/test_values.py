"""What people ran into when they wanted to see values."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ckpttool
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, write_bundle
from tests.support.terminal import run_in_terminal


def test_d06_all_values_can_be_had_and_nothing_is_left_out_silently(
    run_cli: RunCli, tmp_path: Path
) -> None:
    """D06: inspect_checkpoint prints ``...`` in the middle of tensors, and cannot export."""
    values = (np.arange(5000, dtype="<f4") / 3).reshape(50, 100)
    entry: EntryFields = {"shape": values.shape, "size": values.nbytes}
    prefix = str(write_bundle(tmp_path, "m", {b"w": entry}, [values.tobytes()]))

    shown = run_in_terminal(["load", prefix, "w"], env={"NO_COLOR": "1"}).output
    assert "..." in shown
    assert "5000 values; --full prints all, -o FILE saves them" in shown
    assert "min 0  max 1666.33" in shown, "a summary of all of them, not of what is shown"

    full = run_in_terminal(["load", prefix, "w", "--full"], env={"NO_COLOR": "1"}).output
    assert "..." not in full
    piped = run_cli(["load", prefix, "w"]).stdout
    assert "..." not in piped
    np.testing.assert_array_equal(np.array(piped.split(), "<f4"), values.ravel())

    for suffix in ("npy", "npz", "csv", "json"):
        out = tmp_path / f"w.{suffix}"
        assert run_cli(["load", prefix, "w", "-o", str(out)]).returncode == 0
        if suffix == "csv":
            back = np.loadtxt(out, delimiter=",", dtype="<f4")
        elif suffix == "json":
            back = np.array(json.loads(out.read_text())["variables"][0]["values"], "<f4")
        else:
            loaded = np.load(out, allow_pickle=False)
            back = loaded if suffix == "npy" else loaded["w"]
        np.testing.assert_array_equal(back, values, suffix)


def test_d06_listing_never_prints_values(run_cli: RunCli, fixtures_dir: Path) -> None:
    listed = run_cli(["list", str(fixtures_dir / "two-shards")]).stdout
    assert "tower/kernel" in listed
    assert "0.0012301534" not in listed


def test_d15_a_damaged_value_names_variable_shard_and_offset(
    run_cli: RunCli, fixtures_dir: Path
) -> None:
    """D15: ``Checksum does not match: stored X vs. calculated Y``, and no name."""
    damaged = str(fixtures_dir / "damaged" / "flipped-bit")
    result = run_cli(["load", damaged, "tower/kernel"])
    assert result.returncode == 20
    assert "the values of tower/kernel are damaged" in result.stderr
    assert "shard 1 (" in result.stderr
    assert "model.ckpt-42.data-00001-of-00002), bytes 0 to 1024" in result.stderr
    assert run_cli(["load", damaged, "tower/bias"]).returncode == 0, "the good ones can be read"
    listed = run_cli(["list", damaged])
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == 4


def test_d15_a_truncated_shard_is_named(run_cli: RunCli, tmp_path: Path) -> None:
    """D15: ``Read less bytes than requested``, and no name."""
    entry: EntryFields = {"shape": (100,), "size": 400}
    prefix = str(write_bundle(tmp_path, "m", {b"w": entry}, [bytes(300)]))
    result = run_cli(["load", prefix, "w"])
    assert result.returncode == 20
    assert "the values of w cannot be read: its shard is cut off" in result.stderr
    assert "400 bytes are wanted at offset 0, and the file has 300 bytes" in result.stderr


def test_d22_a_partitioned_variable_is_one_variable_with_its_slices(
    run_cli: RunCli, fixtures_dir: Path
) -> None:
    """D22: ``Key model/softmax_w/part_7 not found``: the parts are slices of one variable."""
    address = str(fixtures_dir / "partitioned")
    listed = json.loads(run_cli(["list", address, "--json"]).stdout)["data"]["variables"]
    assert [variable["name"] for variable in listed] == [
        "embedding/table",
        "embedding/table/Adagrad",
        "global_step",
    ]
    starts = [part["start"] for part in listed[0]["slices"]]
    extents = [part["extent"] for part in listed[0]["slices"]]
    assert starts == [[0, 0], [17, 0], [34, 0]]
    assert extents == [[17, 4], [17, 4], [16, 4]]
    rows = run_cli(["load", address, "embedding/table[16:18]"]).stdout.splitlines()
    assert len(rows) == 2, "across two slices"
    result = run_cli(["load", address, "embedding/table/part_1"])
    assert result.returncode == 10
    assert "did you mean: embedding/table" in result.stderr


def test_d24_bfloat16_is_shown_and_cast_exactly(run_cli: RunCli, tmp_path: Path) -> None:
    """D24: a bfloat16 checkpoint is wanted in float32."""
    values = np.array([0.1, -2.5, 3e38, 1e-40, np.inf], ml_dtypes.bfloat16)
    entry: EntryFields = {"dtype": 14, "shape": values.shape, "size": values.nbytes}
    step: EntryFields = {"dtype": 9, "shape": (), "offset": values.nbytes, "size": 8}
    data = values.tobytes() + (77).to_bytes(8, "little")
    prefix = str(write_bundle(tmp_path, "m", {b"w": entry, b"step": step}, [data]))
    shown = run_cli(["load", prefix, "w"]).stdout.split()
    wide = values.astype(np.float32)
    np.testing.assert_array_equal(np.array(shown, "<f4"), wide)

    refused = run_cli(["load", prefix, "w", "-o", str(tmp_path / "w.npy")])
    assert refused.returncode == 12
    assert "--cast auto" in refused.stderr
    out = tmp_path / "all.npz"
    lossy = run_cli(["load", prefix, "w", "step", "--cast", "float32", "-o", str(out)])
    assert lossy.returncode == 2
    assert "float32 does not hold every value of step (int64)" in lossy.stderr
    cast = run_cli(["load", prefix, "w", "step", "--cast", "auto", "-o", str(out)])
    assert cast.returncode == 0, cast.stderr
    archive = np.load(out)
    assert archive["w"].dtype == np.float32
    np.testing.assert_array_equal(archive["w"], wide)
    assert archive["step"].dtype == np.int64, "integers are left alone"
    with ckpttool.open(prefix) as checkpoint:
        assert checkpoint.read("w").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(("dtype", "name"), [(3, "int32"), (9, "int64"), (1, "float32")])
def test_d25_the_dtype_is_always_beside_the_value(
    run_cli: RunCli, tmp_path: Path, dtype: int, name: str
) -> None:
    """D25: ``global_step`` reads as 7e-45 when an int32 is taken for a float."""
    data = np.array(5, {3: "<i4", 9: "<i8", 1: "<f4"}[dtype]).tobytes()
    entry: EntryFields = {"dtype": dtype, "shape": (), "size": len(data)}
    prefix = str(write_bundle(tmp_path, "m", {b"global_step": entry}, [data]))
    value = "5.0" if dtype == 1 else "5"
    assert run_cli(["load", prefix, "global_step"]).stdout == f"{value}\n"
    shown = run_in_terminal(["load", prefix, "global_step"], env={"NO_COLOR": "1"})
    assert shown.lines[0].startswith(f"global_step  {name}  []")
    both = run_cli(["load", prefix, "global_step", "global_step"]).stdout
    assert both.splitlines()[0] == f"# global_step\t{name}\t[]"
    found = json.loads(run_cli(["load", prefix, "global_step", "--json"]).stdout)
    assert found["data"]["variables"][0]["dtype"] == name
    assert name in run_cli(["list", prefix]).stdout
