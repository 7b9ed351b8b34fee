"""``diff --graph`` against what TensorFlow's saver really does with the same two files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpttool
from ckpttool.errors import CorruptError, NotFoundError, UsageError
from ckpttool.ops.diff.run import diff
from tests.support.command import RunCli
from tests.support.tf_write import write_name_based


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def meta(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The graph of a small net with a partitioned variable and Adam's slots."""
    v1 = tf.compat.v1
    path = str(tmp_path_factory.mktemp("graph") / "net.meta")
    graph = tf.Graph()
    with graph.as_default():
        weights = v1.get_variable("net/hidden/weights", (4, 3), use_resource=False)
        v1.get_variable("net/hidden/biases", (3,), use_resource=True)
        v1.get_variable(
            "net/table", (10, 2), partitioner=v1.fixed_size_partitioner(3), trainable=False
        )
        v1.train.get_or_create_global_step()
        v1.train.AdamOptimizer().minimize(tf.reduce_sum(weights))
        v1.train.Saver().export_meta_graph(path)
    return path


VALUES: dict[str, Any] = {
    "net/hidden/weights": np.ones((4, 3), np.float32),
    "net/hidden/weights/Adam": np.ones((4, 3), np.float32),
    "net/hidden/weights/Adam_1": np.ones((4, 3), np.float32),
    "net/hidden/biases": np.ones(3, np.float32),
    "net/table": np.ones((10, 2), np.float32),
    "global_step": np.int64(3),
    "beta1_power": np.float32(0.9),
    "beta2_power": np.float32(0.9),
}


def tensorflow_restores(tf: Any, meta: str, prefix: str) -> bool:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(meta)
        try:
            saver.restore(session, prefix)
        except (tf.errors.OpError, ValueError):
            return False
    return True


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (VALUES | changes).items() if value is not None}


