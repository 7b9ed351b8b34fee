"""Files that appear together: killed at any durable state, a rerun ends as if nothing was."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from ckpttool.errors import (
    CkpttoolError,
    CorruptError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
)
from ckpttool.storage import open_directory
from ckpttool.storage.fileset import COMMIT_JOURNAL, NEW_PREFIX, FileSet, finish_interrupted
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import LocalNewFile

OLD = {"m.index": b"old index", "m.data-0": b"old data", "m.data-1": b"old stale"}
NEW = {"m.data-0": b"new data", "m.index": b"new index"}
STRANGER = {"other.index": b"not ours", "notes.txt": b"mine"}


def ours(name: str) -> bool:
    return name.startswith("m.")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lay(folder: Path, *contents: dict[str, bytes]) -> None:
    for content in contents:
        for name, data in content.items():
            (folder / name).write_bytes(data)


def replace_all(directory: LocalDirectory, *, overwrite: bool = True) -> None:
    with FileSet(directory, overwrite=overwrite) as new:
        for name, data in NEW.items():
            with new.create(name) as file:
                file.write(data)
                file.commit()
        new.commit("m.index", remove=["m.data-1"])


class Killed(BaseException):
    """Stands for kill -9: nothing after it runs."""


class Mortal(LocalDirectory):
    """Dies before its n-th change of the disk; then no clean-up of the same process runs."""

    def __init__(self, path: str, lives: int) -> None:
        with open_directory(path) as other:
            super().__init__(path, os.dup(other.descriptor))
        self.lives = lives
        self.dead = False

    def _live(self) -> None:
        self.lives -= 1
        if self.lives < 0 or self.dead:
            self.dead = True
            raise Killed

    def create(self, name, **options):
        self._live()
        return super().create(name, **options)

    def remove(self, expected):
        self._live()
        super().remove(expected)

    def move(self, expected, destination, name):
        self._live()
        super().move(expected, destination, name)

    def sync(self):
        self._live()
        super().sync()


def test_new_files_take_the_place_of_old_ones(tmp_path):
    lay(tmp_path, OLD, STRANGER)
    with open_directory(str(tmp_path)) as directory:
        replace_all(directory)
    assert files(tmp_path) == NEW | STRANGER


def test_a_taken_name_is_refused_and_nothing_changes(tmp_path):
    lay(tmp_path, {"m.data-0": b"theirs"})
    with open_directory(str(tmp_path)) as directory, pytest.raises(RefusedError):
        replace_all(directory, overwrite=False)
    assert files(tmp_path) == {"m.data-0": b"theirs"}


def test_a_name_taken_while_writing_is_refused_at_commit(tmp_path):
    with (
        open_directory(str(tmp_path)) as directory,
        pytest.raises(RefusedError),
        FileSet(directory) as new,
    ):
        with new.create("m.index") as file:
            file.write(b"mine")
            file.commit()
        lay(tmp_path, {"m.index": b"theirs"})
        new.commit("m.index")
    assert files(tmp_path) == {"m.index": b"theirs"}


def test_a_name_that_is_too_long_leaves_no_journal(tmp_path):
    """Found when files get their names, it would keep every later write from this directory."""
    name = "m." + "n" * 254
    with (
        open_directory(tmp_path) as directory,
        FileSet(directory) as new,
        pytest.raises(NotFoundError),
    ):
        new.create(name)
    assert files(tmp_path) == {}
    with open_directory(tmp_path) as directory:
        replace_all(directory)
    assert files(tmp_path) == NEW


@pytest.mark.parametrize("name", ["m.index", "m.data-0"])
def test_a_commit_that_cannot_begin_is_taken_back(tmp_path, name):
    """What stands in the way cannot be removed, so that nobody could carry the journal out."""
    lay(tmp_path, STRANGER)
    (tmp_path / name).mkdir()
    (tmp_path / name / "inside").write_bytes(b"")
    with open_directory(tmp_path) as directory, pytest.raises(CkpttoolError):
        replace_all(directory)
    (tmp_path / name / "inside").unlink()
    (tmp_path / name).rmdir()
    assert files(tmp_path) == STRANGER
    with open_directory(tmp_path) as directory:
        replace_all(directory)
    assert files(tmp_path) == STRANGER | NEW


def test_a_commit_that_has_begun_is_left_to_the_next(tmp_path):
    lay(tmp_path, {"m.index": b"old index"})
    (tmp_path / "m.data-0").mkdir()
    with open_directory(tmp_path) as directory, pytest.raises(CkpttoolError):
        replace_all(directory)
    assert not (tmp_path / "m.index").exists()
    (tmp_path / "m.data-0").rmdir()
    with open_directory(tmp_path) as directory:
        assert finish_interrupted(directory, ours)
    assert files(tmp_path) == NEW


def test_a_name_taken_since_the_journal_is_told_with_what_to_do(tmp_path):
    """``--overwrite`` would not help: the journal decided what may be replaced."""
    for lives in range(40):
        lay(tmp_path, {"m.index": b"old index"})
        with Mortal(str(tmp_path), lives) as directory, suppress(Killed):
            replace_all(directory)
        if (tmp_path / COMMIT_JOURNAL).exists() and not (tmp_path / "m.data-0").exists():
            break
        for path in tmp_path.iterdir():
            path.unlink()
    else:
        pytest.fail("no moment has a journal and a free name")
    lay(tmp_path, {"m.data-0": b"theirs"})
    before = files(tmp_path)
    with open_directory(tmp_path) as directory:
        with pytest.raises(CorruptError) as caught:
            finish_interrupted(directory, ours)
        assert (caught.value.id, "m.data-0" in caught.value.why) == ("commit-journal", True)
        assert files(tmp_path) == before
        (tmp_path / "m.data-0").unlink()
        assert finish_interrupted(directory, ours)
    assert files(tmp_path) == NEW


def test_leaving_without_commit_drops_what_was_written(tmp_path):
    with (
        open_directory(str(tmp_path)) as directory,
        pytest.raises(NoSpaceError),
        FileSet(directory) as new,
    ):
        with new.create("m.data-0") as file:
            file.write(b"half")
            file.commit()
        with new.create("m.index") as file:
            raise NoSpaceError("no space")
    assert files(tmp_path) == {}


def test_killed_at_any_moment_a_rerun_ends_whole(tmp_path):
    """For every n: die before the n-th change; look; recover; run again; look."""
    outcomes = set()
    for lives in range(200):
        folder = tmp_path / str(lives)
        folder.mkdir()
        lay(folder, OLD, STRANGER)
        mortal = Mortal(str(folder), lives)
        try:
            replace_all(mortal)
            survived = True
        except Killed:
            survived = False
        mortal.close()
        left = files(folder)
        assert left.items() >= STRANGER.items()
        if "m.index" in left:  # what looks whole is whole
            whole = NEW if left["m.index"] == NEW["m.index"] else OLD
            assert left.items() >= whole.items(), lives
        with open_directory(str(folder)) as directory:
            finished = finish_interrupted(directory, ours)
            outcomes.add((survived, finished))
            expected = NEW if finished or survived or "m.data-1" not in left else OLD
            assert files(folder) == expected | STRANGER, lives
            replace_all(directory)
        assert files(folder) == NEW | STRANGER, lives
        if survived:
            break
    assert survived, "the loop has to reach the end"
    assert outcomes == {(False, False), (False, True), (True, False)}


@pytest.mark.parametrize(
    "journal",
    [
        b"",
        b"not json",
        b"[]",
        b'{"schema": "ckpttool.commit/1"}',
        b"[" * 100_000,
        {"move": [[f"{NEW_PREFIX}1", "notes.txt"]], "remove": [], "replace": []},
        {"move": [["notes.txt", "m.index"]], "remove": [], "replace": []},
        {"move": [[f"{NEW_PREFIX}/../x", "m.index"]], "remove": [], "replace": []},
        {"move": [[f"{NEW_PREFIX}1", "m.index"]], "remove": ["notes.txt"], "replace": []},
        {"move": [], "remove": ["m.index"], "replace": []},
        {"move": [[1, "m.index"]], "remove": [], "replace": []},
    ],
)
def test_a_journal_that_is_not_ours_moves_nothing(tmp_path, journal):
    lay(tmp_path, OLD, STRANGER, {f"{NEW_PREFIX}1": b"new"})
    if isinstance(journal, dict):
        journal = json.dumps({"schema": "ckpttool.commit/1", **journal}).encode()
    (tmp_path / COMMIT_JOURNAL).write_bytes(journal)
    before = files(tmp_path)
    with open_directory(str(tmp_path)) as directory, pytest.raises(CorruptError) as caught:
        finish_interrupted(directory, ours)
    assert caught.value.id == "commit-journal"
    assert files(tmp_path) == before


def test_what_a_killed_writer_left_half_written_is_removed(tmp_path):
    lay(tmp_path, OLD, {f"{NEW_PREFIX}abc-0": b"x", f"{NEW_PREFIX}abc-1~": b"y"})
    with open_directory(str(tmp_path)) as directory:
        assert not finish_interrupted(directory, ours)
    assert files(tmp_path) == OLD


class InterruptedFile(LocalNewFile):
    """Is interrupted just after it has its name: by a signal, or a disk that fails."""

    def commit(self) -> None:
        super().commit()
        raise KeyboardInterrupt


class Interrupted(LocalDirectory):
    """One whose journal is such a file."""

    def create(self, name, **options):
        if name == COMMIT_JOURNAL:
            return InterruptedFile(self, name, overwrite=False, expected=None)
        return super().create(name, **options)


def test_a_journal_does_not_outlive_the_files_that_it_speaks_of(tmp_path):
    lay(tmp_path, OLD, STRANGER)
    with open_directory(str(tmp_path)) as opened:
        directory = Interrupted(str(tmp_path), os.dup(opened.descriptor))
    with pytest.raises(KeyboardInterrupt):
        replace_all(directory)
    assert not finish_interrupted(directory, ours)
    directory.close()
    assert files(tmp_path) == OLD | STRANGER


def test_a_file_that_was_made_and_never_entered_goes(tmp_path):
    """As where a signal comes between the making of a file and its ``with`` block."""
    with (
        open_directory(str(tmp_path)) as directory,
        pytest.raises(KeyboardInterrupt),
        FileSet(directory) as made,
    ):
        made.create("m.index")
        assert len(os.listdir(tmp_path)) == 1
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
