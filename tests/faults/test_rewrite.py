"""Killed, out of space, unreadable: what a writing command leaves at its destination.

Whatever happens, the source is untouched, the destination is absent or whole, and the same
command run again ends as if nothing had been.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, NoSpaceError, RefusedError
from ckpttool.ops.copy import copy_checkpoint, move_checkpoint
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.verify import verify
from ckpttool.sources import v2
from ckpttool.storage import open_directory
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import LOCK_NAME, DirectoryLock
from ckpttool.storage.system import raise_os_error
from tests.support.faults import Faults, faulty
from tests.support.killing import killed_at_every_change

Work = Callable[[], object]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def looks_whole(folder: Path, prefix: str) -> bool:
    return (folder / f"{prefix}.index").exists()


def is_healthy(folder: Path, prefix: str) -> bool:
    return verify(str(folder / prefix)).healthy


@pytest.fixture
def place(fixtures_dir, tmp_path):
    """A folder with a checkpoint ``in/model.ckpt-42`` of two data files, and an empty ``out``."""
    source = fixtures_dir / "two-shards"

    def prepare() -> None:
        shutil.rmtree(tmp_path, ignore_errors=True)
        (tmp_path / "out").mkdir(parents=True)
        shutil.copytree(source, tmp_path / "in")

    prepare()
    (index,) = (tmp_path / "in").glob("*.index")
    return tmp_path, index.name.removesuffix(".index"), prepare


def cut(folder: Path, prefix: str, to: Path, *, overwrite: bool = False) -> Work:
    asked = Repartition(shards=3, slices=("*kernel*=axis0:3",))
    return lambda: repartition(
        [str(folder / "in" / prefix)], str(to), asked, Options(overwrite=overwrite)
    )


@pytest.mark.parametrize("command", ["repartition", "cp"])
def test_killed_at_every_moment_a_new_destination_is_absent_or_whole(place, command):
    folder, prefix, prepare = place
    work = (
        cut(folder, prefix, folder / "out" / "new")
        if command == "repartition"
        else lambda: copy_checkpoint(str(folder / "in"), str(folder / "out" / "new"), Options())
    )
    before = files(folder / "in")
    moments = 0
    for _ in killed_at_every_change(prepare, work):
        moments += 1
        assert files(folder / "in") == before
        whole = looks_whole(folder / "out", "new")
        if whole:
            assert is_healthy(folder / "out", "new")
        done = contextlib.suppress(RefusedError)  # it was finished, or is by the second try
        with done:
            work()
        assert is_healthy(folder / "out", "new")
        hidden = {name for name in os.listdir(folder / "out") if name.startswith(".")}
        assert hidden <= {LOCK_NAME}  # its text says who died; the kernel has let go of it
    assert moments > 10


def test_killed_at_every_moment_in_place_it_is_old_or_new_or_absent(place):
    folder, prefix, prepare = place
    work = cut(folder, prefix, folder / "in" / prefix, overwrite=True)
    states = set()
    for _ in killed_at_every_change(prepare, work):
        whole = looks_whole(folder / "in", prefix)
        states.add(whole)
        if whole:
            assert is_healthy(folder / "in", prefix)
        work()
        assert is_healthy(folder / "in", prefix)
        names = sorted(os.listdir(folder / "in"))
        assert [name for name in names if ".data-" in name] == [
            f"{prefix}.data-0000{n}-of-00003" for n in range(3)
        ]
        assert not [name for name in names if name.startswith(".")]
    assert states == {True, False}


@pytest.mark.parametrize("same_file_system", [True, False])
def test_killed_at_every_moment_a_move_loses_nothing(place, monkeypatch, same_file_system):
    folder, prefix, prepare = place
    if not same_file_system:
        monkeypatch.setattr(LocalDirectory, "link", _no_links)
    expected = set(files(folder / "in").values())

    def work() -> None:
        move_checkpoint(str(folder / "in" / prefix), str(folder / "out"), Options())

    for _ in killed_at_every_change(prepare, work):
        here, there = looks_whole(folder / "in", prefix), looks_whole(folder / "out", prefix)
        assert here or there
        for whole, where in ((here, "in"), (there, "out")):
            if whole:
                assert is_healthy(folder / where, prefix)
        kept = set(files(folder / "in").values()) | set(files(folder / "out").values())
        assert expected <= kept


def _no_links(self: LocalDirectory, *_: object) -> None:
    raise_os_error(OSError(errno.EXDEV, os.strerror(errno.EXDEV)), "cannot link")


@pytest.mark.parametrize("command", ["repartition", "cp", "check"])
def test_a_disk_that_is_full_at_the_nth_write(place, monkeypatch, command):
    folder, _, _ = place
    before = files(folder / "in")
    outcomes = []
    writes = {name: getattr(os, name) for name in ("write", "copy_file_range", "fsync")}
    left = stayed = 0

    def full(name, *args):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return writes[name](*args)

    for number in range(1000):
        left = number
        with monkeypatch.context() as patch:
            for name in writes:
                patch.setattr(os, name, functools.partial(full, name))
            try:
                if command == "cp":
                    copy_checkpoint(str(folder / "in"), str(folder / "out" / "new"), Options())
                else:
                    asked = Repartition(shards=3)
                    options = Options(check=command == "check")
                    repartition([str(folder / "in")], str(folder / "out" / "new"), asked, options)
            except NoSpaceError as error:
                outcomes.append(error.exit_code)
            else:
                break
        assert files(folder / "in") == before
        left_over = files(folder / "out")
        if looks_whole(folder / "out", "new"):  # only its journal could not be made durable
            assert is_healthy(folder / "out", "new")
            shutil.rmtree(folder / "out")
            (folder / "out").mkdir()
        elif ".ckpttool-commit" not in left_over:
            # Where not even the going of a journal could be made durable, its files stay.
            assert all(name.startswith(".ckpttool-new-") for name in left_over), number
            stayed += bool(left_over)
        else:
            shutil.rmtree(folder / "out")
            (folder / "out").mkdir()
    assert len(outcomes) > 10
    assert set(outcomes) == {41}
    assert stayed <= 4
    assert is_healthy(folder / "out", "new")
    assert not list((folder / "out").glob(".*"))  # the next run has tidied up


@pytest.mark.parametrize("how", ["eio", "short"])
def test_the_nth_read_fails(place, monkeypatch, how):
    folder, prefix, _ = place
    errors: list[CkpttoolError] = []
    for number in range(1, 200):
        faults = Faults(fail_at=number, how=how)
        with monkeypatch.context() as patch:
            patch.setattr(v2, "open_directory", functools.partial(_faulty_directory, faults))
            try:
                cut(folder, prefix, folder / "out" / "new")()
            except CkpttoolError as error:
                errors.append(error)
            else:
                break
        assert files(folder / "out") == {}
    assert len(errors) > 5
    assert {error.exit_code for error in errors} == ({40} if how == "eio" else {20})
    assert all(str(folder / "in") in f"{error.what} {error.why}" for error in errors)
    assert is_healthy(folder / "out", "new")


def _faulty_directory(faults: Faults, path: str):
    return faulty(open_directory(path), faults)


def test_a_file_system_that_is_really_full(place, fixtures_dir):
    """A tmpfs of one page: what fits is written, what does not is refused and leaves nothing."""
    folder, _, _ = place
    mount = folder / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a tmpfs needs privileges")
    try:
        source = str(fixtures_dir / "mlp-v1")
        with pytest.raises(NoSpaceError):
            copy_checkpoint(source, f"{mount}/new", Options())
        assert list(mount.iterdir()) == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalDirectory, "free_bytes", lambda _: 2**40)
            with pytest.raises(NoSpaceError):
                copy_checkpoint(source, f"{mount}/new", Options())
            with pytest.raises(NoSpaceError):
                repartition([source], f"{mount}/new", Repartition(shards=2), Options(check=True))
        assert list(mount.iterdir()) == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_two_writers_in_one_directory(place):
    folder, prefix, _ = place
    with (
        open_directory(str(folder / "out")) as directory,
        DirectoryLock(directory),
        pytest.raises(CkpttoolError) as caught,
    ):
        cut(folder, prefix, folder / "out" / "new")()
    assert caught.value.id == "locked"
    assert files(folder / "out") == {}
