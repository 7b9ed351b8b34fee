"""Operations that tf2onnx has no word for, against TensorFlow; also where digits are lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.worker.onnx_handlers import handlers
from tests.support.onnx_models import compute, function_program, operators, write_onnx

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

#: From the smallest steps around zero to what is large.
VALUES = np.float32(
    [0.0, 1e-9, -1e-9, 1e-7, -1e-7, 1e-4, -1e-4, 0.01, 0.3, -0.3, 0.499, 0.501, 1.0, 7.0, 60.0]
)
UNARY: dict[str, Callable[[Any], Any]] = {
    "DeepCopy": lambda x: tf.raw_ops.DeepCopy(x=x) + 0.0,
    "Erfc": tf.math.erfc,
    "Expm1": tf.math.expm1,
    "Inv": lambda x: tf.raw_ops.Inv(x=x + 2.0),
    "L2Loss": tf.nn.l2_loss,
    "Log1p": tf.math.log1p,
    "PreventGradient": lambda x: tf.raw_ops.PreventGradient(input=x) + 0.0,
    "Rank": tf.rank,
    "Snapshot": lambda x: tf.raw_ops.Snapshot(input=x) + 0.0,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "AccumulateNV2": lambda x, y: tf.raw_ops.AccumulateNV2(inputs=[x, y, x], shape=[15]),
    "Mod": lambda x, y: tf.raw_ops.Mod(x=x, y=y),
    "MulNoNan": tf.math.multiply_no_nan,
    "TruncateMod": tf.truncatemod,
    "Xdivy": tf.math.xdivy,
    "Xlog1py": tf.math.xlog1py,
    "Xlogy": tf.math.xlogy,
}


def test_all_are_tested() -> None:
    assert handlers().keys() == UNARY.keys() | BINARY.keys()


@pytest.mark.parametrize("name", UNARY)
def test_of_one_input(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    program = function_program(lambda x: {"y": UNARY[name](x)}, ("x", "float32", (None,)))
    write_onnx(program, path)
    values = VALUES[1:] if name == "Inv" else VALUES
    expected = program.functions[0].run({"x": values})["y"]
    found = compute(path, {"x": values})["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-9 if name != "Erfc" else 1e-6)


def test_ends_of_the_number_line(tmp_path: Path) -> None:
    program = function_program(
        lambda x: {"log1p": tf.math.log1p(x), "expm1": tf.math.expm1(x), "erfc": tf.math.erfc(x)},
        ("x", "float32", (None,)),
    )
    write_onnx(program, tmp_path / "m.onnx")
    x = np.float32([np.inf, -1.0, np.nan, 88.0, -104.0])
    expected, found = program.functions[0].run({"x": x}), compute(tmp_path / "m.onnx", {"x": x})
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_of_two_inputs(name: str, tmp_path: Path) -> None:
    """Where the one is zero the result is, whatever the other is."""
    path = tmp_path / "m.onnx"
    shape = (len(VALUES),)
    program = function_program(
        lambda x, y: {"z": BINARY[name](x, y)}, ("x", "float32", shape), ("y", "float32", shape)
    )
    write_onnx(program, path)
    feeds = {"x": np.abs(VALUES), "y": np.abs(VALUES[::-1])}
    if name in {"Xdivy", "Xlogy", "Xlog1py"}:
        feeds["y"][0] = 0
        feeds["y"][-1] = 1
    if name == "MulNoNan":
        feeds["x"][-1] = np.inf
    if name in {"Mod", "TruncateMod"}:
        feeds = {"x": VALUES * 7, "y": np.where(VALUES > 0, VALUES, np.float32(-0.7))}
    expected = program.functions[0].run(feeds)["z"]
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(compute(path, feeds)["z"], expected, rtol=2e-6, atol=1e-9)


def test_exact_gelu(tmp_path: Path) -> None:
    """Models of BERT's kind: tf2onnx knows no Erfc, and writes an invalid file."""
    program = function_program(lambda x: {"y": tf.nn.gelu(x)}, ("x", "float32", (None,)))
    write_onnx(program, tmp_path / "m.onnx")
    assert "Erf" in operators(tmp_path / "m.onnx")
    x = np.linspace(-6, 6, 101, dtype=np.float32)
    expected = program.functions[0].run({"x": x})["y"]
    np.testing.assert_allclose(compute(tmp_path / "m.onnx", {"x": x})["y"], expected, atol=1e-6)
