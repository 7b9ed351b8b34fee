"""What may go wrong while a training is exported: the training goes on, nothing half stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from ckpttool.errors import NoSpaceError
from ckpttool.ops.verify import verify
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, until
from tests.support.trained import training, values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

#: What a small file system has: several snapshots of a small model, some exports, logs.
SIZE = 4 * 2**20


@contextmanager
def mounted(place: Path) -> Iterator[None]:
    """A small file system of its own, which others may not read."""
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a tmpfs needs privileges")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A training whose run directory is a file system of 4 MiB."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    folder = tmp_path_factory.mktemp("faults")
    words = ("--ps", "1", "--snapshot-every", "0", "--keep-exports", "2", "--keep-snapshots", "60")
    with mounted(folder / "run"), training(folder, "module", *words) as cluster:
        cluster.wait_for()
        with client(cluster) as live:
            until(lambda: (live.ask("status")["step"] or 0) > 5, cluster.said())
        yield cluster


def client(cluster: Cluster) -> LiveClient:
    return LiveClient(str(cluster.directory), timeout=300)


@contextmanager
def filled(directory: Path, left: int) -> Iterator[None]:
    """Nothing is free while the block runs, but for so many bytes."""
    filler = directory / "filler"
    block = b"\0" * 4096
    try:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(block)
            except OSError:
                pass  # full
            file.truncate(max(0, os.fstat(file.fileno()).st_size - left))
        yield
    finally:
        filler.unlink()


def export(live: LiveClient, name: str) -> dict[str, object]:
    return live.ask("export", to="checkpoint", name=name, wait=True)


def done(live: LiveClient, name: str) -> object:
    """Export, which has to go well; gives the version."""
    made = export(live, name)
    assert made["state"] == "done", made["why"]
    return made["version"]


def require_training(live: LiveClient) -> None:
    """It goes on: steps are counted that were made after this call."""
    step = live.ask("status")["step"]
    until(lambda: live.ask("status")["step"] > step + 5, "the training stands still")


def require_whole(cluster: Cluster, name: str) -> list[int]:
    """Everything that stands there is whole; gives the versions."""
    with client(cluster) as live:
        newest = live.ask("status")["snapshots"][-1]["prefix"]
    assert verify(newest, jobs=1).healthy
    folder = cluster.directory / "exports" / name
    found = [path for path in folder.iterdir() if path.is_dir()] if folder.exists() else []
    for version in found:
        assert values(version / "model.ckpt")["emb"].shape == (1001, 8)
    left = [path.name for path in folder.rglob(".ckpttool-*")] if folder.exists() else []
    assert left == []
    return sorted(int(path.name) for path in found)


#: Bytes that are free: for nothing at all; for some of a snapshot; for a snapshot (34 kB of
#: data, an index, a record), and nothing or some of the export.
@pytest.mark.parametrize("left", [0, 16 * 1024, 48 * 1024, 64 * 1024])
def test_a_disk_that_is_full(running, left) -> None:
    """Issue 7: disk full in an export, and in the snapshot before it."""
    name = f"full-{left}"
    with client(running) as live:
        done(live, name)
        with filled(running.directory, left):
            failed = export(live, name)
            require_training(live)
        assert failed["state"] == "failed", failed
        assert re.search("space|are free", str(failed["why"])), failed
        assert require_whole(running, name) == [1]
        listed = [one for one in live.ask("status")["exports"] if one["name"] == name]
        assert [one["state"] for one in listed] == ["done", "failed"]
        assert done(live, name) == 3
        assert require_whole(running, name) == [1, 3]
        done(live, name)
        assert require_whole(running, name) == [3, 4]
    assert running.state["state"] == "ready"


def test_a_snapshot_on_a_full_disk_says_so(running) -> None:
    with client(running) as live:
        failures = live.ask("status")["syncs"]["failed"]
        with filled(running.directory, 0), pytest.raises(NoSpaceError):
            live.ask("snapshot")
        assert live.ask("status")["syncs"]["failed"] == failures + 1
        require_training(live)
        assert live.ask("snapshot")["consistent"] is True


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Nothing can be written there while the block runs, by root neither."""
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(directory)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.parametrize("which", ["snapshots", "exports"])
def test_a_directory_that_cannot_be_written(running, which) -> None:
    """As after an error of its disk, which makes a file system read-only."""
    with client(running) as live:
        done(live, which)
        with read_only(running.directory / which):
            failed = export(live, which)
            require_training(live)
        assert failed["state"] == "failed", failed
        assert re.search("ead-only", str(failed["why"])), failed
        done(live, which)
        require_whole(running, which)


def converting(running: Cluster) -> int | None:
    """The process of the conversion that runs just now."""
    for pid in running.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"convert" in words and b"checkpoint" in words:
            return pid
    return None


def test_a_conversion_that_is_killed(running) -> None:
    with client(running) as live, client(running) as other:
        asked = live.ask("export", to="checkpoint", name="killed", wait=False)
        assert asked["state"] == "running"
        pid = until(lambda: converting(running), "no conversion is started")
        os.kill(pid, signal.SIGKILL)

        def ended() -> dict[str, object] | None:
            exports = other.ask("status")["exports"]
            found = [one for one in exports if one["name"] == "killed"]
            return found[0] if found and found[0]["state"] != "running" else None

        failed = until(ended, "its end is not noticed")
        assert failed["state"] == "failed"
        assert failed["why"] == ("the export killed failed: the conversion was ended by signal 9")
        require_training(live)
        assert require_whole(running, "killed") == []
        done(live, "killed")
        assert require_whole(running, "killed") == [2]
    assert converting(running) is None


@pytest.mark.slow
def test_a_supervisor_that_is_killed_while_an_export_is_made(tmp_path: Path) -> None:
    """FAULTS 22: the conversion ends too; the next cluster goes on, and tidies up after it."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    words = ("--ps", "1", "--export", "mine=checkpoint", "--export-every-steps", "1")
    folder = tmp_path / "run" / "exports" / "mine"
    with training(tmp_path, "module", *words) as running:
        running.wait_for()
        until((folder / "1").exists, "no export is made")
        until(lambda: converting(running), "no second one is begun")
        running.process.kill()
        running.process.wait()
        running.wait_until_gone()
    before = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    with training(tmp_path, "module", *words) as running:
        running.wait_for()
        until((folder / str(max(before) + 2)).exists, "no export is made any more")
        assert running.interrupt() == 0
        running.wait_until_gone()
    found = [path for path in folder.iterdir() if path.name.isdigit()]
    assert len(found) > 1
    for version in found:
        assert values(version / "model.ckpt")["emb"].shape == (1001, 8)


def test_the_first_failure_is_told_once(running) -> None:
    """A new user's find: nothing but a log said that snapshots and exports fail."""
    with client(running) as live:
        for name in ("first", "second"):
            assert live.ask("export", to="onnx", name=name, wait=True)["state"] == "failed"
    until(lambda: "live-failing" in running.kinds())
    (told,) = [event for event in running.events if event.get("kind") == "live-failing"]
    assert "failed: " in told["text"]
    assert "\n" not in told["text"]
    assert told["text"].endswith("logs/chief-0.log")
    assert told["task"] == "chief-0"
