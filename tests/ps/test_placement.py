"""Strategies on TensorFlow's own partitioners and placers, held against the pure module."""

from __future__ import annotations

import zlib
from contextlib import nullcontext

import numpy as np
import pytest

from ckpttool.policy.partition import Part
from ckpttool.ps.partition import parse_partition

tf = pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def placement():
    from ckpttool.ps.runtime import placement

    return placement


@pytest.mark.parametrize("words", ["fixed", "fixed:2", "min-max:200", "min-max:1M"])
@pytest.mark.parametrize("shape", [(10, 4), (7,), (1, 3), (100, 8)])
def test_a_variable_scope_cuts_as_the_plan_says(placement, words, shape) -> None:
    with tf.Graph().as_default():
        partitioner = placement.partitioner_of(words, 3)
        with tf.compat.v1.variable_scope("s", partitioner=partitioner):
            tf.compat.v1.get_variable("v", shape, initializer=tf.zeros_initializer())
        made = [tuple(one.shape.as_list()) for one in tf.compat.v1.global_variables()]
    plan = parse_partition(words, 3)
    assert plan is not None
    assert made == [part.extent for part in plan.parts(shape, 4)]


@pytest.mark.parametrize("words", ["hash", "size"])
def test_tensorflow_1_places_as_the_plan_says(placement, words) -> None:
    names, rows = ["a", "b", "c", "d", "e"], [5, 1, 1, 1, 9]
    with tf.Graph().as_default():
        setter = tf.compat.v1.train.replica_device_setter(
            ps_tasks=3, ps_strategy=placement.placement_of(words, 3)
        )
        with tf.compat.v1.device(setter):
            made = [
                tf.compat.v1.get_variable(name, [count], initializer=tf.zeros_initializer())
                for name, count in zip(names, rows, strict=True)
            ]
        places = [tf.DeviceSpec.from_string(one.device).task for one in made]
    if words == "hash":
        assert places == [zlib.crc32(name.encode()) % 3 for name in names]
    else:
        assert places == [0, 1, 2, 1, 2]


def test_words_that_leave_it_to_tensorflow_give_nothing(placement) -> None:
    assert placement.partitioner_of("hash", 2) is None
    assert placement.partitioner_of(None, 2) is None
    assert placement.placement_of("fixed", 2) is None


def parts_of(lengths: list[int]) -> list[Part]:
    starts = np.cumsum([0, *lengths[:-1]])
    return [Part((int(start), 0), (n, 2)) for start, n in zip(starts, lengths, strict=True)]


@pytest.fixture
def table(placement, monkeypatch):
    """A table on this process instead of servers: no server is asked for its rows."""
    monkeypatch.setattr(tf, "device", lambda _: nullcontext())
    return lambda lengths: placement.Table("t", (sum(lengths), 2), parts_of(lengths), 2, tf.zeros)


@pytest.mark.parametrize("lengths", [[5], [3, 1], [1, 4, 2]])
def test_a_table_gives_the_rows_that_were_asked_for(table, lengths) -> None:
    made = table(lengths)
    rows = sum(lengths)
    values = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    made._restore_from_tensors({"VARIABLE_VALUE": tf.constant(values)})
    ids = np.random.default_rng(0).integers(0, rows, (4, 3))
    assert np.array_equal(made.lookup(ids).numpy(), values[ids])
    assert np.array_equal(made._serialize_to_tensors()["VARIABLE_VALUE"].numpy(), values)


def test_a_checkpoint_has_a_table_as_one_variable(table, tmp_path) -> None:
    """Written with two parts, restored into three, by TensorFlow itself."""
    first, second = table([3, 1]), table([1, 1, 2])
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    first._restore_from_tensors({"VARIABLE_VALUE": tf.constant(values)})
    prefix = tf.train.Checkpoint(table=first).write(str(tmp_path / "ck"))
    tf.train.Checkpoint(table=second).read(prefix).assert_consumed()
    assert np.array_equal(second._serialize_to_tensors()["VARIABLE_VALUE"].numpy(), values)
