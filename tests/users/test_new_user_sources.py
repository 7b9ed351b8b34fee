"""What a new user stumbled over with Keras files, exports, TensorFlow 1 graphs and the report."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpttool
from ckpttool.ops.diff.facts import Only
from ckpttool.ops.diff.suggest import with_rules
from ckpttool.sources.graph_analysis import analyse_graph
from tests.support.command import RunCli, clean_environment
from tests.support.graph_files import graph_of, node, placeholder


def save_arrays(path: str, arrays: dict[str, Any]) -> None:
    """NumPy's own archive of arrays."""
    np.savez(path, **arrays)


@pytest.mark.parametrize("name", ["keras2.h5", "keras3.keras", "keras3.weights.h5"])
def test_a_keras_file_as_a_checkpoint_is_the_same_to_diff(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path, name: str
) -> None:
    source, copy = str(fixtures_dir / "keras-files" / name), str(tmp_path / "copy")
    assert run_cli(["repartition", source, copy]).returncode == 0
    compared = run_cli(["diff", source, copy, "--json"])
    assert compared.returncode == 0, compared.stdout
    with ckpttool.open(source) as old, ckpttool.open(copy) as new:
        assert set(old) == set(new) == {variable.key for variable in new.values()}
        for variable in old:
            np.testing.assert_array_equal(old.read(variable), new.read(variable))


