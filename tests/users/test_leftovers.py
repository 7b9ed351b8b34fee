"""Small things that new users stumbled over: what was refused, left unsaid, or said oddly."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from ckpttool.cli.screen import Screen
from ckpttool.cli.views.verify import VerifyView
from ckpttool.ops.load import pick
from tests.support.command import RunCli


def test_all_of_a_run_is_averaged(run_cli: RunCli, fixtures_dir: Path, tmp_path: Path) -> None:
    """``RUN/@*`` is every whole checkpoint, and it is said which; ``merge`` does not take it."""
    run, mean = tmp_path / "run", tmp_path / "mean"
    shutil.copytree(fixtures_dir / "keras3", run)
    os.truncate(run / "ckpt-2.data-00000-of-00001", 100)
    done = run_cli(["average", run / "@*", "-o", mean])
    assert done.returncode == 0, done.stderr
    assert f"{run}/@*, by step: ckpt-3, ckpt-4" in done.stderr
    assert f"{run}/ckpt-2 is left out: " in done.stderr
    name = "regressor/hidden/kernel"
    with (
        ckpttool.open(run / "ckpt-3") as one,
        ckpttool.open(run / "ckpt-4") as other,
        ckpttool.open(mean) as result,
    ):
        expected = (one.read(name).astype(np.float64) + other.read(name)) / 2
        np.testing.assert_array_equal(result.read(name), expected.astype(np.float32))
        assert result.step == other.step
    wrong = run_cli(["average", run / "@*", "-o", tmp_path / "x", "--weights", "1,2,3"])
    assert (wrong.returncode, "there are 2 sources" in wrong.stderr) == (2, True)
    merged = run_cli(["merge", run / "@*", "-o", tmp_path / "x"])
    assert merged.returncode == 2
    plan = ckpttool.plan_average(run / "@*", tmp_path / "y", weights=[1, 3])
    assert plan.apply().applied


def test_a_pattern_finds_what_a_name_finds(run_cli: RunCli, fixtures_dir: Path) -> None:
    """Readable names, literal keys and object paths, as ``load SRC NAME``."""
    with ckpttool.open(fixtures_dir / "keras3") as checkpoint:
        source = checkpoint.source
        for variable in checkpoint.values():
            if variable.kind == "object_graph":
                continue
            path = source.name_of(variable, "path")
            for text in (variable.name, variable.key, path):
                assert source.lookup(text) is not None
                found = [item.variable.key for item in pick(source, [f"{text[:-1]}?"])]
                assert variable.key in found, text
    pattern = "model/_functional/_operations/*/_kernel"
    done = run_cli(["load", fixtures_dir / "keras3", pattern, "--json"])
    names = [one["name"] for one in json.loads(done.stdout)["data"]["variables"]]
    assert names == ["regressor/hidden/kernel", "regressor/output/kernel"]


def test_what_a_layout_has_no_place_for_is_said_when_it_is_written(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    like = fixtures_dir / "two-shards" / "model.ckpt-42"
    with ckpttool.open(like) as checkpoint:
        values = {name: checkpoint.read(name) for name in checkpoint}
    kernel = values["tower/kernel"]
    kinds = ("Adam", "Adam_1", "Adadelta", "Ftrl", "RMSProp")
    slots = {f"tower/kernel/{kind}": kernel for kind in kinds}
    without = {name: array for name, array in values.items() if name != "tower/kernel/Momentum"}
    ckpttool.write_checkpoint(tmp_path / "values", {**without, **slots})
    done = run_cli(["edit", tmp_path / "values", tmp_path / "new", "--like", like])
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert f"left out of {tmp_path}/values, since {like} has no place for tower/kernel/A" in said
    assert "and 2 more (-n lists them)" in said
    assert (
        f"not in the result, since {tmp_path}/values has no values for tower/kernel/Momentum"
        in said
    )


@pytest.mark.parametrize("name", ["keras3.keras", "keras2.h5"])
def test_a_keras_file_has_no_graph_but_a_way_to_one(
    run_cli: RunCli, fixtures_dir: Path, name: str
) -> None:
    file = fixtures_dir / "keras-files" / name
    refused = run_cli(["inspect", file, "--graph"])
    assert refused.returncode == 10
    assert ".meta" not in refused.stderr
    assert (
        f"ckpttool convert {file} {name.partition('.')[0]}-saved --to savedmodel" in refused.stderr
    )
    arrays = run_cli(["inspect", fixtures_dir / "arrays" / "model.safetensors", "--graph"])
    assert (arrays.returncode, ".meta" in arrays.stderr) == (10, False)


def test_a_format_without_checksums_is_read_and_that_is_all(
    run_cli: RunCli, fixtures_dir: Path
) -> None:
    file = str(fixtures_dir / "models" / "dense.tflite")
    result = ckpttool.verify(file)
    lines = list(VerifyView([result]).human(Screen(200, color=False, unicode=True)))
    assert lines[0] == f"{file}: no damage found  2 variables, 140 B read\n"
    assert "stores no checksums, so a changed value would not show" in lines[1]
    piped = run_cli(["verify", file])
    assert (piped.returncode, f"{file}\tno damage found\tdeep" in piped.stdout) == (3, True)


def test_a_map_is_a_document_of_its_own(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    source = fixtures_dir / "keras3"
    for mode in ("--json", "--ndjson"):
        refused = run_cli(["list", source, "--map", "-", mode])
        assert (refused.returncode, refused.stdout) == (2, "")
        assert json.loads(refused.stderr)["id"] == "options-contradict"
    beside = run_cli(["list", source, "--map", tmp_path / "names.json", "--json"])
    assert json.loads(beside.stdout)["ok"] is True


def test_hostile_names_stay_text_in_a_map(run_cli: RunCli, tmp_path: Path) -> None:
    """A terminal is not told to do anything by a name."""
    names = ["\x1b]0;owned\x07", '"},{"', "a\nb", "\udcff"]
    ckpttool.write_checkpoint(tmp_path / "m", dict.fromkeys(names, np.float32(1)))
    done = run_cli(["list", tmp_path / "m", "--map", "-"])
    assert sorted(row["key"] for row in json.loads(done.stdout)) == sorted(names)
    assert all(" " <= one <= "~" for one in done.stdout if one != "\n")


def test_a_pipe_is_called_one(run_cli: RunCli, fixtures_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fixtures_dir / "mlp-v1", run)
    os.mkfifo(run / "model.ckpt-7.index")
    said = run_cli(["inspect", run, "--json"]).stdout
    assert "but a pipe, socket or device" in said
