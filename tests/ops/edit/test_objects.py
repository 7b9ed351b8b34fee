"""``edit`` of object-based checkpoints: TensorFlow and Keras restore what is left, all of it."""

from __future__ import annotations

import numpy as np
import pytest

from ckpttool.errors import RefusedError
from tests.support.editing import changes_of, run, values


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def keras(tf):
    return pytest.importorskip("keras")


def dense_net(tf, **layers):
    """A module of dense layers by attribute: name → (rows, columns, value)."""
    net = tf.Module()
    for name, (rows, columns, value) in layers.items():
        layer = tf.Module()
        layer.kernel = tf.Variable(tf.fill([rows, columns], float(value)), name=f"{name}/kernel")
        layer.bias = tf.Variable(tf.fill([columns], float(value)), name=f"{name}/bias")
        setattr(net, name, layer)
    return net


def trained(keras, tmp_path, optimizer=None, *, name="model", steps=3):
    """A Keras model after some steps, and its checkpoint with the optimizer."""
    tf = pytest.importorskip("tensorflow")
    model = keras_model(keras, name)
    model.compile(optimizer or "adam", "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 5)).astype("f4"), rng.normal(size=(32, 2)).astype("f4")
    model.fit(x, y, epochs=steps, verbose=0)
    tf.train.Checkpoint(model=model).save(str(tmp_path / "s"))
    return model, x


def keras_model(keras, name="model"):
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [
            keras.layers.Input((5,)),
            keras.layers.Dense(4, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(2, name="head"),
        ],
        name=name,
    )


def restored(tf, prefix, **objects):
    tf.train.Checkpoint(**objects).restore(str(prefix)).assert_consumed()


def test_a_renamed_attribute(tf, tmp_path):
    net = dense_net(tf, enc=(3, 2, 1), dec=(2, 1, 2))
    tf.train.Checkpoint(net=net).save(str(tmp_path / "s"))
    result = run(tmp_path / "s-1", tmp_path / "d", renames=("s#enc/#encoder/#",))
    said = changes_of(result)
    assert said["enc/kernel"] == (
        "path renamed to net/encoder/kernel, full name changed to encoder/kernel"
    )
    assert len(said) == 2
    other = dense_net(tf, encoder=(3, 2, 0), dec=(2, 1, 0))
    restored(tf, tmp_path / "d", net=other)
    assert (other.encoder.kernel == net.enc.kernel).numpy().all()
    assert (other.dec.bias == net.dec.bias).numpy().all()
    assert "net/encoder/kernel/.ATTRIBUTES/VARIABLE_VALUE" in values(tmp_path / "d")


def test_names_with_dots_and_slashes(tf, tmp_path):
    first, second = tf.Variable([1.0]), tf.Variable([2.0])
    root = tf.train.Checkpoint()
    root.d = {"a.b": first, "c/d": second}
    root.save(str(tmp_path / "s"))
    run(tmp_path / "s-1", tmp_path / "d", renames=("d/a.b=d/x.y", r"s#d/c\.Sd#d/e.Sf#"))
    other = tf.train.Checkpoint()
    other.d = {"x.y": tf.Variable([0.0]), "e/f": tf.Variable([0.0])}
    other.restore(str(tmp_path / "d")).assert_consumed()
    assert other.d["x.y"].numpy() == [1.0]
    assert other.d["e/f"].numpy() == [2.0]


def test_two_attributes_can_be_exchanged(tf, tmp_path):
    net = dense_net(tf, a=(2, 2, 1), b=(2, 2, 2))
    tf.train.Checkpoint(net=net).save(str(tmp_path / "s"))
    file = tmp_path / "map.csv"
    pairs = [f"net/{x}/{v},net/{y}/{v}" for x, y in ("ab", "ba") for v in ("kernel", "bias")]
    file.write_text("\n".join(pairs))
    run(tmp_path / "s-1", tmp_path / "d", maps=(str(file),))
    other = dense_net(tf, a=(2, 2, 0), b=(2, 2, 0))
    restored(tf, tmp_path / "d", net=other)
    assert other.a.kernel.numpy()[0, 0] == 2
    assert other.b.bias.numpy()[0] == 1


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("net/a/kernel=net/kernel", "rename-moves"),
        ("net/a/kernel=net/c/kernel", "rename-splits"),
        ("s#net/a/#net/b/#", "duplicate-key"),
        ("net/a/kernel=net/a/bias", "duplicate-key"),
        ("net/a/kernel=net/a/", "name-unusable"),
        ("net/q/kernel=net/a/q", "unmatched"),
    ],
)
def test_what_cannot_be_renamed_consistently_is_refused(tf, tmp_path, rule, error):
    net = dense_net(tf, a=(2, 2, 1), b=(2, 2, 2))
    tf.train.Checkpoint(net=net).save(str(tmp_path / "s"))
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s-1", tmp_path / "d", renames=(rule,))
    assert caught.value.id == error
    assert not list(tmp_path.glob("d*"))


