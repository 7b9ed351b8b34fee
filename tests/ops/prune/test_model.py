"""Random sequences of save, prune, rm, undo, move and kill against a model: P4 and P6 hold.

The model is what a person would remember: which checkpoints were ever saved, with which
bytes, which are pinned, and where TensorFlow's state file pointed when it was written last.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ckpttool.errors import NotFoundError, RefusedError
from ckpttool.formats.state import parse_state
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import plan_prune
from ckpttool.ops.prune.undo import take_back
from ckpttool.ops.rm import plan_rm, rm
from ckpttool.policy.facts import Retention
from ckpttool.sources.whole import flaws
from ckpttool.storage import open_directory
from tests.support.killing import killed_before
from tests.support.runs import add, prefixes, state

LONG_AGO = 10 * 86_400.0
STRANGERS = {
    "notes.txt": b"mine",
    "ckpt-1.txt": b"mine too",
    "events.out.tfevents.1": b"\0",
    "ckpt": b"no checkpoint",
}

kills = st.none() | st.integers(0, 40)


class Pruning(RuleBasedStateMachine):
    """A run directory, a trainer that saves there, and a person who prunes."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.run = self.home / "run"
        self.run.mkdir()
        for name, data in STRANGERS.items():
            (self.run / name).write_bytes(data)
        self.clock = time.time() - LONG_AGO
        self.number = 0
        self.listed: dict[str, float] = {}
        self.pinned: set[str] = set()
        self.saved: dict[str, bytes] = {}
        #: What an undo that was killed may still bring back: whoever prunes next finishes it.
        self.returning: set[str] = set()
        #: Every checkpoint may be gone only by a removal that was asked for.
        self.moves = 0

    def teardown(self) -> None:
        shutil.rmtree(self.home)

    # -- the trainer -----------------------------------------------------------------------

    @initialize()
    def first_save(self) -> None:
        self.save(shards=1, graph=False, recent=False)

    @rule(shards=st.integers(1, 2), graph=st.booleans(), recent=st.booleans())
    def save(self, shards: int, graph: bool, recent: bool) -> None:
        self.number += 1
        self.clock += 3600.0
        prefix = f"ckpt-{self.number}"
        when = time.time() if recent else self.clock
        add(self.run, prefix, when, shards=shards, graph=graph)
        self._remember(prefix)
        # As a CheckpointManager does: from its own memory, whatever we wrote there.
        self.listed[prefix] = self.clock
        names = list(self.listed)
        state(
            self.run,
            names,
            list(self.listed.values()),
            last_preserved=self.clock - LONG_AGO,
            when=when,
        )

    @rule()
    def restart(self) -> None:
        """A trainer that starts anew knows what the state file says."""
        said = self._state()
        self.listed = dict(
            zip(
                (path.rpartition("/")[2] for path in said.all_model_checkpoint_paths),
                said.all_model_checkpoint_timestamps,
                strict=True,
            )
        )

    @rule(number=st.integers(1, 8))
    def interrupted_save(self, number: int) -> None:
        """A save that died: data without an index, or parts that were not merged."""
        self.clock += 60.0
        if number % 2:
            folder = self.run / f"ckpt-{100 + number}_temp"
            folder.mkdir(exist_ok=True)
            part = folder / "part-00000-of-00001.data-00000-of-00001"
            part.write_bytes(b"part")
            for path in (part, folder):
                os.utime(path, (self.clock, self.clock))
        else:
            add(self.run, f"ckpt-{100 + number}", self.clock, without=[".index"])

    # -- the person ------------------------------------------------------------------------

    @rule(place=st.integers(0, 20))
    def pin(self, place: int) -> None:
        here = sorted(prefixes(self.run))
        self.pinned.add(here[place % len(here)])
        (self.run / ".ckptpins").write_text("".join(f"{name}\n" for name in self.pinned))

    @rule(
        keep=st.integers(1, 4),
        scope=st.sampled_from(["listed", "all"]),
        style=st.sampled_from(["manager", "saver"]),
        hours=st.none() | st.sampled_from([1.0, 2.0]),
        broken=st.booleans(),
        trash=st.booleans(),
        kill=kills,
    )
    def prune(
        self,
        keep: int,
        scope: str,
        style: str,
        hours: float | None,
        broken: bool,
        trash: bool,
        kill: int | None,
    ) -> None:
        retention = Retention(
            style="saver" if style == "saver" else "manager",
            scope="all" if scope == "all" else "listed",
            max_to_keep=keep,
            every_n_hours=hours,
            broken=broken,
            order="name",
        )
        before = prefixes(self.run)
        newest = max(before, key=lambda name: int(name.rpartition("-")[2]))
        latest = self._latest()
        recent = time.time() - (self.run / "checkpoint").stat().st_mtime < 60
        text = (self.run / "checkpoint").read_bytes()
        young = {name for name in before if self._age(name) < 60}

        def work() -> None:
            apply_plan(plan_prune(str(self.run), Request(retention)), trash=trash)

        if kill is None:
            work()
        else:
            killed_before(work, kill)
        after = prefixes(self.run)
        assert after <= before | self.returning
        assert {newest, latest} | young | (self.pinned & before) <= after, "P4"
        if scope == "listed":
            assert {name for name in before - after if name not in self._names(text)} == set()
        if recent:
            assert (self.run / "checkpoint").read_bytes() == text, "P6"

    @precondition(lambda self: len(prefixes(self.run)) > 1)
    @rule(place=st.integers(0, 20), trash=st.booleans(), kill=kills)
    def remove(self, place: int, trash: bool, kill: int | None) -> None:
        here = sorted(prefixes(self.run))
        name = here[place % len(here)]
        latest = self._latest()
        refused = name in self.pinned or self._age(name) < 60

        def work() -> None:
            rm(plan_rm([str(self.run / name)]), trash=trash)

        if refused:
            with pytest.raises(RefusedError):
                work()
            assert name in prefixes(self.run)
            return
        try:
            if kill is None:
                work()
                assert name not in prefixes(self.run)
            elif not killed_before(lambda: _allowing_refusal(work), kill):
                if trash or name not in prefixes(self.run):
                    return
                work()  # run again, it does it
                assert name not in prefixes(self.run)
        except RefusedError:
            assert name == latest, "only the latest may not go while a trainer may be alive"

    @rule(kill=kills)
    def undo(self, kill: int | None) -> None:
        before = prefixes(self.run)
        try:
            if kill is None:
                take_back(str(self.run))
            else:
                self.returning |= self.saved.keys() - before
                killed_before(lambda: _allowing_nothing(str(self.run)), kill)
        except NotFoundError:
            assert not (self.run / ".ckpttool-trash").exists() or not any(
                (self.run / ".ckpttool-trash").glob("*/manifest.json")
            )
        assert before <= prefixes(self.run)

    @rule()
    def move(self) -> None:
        self.moves += 1
        moved = self.home / f"run-{self.moves}"
        self.run.rename(moved)
        self.run = moved

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def strangers_are_untouched(self) -> None:
        for name, data in STRANGERS.items():
            assert (self.run / name).read_bytes() == data

    @invariant()
    def what_looks_whole_is_whole_and_as_it_was_saved(self) -> None:
        with open_directory(str(self.run)) as directory:
            for prefix in prefixes(self.run):
                assert flaws(directory, prefix, Limits()) == (), prefix
                assert (self.run / f"{prefix}.index").read_bytes() == self.saved[prefix]

    @invariant()
    def the_latest_is_there(self) -> None:
        if self.number:
            assert self._latest() in prefixes(self.run)

    # -- inside ----------------------------------------------------------------------------

    def _remember(self, prefix: str) -> None:
        self.saved[prefix] = (self.run / f"{prefix}.index").read_bytes()

    def _age(self, prefix: str) -> float:
        times = [path.stat().st_mtime for path in self.run.iterdir() if _is_of(path, prefix)]
        return time.time() - max(times)

    def _state(self):
        return parse_state((self.run / "checkpoint").read_bytes())

    def _latest(self) -> str:
        return (self._state().model_checkpoint_path or "").rpartition("/")[2]

    def _names(self, text: bytes) -> set[str]:
        return {path.rpartition("/")[2] for path in parse_state(text).all_model_checkpoint_paths}


def _is_of(path: Path, prefix: str) -> bool:
    return path.name.startswith((f"{prefix}.index", f"{prefix}.data-", f"{prefix}.meta"))


def _allowing_refusal(work) -> None:
    try:
        work()
    except RefusedError:
        pass


def _allowing_nothing(run: str) -> None:
    try:
        take_back(run)
    except NotFoundError:
        pass


TestPruning = Pruning.TestCase
TestPruning.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.slow
def test_many_more() -> None:
    run_state_machine_as_test(
        Pruning, settings=settings(max_examples=400, stateful_step_count=40, deadline=None)
    )
