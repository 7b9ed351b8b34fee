"""What travels in fewer bytes: errors within their bound, nothing hidden, rows of their own."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from ckpttool.errors import UsageError

tf = pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def link():
    from ckpttool.ps.runtime import compression

    return compression


@pytest.mark.parametrize("shape", [(1,), (7, 3), (2048,), (2049,), (5, 1000)])
def test_the_error_is_at_most_half_a_scale(link, shape) -> None:
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    small, scales = link.quantize(tf.constant(values))
    assert small.dtype == tf.int8
    back = link.dequantize(small, scales, shape).numpy()
    of_each = np.repeat(scales.numpy().ravel(), link.BLOCK)[: values.size].reshape(shape)
    assert (np.abs(back - values) <= of_each * 0.5001).all()


def test_an_outlier_coarsens_its_own_block_only(link) -> None:
    values = np.ones(2 * link.BLOCK, np.float32) * 0.01
    values[0] = 1000.0
    back = link.dequantize(*link.quantize(tf.constant(values)), values.shape).numpy()
    assert back[0] == pytest.approx(1000.0)
    assert np.allclose(back[link.BLOCK :], 0.01, rtol=1e-6)
    assert (back[1 : link.BLOCK] == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden(link, bad) -> None:
    values = np.ones(link.BLOCK + 1, np.float32)
    values[3] = bad
    back = link.dequantize(*link.quantize(tf.constant(values)), values.shape).numpy()
    assert not np.isfinite(back[: link.BLOCK]).any()
    assert back[-1] == 1.0


def test_zeros_stay_zeros(link) -> None:
    back = link.dequantize(*link.quantize(tf.zeros([5])), [5])
    assert back.numpy().tolist() == [0.0] * 5


@pytest.mark.parametrize(("form", "error"), [(None, 0.0), ("bf16", 2**-8), ("int8", 1 / 250)])
def test_a_pulled_variable_is_what_it_was_but_for_rounding(link, form, error) -> None:
    variable = tf.Variable(tf.random.stateless_uniform([64, 8], (1, 2), -1.0, 1.0))
    way = link.Link(pull=form)
    whole = way.pull(variable)
    assert whole.shape == variable.shape
    assert float(tf.reduce_max(tf.abs(whole - variable))) <= error
    rows = way.pull_rows(variable, tf.constant([[3, 5], [3, 0]]))
    assert rows.shape == [2, 2, 8]
    assert float(tf.reduce_max(tf.abs(rows - tf.gather(variable, [[3, 5], [3, 0]])))) <= error


def test_pushed_rows_add_up_where_one_comes_twice(link) -> None:
    variable = tf.Variable(tf.zeros([4, 3]))
    gradient = tf.constant([[[1.0, 2, 3], [4, 5, 6]], [[1, 0, 0], [0, 0, 0.5]]])
    pushed = link.Link(push="int8").push_rows(gradient, tf.constant([[1, 2], [1, 3]]), variable)
    variable.scatter_add(pushed)
    expected = np.array([[0, 0, 0], [2, 2, 3], [4, 5, 6], [0, 0, 0.5]])
    assert np.abs(variable.numpy() - expected).max() <= 6 / 250


def test_error_feedback_gives_back_what_rounding_took(link) -> None:
    """A gradient too small for its block's scale arrives late, instead of never.

    What has arrived is never further from the exact sum than one rounding.
    """
    variable = tf.Variable(tf.zeros([2]))
    gradient = tf.constant([127.0, 0.1])
    plain, fed = link.Link(push="int8"), link.Link(push="int8", error_feedback=True)
    totals = [tf.zeros([2]), tf.zeros([2])]
    for step in range(1, 101):
        totals[0] += plain.push(gradient, variable)
        totals[1] += fed.push(gradient, variable)
        assert np.abs(totals[1].numpy() - step * gradient.numpy()).max() <= 0.51
    assert totals[0].numpy()[1] == 0.0
    assert totals[1].numpy()[1] == pytest.approx(10.0, abs=0.51)


@pytest.mark.parametrize("jit", [False, True])
def test_with_error_feedback_sums_are_the_exact_ones(link, jit) -> None:
    """Over many steps of changing gradients, eager and in a function, each variable its own."""
    shapes = [[3, 5], [2049], []]
    variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]
    way = link.Link(push="int8", error_feedback=True)

    def step(gradients):
        for gradient, variable in zip(gradients, variables, strict=True):
            variable.assign_add(way.push(gradient, variable))

    run = tf.function(step) if jit else step
    random = np.random.default_rng(4)
    exact = [np.zeros(shape) for shape in shapes]
    for _ in range(50):
        gradients = [random.normal(size=shape).astype(np.float32) for shape in shapes]
        run([tf.constant(gradient) for gradient in gradients])
        exact = [total + gradient for total, gradient in zip(exact, gradients, strict=True)]
    for variable, total in zip(variables, exact, strict=True):
        # One rounding: half a scale of gradients that are under 5, and sums in float32.
        assert np.abs(variable.numpy() - total).max() < 0.5 * 5 / 127 + 1e-4


def test_a_variable_that_is_pushed_twice_in_a_step_loses_nothing(link) -> None:
    variable = tf.Variable(tf.zeros([2]))
    way = link.Link(push="int8", error_feedback=True)

    @tf.function
    def step():
        for part in ([127.0, 0.3], [0.0, 0.2]):
            variable.assign_add(way.push(tf.constant(part), variable))

    for _ in range(100):
        step()
    assert np.abs(variable.numpy() - [12700.0, 50.0]).max() <= 0.51


def test_a_graph_with_error_feedback_goes_with_its_last_user(link) -> None:
    """A trainer that traces its step anew, or opens another graph, keeps no former one."""
    fed = link.Link(push="int8", error_feedback=True)
    variable = tf.Variable(tf.zeros([2]))

    def traced() -> weakref.ref[object]:
        step = tf.function(lambda: fed.push(tf.constant([127.0, 0.1]), variable))
        return weakref.ref(step.get_concrete_function().graph)

    graphs = [traced() for _ in range(2)]
    gc.collect()
    assert [graph() for graph in graphs] == [None, None]


def test_rows_have_error_feedback_too(link) -> None:
    """One that comes twice is added up first; what is left of a row waits for its next push."""
    table = tf.Variable(tf.zeros([5, 2]))
    way = link.Link(push="int8", error_feedback=True)
    gradient = tf.constant([[127.0, 0.1], [0.0, 0.1], [1.0, 2.0]])

    @tf.function
    def step(ids):
        table.scatter_add(way.push_rows(gradient, ids, table))

    for _ in range(100):
        step(tf.constant([3, 3, 1], tf.int64))
    expected = np.zeros((5, 2))
    expected[3], expected[1] = [12700.0, 20.0], [100.0, 200.0]
    assert np.abs(table.numpy() - expected).max() <= 0.51
    step(tf.constant([0, 0, 0], tf.int64))
    assert np.abs(table.numpy()[0] - [128.0, 2.2]).max() <= 1.01


def test_error_feedback_in_a_graph_of_tensorflow_1(link) -> None:
    """The remainder is a local variable, on the worker whatever places variables."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        setter = tf1.train.replica_device_setter(
            ps_tasks=1, ps_device="/job:localhost", worker_device="/job:localhost"
        )
        with tf1.device(setter):
            variable = tf1.get_variable("v", [2], initializer=tf1.zeros_initializer())
            way = link.Link(push="int8", error_feedback=True)
            update = variable.assign_add(way.push(tf.constant([127.0, 0.1]), variable))
        (remainder,) = tf1.local_variables()
        assert remainder.op.name == "v/remainder"
        assert variable in tf1.global_variables()
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        for _ in range(100):
            session.run(update)
        assert np.abs(session.run(variable) - [12700.0, 10.0]).max() <= 0.51


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_what_is_not_float32_travels_as_it_is(link, dtype) -> None:
    variable = tf.Variable(tf.cast([1, 2], dtype))
    way = link.Link(push="int8", pull="int8", error_feedback=True)
    for value in (way.pull(variable), way.push(tf.identity(variable), variable)):
        assert value.dtype == dtype
        assert value.numpy().tolist() == [1, 2]
    rows = way.push_rows(way.pull_rows(variable, [1]), tf.constant([1]), variable)
    assert rows.values.numpy().tolist() == [2]


