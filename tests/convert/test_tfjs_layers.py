"""Networks of Keras layers in TensorFlow.js: all kinds of recurrence, attention, pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.converting import feed, open_program
from tests.support.node import node_modules
from tests.support.tfjs_results import close, run_js, write_js

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

#: The code of the person who trained the networks.
BUILD = '''
def recurrent(keras):
    """Both ways, masked, of any length; the older form of GRU."""
    layers = keras.layers
    series = keras.Input((None, 3))
    found = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(layers.Masking()(series))
    return keras.Model(series, layers.GRU(3, reset_after=False)(found))


def states(keras):
    layers = keras.layers
    series = keras.Input((6, 3))
    return keras.Model(series, layers.SimpleRNN(4, return_state=True, go_backwards=True)(series))


def pictures_in_time(keras):
    film = keras.Input((4, 5, 5, 2))
    return keras.Model(film, keras.layers.ConvLSTM2D(3, 3, padding="same")(film))


def attention(keras):
    layers = keras.layers
    words = keras.Input((6, 8))
    found = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(words, words) + words)
    found = layers.GlobalAveragePooling1D()(layers.Dense(5, activation="gelu")(found))
    return keras.Model(words, layers.Dense(2, activation="softmax")(found))


def pictures(keras):
    layers = keras.layers
    picture = keras.Input((16, 16, 3))
    found = layers.SeparableConv2D(6, 3, padding="same")(picture)
    found = layers.LeakyReLU()(layers.BatchNormalization()(found))
    found = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(found)
    found = layers.UpSampling2D(interpolation="bilinear")(found)
    found = layers.AveragePooling2D(2)(layers.PReLU(shared_axes=[1, 2])(found))
    found = layers.DepthwiseConv2D(3, activation="relu6")(found)
    return keras.Model(picture, layers.Conv2D(3, 1, activation="silu")(found))


def built(make):
    def build(old=False):
        if old:
            import tf_keras as keras
        else:
            import keras
        return make(keras)

    return build


build_recurrent, build_states, build_pictures_in_time, build_attention, build_pictures = map(
    built, (recurrent, states, pictures_in_time, attention, pictures)
)
'''


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("recurrent", False),
        ("recurrent", True),
        ("states", False),
        ("pictures_in_time", False),
        ("attention", False),
        ("pictures", False),
    ],
)
def test_it_computes_the_same(
    name: str, old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ckpttool.conversion.worker.run_tfjs import open_result

    monkeypatch.setenv("CKPTTOOL_NODE_MODULES", str(node_modules()))
    monkeypatch.chdir(tmp_path)
    if old:
        pytest.importorskip("tf_keras")
    Path("build.py").write_text(BUILD)
    names: dict[str, Callable[..., Any]] = {}
    exec(compile(BUILD, "build.py", "exec"), names)
    model = names[f"build_{name}"](old=old)
    generator = np.random.default_rng(1)
    for weight in model.weights:
        values = generator.normal(0.1, 0.3, size=weight.shape)
        weight.assign(np.abs(values) if "variance" in weight.name else values)
    tf.train.Checkpoint(model).write("ckpt")
    from ckpttool.conversion.specs import NamedValue

    given = {"model": f"build.py:build_{name}", "model_args": (NamedValue("old", old),)}
    with open_program("ckpt", **given) as program:
        write_js(program, tmp_path / "web")
        runner = open_result(str(tmp_path / "web"))
        for batch in (2, 3):
            feeds = feed(program.functions[0], batch)
            close(run_js(runner, feeds), program.functions[0].run(feeds))
