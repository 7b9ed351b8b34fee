"""``edit --like``: other programs' values under a layout that TensorFlow restores."""

from __future__ import annotations

import numpy as np
import pytest

from ckpttool.errors import RefusedError
from tests.support.editing import changes_of, run, values
from tests.support.tf_write import write_name_based


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def keras(tf):
    return pytest.importorskip("keras")


@pytest.fixture(scope="module")
def tf_keras(tf):
    return pytest.importorskip("tf_keras")


def network(k, name="net"):
    """One network in the words that Keras 2 and Keras 3 have in common."""
    given = k.Input((6, 6, 3))
    x = k.layers.Conv2D(4, 3, name="conv")(given)
    x = k.layers.BatchNormalization(name="norm")(x)
    x = k.layers.Dropout(0.2, name="dropout")(x)
    x = k.layers.Flatten(name="flat")(x)
    x = k.layers.Dense(7, activation="relu", name="first")(x)
    x = k.layers.Dense(7, activation="relu", name="second")(x)
    return k.Model(given, k.layers.Dense(2, name="head")(x), name=name)


def data():
    dice = np.random.default_rng(1)
    return dice.normal(size=(16, 6, 6, 3)).astype("f4"), dice.normal(size=(16, 2)).astype("f4")


@pytest.fixture(scope="module")
def layout(tf, keras, tmp_path_factory):
    """A fresh Keras 3 model, saved once."""
    keras.utils.set_random_seed(11)
    path = tmp_path_factory.mktemp("layout") / "fresh"
    return tf.train.Checkpoint(model=network(keras)).save(str(path))


@pytest.fixture(scope="module")
def compiled_layout(tf, keras, tmp_path_factory):
    """The same after a step with Adam: optimizer slots and counters too."""
    model = network(keras)
    model.compile("adam", "mse")
    model.fit(*data(), verbose=0)
    path = tmp_path_factory.mktemp("layout") / "compiled"
    return tf.train.Checkpoint(model=model).save(str(path))


@pytest.fixture(scope="module", params=["save_weights", "checkpoint"])
def keras_2(request, tf, tf_keras, tmp_path_factory):
    """A model trained in tf_keras, and its checkpoint in either of two forms."""
    tf_keras.utils.set_random_seed(5)
    model = network(tf_keras, "other_name")
    model.compile("adam", "mse")
    x, y = data()
    model.fit(x, y, epochs=4, verbose=0)
    path = str(tmp_path_factory.mktemp("keras2") / "trained")
    if request.param == "save_weights":
        model.save_weights(path)
    else:
        tf.train.Checkpoint(net=model, optimizer=model.optimizer).write(path)
    return path, model.predict(x, verbose=0)


@pytest.mark.parametrize("which", ["layout", "compiled_layout"])
def test_keras_2_to_keras_3(tf, keras, keras_2, which, tmp_path, request):
    """Equal outputs, and nothing in the checkpoint that Keras 3 does not take."""
    prefix, expected = keras_2
    result = run(prefix, tmp_path / "d", like=request.getfixturevalue(which))
    model = network(keras)
    tf.train.Checkpoint(model=model).restore(str(tmp_path / "d")).assert_consumed()
    np.testing.assert_allclose(model.predict(data()[0], verbose=0), expected, atol=1e-6)
    left = changes_of(result)
    assert left["save_counter"] == "kept from the layout"
    if which == "compiled_layout":
        out = {name.partition("/")[2] for name, what in left.items() if what == "not in the result"}
        assert out >= {"first_kernel_momentum", "head_bias_velocity", "iteration"}
    assert left["Adam/m/first/kernel"] == "left out"


def test_tf1_to_keras_3(tf, keras, layout, tmp_path):
    """Names of a graph of TF 1, partly others: a rule makes them equal."""
    v1 = tf.compat.v1
    shapes = {weight.path: tuple(weight.shape) for weight in network(keras).weights}
    dice = np.random.default_rng(2)
    given = {name: dice.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(f"tower/{name}".replace("kernel", "weights"), initializer=value)
            for name, value in given.items()
        ]
        v1.train.get_or_create_global_step()
        loss = tf.add_n([tf.reduce_sum(variable**2) for variable in variables])
        v1.train.AdamOptimizer().minimize(loss)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "s"), write_meta_graph=False)
    result = run(tmp_path / "s", tmp_path / "d", like=layout, renames=("s/weights/kernel/",))
    model = network(keras)
    tf.train.Checkpoint(model=model).restore(str(tmp_path / "d")).assert_consumed()
    for weight in model.weights:
        np.testing.assert_array_equal(weight.numpy(), given[weight.path])
    assert changes_of(result)["global_step"] == "left out"


