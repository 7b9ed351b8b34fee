"""TensorFlow Lite files agree with their source in the interpreter, or are refused by name.

What is not as it seems (nothing quantised, floats among integers) is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckpttool.conversion.metrics import compare, faults, tolerance_of
from ckpttool.conversion.request import Settings
from ckpttool.errors import ConversionError, RefusedError, UnsupportedError
from tests.support.converting import feed, open_program

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
pytest.importorskip("ai_edge_litert")

if TYPE_CHECKING:
    from ckpttool.conversion.worker.program import Program, Written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

MODELS: dict[str, dict[str, Any]] = {
    "mlp-ref": {},
    "mlp-resource": {},
    "conditional": {"freeze": ["is_training=false", "keep_prob=1.0"]},
    "partitioned": {},
    "loop": {},
    "subclass/ckpt": {"model": "build.py:subclass", "inputs": ["x:float32[?,12]"]},
    "embedding/ckpt": {"model": "build.py:Embedding", "root": "net"},
}


def converted(program: Program, path: Path, **settings: Any) -> Written:
    from ckpttool.conversion.worker.to_tflite import write

    return write(program, str(path), Settings(**settings))


def agree(program: Program, path: Path, precision: str = "float32", **given: Any) -> None:
    """The file computes what the program does, with one row and with several."""
    from ckpttool.conversion.worker.run_tflite import open_result

    runner = open_result(str(path))
    assert runner.runtime == "ai-edge-litert"
    assert {one.name for one in runner.signatures()} == {
        one.signature.name for one in program.functions
    }
    for function in program.functions:
        for batch in given.get("batches", (2, 3)):
            feeds = feed(function, batch)
            expected = function.run(feeds)
            found = runner.run(function.signature.name, feeds)
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                assert found[name].shape == array.shape
                figures = compare(array, found[name])
                assert faults(figures, tolerance_of([precision]), None, "float32") == []


def examples(count: int = 120, **shapes: tuple[int, ...]) -> dict[str, Any]:
    """Inputs like those that the check makes."""
    generator = np.random.default_rng(1)
    return {
        name: generator.standard_normal((count, *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Examples for `two`."""
    path = tmp_path_factory.mktemp("calibration") / "data.npz"
    np.savez(path, **examples(signal=(64,), bias=(32,), x=(64,)))
    return str(path)


