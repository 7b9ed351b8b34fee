"""FAULTS 3, 5 to 12, 18, 19 and 23 for pruning: what goes wrong, and what must not be lost."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import ChangedError, CkpttoolError, NoSpaceError, PermissionDeniedError
from ckpttool.ops import state_fix
from ckpttool.ops.prune import apply, execute, state_change
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan, plan_prune
from ckpttool.policy.facts import Retention
from ckpttool.storage.lock import LOCK_NAME
from tests.support.command import ROOT, RunCli, clean_environment
from tests.support.runs import HOUR, add, contents, make_run, prefixes, state

KEEP_ONE = Request(Retention(max_to_keep=1))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    now = time.time()
    return make_run(tmp_path / "run", {"ckpt-1": 9, "ckpt-2": 8, "ckpt-3": 7}, now=now)


def plan_of(run: Path, **settings: Any) -> PrunePlan:
    return plan_prune(str(run), Request(Retention(**{"max_to_keep": 1} | settings)))


def deleted(plan: PrunePlan) -> list[str]:
    return [decision.checkpoint.prefix for decision in plan.delete]


class TestFullDisk:
    """FAULTS 3: the n-th write fails with ENOSPC, for every n."""

    @pytest.mark.parametrize("trash", [False, True])
    def test_every_write(self, run: Path, monkeypatch: pytest.MonkeyPatch, trash: bool) -> None:
        before = contents(run)
        real = os.write
        for number in range(100):
            left = number

            def write(fd: int, data: Any) -> int:
                nonlocal left
                if left == 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                left -= 1
                return real(fd, data)

            plan = plan_of(run)
            monkeypatch.setattr(os, "write", write)
            try:
                apply_plan(plan, trash=trash)
            except NoSpaceError as error:
                assert error.exit_code == 41  # noqa: PT017 - the loop ends without one
            else:
                break
            finally:
                monkeypatch.setattr(os, "write", real)
            temporary = [name for name in contents(run) if name.endswith("-tmp")]
            assert temporary == []
            assert "ckpt-3" in prefixes(run)
            names = {n for n in contents(run) if not n.startswith(".")}
            if names != set(before):  # the state file was the one that did not fit
                assert prefixes(run) == {"ckpt-3"}
                assert (run / "checkpoint").read_bytes() == before["checkpoint"]
        assert number > 0
        assert prefixes(run) == {"ckpt-3"}


class TestStateChanged:
    """FAULTS 7: the state file is replaced between our read and our rename."""

    def test_noticed_and_the_others_word_stands(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def remove(*args: Any, **kwargs: Any) -> Any:
            state(run, ["ckpt-3", "ckpt-4"], [1.0, 2.0])  # a trainer saves
            return apply.remove(*args, **kwargs)

        monkeypatch.setattr(execute, "remove", remove)
        result = apply_plan(plan_of(run))
        assert result.carried.state == "changed"
        assert result.carried.exit_code == 30
        assert b"ckpt-4" in (run / "checkpoint").read_bytes()

    def test_set_latest_refuses(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def replace_state(*args: Any) -> bytes:
            state(run, ["ckpt-3", "ckpt-4"], [1.0, 2.0])
            return state_change.replace_state(*args)

        monkeypatch.setattr(state_fix, "replace_state", replace_state)
        fix = state_fix.plan_fix(str(run), set_latest="ckpt-1")
        with pytest.raises(ChangedError) as caught:
            state_fix.apply_fix(fix)
        assert caught.value.id == "state-changed"
        assert b"ckpt-4" in (run / "checkpoint").read_bytes()

    def test_p6_a_state_file_that_a_trainer_may_write_is_left(self, run: Path) -> None:
        os.utime(run / "checkpoint")
        before = (run / "checkpoint").read_bytes()
        result = apply_plan(plan_of(run))
        assert prefixes(run) == {"ckpt-3"}
        assert (run / "checkpoint").read_bytes() == before
        assert any("left as it is" in warning for warning in result.plan.warnings)
        # … unless asked.
        add(run, "ckpt-2", time.time() - 8 * HOUR)
        apply_plan(plan_of(run, min_age=0.0))
        assert (run / "checkpoint").read_bytes() != before


class TestLock:
    """FAULTS 7: two prunes at once."""

    def test_the_second_one_ends_with_30(self, run: Path, run_cli: RunCli) -> None:
        with (run / LOCK_NAME).open("w") as held:
            held.write("process 1 on elsewhere")
            held.flush()
            fcntl.flock(held, fcntl.LOCK_EX)
            result = run_cli(["prune", run, "--max-to-keep", "1", "-y"])
            assert result.returncode == 30
            assert "process 1 on elsewhere" in result.stderr
            assert len(prefixes(run)) == 3
        # The holder is dead now.
        result = run_cli(["prune", run, "--max-to-keep", "1", "-y"])
        assert result.returncode == 0
        assert "taken over" in result.stderr
        assert prefixes(run) == {"ckpt-3"}


class TestTimes:
    """FAULTS 8: timestamps in the future, equal, NaN, missing, too few, the clock set back."""

    @pytest.mark.parametrize(
        "times",
        [
            ["inf", "-inf", "nan"],
            ["nan", "nan", "nan"],
            ["1e300", "1e300", "1e300"],
            ["5.0", "5.0", "5.0"],
            ["5.0"],
            ["0", "0", "0", "0", "0"],
        ],
    )
    def test_a_deterministic_plan(self, run: Path, times: list[str]) -> None:
        lines = ['model_checkpoint_path: "ckpt-3"']
        lines += [f'all_model_checkpoint_paths: "ckpt-{n}"' for n in (1, 2, 3)]
        lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
        (run / "checkpoint").write_text("\n".join(lines))
        plans = [plan_of(run, scope=scope, order="name") for scope in ("listed", "all") * 2]
        assert deleted(plans[0]) == deleted(plans[2])
        assert deleted(plans[1]) == deleted(plans[3])
        assert all("ckpt-3" not in deleted(plan) for plan in plans)

    def test_nothing_goes_on_the_strength_of_a_stamp_in_the_future(self, run: Path) -> None:
        future = time.time() + 9000
        state(run, ["ckpt-1", "ckpt-2", "ckpt-3"], [future, future + 1, future + 2])
        assert deleted(plan_of(run)) == []
        assert deleted(plan_of(run, scope="all", order="time")) == []

    def test_files_from_the_future_are_left(self, run: Path) -> None:
        future = time.time() + 9000
        add(run, "ckpt-4", future)
        plan = plan_of(run, scope="all")
        assert deleted(plan) == ["ckpt-1", "ckpt-2"]
        (kept,) = [d for d in plan.keep if d.checkpoint.prefix == "ckpt-4"]
        assert [reason.rule for reason in kept.reasons] == ["future"]


class TestForeignPaths:
    """FAULTS 9, and the two ways in which TensorFlow deletes other people's files."""

    def test_paths_out_of_the_directory_are_never_followed(self, tmp_path: Path) -> None:
        now = time.time()
        run = make_run(tmp_path / "run", {"ckpt-1": 2}, now=now)
        for victim in ("elsewhere", "victim"):
            make_run(tmp_path / victim, {"model": 9}, listed=[], now=now)
        paths = [str(tmp_path / "elsewhere" / "model"), "../victim/model", "ckpt-1"]
        state(run, paths, [now - 30000, now - 20000, now - 7200], last_preserved=1.0)
        before = contents(tmp_path)
        for scope in ("listed", "all"):
            plan = plan_of(run, scope=scope, broken=True)
            assert plan.removals == ()
            left = dict(plan.left_alone)
            assert set(paths[:2]) <= set(left)
            apply_plan(plan)
        assert contents(tmp_path) == before

    def test_tensorflow_itself_does_follow_them(self, tmp_path: Path) -> None:
        """So that the test above cannot pass for want of a danger."""
        tf = pytest.importorskip("tensorflow")
        now = time.time()
        make_run(tmp_path / "victim", {"model": 9}, listed=[], now=now)
        run = make_run(tmp_path / "run", {"ckpt-1": 2}, now=now)
        state(run, ["../victim/model", "ckpt-1"], [now - 20000, now - 7200], last_preserved=1.0)
        checkpoint = tf.train.Checkpoint(v=tf.Variable(1))
        tf.train.CheckpointManager(checkpoint, str(run), max_to_keep=1).save(checkpoint_number=2)
        assert prefixes(tmp_path / "victim") == set()

    def test_directories_that_look_like_patterns(self, tmp_path: Path) -> None:
        now = time.time()
        for name in ("gla", "glb", "star"):
            make_run(tmp_path / name, {"ckpt-1": 9, "ckpt-2": 8}, now=now)
        before = contents(tmp_path)
        for name in ("gl[ab]", "st*r"):
            apply_plan(plan_of(make_run(tmp_path / name, {"ckpt-1": 9, "ckpt-2": 8}, now=now)))
            assert prefixes(tmp_path / name) == {"ckpt-2"}
        assert {n: d for n, d in contents(tmp_path).items() if "[" not in n and "*" not in n} == (
            before
        )

    @pytest.mark.parametrize(
        "path",
        [
            "",
            ".",
            "..",
            "/",
            "a\0b",
            "a\nb",
            "checkpoint",
            "\\\\host\\share\\ckpt-1x",
            "sub",
            "sub/",
        ],
    )
    def test_paths_that_are_none(self, run: Path, path: str) -> None:
        (run / "sub").mkdir()
        (run / "sub" / "file").write_bytes(b"x")
        now = time.time()
        state(
            run, [path, "ckpt-2", "ckpt-3"], [now - 9e4, now - 8e4, now - 7e4], last_preserved=1.0
        )
        before = contents(run)
        plan = plan_of(run)
        assert deleted(plan) == ["ckpt-2"]
        apply_plan(plan)
        assert set(before) - set(contents(run)) == {
            "ckpt-2.index",
            "ckpt-2.data-00000-of-00001",
        }

    def test_a_prefix_may_be_called_checkpoint(self, tmp_path: Path) -> None:
        now = time.time()
        run = make_run(tmp_path / "run", {"old": 9, "checkpoint": 8}, now=now)
        apply_plan(plan_of(run, order="state"))
        assert prefixes(run) == {"checkpoint"}
        assert (run / "checkpoint").is_file()

    @pytest.mark.parametrize(
        "data",
        [
            b"\xef\xbb\xbf" + b'model_checkpoint_path: "ckpt-3"\r\n',
            b'model_checkpoint_path: "\xff"\n',
        ],
        ids=["bom-crlf", "bad-utf8"],
    )
    def test_odd_text(self, run: Path, data: bytes) -> None:
        (run / "checkpoint").write_bytes(data)
        assert deleted(plan_of(run)) == []

    @pytest.mark.parametrize("data", [b"(" * 100_000, b"{" * 100_000, b"\0" * 99])
    def test_text_that_cannot_be_read_ends_with_20(
        self, run: Path, run_cli: RunCli, data: bytes
    ) -> None:
        (run / "checkpoint").write_bytes(data)
        result = run_cli(["prune", run, "--max-to-keep", "1", "-y"], memory_mb=400)
        assert (result.returncode, len(result.stderr.splitlines())) == (20, 3)
        assert len(prefixes(run)) == 3

    def test_a_huge_state_file_is_not_read(self, run: Path, run_cli: RunCli) -> None:
        with (run / "checkpoint").open("wb") as file:
            file.truncate(2**30)
        result = run_cli(["prune", run, "--max-to-keep", "1", "-y"], memory_mb=400)
        assert result.returncode == 21
        assert len(prefixes(run)) == 3