def test_back_to_names(tf, keras, layout, tmp_path):
    """The layout may be name-based too; there is no object graph then."""
    weights = network(keras).weights
    zeros = {f"tower/{weight.path}": np.zeros(weight.shape, "f4") for weight in weights}
    write_name_based(tmp_path / "names", zeros)
    run(layout, tmp_path / "d", like=str(tmp_path / "names"))
    model = network(keras)
    tf.train.Checkpoint(model=model).restore(layout).assert_consumed()
    reader = tf.train.load_checkpoint(str(tmp_path / "d"))
    assert reader.get_variable_to_shape_map().keys() == zeros.keys()
    for weight in model.weights:
        np.testing.assert_array_equal(reader.get_tensor(f"tower/{weight.path}"), weight.numpy())


def pair(tf, tmp_path, have, want, **asked):
    write_name_based(tmp_path / "have", have)
    write_name_based(tmp_path / "want", want)
    return run(tmp_path / "have", tmp_path / "d", like=str(tmp_path / "want"), **asked)


def refusal(tf, tmp_path, have, want, **asked) -> str:
    with pytest.raises(RefusedError) as caught:
        pair(tf, tmp_path, have, want, **asked)
    assert caught.value.id == "like-unmatched"
    assert not list(tmp_path.glob("d.*"))
    return caught.value.why


def arrays(**shapes):
    return {
        name.replace("__", "/"): np.full(shape, number + 1.0, "f4")
        for number, (name, shape) in enumerate(shapes.items())
    }


def test_everything_that_does_not_fit_is_listed_on_both_sides(tf, tmp_path):
    have = arrays(a__w=(2, 3), a__b=(3,), only_here=(7,), twice_1=(9,), twice_2=(9,))
    want = arrays(a__w=(3, 2), a__b=(3,), only_there=(8,), other_1=(9,), other_2=(9,))
    why = refusal(tf, tmp_path, have, want)
    for text in (
        "3 in ", "without values: only_there float32 [8], other_1 float32 [9], other_2",
        "without a place: only_here float32 [7], twice_1 float32 [9], twice_2",
        "of another dtype or shape: a/w float32 [2,3] and a/w float32 [3,2]",
    ):  # fmt: skip
        assert text in why


def test_shapes_decide_where_each_side_has_one(tf, tmp_path):
    have, want = arrays(x=(2, 3), y=(3,)), arrays(p=(3,), q=(2, 3))
    result = pair(tf, tmp_path, have, want)
    assert [change.reason for change in result.changes] == [
        "the only one of its dtype and shape"
    ] * 2
    found = values(tmp_path / "d")
    assert (found["p"] == have["y"]).all()
    assert (found["q"] == have["x"]).all()


def test_numbers_of_layers_are_no_names_where_they_differ(tf, tmp_path):
    """Keras counts on through a session: dense_1 here may be dense_2 there."""
    have = arrays(dense__kernel=(4, 4), dense_1__kernel=(4, 4))
    want = arrays(dense_1__kernel=(4, 4), dense_2__kernel=(4, 4))
    why = refusal(tf, tmp_path, have, want)
    assert "in doubt: dense_1/kernel float32 [4,4] may be dense_1/kernel" in why
    (tmp_path / "map.csv").write_text(
        "dense/kernel,dense_1/kernel\ndense_1/kernel,dense_2/kernel\n"
    )
    pair(tf, tmp_path, have, want, maps=(str(tmp_path / "map.csv"),))
    found = values(tmp_path / "d")
    assert (found["dense_1/kernel"] == 1).all()
    assert (found["dense_2/kernel"] == 2).all()