def test_a_key_alone(tf, tmp_path):
    net = dense_net(tf, a=(2, 2, 1))
    tf.train.Checkpoint(net=net).save(str(tmp_path / "s"))
    key = "net/a/bias/.ATTRIBUTES/VARIABLE_VALUE"
    new = "any/thing/.ATTRIBUTES/VARIABLE_VALUE"
    run(tmp_path / "s-1", tmp_path / "d", renames=(f"{key}={new}",))
    assert new in values(tmp_path / "d")
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s-1", tmp_path / "e", renames=(f"{key}=a key",))
    assert caught.value.id == "name-unusable"
    other = dense_net(tf, a=(2, 2, 0))
    restored(tf, tmp_path / "d", net=other)
    assert other.a.bias.numpy()[0] == 1


def test_full_names_are_what_the_v1_saver_restores_by(tf, tmp_path):
    net = dense_net(tf, a=(2, 3, 1))
    tf.train.Checkpoint(net=net).save(str(tmp_path / "s"))
    run(tmp_path / "s-1", tmp_path / "d", renames=("a/kernel=tower/w", "s#^a/bias#tower/b#"))
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        found = [v1.get_variable("tower/w", [2, 3]), v1.get_variable("tower/b", [3])]
        v1.train.Saver(found).restore(session, str(tmp_path / "d"))
        assert session.run(found[0]).tolist() == [[1.0] * 3] * 2


def test_slots_of_the_object_graph_follow(tf, tmp_path, corpus):
    """Slots of Keras 2 (`.OPTIMIZER_SLOT`): renamed, dropped and stripped with the variable."""
    source = corpus / "obj-iris-2shard"
    before = values(tf.train.latest_checkpoint(str(source)))
    run(source, tmp_path / "r", renames=("s#^layer-1/#first/#",))
    renamed = {key.replace("layer-1/", "first/"): value for key, value in before.items()}
    found = values(tmp_path / "r")
    assert found.keys() == renamed.keys()
    assert all(found[key].tobytes() == value.tobytes() for key, value in renamed.items())
    result = run(source, tmp_path / "d", drop=("layer-1/kernel",))
    assert values(tmp_path / "d").keys() == {
        key for key in before if not key.startswith("layer-1/kernel/")
    }
    assert len(changes_of(result)) == 3
    run(source, tmp_path / "o", strip_optimizer=True)
    left = values(tmp_path / "o")
    assert set(left) == {f"layer-{n}/{v}/.ATTRIBUTES/VARIABLE_VALUE" for n in (1, 2)
                         for v in ("kernel", "bias")}  # fmt: skip
    root = tf.train.Checkpoint()
    for number, (rows, columns) in ((1, (4, 128)), (2, (128, 3))):
        layer = tf.Module()
        layer.kernel = tf.Variable(tf.zeros([rows, columns]))
        layer.bias = tf.Variable(tf.zeros([columns]))
        setattr(root, f"layer-{number}", layer)
    root.read(str(tmp_path / "o")).assert_consumed()
    kernel = getattr(root, "layer-1").kernel.numpy()
    assert (kernel == left["layer-1/kernel/.ATTRIBUTES/VARIABLE_VALUE"]).all()


@pytest.mark.parametrize(
    "name", ["obj-a2c-2shard-unlisted", "obj-manager-timestamps", "obj-trained-weights-1to10",
             "obj-prefix-named-checkpoint"]
)  # fmt: skip
def test_corpus_stripped_and_cast(tf, corpus, tmp_path, name):
    index = max((corpus / name).rglob("*.index"))
    source = index.with_name(index.name.removesuffix(".index"))
    before = values(source)
    result = run(source, tmp_path / "d", strip_optimizer=True, cast="float64")
    found = values(tmp_path / "d")
    assert 0 < len(found) < len(before)
    for key, value in found.items():
        expected = before[key].astype("f8") if before[key].dtype == "f4" else before[key]
        assert value.dtype == expected.dtype
        assert value.tobytes() == expected.tobytes()
    assert all("ptimizer" in key or "/.OPTIMIZER_SLOT/" in key or "opt" in key.lower()
               for key in before.keys() - found.keys()), result.changes  # fmt: skip


def test_keras_3_stripped(tf, keras, tmp_path):
    """A trained model without its optimizer: restores into one that was never compiled."""
    model, x = trained(keras, tmp_path)
    result = run(tmp_path / "s-1", tmp_path / "d", strip_optimizer=True)
    assert "model/iteration" not in values(tmp_path / "d")
    assert any("counts the optimizer's steps" in change.reason for change in result.changes)
    other = keras_model(keras)
    for weight in other.weights:
        weight.assign(weight * 0)
    restored(tf, tmp_path / "d", model=other)
    np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())