@pytest.mark.parametrize(
    "prefix",
    [
        b"-rf-1", b"a b-1", b"new\nline-1", b"\x1b[31mred-1", b"\xff\xfe-1",
        "\u202eevil-1".encode(), b"x" * 220 + b"-1", b"*-1", b"[a]-1",
    ],
)  # fmt: skip
def test_names_of_all_kinds(tmp_path: Path, run_cli: RunCli, prefix: bytes) -> None:
    """FAULTS 10: literal handling, escaped output."""
    name = os.fsdecode(prefix)
    newer = name[:-1] + "2"
    run = make_run(tmp_path / "run", {name: 9, newer: 8}, now=time.time())
    result = run_cli(["prune", run, "--max-to-keep", "1", "-y"])
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert prefixes(run) == {newer}


class TestLinks:
    """FAULTS 12: links, pipes and devices are opaque, never followed out, never hang."""

    def test_a_checkpoint_with_a_link_is_left_alone(self, tmp_path: Path) -> None:
        now = time.time()
        run = make_run(tmp_path / "run", {"ckpt-1": 9, "ckpt-2": 8, "ckpt-3": 7}, now=now)
        outside = tmp_path / "outside"
        outside.write_bytes(b"precious")
        shard = run / "ckpt-1.data-00000-of-00001"
        shard.unlink()
        shard.symlink_to(outside)
        (run / "ckpt-2.index").unlink()
        (run / "ckpt-2.index").symlink_to("ckpt-2.index")  # a loop
        for link in (shard, run / "ckpt-2.index"):
            os.utime(link, (now - 7 * HOUR,) * 2, follow_symlinks=False)
        for scope in ("listed", "all"):
            plan = plan_of(run, scope=scope, broken=True)
            apply_plan(plan)
            assert outside.read_bytes() == b"precious"
            assert shard.is_symlink()
            assert (run / "ckpt-1.index").is_file()
            assert (run / "ckpt-2.data-00000-of-00001").is_file()
            assert {"ckpt-1", "ckpt-2"} <= {path for path, _ in plan.left_alone}
            assert (run / "ckpt-2.index").is_symlink()
        assert "ckpt-3" in prefixes(run)

    @pytest.mark.parametrize("kind", ["fifo", "directory"])
    def test_a_shard_that_is_no_file(self, run: Path, kind: str) -> None:
        shard = run / "ckpt-1.data-00000-of-00001"
        shard.unlink()
        if kind == "fifo":
            os.mkfifo(shard)
        else:
            shard.mkdir()
        apply_plan(plan_of(run, broken=True))
        assert shard.exists()

    def test_hard_links_lose_only_their_own_name(self, tmp_path: Path, run: Path) -> None:
        os.link(run / "ckpt-1.index", tmp_path / "kept")
        data = (tmp_path / "kept").read_bytes()
        apply_plan(plan_of(run))
        assert (tmp_path / "kept").read_bytes() == data
        assert prefixes(run) == {"ckpt-3"}

    def test_a_link_swapped_in_after_the_plan(self, tmp_path: Path, run: Path) -> None:
        outside = tmp_path / "outside"
        outside.write_bytes(b"precious")
        plan = plan_of(run)
        (run / "ckpt-1.index").unlink()
        (run / "ckpt-1.index").symlink_to(outside)
        apply_plan(plan)
        assert outside.read_bytes() == b"precious"
        assert (run / "ckpt-1.index").is_symlink()

    def test_a_linked_trash_is_not_entered(self, tmp_path: Path, run: Path) -> None:
        (tmp_path / "outside").mkdir()
        (run / ".ckpttool-trash").symlink_to(tmp_path / "outside")
        with pytest.raises(CkpttoolError):
            apply_plan(plan_of(run), trash=True)
        assert list((tmp_path / "outside").iterdir()) == []
        assert len(prefixes(run)) == 3


