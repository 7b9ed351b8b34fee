"""Removing, moving and locking: only what was looked at, never through a link."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from ckpttool.errors import ChangedError, RefusedError, StorageError, UnsafeError
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import LOCK_NAME, DirectoryLock, is_locked


def look(directory: LocalDirectory, name: str) -> FileStat:
    found = directory.stat(name)
    assert found is not None
    return found


def test_remove_takes_only_the_file_that_was_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    with open_directory(str(tmp_path)) as directory:
        seen = look(directory, "a")
        (tmp_path / "b").write_bytes(b"two")
        os.replace(tmp_path / "b", tmp_path / "a")
        with pytest.raises(ChangedError):
            directory.remove(seen)
        assert (tmp_path / "a").read_bytes() == b"two"
        directory.remove(look(directory, "a"))
        with pytest.raises(ChangedError):
            directory.remove(seen)
    assert list(tmp_path.iterdir()) == []


def test_move_never_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    with open_directory(str(tmp_path)) as directory:
        trash = directory.directory("trash", create=True)
        seen = look(directory, "a")
        directory.move(seen, trash, "a")
        assert (tmp_path / "trash" / "a").read_bytes() == b"one"
        (tmp_path / "a").write_bytes(b"two")
        with pytest.raises(RefusedError) as caught:
            trash.move(look(trash, "a"), directory, "a")
        assert caught.value.id == "exists"
        assert (tmp_path / "a").read_bytes() == b"two"
        trash.close()


def test_a_directory_is_not_entered_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trash").symlink_to("../elsewhere")
    (tmp_path / "run" / "file").touch()
    with open_directory(str(tmp_path / "run")) as directory:
        for name in ("trash", "file"):
            for create in (False, True):
                with pytest.raises(UnsafeError):
                    directory.directory(name, create=create)


class TestLock:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        with open_directory(str(tmp_path)) as directory:
            with DirectoryLock(directory) as lock:
                assert not lock.taken_over
                with pytest.raises(ChangedError) as caught, DirectoryLock(directory):
                    pass
                assert caught.value.id == "locked"
                assert str(os.getpid()) in caught.value.why
            with DirectoryLock(directory):
                pass
        assert list(tmp_path.iterdir()) == []

    def test_a_dead_holder_is_taken_over(self, tmp_path: Path) -> None:
        child = os.fork()
        if child == 0:
            DirectoryLock(open_directory(str(tmp_path))).__enter__()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        with open_directory(str(tmp_path)) as directory, DirectoryLock(directory) as lock:
            assert f"process {child}" in lock.taken_over
        assert not (tmp_path / LOCK_NAME).exists()

    def test_a_link_named_like_the_lock_is_not_followed(self, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_bytes(b"precious")
        run = tmp_path / "run"
        run.mkdir()
        (run / LOCK_NAME).symlink_to(victim)
        with (
            open_directory(str(run)) as directory,
            pytest.raises(StorageError, match="cannot lock"),
            DirectoryLock(directory),
        ):
            pass
        assert victim.read_bytes() == b"precious"

    def test_who_only_asks_is_in_nobodys_way(self, tmp_path: Path) -> None:
        """Asking takes the lock for an instant."""
        with open_directory(str(tmp_path)) as directory:
            asker = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
            fcntl.flock(asker, fcntl.LOCK_SH)
            ends = threading.Timer(0.005, os.close, [asker])
            ends.start()
            with DirectoryLock(directory):
                pass
            ends.join()

    def test_what_cannot_be_asked_counts_as_held(self, tmp_path: Path) -> None:
        with open_directory(str(tmp_path)) as directory:
            assert not is_locked(directory)
            with DirectoryLock(directory):
                assert is_locked(directory)
            assert not is_locked(directory)
            (tmp_path / LOCK_NAME).symlink_to("nowhere")
            assert is_locked(directory)

    def test_an_interrupt_lets_go(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(_: DirectoryLock) -> str:
            raise KeyboardInterrupt

        with open_directory(str(tmp_path)) as directory:
            with monkeypatch.context() as patch:
                patch.setattr(DirectoryLock, "_note", interrupted)
                with pytest.raises(KeyboardInterrupt), DirectoryLock(directory):
                    pass
            with DirectoryLock(directory):
                pass