def test_keras_3_stripped_and_without_a_layer(tf, keras, tmp_path):
    """The list of what the optimizer trains must not bind variables by their numbers."""
    model, _ = trained(keras, tmp_path)
    run(tmp_path / "s-1", tmp_path / "d", strip_optimizer=True, drop=("model/hidden/*",))
    head = keras_model(keras)
    head.compile("adam", "mse")
    head.optimizer.build(head.trainable_variables[2:])
    tf.train.Checkpoint(model=head).restore(str(tmp_path / "d")).expect_partial()
    np.testing.assert_array_equal(head.layers[-1].kernel, model.layers[-1].kernel)
    np.testing.assert_array_equal(head.layers[1].gamma, model.layers[1].gamma)
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s-1", tmp_path / "e", drop=("model/hidden/*",))
    assert caught.value.id == "optimizer-by-number"


def test_keras_3_averages(tf, keras, tmp_path):
    model, _ = trained(keras, tmp_path, keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5))
    averages = {
        variable.path: average.numpy()
        for variable, average in zip(
            model.trainable_variables,
            model.optimizer._model_variables_moving_average,
            strict=True,
        )
    }
    run(tmp_path / "s-1", tmp_path / "d", promote_ema=True, strip_optimizer=True)
    other = keras_model(keras)
    restored(tf, tmp_path / "d", model=other)
    assert len(averages) == 6
    for variable in other.trainable_variables:
        np.testing.assert_array_equal(variable.numpy(), averages[variable.path])
    run(tmp_path / "s-1", tmp_path / "e", strip_optimizer=True)
    assert len(values(tmp_path / "e")) == len(values(tmp_path / "d")) + 6


def test_keras_3_cast(tf, keras, tmp_path):
    model, _ = trained(keras, tmp_path)
    run(tmp_path / "s-1", tmp_path / "d", strip_optimizer=True, cast="bfloat16")
    keras.config.set_dtype_policy("bfloat16")
    try:
        other = keras_model(keras)
    finally:
        keras.config.set_dtype_policy("float32")
    half = [weight for weight in other.weights if weight.dtype == "bfloat16"]
    assert len(half) >= 4
    tf.train.Checkpoint(model=other).read(str(tmp_path / "d")).expect_partial()
    kernel = other.layers[-1].kernel
    expected = tf.cast(model.layers[-1].kernel, tf.bfloat16)
    assert (kernel.numpy() == expected.numpy()).all()


def test_a_moving_average_among_the_variables(tf, tmp_path):
    """``tf.train.ExponentialMovingAverage`` in TF 2 keeps averages as variables of its own."""
    w = tf.Variable([1.0, 2.0], name="net/w")
    average = tf.Variable([3.0, 4.0], name="net/w/ExponentialMovingAverage")
    tf.train.Checkpoint(w=w, average=average).save(str(tmp_path / "s"))
    run(tmp_path / "s-1", tmp_path / "d", promote_ema=True)
    other = tf.Variable([0.0, 0.0])
    restored(tf, tmp_path / "d", w=other)
    assert other.numpy().tolist() == [3.0, 4.0]


def test_objects_with_several_tensors_go_as_a_whole(tf, tmp_path):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
    table.insert(["a"], [1.0])
    iterator = iter(tf.data.Dataset.range(5))
    next(iterator)
    checkpoint = tf.train.Checkpoint(table=table, w=tf.Variable(1.0), it=iterator)
    checkpoint.save(str(tmp_path / "s"))
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s-1", tmp_path / "d", drop=("*table-keys*",))
    assert caught.value.id == "part-of-object"
    run(tmp_path / "s-1", tmp_path / "d", drop=("*table*", "it/*"))
    w = tf.Variable(0.0)
    restored(tf, tmp_path / "d", w=w)
    assert w.numpy() == 1
    run(tmp_path / "s-1", tmp_path / "e", renames=("w=v", "s/^table$/words/"))
    other = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
    iterator = iter(tf.data.Dataset.range(5))
    restored(tf, tmp_path / "e", words=other, v=w, it=iterator)
    assert next(iterator).numpy() == 1
    assert other.lookup(tf.constant(["a"])).numpy() == [1.0]


def test_a_saved_model_keeps_what_its_graph_asks_for(tf, fixtures_dir, tmp_path):
    import shutil

    model = shutil.copytree(fixtures_dir / "savedmodel", tmp_path / "export")
    for asked in ({"renames": ("s/e/x/",)}, {"cast": "float64"}, {"drop": ("*0*",)}):
        with pytest.raises(RefusedError) as caught:
            run(model, model, overwrite=True, **asked)
        assert caught.value.id == "edit-saved-model", asked
    before = values(model / "variables" / "variables")
    loaded = tf.saved_model.load(str(model))
    for variable in tf.train.TrackableView(loaded).descendants():
        if hasattr(variable, "assign_add"):
            variable.assign_add(tf.ones_like(variable))
    tf.train.Checkpoint(loaded).write(str(tmp_path / "trained"))
    run(tmp_path / "trained", model, like=str(model), overwrite=True)
    after = values(model / "variables" / "variables")
    assert after.keys() == before.keys()
    assert all((after[key] == before[key] + 1).all() for key in before)
    tf.saved_model.load(str(model))
