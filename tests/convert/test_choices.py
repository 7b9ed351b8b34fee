"""What is chosen: ports by other names, fixed inputs; and values out of any source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.errors import CkpttoolError
from tests.support.command import RunCli
from tests.support.converting import feed, open_program, run_frozen

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def _in_the_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)


def refused(source: str | Path, **given: Any) -> CkpttoolError:
    opening = open_program(source, **given)
    with pytest.raises(CkpttoolError) as caught, opening:
        pass
    return caught.value


@pytest.fixture(scope="module")
def exports(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SavedModels of TensorFlow 1 and 2, the first with the switch of training as an input."""
    folder = tmp_path_factory.mktemp("exports")
    given = {"inputs": ["x", "is_training"], "outputs": ["probs"], "freeze": ["keep_prob=1.0"]}
    with open_program(models / "conditional", **given) as program:
        program.save(str(folder / "of-1"))
    module = tf.Module()
    module.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="weights")

    def serve(x: Any, scale: Any) -> dict[str, Any]:
        return {"product": tf.matmul(x, module.weights) * scale, "sum": tf.reduce_sum(x, 1)}

    specs = [
        tf.TensorSpec([None, 2], tf.float32, name="x"),
        tf.TensorSpec([], tf.float32, name="scale"),
    ]
    function = tf.function(serve, input_signature=specs)
    tf.saved_model.save(module, str(folder / "of-2"), signatures=function)
    return folder


def test_the_ports_of_a_saved_model_get_other_names(exports: Path, tmp_path: Path) -> None:
    given = {"inputs": ["rows=x:float32[5,2]"], "outputs": ["y=product"]}
    with open_program(exports / "of-2", **given) as program:
        (function,) = program.functions
        assert {port.text for port in function.signature.inputs} == {
            "rows:float32[5,2]",
            "scale:float32[]",
        }
        feeds = feed(function)
        expected = feeds["rows"] @ np.array([[1, 2], [3, 4]]) * feeds["scale"]
        np.testing.assert_allclose(function.run(feeds)["y"], expected, rtol=1e-5)
        np.testing.assert_allclose(run_frozen(function.frozen(), feeds)["y"], expected, rtol=1e-5)
        program.save(str(tmp_path / "export"))
    saved = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    assert set(saved.structured_outputs) == {"y"}
    assert refused(exports / "of-2", inputs=["xx"]).id == "model-input-unknown"
    assert refused(exports / "of-2", outputs=["prod"]).id == "model-output-unknown"


def test_an_operation_of_a_saved_model_of_tensorflow_1(exports: Path) -> None:
    given = {"outputs": ["logits=MatMul"]}
    with open_program(exports / "of-1", **given) as program:
        (function,) = program.functions
        feeds = {"x": np.ones((2, 6), np.float32), "is_training": np.array(False)}
        with ckpttool.open("conditional") as checkpoint:
            expected = feeds["x"] @ checkpoint.read("dense/kernel")
        used = {name: feeds[name] for name in (port.name for port in function.signature.inputs)}
        np.testing.assert_allclose(function.run(used)["logits"], expected, rtol=1e-5)
    assert refused(exports / "of-1", outputs=["MatMull"]).id == "tensor-not-found"


def test_a_fixed_input_of_every_kind_of_source(exports: Path) -> None:
    """It is gone from the signature, and the original runs with it too."""
    with open_program(exports / "of-2", freeze=["scale=2.0"]) as program:
        (function,) = program.functions
        assert [port.name for port in function.signature.inputs] == ["x"]
        feeds = feed(function)
        expected = 2 * feeds["x"] @ np.array([[1, 2], [3, 4]])
        np.testing.assert_allclose(function.run(feeds)["product"], expected, rtol=1e-5)
    with open_program(exports / "of-1", freeze=["is_training=False"]) as program:
        (function,) = program.functions
        assert [port.name for port in function.signature.inputs] == ["x"]
        feeds = feed(function)
        expected = function.run(feeds)["probs"]
        np.testing.assert_allclose(
            run_frozen(function.frozen(), feeds)["probs"], expected, rtol=1e-4
        )
    given = {"model": "build.py:Embedding", "signatures": ("head",)}
    with open_program("embedding/ckpt", **given, freeze=["vector=[[1,0,0,0]]"]) as program:
        (function,) = program.functions
        assert function.signature.inputs == ()
        with ckpttool.open("embedding/ckpt") as checkpoint:
            expected = checkpoint.read("net/weights")[:1]
        np.testing.assert_allclose(function.run({})["output"], expected, rtol=1e-5)
    wrong = refused(exports / "of-2", freeze=['scale="much"'])
    assert wrong.id == "freeze-value"
    assert refused("conditional", freeze=["is_training=1.5", "keep_prob=x"]).exit_code in {2, 31}


