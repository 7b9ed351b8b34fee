"""Public models as ONNX: each agrees with its checkpoint, or was refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.convert.test_corpus import GOOD
from tests.support.converting import feed, open_program
from tests.support.onnx_models import compute, write_onnx

np = pytest.importorskip("numpy")
pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

#: Sources of which one signature has to be chosen.
CHOSEN = {"keras3-mnist-weights-sm-tflite/saved_model": ("serving_default",)}


def one_at_a_time(source: str) -> list[dict[str, Any]]:
    """How a source is asked for: once for each signature that is wanted of it."""
    names = GOOD[source].get("signatures", CHOSEN.get(source, ()))
    return [GOOD[source] | {"signatures": (name,)} for name in names] or [GOOD[source]]


@pytest.mark.parametrize("source", GOOD)
def test_a_public_model(source: str, corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for given in one_at_a_time(source):
        with open_program(corpus / source, **given) as program:
            (signature,) = write_onnx(program, path).signatures
            (function,) = program.functions
            for batch in (2, 3):
                feeds = feed(function, batch)
                expected, found = function.run(feeds), compute(path, feeds)
                for ours, theirs in zip(function.signature.outputs, signature.outputs, strict=True):
                    assert found[theirs.name].shape == expected[ours.name].shape
                    if expected[ours.name].dtype == object:
                        assert (found[theirs.name] == expected[ours.name]).all()
                    else:
                        np.testing.assert_allclose(
                            found[theirs.name], expected[ours.name], rtol=1e-4, atol=1e-5
                        )


def test_the_vendor_s_own_conversion_agrees(corpus: Path, tmp_path: Path) -> None:
    """The model that its vendor offers in five formats; a runtime of another."""
    pytest.importorskip("ai_edge_litert")
    from ckpttool.conversion.worker.run_tflite import open_result

    folder = corpus / "multi-regression-allformats/regression"
    with open_program(folder / "checkpoint") as program:
        write_onnx(program, tmp_path / "m.onnx")
    vendor = open_result(str(folder / "tflite/model.tflite"))
    (signature,) = vendor.signatures()
    (port,) = signature.inputs
    for value in (-2.0, 0.5, 7.0):
        x = np.full([size or 1 for size in port.shape or ()], value, np.float32)
        (theirs,) = vendor.run(signature.name, {port.name: x}).values()
        (ours,) = compute(tmp_path / "m.onnx", {"X": x.reshape(-1)}).values()
        np.testing.assert_allclose(ours.ravel(), theirs.ravel(), rtol=1e-6)
