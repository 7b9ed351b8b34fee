"""``diff`` of whole sources: levels, names, filters, what cannot be read, every form."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpttool
from ckpttool.cli.screen import Screen
from ckpttool.cli.views.diff import DiffView
from ckpttool.errors import ChangedError, NotFoundError, UsageError
from ckpttool.ops.diff.run import diff
from tests.ops.diff.test_values import bundle
from tests.support.command import RunCli


def model(folder: Path, scope: str = "", seed: int = 1, **more: tuple[str, Any]) -> str:
    """A small model with slots and an average."""
    generator = np.random.default_rng(seed)
    variables: dict[str, tuple[str, Any]] = {"global_step": ("int64", seed)}
    for layer in ("hidden", "logits"):
        for end in ("weights", "biases"):
            shape = (4, 3) if end == "weights" else (3,)
            for slot in ("", "/Adam", "/ExponentialMovingAverage"):
                value = generator.standard_normal(shape)
                variables[f"{scope}{layer}/{end}{slot}"] = ("float32", value)
    return bundle(folder, **(variables | more))


def test_the_same(fixtures_dir: Path, run_cli: RunCli) -> None:
    for address in ("mlp-v1", "keras3", "partitioned", "dtypes/all", "savedmodel"):
        args = ["diff", address, address]
        result = run_cli(args, cwd=fixtures_dir)
        assert (result.returncode, result.stdout) == (0, ""), result.stderr
    report = json.loads(run_cli(["diff", "mlp-v1", "mlp-v1", "--json"], cwd=fixtures_dir).stdout)
    assert report["data"]["same"] is True
    assert report["data"]["common"] == 17


def test_values_that_are_nan_on_one_side(tmp_path: Path) -> None:
    a = bundle(tmp_path / "a", w=("float32", [np.nan, 0, 1, 2]))
    b = bundle(tmp_path / "b", w=("float32", [0, np.nan, np.nan, 2]))
    text = "".join(DiffView(diff(a, b)).human(Screen(100, False, True)))
    assert "1 of their elements is NaN in A alone" in text
    assert "2 of their elements are NaN in B alone" in text


def test_every_difference_at_once_by_kind(tmp_path: Path) -> None:
    """D17, D25: missing, extra, dtypes, shapes and values, all of them, slots apart."""
    a = model(tmp_path / "a", gone=("float32", [1.0]), kept=("int32", [1]), sized=("int8", [1, 2]))
    b = model(
        tmp_path / "b", seed=2, new=("float32", [[9.0]]), kept=("int64", [1]), sized=("int8", [1])
    )
    found = diff(a, b)
    assert not found.same
    assert [one.name for one in found.only_a] == ["gone"]
    assert [one.name for one in found.only_b] == ["new"]
    assert [tuple(one) for one in found.dtype] == [("kept", "model", "int32", "int64")]
    assert [tuple(one) for one in found.shape] == [("sized", "model", "[2]", "[1]")]
    assert len(found.values) == 13
    assert found.by_kind()["optimizer"] == {"values": 4}
    assert found.by_kind()["ema"] == {"values": 4}
    assert found.by_kind()["step"] == {"values": 1}
    assert not diff(a, b, level="keys").values
    assert not diff(a, b, level="keys").dtype
    assert not diff(a, b, level="meta").values
    assert diff(a, b, level="meta").shape


def test_levels_and_filters_decide_the_exit_code(tmp_path: Path, run_cli: RunCli) -> None:
    a, b = model(tmp_path / "a"), model(tmp_path / "b", seed=2)
    assert run_cli(["diff", a, b]).returncode == 1
    assert run_cli(["diff", a, b, "--level", "meta"]).returncode == 0
    assert run_cli(["diff", a, b, "--kind", "step"]).returncode == 1
    assert run_cli(["diff", a, b, "--kind", "step", "--atol", "1"]).returncode == 0
    result = run_cli(["diff", a, b, "--include", "hidden/*", "--exclude", "*/weights*", "--json"])
    values = json.loads(result.stdout)["data"]["values"]
    assert [one["name"] for one in values] == [
        "hidden/biases",
        "hidden/biases/Adam",
        "hidden/biases/ExponentialMovingAverage",
    ]
    nothing = run_cli(["diff", a, b, "--regex", "nowhere"])
    assert nothing.returncode == 0
    assert nothing.stderr.count("none wanted") == 2
    assert run_cli(["diff", a, b, "--rtol=-1"]).returncode == 2
    assert run_cli(["diff", a, str(tmp_path / "absent")]).returncode == 10


def test_all_differ_by_a_prefix(tmp_path: Path, run_cli: RunCli) -> None:
    """D17: 'all 13 differ by prefix' instead of hundreds of lines, and how to rename them."""
    a, b = model(tmp_path / "a", "model/"), model(tmp_path / "b")
    found = diff(a, b, exclude=["global_step"])
    assert len(found.suggestions) == 12
    assert all(pair.a == f"model/{pair.b}" and pair.same_values for pair in found.suggestions)
    text = "".join(DiffView(found).human(Screen(100, False, True)))
    assert "all 12 differ by prefix `model/`, which only A has" in text
    assert "ckpttool edit A DST --rename 's#^model/##'" in text
    renamed = str(tmp_path / "renamed")
    assert run_cli(["edit", a, renamed, "--rename", "s#^model/##"]).returncode == 0
    assert diff(renamed, b).same
    # Of other values: still told apart from those that were found.
    other = diff(a, model(tmp_path / "c", seed=9), kinds=["model"])
    assert [pair.same_values for pair in other.suggestions] == [False] * 4


def test_equal_values_under_names_without_likeness(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    a = bundle(tmp_path / "a", alpha=("float32", values), beta=("float32", values + 1))
    b = bundle(tmp_path / "b", xyz=("float32", values), q=("float32", values + 2))
    (pair,) = diff(a, b).suggestions
    assert (pair.a, pair.b, pair.same_values) == ("alpha", "xyz", True)
    assert diff(a, b, level="meta").suggestions == []
    # Two of the same values could be either, so neither is said.
    c = bundle(tmp_path / "c", xyz=("float32", values), q=("float32", values))
    assert diff(a, c).suggestions == []


def test_names_of_three_kinds(fixtures_dir: Path) -> None:
    a, b = str(fixtures_dir / "savedmodel"), str(fixtures_dir / "module" / "encoder")
    full = diff(a, b)
    assert [one.name for one in full.only_b] == [
        f"module/blocks/{n}/{w}" for n in "01" for w in "bw"
    ]
    keys = diff(a, b, names="key", kinds=["model"])
    assert all(one.name.endswith("/.ATTRIBUTES/VARIABLE_VALUE") for one in keys.only_b)
    paths = diff(str(fixtures_dir / "keras3/@3"), str(fixtures_dir / "keras3/@4"), names="path")
    assert "model/_functional/_operations/1/_kernel" in {one.name for one in paths.values}


def test_an_object_graph_is_compared_only_when_asked_for(fixtures_dir: Path) -> None:
    a, b = str(fixtures_dir / "savedmodel"), str(fixtures_dir / "module" / "encoder")
    assert "object_graph" not in diff(a, b).by_kind()
    (graph,) = diff(a, b, kinds=["object_graph"]).values
    assert (graph.name, graph.differing) == ("_CHECKPOINTABLE_OBJECT_GRAPH", 1)


def test_styles_are_told_before_anything_else(fixtures_dir: Path, run_cli: RunCli) -> None:
    """D18: object-based against name-based, and not 'Key _CHECKPOINTABLE_OBJECT_GRAPH'."""
    result = run_cli(["diff", "keras3", "mlp-v1", "--color", "always"], cwd=fixtures_dir)
    assert result.returncode == 1
    first, second = result.stdout.splitlines()[:2]
    assert "tf-v2, object-based" in first
    assert "tf-v2, name-based" in second
    assert "their names have nothing in common" in result.stderr
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" not in result.stdout


def test_damage_is_no_difference(fixtures_dir: Path, run_cli: RunCli) -> None:
    result = run_cli(["diff", "two-shards", "damaged/flipped-bit", "--json"], cwd=fixtures_dir)
    assert result.returncode == 3
    data = json.loads(result.stdout)["data"]
    assert data["same"] is False
    assert data["values"] == []
    (one,) = data["not_compared"]
    assert (one["name"], one["id"]) == ("tower/kernel", "checksum-mismatch")
    missing = run_cli(["diff", "damaged/missing-shard", "two-shards"], cwd=fixtures_dir)
    assert missing.returncode == 3
    assert "shard-missing" in missing.stdout
    assert (
        run_cli(
            ["diff", "damaged/missing-shard", "two-shards", "--level", "meta"], cwd=fixtures_dir
        ).returncode
        == 0
    )


def test_how_it_is_stored_is_no_difference(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """Slices, shards and byte order are the affair of a file."""
    source = fixtures_dir / "partitioned"
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run_cli(["repartition", source, whole, "--merge-slices", "*"]).returncode == 0
    assert (
        run_cli(
            ["repartition", source, cut, "--shards", "3", "--slice", "*table*=axis0:4"]
        ).returncode
        == 0
    )
    assert diff(source, whole).same
    assert diff(whole, cut).same
    value = np.arange(5, dtype=np.float32)
    np.savez(tmp_path / "a.npz", w=value)
    np.savez_compressed(tmp_path / "b.npz", w=value.astype(">f4"))
    assert diff(tmp_path / "a.npz", tmp_path / "b.npz").same
    assert diff(tmp_path / "a.npz", bundle(tmp_path / "c", w=("float32", value))).same


def test_what_cannot_be_read_keeps_no_other_difference_back(tmp_path: Path) -> None:
    a, b = model(tmp_path / "a"), model(tmp_path / "b", seed=2)
    data = Path(f"{a}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:-4])
    found = diff(a, b)
    assert [one.name for one in found.not_compared] == ["logits/weights/ExponentialMovingAverage"]
    assert len(found.values) == 12
    assert DiffView(found).exit_code == 1


def test_records_and_lines(tmp_path: Path, run_cli: RunCli) -> None:
    a = bundle(tmp_path / "a", **{"w": ("float32", [1.0]), "old/x": ("int8", [1])})
    b = bundle(tmp_path / "b", **{"w": ("float32", [3.0]), "new/x": ("int8", [1])})
    assert run_cli(["diff", a, b]).stdout.splitlines() == [
        "only_a\tmodel\told/x\tint8\t[1]",
        "only_b\tmodel\tnew/x\tint8\t[1]",
        "values\tmodel\tw\t2\t0.666667\t2\t1\t1",
        "rename\t\told/x\tnew/x\tthe prefix `old/` is `new/` in B; the same values",
    ]
    lines = [json.loads(line) for line in run_cli(["diff", a, b, "--ndjson"]).stdout.splitlines()]
    assert [line.get("what") for line in lines] == [
        "only_a",
        "only_b",
        "values",
        "suggestion",
        None,
    ]
    assert lines[0] == {
        "type": "difference",
        "what": "only_a",
        "name": "old/x",
        "kind": "model",
        "dtype": "int8",
        "shape": [1],
    }
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["ok"] is False


def test_names_of_any_bytes(tmp_path: Path, run_cli: RunCli) -> None:
    a = bundle(tmp_path / "a", **{"w\x1b[31m\n": ("int8", [1])})
    b = bundle(tmp_path / "b", v=("int8", [1]))
    for color in ("never", "always"):
        out = run_cli(["diff", a, b, "--color", color], env={"NO_COLOR": "1"}).stdout
        assert "\\x1b[31m\\n" in out
        assert "\x1b[31m\n" not in out


def test_values_are_not_held(tmp_path: Path, run_cli: RunCli) -> None:
    """2 × 160 MB differ, in 500 MB of address space, of which numpy and its threads take 400."""
    generator = np.random.default_rng(1)
    value = generator.random((40_000_000,), dtype=np.float32)
    a = bundle(tmp_path / "a", w=("float32", value))
    value += 1
    b = bundle(tmp_path / "b", w=("float32", value))
    result = run_cli(["diff", a, b], memory_mb=500, env={"OPENBLAS_NUM_THREADS": "1"})
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("values\tmodel\tw\t1")


def test_from_python(fixtures_dir: Path) -> None:
    found = ckpttool.diff(fixtures_dir / "mlp-v1", fixtures_dir / "mlp-v1")
    assert found.same
    with pytest.raises(NotFoundError):
        ckpttool.diff(fixtures_dir / "mlp-v1", fixtures_dir / "nowhere")
    with pytest.raises(UsageError):
        ckpttool.diff(fixtures_dir / "mlp-v1", fixtures_dir / "mlp-v1", regex="[")


def test_a_side_that_is_saved_anew_meanwhile_is_compared_anew(tmp_path: Path) -> None:
    a, b = model(tmp_path / "a"), model(tmp_path / "b")
    fresh = model(tmp_path / "fresh", seed=7)
    contents = [
        [Path(f"{prefix}{end}").read_bytes() for end in (".index", ".data-00000-of-00001")]
        for prefix in (fresh, a)
    ]
    saves: list[int] = []

    def save(number: int) -> None:
        for end, content in zip(
            (".index", ".data-00000-of-00001"), contents[number % 2], strict=True
        ):
            Path(f"{b}{end}").write_bytes(content)
            os.utime(f"{b}{end}", (number + 1, number + 1))  # clocks may be coarse
        saves.append(number)

    def once(*_: int) -> None:
        if not saves:
            save(0)

    def always(*_: int) -> None:
        save(len(saves))

    assert len(diff(a, b, progress=once).values) == 13
    with pytest.raises(ChangedError):  # one more try is made, and no third
        diff(a, b, progress=always)


def test_one_model_in_three_files_of_keras(fixtures_dir: Path) -> None:
    """Weights are found by name; state that one file only numbers, by its values."""
    pytest.importorskip("h5py")
    folder = fixtures_dir / "keras-files"
    assert diff(folder / "keras3.keras", folder / "keras3.weights.h5").same
    found = diff(folder / "keras3.h5", folder / "keras3.keras")
    assert not found.values
    assert "model" not in found.by_kind()
    slots = {pair.a: pair.b for pair in found.suggestions if pair.same_values}
    assert slots["adam/batch_normalization_beta_average"] == "optimizer/9"
    assert len(slots) > 20


def test_one_model_in_two_formats(tmp_path: Path) -> None:
    """D17: a V1 and a V2 checkpoint of one graph are the same, whatever the format."""
    tf = pytest.importorskip("tensorflow")
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        tf.compat.v1.get_variable("hidden/kernel", initializer=tf.random.normal((5, 4), seed=1))
        tf.compat.v1.get_variable("step", initializer=tf.constant(7, tf.int64))
        session.run(tf.compat.v1.global_variables_initializer())
        prefixes = []
        for name, version in (("v1", 1), ("v2", 2)):
            (tmp_path / name).mkdir()
            saver = tf.compat.v1.train.Saver(write_version=version)
            prefixes.append(saver.save(session, str(tmp_path / name / "m")))
    found = diff(*prefixes)
    assert found.same
    assert (found.a.kind, found.b.kind, found.common) == ("tf-v1", "tf-v2", 2)
