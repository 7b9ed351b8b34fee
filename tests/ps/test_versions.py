"""Versions of an export: what is removed, what never is, and what a killed removal leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ckpttool.conversion.report import SCHEMA
from ckpttool.ps.runtime.versions import VersionFolder
from ckpttool.storage import open_directory
from ckpttool.storage.lock import DirectoryLock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Versions 1 to 5 of an export, as they stand after as many exports."""
    path = tmp_path / "exports" / "mine"
    for number in range(1, 6):
        made(path, number)
    return path


def made(folder: Path, number: int, file: str = "model.npz") -> None:
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / file).write_bytes(b"x")
    report(folder, number)


def report(folder: Path, number: int) -> None:
    (folder / f"{number}.json").write_text(json.dumps({"schema": SCHEMA}))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def versions(folder: Path) -> list[int]:
    return sorted(int(name) for name in names(folder) if name.isdigit())


def test_the_oldest_go_with_their_reports(folder) -> None:
    assert VersionFolder(str(folder)).keep(2) == [1, 2, 3]
    assert names(folder) == ["4", "4.json", "5", "5.json"]


def test_fewer_than_may_stay_all_stay(folder) -> None:
    before = names(folder)
    assert VersionFolder(str(folder)).keep(5) == []
    assert VersionFolder(str(folder)).keep(6) == []
    assert names(folder) == before
    assert VersionFolder(str(folder.parent / "absent")).newest == 0


def test_what_has_no_report_of_ours_is_not_ours(folder) -> None:
    """It neither goes nor counts among those that stay."""
    (folder / "2.json").unlink()
    (folder / "3.json").write_text('{"schema": "somebody.else/1"}')
    (folder / "0").write_text("a file")
    (folder / "assets").mkdir()
    report(folder, 0)
    assert VersionFolder(str(folder)).keep(1) == [1, 4]
    assert names(folder) == ["0", "0.json", "2", "3", "3.json", "5", "5.json", "assets"]


@pytest.mark.parametrize(
    ("link", "target"),
    [("mine/current", "2"), ("stable", "mine/2"), ("mine/file", "2/model.npz")],
)
def test_what_a_link_leads_to_stays(folder, link, target) -> None:
    (folder.parent / link).symlink_to(target)
    assert VersionFolder(str(folder)).keep(1) == [1, 3, 4]
    assert versions(folder) == [2, 5]


def test_a_link_that_leads_nowhere_or_in_circles_holds_nothing(folder) -> None:
    (folder / "round").symlink_to("round")
    (folder / "lost").symlink_to("gone/7")
    assert VersionFolder(str(folder)).keep(4) == [1]


def test_a_version_that_is_a_link_is_not_ours(folder, tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "7").symlink_to(elsewhere)
    report(folder, 7)
    assert VersionFolder(str(folder)).keep(1) == [1, 2, 3, 4]
    assert versions(folder) == [5, 7]
    assert elsewhere.exists()
    assert VersionFolder(str(folder)).newest == 7


def test_the_reports_of_failed_exports_go_with_the_versions_around_them(folder) -> None:
    made(folder, 8)
    report(folder, 6)
    report(folder, 9)
    assert VersionFolder(str(folder)).keep(1) == [1, 2, 3, 4, 5]
    assert names(folder) == ["8", "8.json", "9.json"]


def test_what_a_killed_export_and_a_killed_removal_left_goes(folder) -> None:
    """Killed between its two renames, and in the middle of the removal."""
    (folder / "1").rename(folder / ".ckpttool-gone-1")
    (folder / ".ckpttool-6").mkdir()
    (folder / ".ckpttool-6" / "half").write_bytes(b"x")
    (folder / ".ckpttool-abc.tmp").write_bytes(b"x")
    versions_of = VersionFolder(str(folder))
    versions_of.make()
    assert names(folder) == sorted(
        ["1.json", *(f"{number}{end}" for number in (2, 3, 4, 5) for end in ("", ".json"))]
    )
    assert versions_of.keep(4) == []
    assert "1.json" not in names(folder)


def test_what_a_living_conversion_makes_there_stays(folder) -> None:
    """Somebody's own, into the same directory; and the lock that it holds meanwhile."""
    staging = folder / ".ckpttool-convert-1a2b3c"
    staging.mkdir()
    with (
        open_directory(str(staging)) as made_in,
        open_directory(str(folder)) as beside,
        DirectoryLock(made_in),
        DirectoryLock(beside),
    ):
        VersionFolder(str(folder)).tidy()
        assert {".ckpttool-convert-1a2b3c", ".ckpttool-lock"} <= {*names(folder)}
    VersionFolder(str(folder)).tidy()
    assert not [name for name in names(folder) if name.startswith(".")]


def test_the_newest_savedmodel(folder) -> None:
    assert VersionFolder(str(folder)).newest_savedmodel() is None
    made(folder, 10, "saved_model.pb")
    made(folder, 9, "saved_model.pb")
    made(folder, 11)
    assert VersionFolder(str(folder)).newest_savedmodel() == str(folder / "10")
