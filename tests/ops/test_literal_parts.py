"""D22: partitioned variables as literal ``X/part_k``, and these as something else again."""

from __future__ import annotations

import numpy as np
import pytest

from ckpttool import write_checkpoint
from ckpttool.api import open as open_checkpoint
from ckpttool.errors import UsageError
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options


def run(source, to, **asked):
    options = Options(verify=True)
    return repartition([str(source)], str(to), Repartition(**asked), options)


def values(prefix):
    with open_checkpoint(str(prefix)) as checkpoint:
        return {name: checkpoint.read(name).tobytes() for name in checkpoint}


def layout(prefix):
    with open_checkpoint(str(prefix)) as checkpoint:
        return {
            one.key: one.slices and [(part.start, part.extent) for part in one.slices]
            for one in checkpoint.values()
        }


@pytest.fixture
def source(fixtures_dir):
    return fixtures_dir / "partitioned" / "wide.ckpt-1"


@pytest.fixture
def literal(source, tmp_path):
    run(source, tmp_path / "literal", slices=("embedding/*=axis0:3",), form="parts")
    return tmp_path / "literal"


def test_a_slot_is_named_behind_the_part_that_it_belongs_to(literal):
    assert set(layout(literal)) == {
        "global_step",
        *(f"embedding/table/part_{k}" for k in range(3)),
        *(f"embedding/table/part_{k}/Adagrad" for k in range(3)),
    }


def test_a_saver_of_plain_variables_restores_literal_parts(tmp_path):
    """D22: such a saver asks for every part, and for every slot, by the name of its op."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with v1.Graph().as_default():
        with v1.variable_scope("s"):
            table = v1.get_variable("w", [7, 2], partitioner=v1.fixed_size_partitioner(3))
        total = tf.reduce_sum(tf.convert_to_tensor(table) ** 2)
        train = [v1.train.AdagradOptimizer(0.1).minimize(total)]
        train.append(v1.train.AdamOptimizer().minimize(total))
        parts = list(table)
        train.append(v1.train.ExponentialMovingAverage(0.9).apply(parts))
        variables = v1.global_variables()
        plain = v1.train.Saver({one.op.name: one for one in variables})
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            before = session.run(variables)
            prefix = v1.train.Saver().save(session, str(tmp_path / "sliced"))
            run(prefix, tmp_path / "plain", slices=("*=axis0:3",), form="parts")
            session.run(v1.global_variables_initializer())
            plain.restore(session, str(tmp_path / "plain"))
            after = session.run(variables)
    assert [one.tobytes() for one in before] == [one.tobytes() for one in after]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"slices": ("*=axis0:2",)},
        {"slices": ("*=axis0:3",)},
        {"slices": ("*=axis1:2",)},
        {"merge_slices": ("*",)},
        {"by": "range", "shards": 4},
    ],
    ids=str,
)
def test_literal_parts_are_joined_and_cut_in_one_run(source, literal, tmp_path, asked):
    run(literal, tmp_path / "out", join_parts=("*",), **asked)
    assert values(tmp_path / "out") == values(source)


def test_literal_parts_become_slices_of_the_same_boxes(literal, tmp_path):
    run(literal, tmp_path / "out", join_parts=("*",), slices=("*=axis0:3",))
    boxes = [((0, 0), (17, 4)), ((17, 0), (17, 4)), ((34, 0), (16, 4))]
    assert layout(tmp_path / "out") == {
        "global_step": None,
        "embedding/table": boxes,
        "embedding/table/Adagrad": boxes,
    }


def test_literal_parts_become_as_many_others(source, literal, tmp_path):
    run(literal, tmp_path / "five", join_parts=("*",), slices=("*=axis0:5",), form="parts")
    assert set(layout(tmp_path / "five")) == {
        "global_step",
        *(f"embedding/table/part_{k}" for k in range(5)),
        *(f"embedding/table/part_{k}/Adagrad" for k in range(5)),
    }
    run(tmp_path / "five", tmp_path / "back", join_parts=("*",))
    assert values(tmp_path / "back") == values(source)


def test_what_is_only_put_together_keeps_its_name(literal, tmp_path):
    """A rule cuts one variable into literal parts; the slot, joined again, is none of them."""
    rules = {"join_parts": ("*",), "slices": ("embedding/table=axis0:5",), "form": "parts"}
    run(literal, tmp_path / "out", **rules)
    assert set(layout(tmp_path / "out")) == {
        "global_step",
        "embedding/table/Adagrad",
        *(f"embedding/table/part_{k}" for k in range(5)),
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"slices": ("typo*=axis0:2",)},
        {"slices": ("embedding/*=axis0:2", "embedding/*=axis2:2")},
        {"merge_slices": ("*", "typo")},
        {"join_parts": ("*",)},
    ],
    ids=str,
)
def test_a_rule_that_matches_nothing_is_no_silent_copy(source, tmp_path, asked):
    with pytest.raises(UsageError, match="matches nothing"):
        run(source, tmp_path / "out", **asked)
    assert not list(tmp_path.iterdir())


def test_parts_are_only_made_by_cutting():
    with pytest.raises(UsageError, match="--as-parts"):
        Repartition(form="parts")


def test_a_slot_that_is_named_without_a_slash_is_joined_again(tmp_path):
    """Mesh TensorFlow's: ``w/part_0_slot_vr`` would be no part of anything."""
    arrays = {"w": np.arange(8.0), "w_slot_vr": np.arange(8.0) + 10}
    write_checkpoint(tmp_path / "m", arrays)
    run(tmp_path / "m", tmp_path / "parts", slices=("*=axis0:2",), form="parts")
    assert set(layout(tmp_path / "parts")) == {
        f"{name}/part_{k}" for name in arrays for k in range(2)
    }
    run(tmp_path / "parts", tmp_path / "back", join_parts=("*",))
    assert values(tmp_path / "back") == values(tmp_path / "m")