@pytest.mark.parametrize("source", MODELS)
def test_a_model_in_floats(
    source: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    with open_program(source, **MODELS[source]) as program:
        written = converted(program, tmp_path / "m.tflite")
        agree(program, tmp_path / "m.tflite")
        for function, stored in zip(program.functions, written.signatures, strict=True):
            ours = function.signature
            for mine, theirs in ((ours.inputs, stored.inputs), (ours.outputs, stored.outputs)):
                named = [(one.name, one.dtype) for one in mine]
                assert [(one.name, one.dtype) for one in theirs] == named
            assert stored.inputs[0].shape == ours.inputs[0].shape
        assert written.warnings == ()
        assert written.facts["operators"]
    assert [path.name for path in tmp_path.iterdir()] == ["m.tflite"]


def test_recurrent_layers_want_to_know_the_number_of_rows(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorListReserve; and made in another way they read variables that are not there."""
    monkeypatch.chdir(models)
    with open_program("recurrent/ckpt", model="build.py:recurrent") as program:
        with pytest.raises(RefusedError) as caught:
            converted(program, tmp_path / "m.tflite")
        assert caught.value.id == "tflite-open-batch"
        assert "--batch" in caught.value.hint
        assert list(tmp_path.iterdir()) == []
        written = converted(program, tmp_path / "m.tflite", batch=3)
        assert written.signatures[0].inputs[0].shape == (3, 5, 8)
        agree(program, tmp_path / "m.tflite", batches=(3,))
        quantised = converted(program, tmp_path / "q.tflite", batch=3, quantize="dynamic-int8")
        agree(program, tmp_path / "q.tflite", "dynamic-int8", batches=(3,))
        assert any("nothing was quantised" in one for one in quantised.warnings)


def test_a_recurrent_model_that_was_traced_for_any_number_of_rows(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch size fixes when the model is traced, it does not in an export."""
    monkeypatch.chdir(models)
    with open_program("recurrent/ckpt", model="build.py:recurrent") as program:
        program.save(str(tmp_path / "any"))
        program.save(str(tmp_path / "three"), batch=3)
    with open_program(tmp_path / "any") as program:
        with pytest.raises(UnsupportedError) as caught:
            converted(program, tmp_path / "m.tflite", batch=3)
        assert caught.value.id == "tflite-open-list"
        assert "--model" in caught.value.hint
    with open_program(tmp_path / "three") as program:
        converted(program, tmp_path / "m.tflite")
        agree(program, tmp_path / "m.tflite", batches=(3,))


def test_no_signature_is_lost_where_the_source_has_serve(tmp_path: Path) -> None:
    """An export of Keras has an attribute `serve`.

    Of such a SavedModel with two signatures TensorFlow's converter keeps one, and says nothing.
    """
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.ReLU()])
    archive = keras.export.ExportArchive()
    archive.track(model)
    specs = [tf.TensorSpec((None, 6), tf.float32, name="x")]
    archive.add_endpoint("serve", lambda x: {"y": model(x)}, specs)
    archive.add_endpoint("double", lambda x: {"y": 2 * model(x)}, specs)
    archive.write_out(str(tmp_path / "export"), verbose=False)

    bare = tf.lite.TFLiteConverter.from_saved_model(
        str(tmp_path / "export"), signature_keys=["serve", "double"]
    )
    (tmp_path / "bare.tflite").write_bytes(bare.convert())
    from ckpttool.conversion.worker.tflite_file import read_file

    kept = read_file(str(tmp_path / "bare.tflite")).summary.signatures
    assert len(kept) == 1  # or there is no need for this test any more

    with open_program(tmp_path / "export") as program:
        written = converted(program, tmp_path / "m.tflite")
        assert {one.name for one in written.signatures} >= {"serve", "double"}
        agree(program, tmp_path / "m.tflite")
        from ckpttool.conversion.worker.to_tflite import stored_signatures

        with pytest.raises(ConversionError, match="lost"):
            stored_signatures(
                read_file(str(tmp_path / "bare.tflite")),
                [one.signature for one in program.functions],
            )


@pytest.mark.parametrize(
    ("settings", "precision", "share"),
    [
        ({"quantize": "float16"}, "float16", 0.7),
        ({"quantize": "dynamic-int8"}, "dynamic-int8", 0.5),
        ({"quantize": "int8"}, "int8", 0.5),
        ({"quantize": "int8", "io_dtype": "int8"}, "int8", 0.5),
        ({"quantize": "int8", "io_dtype": "uint8"}, "int8", 0.5),
    ],
)
def test_two_signatures_quantised(
    settings: dict[str, Any], precision: str, share: float, calibration: str, tmp_path: Path
) -> None:
    """Smaller, and near enough; integers at the ends are quantised and de-quantised."""
    from tests.support.tflite_models import two

    program = two()
    converted(program, tmp_path / "float.tflite")
    if settings["quantize"] == "int8":
        settings = settings | {"calibration": calibration}
    written = converted(program, tmp_path / "m.tflite", **settings)
    agree(program, tmp_path / "m.tflite", precision)
    sizes = [(tmp_path / name).stat().st_size for name in ("m.tflite", "float.tflite")]
    assert sizes[0] < share * sizes[1]
    assert written.warnings == ()
    ends = {port.dtype for one in written.signatures for port in (*one.inputs, *one.outputs)}
    assert ends == {settings.get("io_dtype", "float32")}
    if "calibration" in settings:
        assert written.facts["calibration"] == {"serving_default": 120, "scores": 120}


def test_16_bits_of_one_signature(calibration: str, tmp_path: Path) -> None:
    """Of two in one file TensorFlow's converter makes nonsense without a word."""
    from ckpttool.conversion.worker.traced_program import TracedProgram
    from tests.support.tflite_models import not_integer, two

    whole = two()
    settings = {"quantize": "int16x8", "calibration": calibration}
    with pytest.raises(UnsupportedError) as caught:
        converted(whole, tmp_path / "m.tflite", **settings)
    assert caught.value.id == "tflite-16x8"
    assert "--signature serving_default" in caught.value.hint
    one = TracedProgram(whole.functions[:1], whole.root)
    converted(one, tmp_path / "m.tflite", **settings)
    agree(one, tmp_path / "m.tflite", "int16x8")
    with pytest.raises(UnsupportedError, match="ATAN2") as unknown:
        converted(not_integer(), tmp_path / "n.tflite", **settings)
    assert unknown.value.id == "tflite-16x8"