def test_numbers_that_differ_and_shapes_that_decide(tf, tmp_path):
    have = arrays(dense__kernel=(4, 5), dense_1__kernel=(5, 6))
    want = arrays(dense_1__kernel=(4, 5), dense_2__kernel=(5, 6))
    pair(tf, tmp_path, have, want)
    assert (values(tmp_path / "d")["dense_1/kernel"] == have["dense/kernel"]).all()


def test_a_scope_in_front_of_one_side_or_of_both(tf, tmp_path):
    have = arrays(net__a__w=(2,), net__b__w=(2,))
    for want in (arrays(a__w=(2,), b__w=(2,)), arrays(x__a__w=(2,), x__b__w=(2,))):
        pair(tf, tmp_path, have, want)
        found = values(tmp_path / "d")
        assert found.keys() == want.keys()
        assert all((found[key] == have["net/" + key[-3:]]).all() for key in want)
        for path in tmp_path.glob("d.*"):
            path.unlink()
    assert "without values" in refusal(
        tf, tmp_path, arrays(enc__d__w=(2,), o=(3,)), arrays(dec__d__w=(2,), dec__e__w=(2,), o=(3,))
    )


def test_a_map_may_be_written_either_way_round_and_must_fit(tf, tmp_path):
    have, want = arrays(x=(2,), y=(2,)), arrays(p=(2,), q=(2,))
    (tmp_path / "m").write_text("q,x\np,y\n")
    pair(tf, tmp_path, have, want, maps=(str(tmp_path / "m"),))
    assert (values(tmp_path / "d")["q"] == 1).all()
    (tmp_path / "m").write_text("x,q\ny,nowhere\n")
    for path in tmp_path.glob("d.*"):
        path.unlink()
    assert "in the map and in neither checkpoint: nowhere" in refusal(
        tf, tmp_path, have, want, maps=(str(tmp_path / "m"),)
    )
    pair(tf, tmp_path, have, want, maps=(str(tmp_path / "m"),), allow_unmatched=True)
    assert (values(tmp_path / "d")["p"] == 2).all()


def test_dtypes_can_be_made_equal_in_one_run(tf, tmp_path):
    have = {"w": tf.constant([1.5, 2.5], tf.bfloat16), "w/Adam": tf.zeros([2], tf.bfloat16)}
    want = {"w": tf.zeros([2])}
    with pytest.raises(RefusedError) as caught:
        pair(tf, tmp_path, have, want)
    assert "--cast float32" in caught.value.hint
    pair(tf, tmp_path, have, want, cast="float32", strip_optimizer=True)
    found = values(tmp_path / "d")["w"]
    assert found.dtype == np.float32
    assert found.tolist() == [1.5, 2.5]


def test_keras_3_with_its_optimizer(tf, keras, compiled_layout, tmp_path):
    """One program wrote both: paths decide, and slots and counters come along."""
    model = network(keras)
    model.compile("adam", "mse")
    model.fit(*data(), epochs=3, verbose=0)
    tf.train.Checkpoint(model=model).save(str(tmp_path / "s"))
    result = run(tmp_path / "s-1", tmp_path / "d", like=compiled_layout)
    assert {change.reason for change in result.changes} == {"its path"}
    other = network(keras)
    other.compile("adam", "mse")
    other.optimizer.build(other.trainable_variables)
    tf.train.Checkpoint(model=other).restore(str(tmp_path / "d")).assert_consumed()
    assert other.optimizer.iterations.numpy() == 3
    for one, two in zip(other.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())


def test_order_and_data_files_are_the_layouts(tf, tmp_path):
    from tests.support.tf_write import write_sharded

    write_name_based(tmp_path / "s", arrays(a=(2,), b=(3,), c=(4,)))
    write_sharded(tmp_path / "l", [arrays(c=(4,)), arrays(b=(3,), a=(2,))])
    run(tmp_path / "s", tmp_path / "d", like=str(tmp_path / "l"))
    for ours, theirs in zip(
        sorted(tmp_path.glob("d.data*")), sorted(tmp_path.glob("l.data*")), strict=True
    ):
        assert ours.name[1:] == theirs.name[1:]
        assert ours.stat().st_size == theirs.stat().st_size
    assert values(tmp_path / "d")["c"].tolist() == [3.0] * 4
