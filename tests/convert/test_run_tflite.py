"""The runner of TensorFlow Lite files: anyone's files, either interpreter, integers by meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.ports import Port
from ckpttool.conversion.request import Settings
from ckpttool.conversion.worker.run_tflite import TfliteRunner, open_result
from ckpttool.errors import CorruptError, UnsupportedError
from tests.support.flatbuffer import Field, Tables, Text, Vector, tflite

np = pytest.importorskip("numpy")
litert = pytest.importorskip("ai_edge_litert.interpreter")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

FLOAT32 = 0
CUSTOM = 32


def test_a_file_without_signatures(corpus: Path) -> None:
    """As older converters wrote them: the names are those of tensors."""
    folder = corpus / "multi-regression-allformats" / "regression" / "tflite"
    runner = open_result(str(folder / "model.tflite"))
    assert runner.runtime == "ai-edge-litert"
    (signature,) = runner.signatures()
    given = [port.name for port in signature.inputs]
    assert given
    one = runner.run(signature.name, {name: np.full((1, 1), 3, np.float32) for name in given})
    two = runner.run(signature.name, {name: np.full((1, 1), 5, np.float32) for name in given})
    (output,) = (port.name for port in signature.outputs)
    assert one.keys() == two.keys() == {output}
    assert one[output] != two[output]


def _tensor(name: bytes) -> dict[int, Field]:
    return {0: Vector("i", (1,)), 1: ("b", FLOAT32), 2: ("I", 0), 3: Text(name)}


def custom(name: bytes) -> bytes:
    """A file whose only operator is a custom one."""
    x, y = (_tensor(end) for end in (b"x", b"y"))
    operator: dict[int, Field] = {0: ("I", 0), 1: Vector("i", (0,)), 2: Vector("i", (1,))}
    return tflite(
        (x, y),
        graph={1: Vector("i", (0,)), 2: Vector("i", (1,)), 3: Tables((operator,))},
        codes=({0: ("b", CUSTOM), 1: Text(name), 3: ("i", CUSTOM)},),
    )


@pytest.mark.parametrize("name", [b"FlexErfc", b"Mine"])
def test_operations_that_are_not_here(name: bytes, tmp_path: Path) -> None:
    """Neither TensorFlow's own nor an application's: no proof, and no failed one."""
    (tmp_path / "m.tflite").write_bytes(custom(name))
    with pytest.raises(UnsupportedError) as caught:
        open_result(str(tmp_path / "m.tflite")).run("", {"x": np.ones(1, np.float32)})
    assert caught.value.id == "tflite-not-here"
    assert name.decode() in caught.value.why


def test_what_is_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(100))
    with pytest.raises(CorruptError):
        open_result(str(tmp_path / "m.tflite"))


def written(path: Path, **settings: Any) -> Any:
    from ckpttool.conversion.worker.to_tflite import write
    from tests.support.tflite_models import small

    pytest.importorskip("tensorflow")
    program = small()
    write(program, str(path), Settings(**settings))
    return program


def test_sizes_that_were_fixed_are_not_resized(tmp_path: Path) -> None:
    """The interpreter would resize them all the same, and may compute with what is not there."""
    program = written(tmp_path / "m.tflite", batch=2)
    runner = open_result(str(tmp_path / "m.tflite"))
    (signature,) = runner.signatures()
    assert signature.inputs == (Port("x", "float32", (2, 8)),)
    feeds = {"x": np.ones((2, 8), np.float32)}
    expected = program.functions[0].run(feeds)["y"]
    np.testing.assert_allclose(runner.run("serving_default", feeds)["y"], expected, rtol=1e-6)
    for shape in ((3, 8), (2, 7), (8,)):
        with pytest.raises(ValueError, match="x takes"):
            runner.run("serving_default", {"x": np.ones(shape, np.float32)})


def test_integers_are_compared_by_what_they_mean(tmp_path: Path) -> None:
    """Beyond the range that was measured a value is the last of it, as where it is served."""
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=generator.uniform(-1, 1, (200, 8)).astype(np.float32))
    program = written(
        tmp_path / "m.tflite",
        quantize="int8",
        io_dtype="uint8",
        calibration=str(tmp_path / "x.npz"),
    )
    runner = open_result(str(tmp_path / "m.tflite"))
    (signature,) = runner.signatures()
    assert [port.dtype for port in (*signature.inputs, *signature.outputs)] == ["uint8", "uint8"]
    x = generator.uniform(-1, 1, (5, 8)).astype(np.float32)
    found = runner.run("serving_default", {"x": x})["y"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, program.functions[0].run({"x": x})["y"], atol=0.05)
    ends = [np.full((1, 8), size, np.float32) for size in (1.0, 100.0)]
    one, far = (runner.run("serving_default", {"x": end})["y"] for end in ends)
    np.testing.assert_array_equal(one, far)
    # Integers that are given as such go in as they are.
    raw = np.full((1, 8), 255, np.uint8)
    np.testing.assert_array_equal(runner.run("serving_default", {"x": raw})["y"], far)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """TensorFlow and the interpreter take paths in UTF-8 only."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/to\xff"))
    folder.mkdir()
    program = written(folder / "m.tflite")
    runner = open_result(str(folder / "m.tflite"))
    feeds = {"x": np.ones((2, 8), np.float32)}
    expected = program.functions[0].run(feeds)["y"]
    np.testing.assert_allclose(runner.run("serving_default", feeds)["y"], expected, rtol=1e-6)


def test_tensorflow_s_interpreter_says_the_same(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    written(tmp_path / "m.tflite")
    path = str(tmp_path / "m.tflite")
    theirs = TfliteRunner(path, tf.lite.Interpreter(path), "tensorflow")
    ours = open_result(path)
    assert theirs.signatures() == ours.signatures()
    for rows in (1, 4):
        feeds = {"x": np.random.default_rng(rows).normal(size=(rows, 8)).astype(np.float32)}
        one, two = (each.run("serving_default", feeds)["y"] for each in (ours, theirs))
        np.testing.assert_allclose(one, two, rtol=1e-6)
