"""FAULTS 1 and 2: a prune killed before any change of the disk, and run again."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from ckpttool.formats.state import parse_state
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import plan_prune
from ckpttool.ops.prune.trash import trash_ids
from ckpttool.ops.prune.undo import take_back
from ckpttool.policy.facts import Retention
from ckpttool.sources.whole import flaws
from ckpttool.storage import open_directory
from tests.support.killing import killed_at_every_change
from tests.support.runs import add, contents, make_run, prefixes

AGES = {"ckpt-1": 9, "ckpt-2": 8, "ckpt-3": 7, "ckpt-10": 6}
#: With a leftover that is made now, its times (one of which nobody can set) are no matter.
REQUEST = Request(Retention(max_to_keep=2, broken=True, min_age=0.0))
STAY = {"ckpt-3", "ckpt-10"}
PARTS = ["part-00000-of-00001.index", "part-00000-of-00001.data-00000-of-00001"]


def make(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    now = time.time()
    make_run(run, AGES, shards=2, graph=True, now=now)
    add(run, "ckpt-4", now - 30_000, without=[".index"])
    for name, parts in (("ckpt-5_temp", PARTS), ("ckpt-6_temp", [])):
        (run / name).mkdir()
        for part in parts:
            (run / name / part).write_bytes(b"part")
        for path in (*(run / name).iterdir(), run / name):
            os.utime(path, (now - 30_000, now - 30_000))


def prune(run: Path, *, trash: bool) -> None:
    apply_plan(plan_prune(str(run), REQUEST), trash=trash)


def assert_nothing_half_believed(run: Path) -> None:
    with open_directory(str(run)) as directory:
        for prefix in prefixes(run):
            assert flaws(directory, prefix, Limits()) == (), prefix
    assert prefixes(run) >= STAY


def user_files(run: Path) -> dict[str, bytes]:
    """All but our own records; a temporary file that a kill left is one of those.

    (It is a leftover like any other: --broken removes it when it is old enough.)
    """
    return {name: data for name, data in contents(run).items() if ".ckpttool-" not in name}


@pytest.mark.parametrize("trash", [False, True])
def test_killed_anywhere_and_run_again(tmp_path: Path, trash: bool) -> None:
    run = tmp_path / "run"
    make(run)
    before = user_files(run)
    prune(run, trash=trash)
    after = user_files(run)
    assert prefixes(run) == STAY
    kills = 0
    for _ in killed_at_every_change(lambda: make(run), lambda: prune(run, trash=trash)):
        kills += 1
        assert_nothing_half_believed(run)
        assert parse_state((run / "checkpoint").read_bytes()).model_checkpoint_path == "ckpt-10"
        prune(run, trash=trash)
        assert set(user_files(run)) == set(after)
        assert parse_state(user_files(run)["checkpoint"]).all_model_checkpoint_paths == (
            "ckpt-3",
            "ckpt-10",
        )
        if not trash:
            continue
        # Two removals, the killed one and the second: all comes back.
        with open_directory(str(run)) as directory:
            ids = trash_ids(directory)
        for _ in ids:
            take_back(str(run))
        assert set(user_files(run)) == set(before)
        assert not (run / ".ckpttool-trash").exists()
    assert kills > 20


def test_undo_killed_anywhere_and_run_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make(run)
    before = user_files(run)

    def prepare() -> None:
        make(run)
        prune(run, trash=True)

    kills = 0
    for _ in killed_at_every_change(prepare, lambda: take_back(str(run))):
        kills += 1
        assert_nothing_half_believed(run)
        with open_directory(str(run)) as directory:
            ids = trash_ids(directory)
        if ids:
            take_back(str(run))
        assert set(user_files(run)) == set(before)
    assert kills > 10


def test_what_was_not_begun_is_decided_anew(tmp_path: Path) -> None:
    """A pin that was set after the kill holds, whatever the journal says."""
    run = tmp_path / "run"
    pinned = 0
    for _ in killed_at_every_change(lambda: make(run), lambda: prune(run, trash=False)):
        if "ckpt-1" not in prefixes(run):
            continue
        pinned += 1
        (run / ".ckptpins").write_text("ckpt-1\n")
        prune(run, trash=False)
        assert prefixes(run) == STAY | {"ckpt-1"}
        assert set(contents(run)) >= {"ckpt-1.meta", "ckpt-1.data-00001-of-00002"}
    assert pinned


def test_what_was_saved_again_after_the_kill_stays(tmp_path: Path) -> None:
    run = tmp_path / "run"
    saved = 0
    for _ in killed_at_every_change(lambda: make(run), lambda: prune(run, trash=False)):
        if "ckpt-1" in prefixes(run):
            continue
        saved += 1
        add(run, "ckpt-1", time.time(), shards=2)
        apply_plan(plan_prune(str(run), Request(Retention(max_to_keep=2))))
        assert prefixes(run) == STAY | {"ckpt-1"}
        assert_nothing_half_believed(run)
    assert saved
