"""Any sequence of writing commands against a dict of arrays, on real files.

The model is what each checkpoint holds, and which files there may be. After every step the
checkpoint that was written is read by ckpttool, which checks all its checksums, and by
TensorFlow; in the end all of them are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from ckpttool.api import open as open_checkpoint
from ckpttool.errors import RefusedError, UsageError
from ckpttool.ops.average import average
from ckpttool.ops.copy import copy_checkpoint, move_checkpoint
from ckpttool.ops.edit.run import Edit, edit
from ckpttool.ops.merge import merge
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.verify import verify
from tests.support.tf_write import write_name_based

#: Names of variables: all are of one shape, so that checkpoints can be averaged.
NAMES = ("w", "w/Adam", "emb", "bias", "layer/emb", "step")
SHAPES = {"w": (6, 3), "w/Adam": (6, 3), "emb": (12, 2), "bias": (5,), "layer/emb": (4, 2, 3)}
Contents = dict[str, np.ndarray]

# Not `st.builds`, which would make up limits and the number of threads too.
options = st.tuples(st.booleans(), st.booleans()).map(
    lambda given: Options(check=given[0], link=given[1])
)


@st.composite
def contents(draw: st.DrawFn) -> Contents:
    """Some variables: floats of small whole numbers, and a counter."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    seed = draw(st.integers(0, 2**16))
    generator = np.random.default_rng(seed)
    found: Contents = {}
    for name in names:
        if name == "step":
            found[name] = np.asarray(seed, np.int64)
        else:
            found[name] = generator.integers(-99, 99, SHAPES[name]).astype(np.float32)
    return found


layouts = st.builds(
    Repartition,
    shards=st.sampled_from((None, 1, 2, 5)),
    slices=st.sampled_from(
        ((), ("*emb=axis0:3",), ("w*=axis1:2,1",), ("*emb=axis0:max=4,min=16",))
    ),
    merge_slices=st.sampled_from(((), ("*",), ("w",))),
)


def finds_something(asked: Repartition, variables: Contents) -> bool:
    """Whether every pattern has a variable: one that a typo made has none, and is refused."""
    patterns = [(rule.partition("=")[0], int("axis1" in rule)) for rule in asked.slices]
    patterns += [(pattern, -1) for pattern in asked.merge_slices]
    return all(
        any(fnmatchcase(name, pattern) and array.ndim > axis for name, array in variables.items())
        for pattern, axis in patterns
    )


