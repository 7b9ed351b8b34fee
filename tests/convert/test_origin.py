"""What is found out, and refused, before TensorFlow is started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ckpttool.conversion.origin import find_origin
from ckpttool.errors import (
    CkpttoolError,
    IncompleteError,
    NoGraphError,
    NotFoundError,
    RefusedError,
    UnsupportedError,
)
from ckpttool.limits import Limits
from tests.support.converting import request


def refused(source: str | Path, **given: object) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        find_origin(request(source, **given), Limits())
    return caught.value


def test_the_graph_beside_a_checkpoint_and_its_likely_ends(models: Path) -> None:
    origin = find_origin(request(models / "mlp-ref"), Limits())
    assert origin.kind == "graph"
    assert origin.graph == str(models / "mlp-ref" / "model.ckpt-3.meta")
    assert origin.values == str(models / "mlp-ref" / "model.ckpt-3")
    (signature,) = origin.signatures
    assert [(one.name, one.tensor) for one in signature.inputs] == [("input", "input:0")]
    assert [(one.name, one.tensor) for one in signature.outputs] == [("output", "output:0")]
    assert any("output: output (output:0)" in note for note in origin.notes)


@pytest.mark.parametrize("target", ["savedmodel", "tflite", "onnx", "tfjs"])
def test_d34_a_checkpoint_without_a_graph(target: str, fixtures_dir: Path) -> None:
    """D34: the values alone cannot be converted; the error says what would help."""
    error = refused(fixtures_dir / "keras3", target=target)
    assert isinstance(error, NoGraphError)
    assert (error.exit_code, error.id) == (53, "no-graph")
    for option in ("--graph", "--model", "--like"):
        assert option in error.hint


def test_d34_what_lies_near_by_is_named(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "mlp-ref", tmp_path / "run")
    (tmp_path / "run" / "model.ckpt-3.meta").unlink()
    error = refused(tmp_path / "run")
    assert error.exit_code == 53
    assert "--graph" in error.hint
    assert "graph.pbtxt" in error.hint


@pytest.mark.parametrize("option", ["inputs", "outputs"])
def test_d35_a_wrong_name_gets_the_nearest_ones(option: str, models: Path) -> None:
    """D35: nobody knows the names of operations by heart."""
    name = {"inputs": "inptu", "outputs": "outptu:0"}[option]
    error = refused(models / "mlp-ref", **{option: [name]})
    assert isinstance(error, NotFoundError)
    assert error.id == "tensor-not-found"
    assert {"inputs": "input", "outputs": "output"}[option] in error.hint


def test_d36_a_training_graph_is_refused_with_what_mends_it(models: Path) -> None:
    """D36: served as it is, it would draw random numbers and use the batch's statistics."""
    error = refused(models / "conditional")
    assert isinstance(error, RefusedError)
    assert (error.exit_code, error.id) == (31, "training-graph")
    assert "--freeze-input is_training=False" in error.hint
    assert "--freeze-input keep_prob=1.0" in error.hint
    assert "--allow-training-graph" in error.hint
    half = refused(models / "conditional", freeze=["is_training=False"])
    assert "dropout" in half.why
    wrong = refused(models / "conditional", freeze=["is_training=False", "keep_prob=0.5"])
    assert wrong.id == "training-graph", "half of it is still dropped"
    mended = request(models / "conditional", freeze=["is_training=False", "keep_prob=1.0"])
    assert not find_origin(mended, Limits()).warnings
    allowed = find_origin(request(models / "conditional", allow_training_graph=True), Limits())
    assert any("dropout" in warning for warning in allowed.warnings)
    assert [one.name for one in allowed.signatures[0].inputs] == ["x", "is_training"]


def test_a_rate_that_drops_nothing_by_default_is_named_all_the_same(tmp_path: Path) -> None:
    """D36: the random numbers are drawn at any rate, and go with the fixed one."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 6], name="x")
        keep = v1.placeholder_with_default(1.0, [], name="keep_prob")
        v1.placeholder_with_default(1.0, [], name="other/keep_prob")
        tf.identity(v1.nn.dropout(x, rate=1 - keep, name="drop"), name="out")
        path = tmp_path / "graph.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
    error = refused(path, outputs=["out"])
    assert error.id == "training-graph"
    assert error.hint.startswith("add --freeze-input keep_prob=1.0, or --allow-training-graph")
    mended = request(path, outputs=["out"], freeze=["keep_prob=1.0"])
    assert not find_origin(mended, Limits()).warnings


def test_a_meta_alone_has_no_values(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "mlp-ref" / "model.ckpt-3.meta", tmp_path / "alone.meta")
    error = refused(tmp_path / "alone.meta")
    assert isinstance(error, IncompleteError)
    assert error.id == "graph-without-values"
    assert "--graph" in error.hint


def test_a_saved_model_s_own_signatures(fixtures_dir: Path) -> None:
    origin = find_origin(request(fixtures_dir / "savedmodel"), Limits())
    assert origin.kind == "savedmodel"
    assert origin.signatures[0].name == "serving_default"
    assert all(port.dtype for port in origin.signatures[0].inputs)
    error = refused(fixtures_dir / "savedmodel", signatures=("serving_defalt",))
    assert error.id == "signature-not-found"
    assert "serving_default" in error.hint


def test_d16_a_saved_model_without_its_variables(fixtures_dir: Path, tmp_path: Path) -> None:
    """D16: TensorFlow loads it, and computes with what it finds."""
    copy = shutil.copytree(fixtures_dir / "savedmodel", tmp_path / "export")
    data = next((copy / "variables").glob("variables.data-*"))
    data.unlink()
    error = refused(copy)
    assert isinstance(error, IncompleteError)
    assert (error.exit_code, error.id) == (20, "variables-missing")
    assert data.name in error.why
    shutil.rmtree(copy / "variables")
    assert refused(copy).id == "variables-missing"


def test_d16_a_graph_of_another_checkpoint(models: Path, tmp_path: Path) -> None:
    """D16: all variables that are missing are named, before anything is restored."""
    pytest.importorskip("tensorflow")
    from tests.support.converting import open_program

    given = {"graph": str(models / "mlp-ref" / "model.ckpt-3.meta")}
    opening = open_program(models / "partitioned" / "model.ckpt", **given)
    with pytest.raises(IncompleteError) as caught, opening:
        pass
    assert caught.value.id == "graph-variables-missing"
    assert "weights" in caught.value.why
    assert "biases" in caught.value.why


def test_what_is_the_end_of_a_conversion_is_no_source(corpus: Path) -> None:
    folder = corpus / "multi-regression-allformats" / "regression"
    error = refused(folder / "tflite" / "model.tflite")
    assert isinstance(error, UnsupportedError)
    assert error.id == "convert-source"


def test_corpus_operations_that_tensorflow_lost_are_named(corpus: Path) -> None:
    error = refused(corpus / "v2-taxi-2shard-tf1x" / "export" / "chicago-taxi" / "1550769257")
    assert isinstance(error, UnsupportedError)
    assert error.id == "op-unknown"
    assert "BucketizeWithInputBoundaries" in error.why


def test_corpus_a_shard_is_missing(corpus: Path) -> None:
    """D16 and D37: its optimizer has slots that TensorFlow 2 cannot load, and no values."""
    error = refused(corpus / "bad-missing-shard-sudoku" / "model")
    assert error.id == "variables-missing"
    assert "variables.data-00001-of-00002" in error.why
