"""Public models to every target, and what their makers' own converters made of them.

Each is proven or refused for a reason that has a name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.convert_table import ENDINGS, TARGETS, in_this_process
from ckpttool.conversion.node_packages import find_package
from ckpttool.conversion.request import CheckSettings
from ckpttool.errors import CkpttoolError
from ckpttool.ops.convert import convert
from tests.convert.test_corpus import GOOD
from tests.support.converting import request

pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

_TWO = "sm-halfplustwo-tf2/saved_model_half_plus_two_tf2_cpu/00000123"
_MNIST = "keras3-mnist-weights-sm-tflite/saved_model"
#: Source, target → the id of the error with which it is refused.
REFUSED: Mapping[tuple[str, str], str] = {
    (_TWO, "onnx"): "onnx-signatures",
    (_TWO, "tfjs"): "tfjs-signatures",
    ("v2-taxi-tf29-estimator/model.ckpt-1000", "tflite"): "tflite-flex",
}
_REGRESSION = "multi-regression-allformats/regression"


@pytest.mark.parametrize("source", GOOD)
def test_a_public_model_to_every_target(source: str, corpus: Path, tmp_path: Path) -> None:
    has_node = find_package("@tensorflow/tfjs") is not None
    for target in TARGETS:
        destination = os.path.join(tmp_path, f"{target}{ENDINGS.get(target, '')}")
        asked = request(corpus / source, target=target, destination=destination, **GOOD[source])
        if (source, target) in REFUSED:
            with pytest.raises(CkpttoolError) as caught:
                convert(asked, run=in_this_process)
            assert caught.value.id == REFUSED[source, target]
            assert not os.path.lexists(destination)
            continue
        result = convert(asked, run=in_this_process)
        state = "passed" if target != "tfjs" or has_node else "not_run"
        assert result.check.state == state, (target, result.check.why)
        assert result.outputs


def checked(corpus: Path, source: str, theirs: str, target: str, **given: Any) -> Any:
    asked = request(
        corpus / source,
        target=target,
        destination=str(corpus / theirs),
        check=CheckSettings(only=True),
        **given,
    )
    return convert(asked, run=in_this_process).check


def test_a_vendor_s_own_files_agree_with_its_checkpoint(corpus: Path) -> None:
    """multi-regression-allformats: its TFLite file, its SavedModel, its frozen graph."""
    for theirs, target in (("tflite/model.tflite", "tflite"), ("saved_model", "savedmodel")):
        for source in ("checkpoint", "saved_model", "graphdef/frozen.pb"):
            found = checked(corpus, f"{_REGRESSION}/{source}", f"{_REGRESSION}/{theirs}", target)
            assert found.state == "passed", (theirs, source, found.why)


def test_a_vendor_s_file_of_another_model_does_not(corpus: Path) -> None:
    theirs = f"{_REGRESSION}/tflite/test_api_model.tflite"
    found = checked(corpus, f"{_REGRESSION}/checkpoint", theirs, "tflite")
    assert found.state == "failed"


def test_what_tf2onnx_itself_makes_agrees(corpus: Path, tmp_path: Path) -> None:
    """Its names are X:0 and pred:0; the checkpoint's X and pred."""
    tf2onnx = pytest.importorskip("tf2onnx.convert")
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef()
    frozen = corpus / _REGRESSION / "graphdef" / "frozen.pb"
    graph.ParseFromString(frozen.read_bytes())
    theirs = tmp_path / "theirs.onnx"
    tf2onnx.from_graph_def(
        graph, input_names=["X:0"], output_names=["pred:0"], output_path=str(theirs)
    )
    found = checked(corpus, f"{_REGRESSION}/checkpoint", str(theirs), "onnx")
    assert found.state == "passed", found.why


def test_signatures_that_a_vendor_s_converter_dropped(corpus: Path) -> None:
    """Keras's export has serving_default and serve; TFLite's converter kept the first."""
    theirs = "keras3-mnist-weights-sm-tflite/mnist_model.tflite"
    found = checked(corpus, _MNIST, theirs, "tflite")
    assert found.state == "failed"
    assert "no signature serve; it has serving_default" in found.why
    chosen = checked(corpus, _MNIST, theirs, "tflite", signatures=("serving_default",))
    assert chosen.state == "passed"


def test_an_output_that_is_always_zero_proves_nothing(corpus: Path, tmp_path: Path) -> None:
    source = corpus / "mixed-v1-v2-tdgammon/checkpoint-447880"
    asked = request(source, target="savedmodel", destination=str(tmp_path / "export"))
    check = convert(asked, run=in_this_process).check
    assert check.state == "not_run"
    assert "zero for all of these inputs" in check.why