CASES = {
    "whole": VALUES,
    "more than is asked for": changed(**{"net/hidden/weights/Momentum": np.ones(2)}),
    "slots missing": changed(
        **{"net/hidden/weights/Adam": None, "net/hidden/weights/Adam_1": None, "beta1_power": None}
    ),
    "another dtype": changed(global_step=np.float32(3)),
    "another shape": changed(**{"net/hidden/weights": np.ones((4, 4), np.float32)}),
    "another shape of a partitioned one": changed(**{"net/table": np.ones((11, 2), np.float32)}),
    "a prefix": {f"model/{name}": value for name, value in VALUES.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_it_restores_where_tensorflow_does(tf: Any, meta: str, tmp_path: Path, case: str) -> None:
    prefix = write_name_based(tmp_path / "m", CASES[case])
    found = diff(prefix, graph=meta)
    assert found.restores is tensorflow_restores(tf, meta, prefix)
    assert found.restores is (case in {"whole", "more than is asked for"})
    assert found.b.variables == len(VALUES)


def test_a_shape_that_tensorflow_takes_without_a_word(tf: Any, meta: str, tmp_path: Path) -> None:
    """A resource variable is given another shape than its graph's, and fails later or never."""
    values = changed(**{"net/hidden/biases": np.ones(4, np.float32)})
    prefix = write_name_based(tmp_path / "m", values)
    assert tensorflow_restores(tf, meta, prefix)
    found = diff(prefix, graph=meta)
    assert not found.restores
    assert [tuple(one) for one in found.shape] == [("net/hidden/biases", "model", "[4]", "[3]")]


def test_all_that_is_in_the_way_at_once(meta: str, tmp_path: Path, run_cli: RunCli) -> None:
    """D17, D25: TensorFlow names the first missing key; here are all, and what may be meant."""
    values = changed(
        **{
            "net/hidden/biases": np.ones(4, np.float32),
            "net/hidden/weights/Adam": None,
            "net/hidden/weights/Adam_1": None,
            "global_step": np.int32(1),
            "net/tabel": np.ones((10, 2), np.float32),
            "net/table": None,
        }
    )
    prefix = write_name_based(tmp_path / "m", values)
    done = run_cli(["diff", prefix, "--graph", meta, "--json"])
    assert done.returncode == 1
    data = json.loads(done.stdout)["data"]
    assert data["restores"] is False
    assert sorted(data["only_b"]) == [
        "net/hidden/weights/Adam",
        "net/hidden/weights/Adam_1",
        "net/table",
    ]
    assert data["only_a"] == ["net/tabel"]
    assert data["dtype"] == [{"name": "global_step", "kind": "step", "a": "int32", "b": "int64"}]
    assert data["shape"] == [{"name": "net/hidden/biases", "kind": "model", "a": "[4]", "b": "[3]"}]
    assert [(one["a"], one["b"]) for one in data["suggestions"]] == [("net/tabel", "net/table")]
    assert data["by_kind"]["optimizer"] == {"only_b": 2}
    keys = diff(prefix, graph=meta, level="keys")
    assert not keys.dtype
    assert not keys.shape
    model = diff(prefix, graph=meta, kinds=["model"])
    assert [one.name for one in model.only_b] == ["net/table"]


def test_a_prefix_is_one_rule(meta: str, tmp_path: Path) -> None:
    """D17: 'all 8 differ by prefix'."""
    prefix = write_name_based(tmp_path / "m", CASES["a prefix"])
    (rule,) = diff(prefix, graph=meta).rules
    assert (rule.a, rule.b, rule.names, rule.rename) == ("model/", "", 8, "s#^model/##")


def test_the_forms_of_a_graph(tf: Any, meta: str, tmp_path: Path) -> None:
    """Text, binary, and a plain GraphDef without collections: all ask for the same."""
    prefix = write_name_based(tmp_path / "m", VALUES)
    message = tf.compat.v1.MetaGraphDef()
    message.ParseFromString(Path(meta).read_bytes())
    (tmp_path / "net.pbtxt").write_text(str(message))
    (tmp_path / "net.pb").write_bytes(message.graph_def.SerializeToString())
    for name, kind in (("net.pbtxt", "metagraph"), ("net.pb", "graph")):
        found = diff(prefix, graph=tmp_path / name)
        assert (found.restores, found.b.kind, found.common) == (True, kind, len(VALUES))


def test_a_graph_without_a_saver_is_asked_by_its_variables(tf: Any, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        tf.compat.v1.get_variable("w", (2, 2))
    (tmp_path / "g.pb").write_bytes(graph.as_graph_def().SerializeToString())
    prefix = write_name_based(tmp_path / "m", {"w": np.ones((2, 3), np.float32)})
    found = diff(prefix, graph=tmp_path / "g.pb")
    assert [(one.a, one.b) for one in found.shape] == [("[2,3]", "[2,2]")]
    assert "has no saver" in found.warnings[0]
    (tmp_path / "empty.pb").write_bytes(tf.Graph().as_graph_def().SerializeToString() or b"\x22\0")
    assert "asks for nothing" in diff(prefix, graph=tmp_path / "empty.pb").warnings[0]


def test_object_based_against_a_saver_by_names(tf: Any, tmp_path: Path) -> None:
    """D18: TensorFlow finds the full names in the object graph, and so is it told here."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.get_variable("net/kernel", (2, 2), use_resource=True)
        v1.train.Saver().export_meta_graph(str(tmp_path / "m.meta"))
    holder = tf.Module()
    holder.kernel = tf.Variable(np.ones((2, 2), np.float32), name="net/kernel")
    prefix = tf.train.Checkpoint(model=holder).write(str(tmp_path / "o"))
    found = diff(prefix, graph=tmp_path / "m.meta")
    assert found.restores
    assert tensorflow_restores(tf, str(tmp_path / "m.meta"), prefix)
    assert "is object-based" in found.warnings[0]


def test_a_saved_model_of_tensorflow_2(fixtures_dir: Path, run_cli: RunCli) -> None:
    """Its restore function holds keys of objects, which another object's checkpoint has not."""
    own = diff(fixtures_dir / "savedmodel", graph=fixtures_dir / "savedmodel")
    assert (own.restores, own.common) == (True, 6)
    other = diff(fixtures_dir / "module" / "encoder", graph=fixtures_dir / "savedmodel")
    assert not other.restores
    assert other.rules[0].a == "module/"
    assert any("does not say the shapes" in text for text in other.warnings)
    done = run_cli(["diff", "mlp-v1", "--graph", "savedmodel"], cwd=fixtures_dir)
    assert done.returncode == 1
    assert "restores by an object graph" in done.stderr


def test_every_graph_of_the_corpus_takes_its_own_checkpoint(corpus: Path) -> None:
    """Real programs of TF 1.x: each ``.meta`` with the checkpoint that was saved beside it."""
    tried = 0
    for path in sorted(corpus.rglob("*.meta")):
        prefix = path.with_suffix("")
        if not Path(f"{prefix}.index").exists() or path.stat().st_size < 500:
            continue
        assert diff(prefix, graph=path).restores, path
        tried += 1
    assert tried >= 5


def test_what_makes_no_sense(fixtures_dir: Path, tmp_path: Path) -> None:
    source, graph = fixtures_dir / "mlp-v1", fixtures_dir / "mlp-v1" / "model.ckpt-1000.meta"
    for options in (
        {},
        {"b": source, "graph": graph},
        {"graph": graph, "level": "values"},
        {"graph": graph, "rtol": 0.1},
    ):
        with pytest.raises(UsageError):
            ckpttool.diff(source, **options)
    with pytest.raises(NotFoundError):
        diff(source, graph=tmp_path / "nowhere.pb")
    with pytest.raises(NotFoundError) as caught:
        diff(source, graph=tmp_path)
    assert caught.value.id == "graph-missing"
    (tmp_path / "bad.meta").write_bytes(graph.read_bytes()[:5000])
    with pytest.raises(CorruptError):
        diff(source, graph=tmp_path / "bad.meta")