def test_stripping_a_keras_file_takes_what_list_calls_an_optimizers(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    for name in ("keras2.h5", "keras3.h5", "keras3.keras"):
        source, slim = str(fixtures_dir / "keras-files" / name), str(tmp_path / name)
        with ckpttool.open(source) as opened:
            expected = {one.name for one in opened.values() if one.kind != "optimizer"}
            assert len(expected) < len(opened)
        assert run_cli(["edit", source, slim, "--strip-optimizer"]).returncode == 0
        with ckpttool.open(slim) as opened:
            assert set(opened) == expected


def test_a_whole_keras_2_file_takes_the_layout_of_a_checkpoint(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    """Its weights are found by their names, though its optimizer is in the file as well."""
    source, layout, new = (
        str(fixtures_dir / "keras-files" / "keras2.h5"),
        str(tmp_path / "layout"),
        str(tmp_path / "new"),
    )
    renamed = run_cli(
        ["edit", source, layout, "--strip-optimizer", "--rename", "s#^(?=.*/)#model/#"]
    )
    assert renamed.returncode == 0, renamed.stderr
    assert run_cli(["edit", source, new, "--like", layout]).returncode == 0
    compared = run_cli(["diff", layout, new, "--json"])
    assert json.loads(compared.stdout)["data"]["same"], compared.stdout


def test_the_number_of_a_model_is_no_step(run_cli: RunCli, tmp_path: Path) -> None:
    for name, step in (("resnet50.npz", None), ("w_bf16.npz", None), ("model-7.npz", 7)):
        np.savez(tmp_path / name, weights=np.ones(3, np.float32))
        found = json.loads(run_cli(["inspect", str(tmp_path / name), "--json"]).stdout)["data"]
        assert found["step"] == step, name


def test_a_note_says_of_which_file_it_is(run_cli: RunCli, fixtures_dir: Path) -> None:
    old, new = (str(fixtures_dir / "keras-files" / name) for name in ("keras2.h5", "keras3.h5"))
    said = run_cli(["diff", old, new, "--level", "keys"]).stderr
    assert "keras2.h5: Functional model" in said
    assert "keras3.h5: Functional model" in said


def test_tab_offers_files_of_models_beside_checkpoints(fixtures_dir: Path) -> None:
    line = "ckpttool inspect keras-files/keras3"
    environment = {"_CKPTTOOL_COMPLETE": "bash", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked = subprocess.run(
        [sys.executable, "-m", "ckpttool"],
        cwd=fixtures_dir,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        check=True,
    )
    offered = [f"keras-files/keras3.{ending}" for ending in ("h5", "keras", "weights.h5")]
    assert asked.stdout.splitlines() == ["paths", *offered]


def test_all_renames_that_diff_found_are_one_command(run_cli: RunCli, tmp_path: Path) -> None:
    """D17: of several layers with new names, not only the first."""
    shapes = {"hidden": (3, 4), "mid": (4, 5), "probs": (5, 2)}
    new = {"hidden": "dense", "mid": "dense_1", "probs": "dense_2"}
    arrays = {
        f"{layer}/{part}": np.full(shape if part == "kernel" else shape[1:], number, np.float32)
        for number, (layer, shape) in enumerate(shapes.items())
        for part in ("kernel", "bias")
    }
    a, b, renamed = (str(tmp_path / name) for name in ("a.npz", "b.npz", "renamed"))
    save_arrays(a, arrays)
    moved = {f"{new[name.split('/')[0]]}/{name.split('/')[1]}": arrays[name] for name in arrays}
    save_arrays(b, moved)
    said = run_cli(["diff", a, b, "--color", "always"]).stdout
    line = next(line for line in said.splitlines() if "to rename:" in line)
    options = shlex.split(line.partition("DST")[2])
    assert options.count("--rename") == 3
    assert run_cli(["edit", a, renamed, *options]).returncode == 0
    assert run_cli(["diff", renamed, b]).returncode == 0


def test_renames_that_would_undo_one_another_are_not_given_together() -> None:
    """Layers that moved up by one: the second rule would move what the first has moved."""
    pairs = {"l/a/w": "l/b/w", "m/a/w": "m/b/w", "n/b/w": "n/c/w", "o/b/w": "o/c/w"}
    a, b = (
        [Only(name, "model", "float32", (2,)) for name in names]
        for names in (pairs.keys(), pairs.values())
    )
    found = with_rules(a, b, [])
    assert {pair.a: pair.b for pair in found.pairs} == pairs
    assert len(found.rules) == 2
    assert len(found.renames) == 1


def test_a_keras_2_archive_has_the_names_of_its_layers(run_cli: RunCli, fixtures_dir: Path) -> None:
    """D38: its groups count layers by class; their names are in its configuration."""
    archive, whole = (
        str(fixtures_dir / "keras-files" / name) for name in ("keras2.keras", "keras2.h5")
    )
    with ckpttool.open(archive) as opened, ckpttool.open(whole) as other:
        names = {one.name for one in opened.values() if one.kind == "model"}
        assert {"hidden/kernel", "scores/bias", "embedding/embeddings"} <= names
        for name in names & set(other):
            np.testing.assert_array_equal(opened.read(name), other.read(name))


def test_writing_commands_are_quiet_when_asked_and_say_that_they_verified(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    run = str(fixtures_dir / "mlp-v1")
    said = run_cli(["repartition", run, str(tmp_path / "a"), "--verify"]).stderr
    assert "is the latest by the state file" in said
    assert "was read back: every checksum fits" in said
    for line in (
        ["repartition", run, str(tmp_path / "b"), "-q", "--verify"],
        ["cp", run, str(tmp_path / "c"), "-q"],
        ["edit", run, str(tmp_path / "d"), "-q", "--drop", "*/Adam*"],
        [
            "merge",
            run,
            str(fixtures_dir / "v1"),
            "-o",
            str(tmp_path / "e"),
            "-q",
            "--on-conflict=last",
        ],
        ["average", run, run, "-o", str(tmp_path / "f"), "-q"],
        ["mv", str(tmp_path / "c"), str(tmp_path / "g"), "-q"],
    ):
        done = run_cli(line)
        assert done.returncode == 0, done.stderr
        assert "latest" not in done.stderr
        assert "read back" not in done.stderr


@pytest.mark.parametrize(
    "step", [("GreaterEqual",), ("Mul", "Add", "GreaterEqual"), ("Add", "Floor")]
)
def test_d36_dropout_that_is_not_called_so(step: tuple[str, ...]) -> None:
    """``tf.nn.dropout(x, name="drop")``: what is done with the random numbers tells it."""
    text, last = placeholder("x") + node("drop/random_uniform/RandomUniform", "RandomUniform"), ""
    for number, op in enumerate(step):
        before = f"drop/{number - 1}" if number else "drop/random_uniform/RandomUniform"
        text += node(last := f"drop/{number}", op, before, "x")
    found = analyse_graph(graph_of(text + node("out", "Mul", last, "x")))
    assert [(sign.id, sign.nodes, sign.alters) for sign in found.signs] == [
        ("dropout", ("drop",), True)
    ]


def test_d36_random_numbers_that_drop_nothing() -> None:
    drawn = node("noise", "RandomUniform") + node("scaled", "Mul", "noise", "x")
    found = analyse_graph(graph_of(placeholder("x") + drawn + node("out", "Add", "scaled", "x")))
    assert found.signs == ()


def test_a_frozen_graph_is_not_said_to_be_restored(run_cli: RunCli, fixtures_dir: Path) -> None:
    graph = str(fixtures_dir / "graphs" / "frozen.pb")
    said = run_cli(["diff", str(fixtures_dir / "mlp-v1"), "--graph", graph, "--color", "always"])
    assert "nothing to restore" in said.stdout
    assert "asks for nothing" in said.stderr
