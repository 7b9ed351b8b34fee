"""``run/@*``: which checkpoints it stands for, in which order, and what gives way to what."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, NotFoundError, UsageError
from ckpttool.limits import Limits
from ckpttool.sources.address import resolve
from ckpttool.sources.series import Series, series_of
from tests.support.handmade import EntryFields, write_bundle


def save(directory: Path, prefix: str, step: int | None = None) -> Path:
    """A checkpoint of one variable, and maybe a step."""
    entries: dict[bytes, EntryFields | bytes] = {b"w": {"dtype": 1, "shape": (), "size": 4}}
    data = bytes(4)
    if step is not None:
        entries[b"global_step"] = {"dtype": 9, "shape": (), "offset": 4, "size": 8}
        data += struct.pack("<q", step)
    directory.mkdir(exist_ok=True)
    return write_bundle(directory, prefix, entries, [data])


def series(address: str | Path) -> Series:
    found = series_of(str(address), Limits())
    assert found is not None
    return found


def test_every_whole_checkpoint_by_its_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save(run, "b-1", 300)
    save(run, "a-20", 100)
    save(run, "a-200")
    save(run, "best")
    broken = save(run, "a-50", 50)
    os.remove(f"{broken}.data-00000-of-00001")
    found = series(f"{run}/@*")
    assert found.directory == str(run)
    assert [(os.path.basename(member.address), member.step) for member in found.members] == [
        ("best", None),
        ("a-20", 100),
        ("a-200", 200),
        ("b-1", 300),
    ]
    ((prefix, why),) = found.passed_over
    assert prefix == str(broken)
    assert "missing" in why


def test_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, "a-1")
    monkeypatch.chdir(tmp_path)
    assert [member.address for member in series("@*").members] == ["a-1"]
    assert [member.address for member in series("./@*").members] == ["a-1"]


def test_what_is_no_series(tmp_path: Path) -> None:
    save(tmp_path, "a-1")
    for address in (f"{tmp_path}/@1", f"{tmp_path}/@latest", f"{tmp_path}/a*", f"{tmp_path}/*", ""):
        assert series_of(address, Limits()) is None


@pytest.mark.parametrize("what", ["directory", "checkpoint"])
def test_what_literally_exists_wins(tmp_path: Path, what: str) -> None:
    save(tmp_path, "a-1")
    if what == "directory":
        save(tmp_path / "@*", "inner-7")
    else:
        save(tmp_path, "@*")
    address = f"{tmp_path}/@*"
    assert series_of(address, Limits()) is None
    expected = "@*/inner-7" if what == "directory" else "@*"
    assert resolve(address).location == f"{tmp_path}/{expected}"


def test_only_the_last_part_is_a_pattern(tmp_path: Path) -> None:
    save(tmp_path / "run*", "a-1")
    save(tmp_path / "run2", "b-1")
    (member,) = series(f"{tmp_path}/run*/@*").members
    assert member.address == f"{tmp_path}/run*/a-1"


def test_where_one_source_is_wanted_it_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "a-1")
    with pytest.raises(UsageError) as caught:
        resolve(f"{tmp_path}/@*")
    assert caught.value.id == "address-of-series"
    assert f"{tmp_path}/@latest" in caught.value.hint


def test_nothing_to_be_found(tmp_path: Path, fixtures_dir: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        series(tmp_path / "missing/@*")
    assert caught.value.exit_code == 10
    with pytest.raises(NotFoundError) as caught:
        series(tmp_path / "@*")
    assert caught.value.id == "no-checkpoint"
    shutil.copytree(fixtures_dir / "damaged/missing-shard", tmp_path / "run")
    with pytest.raises(NotFoundError) as caught:
        series(tmp_path / "run/@*")
    assert caught.value.id == "no-whole-checkpoint"
    assert "missing" in caught.value.why
    (tmp_path / "other").mkdir()
    (tmp_path / "other/model.pth").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(CkpttoolError):
        series(tmp_path / "other/@*")