def test_values_out_of_another_kind_of_file(tmp_path: Path, run_cli: RunCli) -> None:
    """A graph, and its values in a safetensors file: the names are what counts."""
    saved = tmp_path / "w.safetensors"
    result = run_cli(["load", "mlp-ref", "weights", "biases", "-o", str(saved)], cwd=Path.cwd())
    assert result.returncode == 0, result.stderr
    given = {"graph": "mlp-ref/model.ckpt-3.meta"}
    with open_program(saved, **given) as program, open_program("mlp-ref") as original:
        feeds = feed(program.functions[0])
        found, expected = (one.functions[0].run(feeds) for one in (program, original))
        np.testing.assert_allclose(found["output"], expected["output"], rtol=1e-5)


def test_a_model_takes_the_values_of_a_checkpoint_by_name(tmp_path: Path) -> None:
    """What TensorFlow 1 saved has no objects: the variables' names say which is which."""
    from tests.support.tf_write import write_name_based

    table = np.arange(120, dtype=np.float32).reshape(30, 4)
    weights = np.ones((4, 2), np.float32)
    write_name_based(tmp_path / "ckpt", {"table": table, "weights": weights})
    with open_program(tmp_path / "ckpt", model="build.py:Embedding") as program:
        ids = np.array([[0, 1, 2]])
        expected = table[:3].mean(0) @ weights
        np.testing.assert_allclose(program.functions[0].run({"ids": ids})["score"], [expected])
    write_name_based(tmp_path / "half", {"table": table})
    assert refused(tmp_path / "half", model="build.py:Embedding").id == "model-unmatched"
    write_name_based(tmp_path / "other", {"table": table, "weights": weights[:3]})
    assert refused(tmp_path / "other", model="build.py:Embedding").id == "model-shape"


def test_the_slices_of_a_parameter_server_are_one_variable(tmp_path: Path) -> None:
    """A checkpoint of ParameterServerStrategy holds a variable as slices of several tasks."""
    from tensorflow.python.distribute.sharded_variable import ShardedVariable
    from tensorflow.python.ops.variables import Variable

    whole = np.arange(120, dtype=np.float32).reshape(30, 4)
    net = tf.train.Checkpoint(
        table=ShardedVariable([Variable(whole[:11]), Variable(whole[11:])], name="table"),
        weights=tf.Variable(np.ones((4, 2), np.float32)),
    )
    tf.train.Checkpoint(net=net).write(str(tmp_path / "ckpt"))
    with open_program(tmp_path / "ckpt", model="build.py:Embedding") as program:
        ids = np.array([[10, 11, 12]])
        expected = whole[10:13].mean(0) @ np.ones((4, 2))
        np.testing.assert_allclose(program.functions[0].run({"ids": ids})["score"], [expected])


def test_a_model_of_another_size_is_named_with_both_shapes(tmp_path: Path) -> None:
    """Of an object-based checkpoint too; another object that does not fit is not the model."""

    def net(rows: int) -> Any:
        made = tf.Module()
        made.table = tf.Variable(np.ones((30, 4), np.float32))
        made.weights = tf.Variable(np.ones((rows, 2), np.float32))
        return made

    tf.train.Checkpoint(net=net(3)).write(str(tmp_path / "other"))
    wrong = refused(tmp_path / "other", model="build.py:Embedding")
    assert (wrong.id, wrong.exit_code) == ("model-shape", 20)
    assert "net/weights" in wrong.what
    assert "[3, 2] there, and [4, 2] in the model" in str(wrong.why)
    assert "--model-arg" in str(wrong.hint)
    tf.train.Checkpoint(critic=net(3), net=net(4)).write(str(tmp_path / "both"))
    with open_program(tmp_path / "both", model="build.py:Embedding"):
        pass
    named = refused(tmp_path / "both", model="build.py:Embedding", root="critic")
    assert named.id == "model-shape"


def test_the_attribute_of_the_model_is_found_or_said() -> None:
    given: dict[str, Any] = {"model": "build.py:Embedding", "signatures": ("head",)}
    with open_program("embedding/ckpt", **given, root="net"):
        pass
    unknown = refused("embedding/ckpt", **given, root="nett")
    assert (unknown.id, unknown.exit_code) == ("model-root-unknown", 10)
    assert unknown.why.startswith("it has net")
    assert unknown.hint == "did you mean: --root net"
    assert "leave --root out" in refused("embedding/ckpt", **given, root="x").hint
    assert refused("embedding/ckpt", root="net").id == "options-contradict"
    both = refused("mlp-ref", model="build.py:nothing", graph="mlp-ref/graph.pbtxt")
    assert both.id == "options-contradict"
