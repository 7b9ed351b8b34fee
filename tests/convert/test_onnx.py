"""ONNX models compute what the checkpoint says, under the names of the signature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.errors import ConversionError, UnsupportedError, UsageError
from tests.convert.test_programs import CASES
from tests.support.converting import feed, open_program
from tests.support.onnx_models import (
    compute,
    function_program,
    largest_error,
    load,
    operators,
    write_onnx,
)

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
onnx = pytest.importorskip("onnx")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

# Keras, TensorFlow and tf2onnx warn of what they do themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def in_the_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)


def dimensions(value: Any) -> list[str | int]:
    return [one.dim_param or one.dim_value for one in value.type.tensor_type.shape.dim]


def ports(path: Path) -> dict[str, list[str | int]]:
    graph = load(path).graph
    return {one.name: dimensions(one) for one in (*graph.input, *graph.output)}


@pytest.mark.usefixtures("in_the_folder")
@pytest.mark.parametrize("name", CASES)
def test_every_source_of_a_graph(name: str, tmp_path: Path) -> None:
    source, given = CASES[name]
    path = tmp_path / "m.onnx"
    chosen = {"signatures": ("serving_default",)} if name == "embedding" else {}
    with open_program(source, **given, **chosen) as program:
        written = write_onnx(program, path)
        (function,) = program.functions
        for batch in (2, 3):
            largest = 1e-5 if name != "narrow" else 0.05  # its own are bfloat16
            assert largest_error(function, path, feed(function, batch)) < largest
        (signature,) = written.signatures
        for mine, theirs in (
            (signature.inputs, function.signature.inputs),
            (signature.outputs, function.signature.outputs),
        ):
            texts = [port.text.replace("bfloat16", "float32") for port in theirs]
            assert [port.text for port in mine] == texts
    model = load(path)
    assert [one.name for one in model.graph.input] == [one.name for one in signature.inputs]
    assert [one.name for one in model.graph.output] == [one.name for one in signature.outputs]
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 18)]


@pytest.mark.usefixtures("in_the_folder")
def test_d16_the_matrix_product(tmp_path: Path) -> None:
    """The 784×200 product of TensorFlow 1, its weights as the checkpoint has them."""
    path = tmp_path / "m.onnx"
    with open_program("mlp-ref") as program:
        write_onnx(program, path)
    assert ports(path) == {"input": ["batch", 784], "output": ["batch", 200]}
    with ckpttool.open(path) as model, ckpttool.open("mlp-ref") as trained:
        assert (model.read("weights") == trained.read("weights")).all()
        x = np.random.default_rng(0).standard_normal((3, 784)).astype(np.float32)
        expected = np.maximum(x @ trained.read("weights") + trained.read("biases"), 0)
    np.testing.assert_allclose(compute(path, {"input": x})["output"], expected, atol=1e-4)


@pytest.mark.usefixtures("in_the_folder")
def test_a_recurrent_layer_is_one_operator(tmp_path: Path) -> None:
    with open_program("recurrent/ckpt", model="build.py:recurrent") as program:
        write_onnx(program, tmp_path / "m.onnx")
    assert "LSTM" in operators(tmp_path / "m.onnx")


@pytest.mark.usefixtures("in_the_folder")
def test_one_signature_a_file(tmp_path: Path) -> None:
    source, given = CASES["embedding"]
    with open_program(source, **given) as program:
        with pytest.raises(UsageError) as caught:
            write_onnx(program, tmp_path / "m.onnx")
        assert caught.value.id == "onnx-signatures"
        assert "serving_default, head" in caught.value.why
        assert not list(tmp_path.iterdir())
    with open_program(source, **given, signatures=("head",)) as program:
        write_onnx(program, tmp_path / "head.onnx")
        (function,) = program.functions
        assert largest_error(function, tmp_path / "head.onnx", feed(function)) < 1e-6


# Names ------------------------------------------------------------------------------


def test_dimensions_have_names_that_say_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"

    def body(x: Any, y: Any) -> dict[str, Any]:
        return {
            "pairs": tf.matmul(x, y, transpose_b=True),
            "twice": tf.concat([x, x], 0),
            "kept": tf.boolean_mask(x, x[:, 0] > 0),
            "same": tf.reshape(x, [-1, 4]) * 2.0,
        }

    program = function_program(body, ("x", "float32", (None, 4)), ("y", "float32", (None, 4)))
    write_onnx(program, path)
    assert ports(path) == {
        "x": ["batch", 4],
        "y": ["batch", 4],
        "pairs": ["batch", "batch"],
        "twice": ["twice_0", 4],
        "kept": ["kept_0", 4],
        "same": ["batch", 4],
    }


def test_dimensions_that_have_to_agree(tmp_path: Path) -> None:
    shape = (None, None)
    program = function_program(
        lambda x, y: {"sum": x + y}, ("x", "float32", shape), ("y", "float32", shape)
    )
    write_onnx(program, tmp_path / "m.onnx")
    assert ports(tmp_path / "m.onnx")["sum"] == ["batch", "sum_1"]
    write_onnx(program, tmp_path / "fixed.onnx", batch=5)
    assert ports(tmp_path / "fixed.onnx")["x"] == [5, "x_1"]


def test_an_output_that_is_called_as_an_input(tmp_path: Path) -> None:
    """In ONNX these would be one value; the order of ports is that of the signature."""
    path = tmp_path / "m.onnx"
    program = function_program(
        lambda x, _: {"z": x * 2.0, "x": tf.identity(x), "y": x * 2.0},
        ("x", "float32", (None, 3)),
        ("unused", "int32", (None,)),
    )
    written = write_onnx(program, path)
    assert list(ports(path)) == ["x", "unused", "z", "x_1", "y"]
    assert "x_1" in written.warnings[0]
    x = np.ones((2, 3), np.float32)
    found = compute(path, {"x": x, "unused": np.zeros(2, np.int32)})
    assert (found["x_1"] == x).all()
    assert (found["y"] == 2 * x).all()


def test_an_input_of_any_rank_gets_one_dimension(tmp_path: Path) -> None:
    """tf2onnx takes it for a scalar, and what asks for its rank becomes 0."""
    path = tmp_path / "m.onnx"
    program = function_program(lambda x: {"y": x * 2.0, "rank": tf.rank(x)}, ("x", "float32", None))
    written = write_onnx(program, path)
    assert "one is left of x" in written.warnings[0]
    assert ports(path) == {"x": ["batch"], "y": ["batch"], "rank": []}
    assert largest_error(program.functions[0], path, {"x": np.ones(3, np.float32)}) == 0
    matrices = function_program(lambda x: {"y": tf.matmul(x, x)}, ("x", "float32", None))
    with pytest.raises(UsageError) as caught:
        write_onnx(matrices, path)
    assert caught.value.id == "onnx-rank"
    assert "--input x:float32[" in caught.value.hint


def test_nothing_is_numbered_by_the_process(tmp_path: Path) -> None:
    """tf2onnx counts through all that a process converts; a second model starts anew."""
    program = function_program(lambda x: {"y": tf.nn.gelu(x)}, ("x", "float32", (None, 3)))
    for name in ("one", "two"):
        write_onnx(program, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# Types ------------------------------------------------------------------------------


def test_bfloat16_is_not_float16(tmp_path: Path) -> None:
    """tf2onnx takes bfloat16 for float16: 1e30 would be infinite, and bytes another number."""
    path = tmp_path / "m.onnx"
    kernel = tf.Variable(np.random.default_rng(0).standard_normal((300, 200)), dtype=tf.bfloat16)

    def body(x: Any) -> dict[str, Any]:
        y = tf.matmul(tf.cast(x, tf.bfloat16), kernel)
        return {"y": tf.cast(y, tf.float32), "huge": y * tf.constant(1e30, tf.bfloat16)}

    program = function_program(body, ("x", "float32", (None, 300)))
    written = write_onnx(program, path)
    assert "bfloat16" in written.warnings[0]
    assert [port.dtype for port in written.signatures[0].outputs] == ["float32", "float32"]
    x = np.random.default_rng(1).standard_normal((2, 300)).astype(np.float32)
    found, expected = compute(path, {"x": x}), program.functions[0].run({"x": x})
    np.testing.assert_allclose(found["y"], expected["y"], rtol=0.02, atol=0.2)
    assert np.isfinite(found["huge"]).all()
    with ckpttool.open(path) as model:
        (name,) = (one for one in model if model[one].shape == (300, 200))
        assert model[name].dtype == "float32"
        assert (model.read(name) == kernel.numpy().astype(np.float32)).all()


def test_an_input_of_bfloat16(tmp_path: Path) -> None:
    program = function_program(lambda x: {"y": x * 2}, ("x", "bfloat16", (None,)))
    (signature,) = write_onnx(program, tmp_path / "m.onnx").signatures
    assert signature.inputs[0].dtype == "float32"
    assert compute(tmp_path / "m.onnx", {"x": np.float32([1, 3])})["y"].tolist() == [2, 6]


def test_what_onnx_has_no_type_for(tmp_path: Path) -> None:
    narrow = tf.dtypes.experimental.float8_e4m3fn
    program = function_program(
        lambda x: {"y": tf.cast(tf.cast(x, narrow), tf.float32)}, ("x", "float32", (None,))
    )
    with pytest.raises(UnsupportedError, match="float8_e4m3fn") as caught:
        write_onnx(program, tmp_path / "m.onnx")
    assert caught.value.id == "onnx-dtype"


def test_scalars_and_text(tmp_path: Path) -> None:
    """The runtime takes arrays only, also of a scalar, and text as str."""
    path = tmp_path / "m.onnx"
    words = tf.constant(["alpha", "Grüße", ""])

    def body(at: Any, text: Any) -> dict[str, Any]:
        return {"word": tf.gather(words, at), "text": tf.identity(text), "next": at + 1}

    program = function_program(body, ("at", "int64", ()), ("text", "string", (None,)))
    write_onnx(program, path)
    feeds = {"at": np.int64(1), "text": np.array(["é".encode(), b"b"], object)}
    found = compute(path, feeds)
    assert found["word"].item() == "Grüße".encode()
    assert found["text_1"].tolist() == ["é".encode(), b"b"]
    assert (found["next"].shape, found["next"].item()) == ((), 2)


# Refusals: tf2onnx says "Successfully converted" of all of these ------------------------


def test_operations_that_tf2onnx_does_not_know(tmp_path: Path) -> None:
    """All of them with their counts, and no file; tf2onnx writes an invalid one and exits 0."""
    program = function_program(
        lambda x: {"y": tf.linalg.inv(x) @ tf.linalg.inv(x + 1.0), "z": tf.linalg.cholesky(x)},
        ("x", "float32", (None, 3, 3)),
    )
    with pytest.raises(ConversionError) as caught:
        write_onnx(program, tmp_path / "m.onnx")
    assert (caught.value.id, caught.value.exit_code) == ("onnx-operators", 51)
    assert "MatrixInverse (2), Cholesky" in caught.value.why
    assert not list(tmp_path.iterdir())


def test_operations_inside_a_loop_are_counted(tmp_path: Path) -> None:
    def body(x: Any) -> dict[str, Any]:
        found = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, tf.linalg.inv(y)), (tf.constant(0), x)
        )
        return {"y": found[1]}

    program = function_program(body, ("x", "float32", (None, 3, 3)))
    with pytest.raises(ConversionError, match="MatrixInverse") as caught:
        write_onnx(program, tmp_path / "m.onnx")
    assert caught.value.exit_code == 51


def test_text_that_would_depend_on_the_machine(tmp_path: Path) -> None:
    """It becomes an operator that fails where a locale is not installed."""
    program = function_program(lambda x: {"y": tf.strings.lower(x)}, ("x", "string", (None,)))
    with pytest.raises(UnsupportedError) as caught:
        write_onnx(program, tmp_path / "m.onnx")
    assert caught.value.id == "onnx-strings"
    hashed = function_program(
        lambda x: {"y": tf.strings.to_hash_bucket_fast(x, 9)}, ("x", "string", (None,))
    )
    with pytest.raises(ConversionError, match="StringToHashBucketFast"):
        write_onnx(hashed, tmp_path / "m.onnx")


@pytest.mark.usefixtures("in_the_folder")
def test_a_table_is_refused_by_name(tmp_path: Path) -> None:
    opened = open_program("words/ckpt", model="build.py:Words")
    with opened as program, pytest.raises(UnsupportedError) as caught:
        write_onnx(program, tmp_path / "m.onnx")
    assert caught.value.id == "stateful-graph"


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_operator_sets(opset: int, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    program = function_program(lambda x: {"y": tf.nn.gelu(x)}, ("x", "float32", (None, 3)))
    written = write_onnx(program, path, opset=opset)
    assert written.facts == {"opset": opset}
    assert load(path).opset_import[0].version == opset
    assert largest_error(program.functions[0], path, feed(program.functions[0])) < 1e-6


@pytest.mark.parametrize("opset", [8, 19, 2**40])
def test_operator_sets_that_are_not_written(opset: int, tmp_path: Path) -> None:
    program = function_program(lambda x: {"y": x + 1.0}, ("x", "float32", (None, 3)))
    with pytest.raises(UsageError, match=str(opset)) as caught:
        write_onnx(program, tmp_path / "m.onnx", opset=opset)
    assert (caught.value.id, caught.value.why) == ("onnx-opset", "tf2onnx writes 9 to 18")
