"""The local storage: no link followed, nothing outside, files whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ckpttool.errors import (
    CkpttoolError,
    IncompleteError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
    UnsafeError,
)
from ckpttool.storage import open_directory, stat_path
from ckpttool.storage.system import raise_os_error


@pytest.fixture
def directory(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"0123456789")
    with open_directory(str(tmp_path)) as opened:
        yield opened


def test_pread_gives_exactly_the_range(directory):
    file = directory.open("a")
    assert file.pread(0, 10) == b"0123456789"
    assert file.pread(3, 4) == b"3456"
    assert file.pread(10, 0) == b""
    file.close()
    file.close()


def test_a_read_past_the_end_says_how_long_the_file_is(directory):
    with pytest.raises(IncompleteError, match="the file has 10") as caught:
        directory.open("a").pread(5, 6)
    assert caught.value.id == "short-read"


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc/passwd", "a\0b", "\ud800"])
def test_a_name_that_is_no_plain_name_is_unsafe(directory, name):
    for action in (directory.open, directory.stat, directory.create):
        with pytest.raises(UnsafeError):
            action(name)


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_a_path_that_no_directory_can_have(path):
    assert stat_path(path) is None
    with pytest.raises(NotFoundError):
        open_directory(path)


def test_a_link_is_refused_and_its_target_named(directory, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(UnsafeError, match="symbolic link") as caught:
        directory.open("link")
    assert str(tmp_path / "a") in caught.value.why
    assert directory.stat("link").kind == "link"


def test_a_link_loop_is_refused(directory, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UnsafeError):
        directory.open("loop")
    assert stat_path(str(tmp_path / "loop")) is None


def test_a_pipe_and_a_directory_are_refused_at_once(directory, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UnsafeError, match="not a regular file"):
            directory.open(name)


def test_a_missing_file_is_not_found(directory):
    with pytest.raises(NotFoundError):
        directory.open("b")
    assert directory.stat("b") is None
    assert directory.stat("b" * 300) is None


def test_a_directory_stays_the_one_that_was_opened(directory, tmp_path):
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    tmp_path.mkdir()
    (tmp_path / "a").write_bytes(b"swapped in")
    assert directory.open("a").pread(0, 10) == b"0123456789"


@pytest.mark.parametrize("change", ["append", "replace", "remove"])
def test_a_change_under_an_open_file_is_noticed(directory, tmp_path, change):
    file = directory.open("a")
    assert not file.changed()
    if change == "append":
        with (tmp_path / "a").open("ab") as stream:
            stream.write(b"!")
    elif change == "replace":
        (tmp_path / "new").write_bytes(b"0123456789")
        (tmp_path / "new").replace(tmp_path / "a")
    else:
        (tmp_path / "a").unlink()
    assert file.changed()


def test_scan_gives_every_entry_once_whatever_its_name(directory, tmp_path):
    names = {"a", "[x]*?{}", "-rf", "sp ace", "new\nline", os.fsdecode(b"\xff\xfe"), "n" * 255}
    for name in names - {"a"}:
        (tmp_path / name).touch()
    assert sorted(entry.name for entry in directory.scan()) == sorted(names)


def test_two_scans_at_once_each_give_every_entry(directory, tmp_path):
    names = {"a", *(f"file-{number}" for number in range(5000))}  # more than one read of the system
    for name in names - {"a"}:
        (tmp_path / name).touch()
    outer, inner = directory.scan(), directory.scan()
    first = next(outer).name
    assert {entry.name for entry in inner} == names
    assert [first, *(entry.name for entry in outer)].count(first) == 1
    assert len({entry.name for entry in directory.scan()}) == len(names)


def test_a_scan_of_a_directory_that_was_removed_gives_nothing(tmp_path):
    (tmp_path / "gone").mkdir()
    with open_directory(str(tmp_path / "gone")) as directory:
        (tmp_path / "gone").rmdir()
        assert list(directory.scan()) == []


def test_a_file_is_the_same_from_another_working_directory(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_bytes(b"0123456789")
    monkeypatch.chdir(tmp_path)
    with open_directory("run") as directory:
        file = directory.open("a")
        monkeypatch.chdir("/")
        assert not file.changed()
        (tmp_path / "run" / "a").rename(tmp_path / "run" / "b")
        assert file.changed()
        file.close()


def test_a_file_system_without_hard_links_will_do(directory, tmp_path, monkeypatch):
    def no_links(*_args: object, **_options: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    with directory.create("b") as new:
        new.write(b"hello")
        new.commit()
    assert (tmp_path / "b").read_bytes() == b"hello"
    with pytest.raises(RefusedError), directory.create("c") as new:
        (tmp_path / "c").write_bytes(b"came meanwhile")
        new.commit()
    assert (tmp_path / "c").read_bytes() == b"came meanwhile"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_new_file_appears_at_commit_and_not_before(directory, tmp_path):
    with directory.create("b") as new:
        new.write(b"hello ")
        new.write(memoryview(b"there"))
        assert not (tmp_path / "b").exists()
        new.commit()
    assert (tmp_path / "b").read_bytes() == b"hello there"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_new_file_that_fails_leaves_nothing(directory, tmp_path):
    with pytest.raises(ZeroDivisionError), directory.create("b") as new:
        new.write(b"half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["a"]


def test_an_existing_name_is_refused_unless_overwritten(directory, tmp_path):
    with pytest.raises(RefusedError) as caught:
        directory.create("a")
    assert caught.value.id == "exists"
    with directory.create("a", overwrite=True) as new:
        new.write(b"new")
        new.commit()
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_name_taken_while_writing_is_refused_too(directory, tmp_path):
    with pytest.raises(RefusedError), directory.create("b") as new:
        new.write(b"mine")
        (tmp_path / "b").write_bytes(b"theirs")
        new.commit()
    assert (tmp_path / "b").read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, NoSpaceError),
        (errno.EDQUOT, NoSpaceError),
        (errno.EACCES, PermissionDeniedError),
        (errno.EROFS, PermissionDeniedError),
        (errno.ENOENT, NotFoundError),
        (errno.EIO, StorageError),
        (errno.ESTALE, StorageError),
    ],
)
def test_system_errors_become_ours(number: int, kind: type[CkpttoolError]):
    with pytest.raises(kind) as caught:
        raise_os_error(OSError(number, os.strerror(number)), "cannot read x")
    assert type(caught.value) is kind
    assert caught.value.why == os.strerror(number)
