"""``list --map``: the names of a variable side by side, and back again through ``edit``.

D26: which key belongs to which name only the object graph says.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from ckpttool.ops.edit.mapping_file import read_map
from ckpttool.ops.list import list_variables
from ckpttool.ops.name_map import NamesOf
from tests.support.command import RunCli
from tests.support.handmade import write_bundle


def rows(address: Path | str, **options: object) -> list[NamesOf]:
    with list_variables(str(address), **options) as listing:  # type: ignore[arg-type]
        return list(listing.names())


def test_the_three_names_of_an_object_based_checkpoint(fixtures_dir: Path) -> None:
    """D26: key, full name and object path side by side."""
    found = {row.full_name: row for row in rows(fixtures_dir / "keras3")}
    kernel = found["regressor/hidden/kernel"]
    assert kernel.key == "optimizer/_trainable_variables/0/.ATTRIBUTES/VARIABLE_VALUE"
    assert kernel.path == "model/_functional/_operations/1/_kernel"
    assert (kernel.kind, kernel.dtype, kernel.shape) == ("model", "float32", "[12,16]")
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" not in {row.key for row in found.values()}


def test_the_graph_agrees_with_tensorflow(fixtures_dir: Path) -> None:
    """Every pair of a key and a full name is one that the object graph's own message has."""
    tf = pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    prefix = str(fixtures_dir / "keras3" / "ckpt-4")
    reader = tf.train.load_checkpoint(prefix)
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    expected = {
        attribute.checkpoint_key: attribute.full_name
        for node in graph.nodes
        for attribute in node.attributes
    }
    assert {row.key: row.full_name for row in rows(prefix)} == expected


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_tensorflow_1_to_2_and_back(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli, ending: str
) -> None:
    """D26: a TF1 name-based checkpoint under the keys of an object-based one, by the map."""
    tf = pytest.importorskip("tensorflow")
    from tests.support.tf_write import write_name_based

    target = fixtures_dir / "keras3" / "ckpt-4"
    names = rows(target, kinds=["model"])
    generator = np.random.default_rng(4)
    values = {
        row.full_name: generator.standard_normal(json.loads(row.shape)).astype(np.float32)
        for row in names
    }
    old = write_name_based(tmp_path / "tf1.ckpt", values)
    table = tmp_path / f"names.{ending}"
    done = run_cli(["list", target, "--kind", "model", "--map", table])
    assert done.returncode == 0, done.stderr
    assert "names of 8 variables" in done.stderr
    new = tmp_path / "tf2.ckpt"
    done = run_cli(["edit", old, new, "--like", target, "--map", table])
    assert done.returncode == 0, done.stderr
    reader = tf.train.load_checkpoint(str(new))
    for row in names:
        np.testing.assert_array_equal(reader.get_tensor(row.key), values[row.full_name])
    # And back: the values of the object-based one under the names of the other.
    done = run_cli(["edit", new, tmp_path / "back", "--like", old, "--map", table])
    assert done.returncode == 0, done.stderr
    assert ckpttool.diff(old, tmp_path / "back").same


def test_a_name_based_one_is_renamed_by_its_edited_map(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    table = tmp_path / "names.csv"
    source = fixtures_dir / "mlp-v1"
    assert run_cli(["list", source, "--kind", "model", "--map", table]).returncode == 0
    lines = list(csv.DictReader(table.read_text().splitlines()))
    assert all(line["key"] == line["name"] == line["full_name"] == line["path"] for line in lines)
    table.write_text(table.read_text().replace(",hidden/weights,", ",dense/kernel,", 1))
    assert run_cli(["edit", source, tmp_path / "out", "--map", table]).returncode == 0
    found = ckpttool.open(tmp_path / "out")
    assert "dense/kernel" in found
    assert "dense/kernel/Adam" in found  # slots follow
    assert "hidden/weights" not in found


def test_standard_output_and_files(fixtures_dir: Path, tmp_path: Path, run_cli: RunCli) -> None:
    source = fixtures_dir / "module" / "encoder"
    done = run_cli(["list", source, "--map", "-"])
    assert [NamesOf(**row) for row in json.loads(done.stdout)] == rows(source)
    table = tmp_path / "names.json"
    listed = run_cli(["list", source, "-q"])
    assert run_cli(["list", source, "-q", "--map", table]).stdout == listed.stdout
    assert table.read_text() == done.stdout
    assert run_cli(["list", source, "--map", table]).returncode == 31
    assert run_cli(["list", source, "--map", table, "--overwrite"]).returncode == 0
    assert run_cli(["list", source, "--map", tmp_path / "names.txt"]).returncode == 2
    empty = run_cli(["list", source, "--include", "nothing", "--map", "-"])
    assert json.loads(empty.stdout) == []


def test_filters_look_at_the_names_that_were_asked_for(fixtures_dir: Path) -> None:
    source = fixtures_dir / "keras3"
    assert len(rows(source, include=["optimizer/_trainable*"], names="key")) == 6
    assert rows(source, include=["optimizer/_trainable*"]) == []


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_keys_of_any_bytes(tmp_path: Path, run_cli: RunCli, ending: str) -> None:
    keys = [b'a"\n,b', b"\xff\xfe/w", "ünï/\u202e".encode()]
    (tmp_path / "s").mkdir()
    entries = {
        key: {"dtype": 4, "shape": (1,), "offset": place, "size": 1}
        for place, key in enumerate(sorted(keys))
    }
    prefix = write_bundle(tmp_path / "s", "m", entries, [b"abc"])  # type: ignore[arg-type]
    table = tmp_path / f"names.{ending}"
    assert run_cli(["list", prefix, "-q", "--map", table]).returncode == 0
    pairs = read_map(str(table)).pairs
    assert sorted(old.encode("utf-8", "surrogateescape") for old, _ in pairs) == sorted(keys)
    assert all(old == new for old, new in pairs)
