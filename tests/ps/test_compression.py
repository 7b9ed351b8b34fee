"""What travels in fewer bytes: errors within their bound, nothing hidden, rows of their own."""

from __future__ import annotations

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
    """A gradient too small for its block's scale arrives late, instead of never."""
    variable = tf.Variable(tf.zeros([2]))
    remainder = tf.Variable(tf.zeros([2]))
    gradient = tf.constant([127.0, 0.1])
    plain, fed = link.Link(push="int8"), link.Link(push="int8", error_feedback=True)
    totals = [tf.zeros([2]), tf.zeros([2])]
    for _ in range(100):
        totals[0] += plain.push(gradient, variable)
        totals[1] += fed.push(gradient, variable, remainder)
    assert totals[0].numpy()[1] == 0.0
    assert totals[1].numpy()[1] == pytest.approx(10.0, abs=1.0)


def test_it_works_in_a_graph_of_tensorflow_1(link) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", [3, 2], initializer=tf.ones_initializer())
        way = link.Link(push="int8", pull="int8")
        pulled = way.pull(variable)
        update = variable.assign_sub(way.push(pulled * 0.5, variable))
        session.run(tf.compat.v1.global_variables_initializer())
        assert np.allclose(session.run(update), 0.5, atol=0.01)


def test_unknown_forms_and_a_missing_remainder_are_told(link) -> None:
    with pytest.raises(UsageError) as caught:
        link.Link(push="int4")
    assert caught.value.id == "compression"
    with pytest.raises(UsageError):
        link.Link(push="int8", error_feedback=True).push(tf.ones([2]), tf.Variable([1.0, 2.0]))
