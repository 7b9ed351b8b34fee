"""Reads that fail, and files that change while they are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from ckpttool.errors import CkpttoolError, StorageError
from ckpttool.limits import Limits
from ckpttool.ops.verification.bundle import BundleReport, check_bundle
from ckpttool.storage import Directory, FileStat, open_directory
from ckpttool.storage.system import raise_os_error
from tests.faults.small import write_small
from tests.support.faults import Faults, faulty
from tests.support.handmade import EntryFields, write_bundle

LARGE = 3 * 2**20


def check(directory: Directory, jobs: int = 1) -> BundleReport:
    return check_bundle(directory, "m", level="deep", jobs=jobs, limits=Limits(), progress=None)


def write_large(folder: Path, seed: int = 0) -> None:
    """Three variables that each take several reads."""
    fields: EntryFields = {"dtype": 4, "shape": (LARGE,), "size": LARGE}
    entries: dict[bytes, EntryFields | bytes] = {
        name: {**fields, "offset": number * LARGE} for number, name in enumerate((b"a", b"b", b"c"))
    }
    write_bundle(folder, "m", entries, [bytes([seed]) * 3 * LARGE])


def attempt(folder: Path, faults: Faults) -> BundleReport | None:
    """The answer, or None where the storage failed so that there is none."""
    try:
        return check(faulty(open_directory(str(folder)), faults))
    except StorageError:
        return None


@pytest.mark.parametrize("how", ["eio", "short"])
@pytest.mark.parametrize("write", [write_small, write_large])
def test_whichever_read_fails_is_told(
    tmp_path: Path, write: Callable[[Path], object], how: Literal["eio", "short"]
) -> None:
    write(tmp_path)
    counting = Faults()
    check(faulty(open_directory(str(tmp_path)), counting))
    assert len(counting.reads) > 5
    for number, (path, _, _) in enumerate(counting.reads, 1):
        report = attempt(tmp_path, Faults(number, how))
        if report is None:
            assert how == "eio", number
            assert path.endswith(".index"), "only an index that cannot be read ends the work"
            continue
        if path.endswith(".index"):
            assert report.damaged, number
            continue
        # One bad read of a window of many variables is made good by reading them one by one.
        for finding in report.findings:
            assert finding.id in {"storage", "short-read"}
            assert path.rpartition("/")[2] in finding.message
            assert finding.object in {"a", "b", "c", "floats", "strings", "variants"} or "[" in (
                finding.object
            )
        if report.damaged:
            assert report.not_checked
            assert report.nbytes < os.path.getsize(path)


class Watched:
    """A directory that calls ``on_open`` before a file is opened."""

    def __init__(self, directory: Directory, on_open: Callable[[str], None]) -> None:
        self._directory = directory
        self._on_open = on_open

    def open(self, name: str) -> Any:
        self._on_open(name)
        return self._directory.open(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)


class Meddling(Faults):
    """Calls something before a certain read."""

    def __init__(self, at: int, do: Callable[[], object]) -> None:
        super().__init__()
        self._at = at
        self._do = do

    def before(self, path: str, offset: int, size: int) -> None:
        if path.endswith("00001") and offset >= self._at:
            self._at = 2**63
            self._do()
        super().before(path, offset, size)


def meddle(folder: Path, at: int, do: Callable[[], object]) -> BundleReport:
    """Check the checkpoint and do something before the data is read at ``at``."""
    return check(faulty(open_directory(str(folder)), Meddling(at, do)))


def shard(folder: Path) -> Path:
    return folder / "m.data-00000-of-00001"


def ids(report: BundleReport) -> list[tuple[str, str]]:
    return [(finding.severity, finding.id) for finding in report.findings]


def test_d15_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    write_large(tmp_path)
    report = meddle(tmp_path, LARGE, lambda: os.truncate(shard(tmp_path), LARGE + 5))
    assert report.damaged
    assert ids(report)[0] == ("error", "changed-while-reading")
    lost = [finding for finding in report.findings if finding.id == "short-read"]
    assert [finding.object for finding in lost] == ["b", "c"]
    assert (report.variables, report.nbytes) == (1, LARGE)


def test_d15_a_shard_replaced_by_the_same_bytes_is_read_once_more(tmp_path: Path) -> None:
    write_large(tmp_path)
    copy = tmp_path / "copy"
    shutil.copy(shard(tmp_path), copy)

    def replace() -> None:
        os.truncate(shard(tmp_path), LARGE)  # so that what is open does not match
        copy.replace(shard(tmp_path))

    report = meddle(tmp_path, LARGE, replace)
    assert ids(report) == [("warning", "changed-while-reading")]
    assert (report.damaged, report.nbytes) == (False, 3 * LARGE)


def test_d15_a_trainer_that_saves_over_the_checkpoint(tmp_path: Path) -> None:
    """New data, then a new index under the same names: all is checked once more."""
    write_large(tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    write_large(new, seed=9)

    def save() -> None:
        shutil.copyfile(shard(new), shard(tmp_path))  # in place: what is open changes
        (new / "m.index").replace(tmp_path / "m.index")

    report = meddle(tmp_path, LARGE, save)
    assert (report.damaged, report.findings, report.nbytes) == (False, (), 3 * LARGE)


def test_d15_a_trainer_caught_between_data_and_index(tmp_path: Path) -> None:
    write_large(tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    write_large(new, seed=9)
    report = meddle(tmp_path, LARGE, lambda: shard(new).replace(shard(tmp_path)))
    assert ids(report) == [("warning", "changed-while-reading")], "the old file stayed open"
    write_large(tmp_path)
    write_large(new, seed=9)
    report = meddle(tmp_path, 0, lambda: shutil.copyfile(shard(new), shard(tmp_path)))
    assert ids(report)[0] == ("error", "changed-while-reading")
    assert report.damaged


def test_d15_a_shard_replaced_after_it_was_looked_at(tmp_path: Path) -> None:
    write_large(tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    write_large(new, seed=9)

    def replace(name: str) -> None:
        if name == shard(tmp_path).name and shard(new).exists():
            shard(new).replace(shard(tmp_path))

    directory: Any = Watched(open_directory(str(tmp_path)), replace)
    assert ids(check(directory))[0] == ("error", "changed-while-reading")
    assert "changed-while-reading" not in dict(ids(check(directory))).values()


def test_a_shard_that_becomes_a_link_after_it_was_looked_at(tmp_path: Path) -> None:
    write_small(tmp_path)
    outside = tmp_path / "outside"
    shutil.copy(shard(tmp_path), outside)
    opened: list[str] = []

    def swap(name: str) -> None:
        opened.append(name)
        if opened.count(name) == 2:  # first for the object graph, then for the bytes
            shard(tmp_path).unlink()
            shard(tmp_path).symlink_to(outside)

    directory: Any = Watched(open_directory(str(tmp_path)), swap)
    report = check(directory)
    assert ids(report) == [("error", "unsafe-link")]
    assert report.nbytes == 0


@pytest.mark.parametrize("name", ["m.index", "m.data-00000-of-00001"])
def test_a_file_that_vanishes_before_it_is_opened(tmp_path: Path, name: str) -> None:
    write_small(tmp_path)

    def remove(wanted: str) -> None:
        if wanted == name:
            (tmp_path / name).unlink(missing_ok=True)

    directory: Any = Watched(open_directory(str(tmp_path)), remove)
    report = check(directory)
    assert report.damaged
    assert ids(report)[0] == ("error", "index-missing" if name == "m.index" else "not-found")


@pytest.mark.parametrize("number", ["ESTALE", "EIO", "ENOTCONN"])
def test_a_network_disk_that_loses_its_server(tmp_path: Path, number: str) -> None:
    import errno

    write_small(tmp_path)
    code = getattr(errno, number)

    class Lost(Watched):
        def scan(self) -> list[FileStat]:
            raise_os_error(OSError(code, os.strerror(code)), f"cannot list {tmp_path}")

    directory: Any = Lost(open_directory(str(tmp_path)), lambda _: None)
    with pytest.raises(StorageError) as caught:
        check(directory)
    assert (caught.value.exit_code, caught.value.id) == (40, "storage")
    assert isinstance(caught.value, CkpttoolError)
    assert caught.value.why


def test_an_error_of_a_thread_is_raised_and_ends_the_work(tmp_path: Path) -> None:
    write_large(tmp_path)

    class Broken(Faults):
        def before(self, path: str, offset: int, size: int) -> None:
            if offset > LARGE:
                raise RuntimeError(f"a bug in {path} of {size}")

    with pytest.raises(RuntimeError, match="a bug"):
        check(faulty(open_directory(str(tmp_path)), Broken()), jobs=3)