def test_a_picture(tmp_path: Path) -> None:
    """A convolution with batch normalisation, as integers, by examples of a function."""
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3), name="image"),
            keras.layers.Conv2D(16, 3),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.save(tmp_path / "m.keras")
    (tmp_path / "examples.py").write_text(
        "import numpy as np\n\n\n"
        "def images():\n"
        "    generator = np.random.default_rng(0)\n"
        "    for _ in range(30):\n"
        "        yield {'image': generator.standard_normal((5, 12, 12, 3), np.float32)}\n"
    )
    with open_program(tmp_path / "m.keras") as program:
        converted(program, tmp_path / "m.tflite")
        agree(program, tmp_path / "m.tflite")
        spec = f"{tmp_path / 'examples.py'}:images"
        written = converted(program, tmp_path / "q.tflite", quantize="int8", calibration=spec)
        agree(program, tmp_path / "q.tflite", "int8")
        assert written.facts["calibration"] == {"serving_default": 150}


def test_what_is_not_quantised_is_said(tmp_path: Path) -> None:
    from tests.support.tflite_models import not_integer, small

    few = converted(small(), tmp_path / "s.tflite", quantize="dynamic-int8")
    assert few.facts["quantised_tensors"] == 0
    (said,) = few.warnings
    assert "nothing was quantised" in said
    assert "1024" in said
    np.savez(tmp_path / "x.npz", **examples(x=(64,)))
    mixed = converted(
        not_integer(),
        tmp_path / "m.tflite",
        quantize="int8",
        calibration=str(tmp_path / "x.npz"),
    )
    (said,) = mixed.warnings
    assert "no model of integers only" in said
    assert "ATAN2 compute with floats" in said


def test_operations_that_it_has_not(tmp_path: Path) -> None:
    from ckpttool.conversion.worker.run_tflite import open_result
    from tests.support.tflite_models import double, inverse, no_operation

    path = tmp_path / "m.tflite"
    with pytest.raises(RefusedError) as caught:
        converted(inverse(), path)
    assert (caught.value.id, caught.value.exit_code) == ("tflite-flex", 31)
    assert "MatrixInverse" in caught.value.why
    assert "--allow-flex" in caught.value.hint
    with pytest.raises(RefusedError, match="MatMul of float64"):
        converted(double(), path)
    with pytest.raises(UnsupportedError, match="NthElement") as unknown:
        converted(no_operation(), path, allow_flex=True)
    assert unknown.value.id == "tflite-no-op"
    assert list(tmp_path.iterdir()) == []

    written = converted(inverse(), path, allow_flex=True)
    assert written.facts["flex"] == ["FlexMatrixInverse"]
    assert any("FlexMatrixInverse" in one for one in written.warnings)
    with pytest.raises(UnsupportedError) as here:
        open_result(str(path))
    assert here.value.id == "tflite-not-here"
    assert "FlexMatrixInverse" in here.value.why

    np.savez(tmp_path / "x.npz", **examples(x=(4, 4)))
    with pytest.raises(UnsupportedError) as measured:
        converted(
            inverse(),
            tmp_path / "q.tflite",
            quantize="int8",
            calibration=str(tmp_path / "x.npz"),
            allow_flex=True,
        )
    assert measured.value.id == "tflite-flex-measured"


def test_text_scalars_and_odd_outputs(tmp_path: Path) -> None:
    from ckpttool.conversion.worker.run_tflite import open_result
    from tests.support.tflite_models import corners, text

    for made in (corners(), text()):
        path = tmp_path / "m.tflite"
        converted(made, path)
        runner = open_result(str(path))
        (function,) = made.functions
        for batch in (2, 3):
            feeds = feed(function, batch)
            found = runner.run("serving_default", feeds)
            for name, expected in function.run(feeds).items():
                if expected.dtype == object:
                    assert (found[name] == expected).all()
                else:
                    np.testing.assert_allclose(found[name], expected, rtol=1e-6)