class TestSavedAgain:
    """What changed since the plan was made stays."""

    def test_a_checkpoint_that_was_saved_again(self, run: Path) -> None:
        plan = plan_of(run)
        add(run, "ckpt-1", time.time())
        result = apply_plan(plan)
        assert prefixes(run) == {"ckpt-1", "ckpt-3"}
        assert any("ckpt-1 was left" in warning for warning in result.warnings)

    def test_in_the_middle(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between our look under the lock and our removal."""

        def remove(*args: Any, **kwargs: Any) -> Any:
            add(run, "ckpt-1", time.time())
            return apply.remove(*args, **kwargs)

        monkeypatch.setattr(execute, "remove", remove)
        result = apply_plan(plan_of(run))
        assert prefixes(run) == {"ckpt-1", "ckpt-3"}
        assert result.carried.exit_code == 3

    @pytest.mark.parametrize(
        "change",
        [
            lambda run: add(run, "ckpt-1", time.time() - 5 * HOUR),
            lambda run: (run / ".ckptpins").write_text("ckpt-1\n"),
            lambda run: os.utime(run / "checkpoint"),
            lambda run: state(run, ["ckpt-1"], name="best_checkpoint"),
        ],
        ids=["rewritten", "pinned", "state", "named"],
    )
    def test_a_saved_plan_is_refused_as_a_whole(
        self, run: Path, tmp_path: Path, run_cli: RunCli, change: Callable[[Path], object]
    ) -> None:
        file = tmp_path / "plan.json"
        assert run_cli(["prune", run, "--max-to-keep", "1", "--plan", file]).returncode == 0
        change(run)
        before = contents(run)
        result = run_cli(["prune", run, "--apply", file, "-y"])
        assert result.returncode == 30
        assert "plan-stale" in result.stderr
        assert contents(run) == before

    def test_a_saved_plan_that_still_holds_is_carried_out(
        self, run: Path, tmp_path: Path, run_cli: RunCli
    ) -> None:
        file = tmp_path / "plan.json"
        run_cli(["prune", run, "--max-to-keep", "1", "--plan", file])
        assert run_cli(["prune", run, "--apply", file, "-y"]).returncode == 0
        assert prefixes(run) == {"ckpt-3"}

    def test_a_plan_of_another_directory_is_refused(
        self, run: Path, tmp_path: Path, run_cli: RunCli
    ) -> None:
        file = tmp_path / "plan.json"
        run_cli(["prune", run, "--max-to-keep", "1", "--plan", file])
        other = make_run(tmp_path / "other", {"ckpt-1": 9, "ckpt-3": 7}, now=time.time())
        assert run_cli(["prune", other, "--apply", file, "-y"]).returncode == 30
        assert prefixes(other) == {"ckpt-1", "ckpt-3"}

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("retention", {}),
            ("retention", {"max_to_keep": "1"}),
            ("removals", [{"prefix": 1}]),
            ("removals", "x"),
            ("schema", "other/1"),
            ("identity", None),
        ],
    )
    def test_a_plan_that_was_tampered_with(
        self, run: Path, tmp_path: Path, run_cli: RunCli, member: str, value: object
    ) -> None:
        file = tmp_path / "plan.json"
        run_cli(["prune", run, "--max-to-keep", "1", "--plan", file])
        record = json.loads(file.read_text())
        record[member] = value
        file.write_text(json.dumps(record))
        result = run_cli(["prune", run, "--apply", file, "-y"])
        assert (result.returncode, "record-corrupt" in result.stderr) == (20, True)
        assert len(prefixes(run)) == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directory(run: Path) -> None:
    """FAULTS 18."""
    run.chmod(0o555)
    try:
        with pytest.raises(PermissionDeniedError):
            apply_plan(plan_of(run))
    finally:
        run.chmod(0o755)
    assert len(prefixes(run)) == 3


class TestSystemRefuses:
    """FAULTS 18, also where the tests run as root: the system's word is put in its mouth."""

    @pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EIO, errno.ESTALE])
    def test_one_file(self, run: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        real = os.unlink

        def unlink(path: Any, *args: Any, **kwargs: Any) -> None:
            if path == "ckpt-1.data-00000-of-00001":
                raise OSError(code, os.strerror(code))
            real(path, *args, **kwargs)

        monkeypatch.setattr(os, "unlink", unlink)
        result = apply_plan(plan_of(run))
        assert result.carried.exit_code == 3
        assert prefixes(run) == {"ckpt-3"}
        assert any("ckpt-1 could not be removed" in warning for warning in result.warnings)
        monkeypatch.undo()
        # The journal stays, and the next run finishes.
        again = apply_plan(plan_of(run))
        assert again.finished == ["ckpt-1"]
        assert not (run / "ckpt-1.data-00000-of-00001").exists()

    def test_all_files(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.unlink

        def unlink(path: Any, *args: Any, **kwargs: Any) -> None:
            if str(path).startswith("ckpt"):
                raise OSError(errno.EROFS, "Read-only file system")
            real(path, *args, **kwargs)

        monkeypatch.setattr(os, "unlink", unlink)
        with pytest.raises(PermissionDeniedError):
            apply_plan(plan_of(run))
        assert len(prefixes(run)) == 3

    def test_a_directory_that_vanishes(self, run: Path, tmp_path: Path, run_cli: RunCli) -> None:
        plan = plan_of(run)
        run.rename(tmp_path / "away")
        with pytest.raises(CkpttoolError) as caught:
            apply_plan(plan)
        assert caught.value.exit_code == 10
        assert run_cli(["prune", run, "--max-to-keep", "1", "-y"]).returncode == 10


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_between_two_steps(tmp_path: Path, number: int, code: int) -> None:
    """FAULTS 19: nothing half believed, and a rerun finishes."""
    now = time.time()
    run = make_run(tmp_path / "run", {f"ckpt-{n}": 9000 - n for n in range(3000)}, now=now)
    command = [sys.executable, "-m", "ckpttool", "prune", str(run), "--max-to-keep", "1", "-y"]
    with subprocess.Popen(
        command, env=clean_environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        deadline = time.monotonic() + 120
        while (run / "ckpt-50.index").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        child.send_signal(number)
        child.communicate()
        left = prefixes(run)
        if child.returncode == 0:
            pytest.skip("it was done before the signal came")
        assert child.returncode == code
    assert "ckpt-2999" in left
    for prefix in left:
        assert (run / f"{prefix}.data-00000-of-00001").exists()
    assert subprocess.run(command, env=clean_environment(), cwd=ROOT, check=False,
                          capture_output=True).returncode == 0  # fmt: skip
    assert sorted(n for n in contents(run) if n != "checkpoint") == [
        "ckpt-2999.data-00000-of-00001",
        "ckpt-2999.index",
    ]


@pytest.mark.slow
def test_a_hundred_thousand_files(tmp_path: Path, run_cli: RunCli) -> None:
    """FAULTS 23: linear time and bounded memory."""
    run = tmp_path / "run"
    now = time.time()
    make_run(run, {f"ckpt-{n}": 99_999 - n for n in range(50_000)}, now=now)
    result = run_cli(["prune", run, "--max-to-keep", "5", "-n", "-q"], memory_mb=700, timeout=600)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 49_995