def optimizers():
    return {
        "tf_keras": lambda: pytest.importorskip("tf_keras").optimizers.SGD(1.0),
        "keras": lambda: pytest.importorskip("keras").optimizers.SGD(1.0),
        "tensorflow 1": lambda: tf.compat.v1.train.GradientDescentOptimizer(1.0),
    }


@pytest.mark.parametrize("which", ["tf_keras", "keras", "tensorflow 1"])
def test_an_optimizer_pushes_what_it_applies(link, which) -> None:
    """Dense and sparse gradients, and variables without one; the object stays what it was."""
    optimizer = optimizers()[which]()
    way = link.Link(push="int8")
    assert way.optimizer(optimizer) is optimizer
    dense, table, other = (tf.Variable(tf.zeros([3, 2])) for _ in range(3))
    variables = [dense, table] if which == "keras" else [dense, table, other]
    gradient = tf.constant([[127.0, 0.3], [1.0, 1.0], [0.0, 0.0]])
    rows = tf.IndexedSlices(tf.constant([[1.0, 0.004]]), tf.constant([2]), [3, 2])
    gradients = [gradient, rows, None][: len(variables)]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    assert dense.numpy().tolist() == [[-127.0, 0.0], [-1.0, -1.0], [0.0, 0.0]]
    assert table.numpy()[2] == pytest.approx([-1.0, -1 / 127], abs=1e-6)
    assert not other.numpy().any()
    assert way.used == {"push"}


def test_a_link_that_rounds_nothing_leaves_an_optimizer_alone(link) -> None:
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    assert link.Link(pull="bf16").optimizer(optimizer) is optimizer
    assert "apply_gradients" not in vars(optimizer)


def test_it_works_in_a_graph_of_tensorflow_1(link) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", [3, 2], initializer=tf.ones_initializer())
        way = link.Link(push="int8", pull="int8")
        pulled = way.pull(variable)
        update = variable.assign_sub(way.push(pulled * 0.5, variable))
        session.run(tf.compat.v1.global_variables_initializer())
        assert np.allclose(session.run(update), 0.5, atol=0.01)


@pytest.mark.parametrize("words", [{"push": "int4"}, {"pull": "int4"}, {"error_feedback": True}])
def test_what_makes_no_sense_is_told(link, words) -> None:
    with pytest.raises(UsageError) as caught:
        link.Link(**words)
    assert caught.value.id == "compression"