class Writing(RuleBasedStateMachine):
    """Checkpoints ``c0``, ``c1``, … in one directory."""

    prefixes = Bundle("prefixes")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.model: dict[str, Contents] = {}
        self.count = 0

    def teardown(self) -> None:
        for prefix in self.model:
            self.compare(prefix)
        owners = {name.rpartition(".")[0] for name in os.listdir(self.folder)}
        assert owners == {os.path.basename(prefix) for prefix in self.model}
        shutil.rmtree(self.folder)

    def fresh(self) -> str:
        self.count += 1
        return os.path.join(self.folder, f"c{self.count}")

    def compare(self, prefix: str) -> None:
        """What is on the disk is what the model says, for both readers."""
        import tensorflow as tf

        expected = self.model[prefix]
        assert verify(prefix).healthy
        reader = tf.train.load_checkpoint(prefix)
        assert set(reader.get_variable_to_shape_map()) == set(expected)
        with open_checkpoint(prefix) as checkpoint:
            assert set(checkpoint) == set(expected)
            for name, array in expected.items():
                for found in (checkpoint.read(name), np.asarray(reader.get_tensor(name))):
                    assert found.dtype == array.dtype
                    assert found.tobytes() == array.tobytes(), name

    @initialize(target=prefixes, first=contents(), second=contents())
    def start(self, first: Contents, second: Contents) -> Any:
        return multiple(self.save(first), self.save(second))

    @rule(target=prefixes, variables=contents())
    def save(self, variables: Contents) -> str:
        prefix = write_name_based(self.fresh(), dict(variables))
        self.model[prefix] = variables
        return prefix

    @rule(target=prefixes, source=prefixes, given=options)
    def copy(self, source: str, given: Options) -> str:
        to = self.fresh()
        copy_checkpoint(source, to, given)
        return self.now(to, self.model[source])

    @rule(source=prefixes, to=prefixes, link=st.booleans())
    def copy_over(self, source: str, to: str, link: bool) -> None:
        given = Options(overwrite=True, link=link)
        if source == to:
            with pytest.raises(RefusedError):
                copy_checkpoint(source, to, given)
        else:
            copy_checkpoint(source, to, given)
            self.now(to, self.model[source])

    @rule(target=prefixes, source=consumes(prefixes))
    def move(self, source: str) -> str:
        to = self.fresh()
        move_checkpoint(source, to, Options())
        assert not os.path.exists(f"{source}.index")
        return self.now(to, self.model.pop(source))

    @rule(target=prefixes, source=prefixes, asked=layouts, given=options)
    def lay_out(self, source: str, asked: Repartition, given: Options) -> Any:
        to = self.fresh()
        if not finds_something(asked, self.model[source]):
            with pytest.raises(UsageError, match="matches nothing"):
                repartition([source], to, asked, given)
            return multiple()
        repartition([source], to, asked, given)
        return self.now(to, self.model[source])

    @rule(prefix=prefixes, asked=layouts, link=st.booleans())
    def lay_out_in_place(self, prefix: str, asked: Repartition, link: bool) -> None:
        if finds_something(asked, self.model[prefix]):
            repartition([prefix], prefix, asked, Options(overwrite=True, link=link))
        self.now(prefix, self.model[prefix])

    @rule(
        target=prefixes,
        one=prefixes,
        other=prefixes,
        conflict=st.sampled_from(("first", "last")),
        given=options,
    )
    def unite(self, one: str, other: str, conflict: Any, given: Options) -> str:
        to = self.fresh()
        merge([one, other], to, conflict, (), given)
        first, second = self.model[one], self.model[other]
        return self.now(to, second | first if conflict == "first" else first | second)

    @rule(target=prefixes, one=prefixes, other=prefixes, given=options)
    def mean(self, one: str, other: str, given: Options) -> Any:
        to = self.fresh()
        first, second = self.model[one], self.model[other]
        if set(first) != set(second):
            with pytest.raises(RefusedError):
                average([one, other], to, None, given)
            return multiple()
        average([one, other], to, None, given)
        return self.now(
            to,
            {
                name: array if array.dtype == np.int64 else (first[name] + array) / np.float32(2)
                for name, array in second.items()
            },
        )

    @rule(target=prefixes, source=prefixes, given=options, data=st.data())
    def rename(self, source: str, given: Options, data: st.DataObject) -> str:
        variables = self.model[source]
        name = data.draw(st.sampled_from(sorted(variables)))
        free = sorted({f"{name}_{letter}" for letter in "ab"} - set(variables))
        if not free or "/" in name or f"{name}/Adam" in variables:
            return source
        to = self.fresh()
        edit(source, to, Edit(renames=(f"{name}={free[0]}",)), given)
        renamed = {free[0] if old == name else old: array for old, array in variables.items()}
        return self.now(to, renamed)

    @rule(target=prefixes, source=prefixes, given=options, data=st.data())
    def drop(self, source: str, given: Options, data: st.DataObject) -> str:
        variables = self.model[source]
        name = data.draw(st.sampled_from(sorted(variables)))
        if len(variables) < 2 or f"{name}/Adam" in variables:
            return source
        to = self.fresh()
        edit(source, to, Edit(drop=(name,)), given)
        return self.now(to, {old: array for old, array in variables.items() if old != name})

    def now(self, prefix: str, variables: Contents) -> str:
        self.model[prefix] = variables
        self.compare(prefix)
        return prefix


@pytest.mark.parametrize(
    "examples", [12, pytest.param(150, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_any_sequence_of_commands(examples: int) -> None:
    pytest.importorskip("tensorflow")
    run_state_machine_as_test(
        Writing,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
