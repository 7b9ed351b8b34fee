"""Public models as programs: run, frozen and exported they agree, or are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import CkpttoolError
from tests.support.converting import feed, open_program, run_frozen

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

HALF = "sm-halfplustwo-tf1/saved_model_half_plus_two"
#: Source → how it is asked for.
GOOD: dict[str, dict[str, Any]] = {
    "multi-regression-allformats/regression/checkpoint": {},
    "multi-regression-allformats/regression/saved_model": {},
    "multi-regression-allformats/regression/graphdef/frozen.pb": {},
    f"{HALF}_cpu/00000123": {"signatures": ("serving_default",)},
    f"{HALF}_2_versions/00000124": {"signatures": ("serving_default",)},
    "sm-halfplustwo-tf1/saved_model_half_plus_three/00000123": {"signatures": ("serving_default",)},
    "sm-halfplustwo-tf2/saved_model_half_plus_two_tf2_cpu/00000123": {
        "signatures": ("serving_default", "classify_x2_to_y3")
    },
    "sm-a2c-2shard/a2c-cartpole": {},
    "keras3-mnist-weights-sm-tflite/saved_model": {},
    "keras3-mnist-keras/mnist.keras": {},
    "h5-tfjs-fsrcnn/trained_model/SRCNN.h5": {},
    "pb-frozen-rnn-fc/fc-layers/frozen.pb": {},
    "pb-frozen-rnn-fc/lstm/frozen.pb": {"freeze": ["keep_prob=1.0"]},
    "pb-frozen-rnn-fc/gru/frozen.pb": {
        "freeze": ["keep_prob=1.0"],
        "inputs": ["X:float32[?,784]"],
    },
    "v1-acrobot-adam/model.ckpt": {},
    "v1-badhalfplustwo-abspath/export": {},
    # What is found without it, a rounded measure, is zero for made-up inputs.
    "mixed-v1-v2-tdgammon/checkpoint-447880": {"outputs": ["layer2/activation"]},
    "synth-partitioned-3-slices/model.ckpt-7": {},
    "v2-taxi-tf29-estimator/model.ckpt-1000": {},
    "v2-linear-part0-slots/model.ckpt-5865": {},
}
REFUSED = {
    "v2-taxi-2shard-tf1x/export/chicago-taxi/1550769257": "op-unknown",
    "bad-missing-shard-sudoku/model": "variables-missing",
    "obj-iris-2shard": "no-graph",
    "keras3-mnist-weights-sm-tflite/mnist.weights.h5": "no-graph",
    "pb-frozen-rnn-fc/lstm/frozen.pb": "training-graph",
}


def agree(found: Any, expected: Any) -> None:
    if expected.dtype == object:
        assert (np.asarray(found) == expected).all()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("source", GOOD)
def test_a_public_model(source: str, corpus: Path, tmp_path: Path) -> None:
    with open_program(corpus / source, **GOOD[source]) as program:
        program.save(str(tmp_path / "export"))
        loaded = tf.saved_model.load(str(tmp_path / "export"))
        for function in program.functions:
            feeds = feed(function)
            expected = function.run(feeds)
            frozen = run_frozen(function.frozen(), feeds)
            given = {name: tf.constant(array) for name, array in feeds.items()}
            saved = loaded.signatures[function.signature.name](**given)
            assert frozen.keys() == saved.keys() == expected.keys()
            for name, array in expected.items():
                agree(frozen[name], array)
                agree(saved[name].numpy(), array)


@pytest.mark.parametrize("source", REFUSED)
def test_a_public_model_that_is_refused(source: str, corpus: Path) -> None:
    opening = open_program(corpus / source)
    with pytest.raises(CkpttoolError) as caught, opening:
        pass
    assert caught.value.id == REFUSED[source]
