"""``edit`` killed, out of space, unreadable; and on files that were made to do harm."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, NoSpaceError, RefusedError
from ckpttool.ops.edit.run import Edit, edit
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.verify import verify
from ckpttool.sources import v2
from ckpttool.storage import open_directory
from ckpttool.storage.lock import LOCK_NAME
from tests.support.faults import Faults, faulty
from tests.support.killing import killed_at_every_change

ASKED = Edit(strip_optimizer=True, renames=("s/regressor/net/",), cast="bfloat16")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def work(folder: Path, to: str, *, overwrite: bool = False) -> None:
    edit(str(folder / "in" / "ckpt-4"), str(folder / to), ASKED, Options(overwrite=overwrite))


@pytest.fixture
def prepare(fixtures_dir, tmp_path):
    """Makes a folder anew: a Keras 3 checkpoint in ``in``, and an empty ``out``."""

    def again() -> None:
        shutil.rmtree(tmp_path, ignore_errors=True)
        (tmp_path / "out").mkdir(parents=True)
        (tmp_path / "in").mkdir()
        for path in (fixtures_dir / "keras3").glob("ckpt-4.*"):
            shutil.copy(path, tmp_path / "in")

    again()
    return again


def test_killed_at_every_moment_the_result_is_absent_or_whole(prepare, tmp_path):
    before = files(tmp_path / "in")
    moments = 0
    for _ in killed_at_every_change(prepare, lambda: work(tmp_path, "out/new")):
        moments += 1
        assert files(tmp_path / "in") == before
        if (tmp_path / "out" / "new.index").exists():
            assert verify(str(tmp_path / "out" / "new")).healthy
        with contextlib.suppress(RefusedError):  # it was finished, or is by the second try
            work(tmp_path, "out/new")
        assert verify(str(tmp_path / "out" / "new")).healthy
        assert {name for name in files(tmp_path / "out") if name.startswith(".")} <= {LOCK_NAME}
    assert moments > 8


def test_killed_at_every_moment_in_place_it_is_old_or_new(prepare, tmp_path):
    """Absent for a moment; then the next command, whatever it is, puts the new one there."""
    old = files(tmp_path / "in")
    work(tmp_path, "out/ckpt-4")
    new = files(tmp_path / "out")
    for _ in killed_at_every_change(prepare, lambda: work(tmp_path, "in/ckpt-4", overwrite=True)):
        with contextlib.suppress(RefusedError):  # no-optimizer: it was done already
            work(tmp_path, "in/ckpt-4", overwrite=True)
        found = {name: data for name, data in files(tmp_path / "in").items() if name[0] != "."}
        assert found == {name: data for name, data in new.items() if name[0] != "."}
        assert found != old


def test_a_disk_that_is_full_at_the_nth_write(prepare, tmp_path, monkeypatch):
    writes = {name: getattr(os, name) for name in ("write", "copy_file_range")}
    left = refused = 0

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
                work(tmp_path, "out/new")
                break
            except NoSpaceError:
                refused += 1
        assert not [name for name in files(tmp_path / "out") if name.endswith(".index")]
        shutil.rmtree(tmp_path / "out")
        (tmp_path / "out").mkdir()
    assert refused > 5
    assert verify(str(tmp_path / "out" / "new")).healthy


@pytest.mark.parametrize("how", ["eio", "short"])
def test_the_nth_read_fails(prepare, tmp_path, monkeypatch, how):
    errors: list[CkpttoolError] = []
    for number in range(1, 200):
        faults = Faults(fail_at=number, how=how)
        with monkeypatch.context() as patch:
            patch.setattr(v2, "open_directory", functools.partial(_faulty_directory, faults))
            try:
                work(tmp_path, "out/new")
                break
            except CkpttoolError as error:
                errors.append(error)
        assert files(tmp_path / "out") == {}
    assert len(errors) > 5
    assert {error.exit_code for error in errors} == ({40} if how == "eio" else {20})
    assert verify(str(tmp_path / "out" / "new")).healthy


def _faulty_directory(faults: Faults, path: str):
    return faulty(open_directory(path), faults)


@pytest.mark.parametrize("number", range(4))
def test_hostile_files_give_errors(hostile, tmp_path, number):
    """Every crafted index: an error of ours or a healthy result, within bounded time."""
    asked = (
        Edit(renames=("s/^/x/",)),
        Edit(strip_optimizer=True, allow_unmatched=True),
        Edit(cast="float16", allow_unmatched=True),
        Edit(drop=("*1*",), promote_ema=False, allow_unmatched=True),
    )[number]
    tried = 0
    for index in sorted(hostile.rglob("*.index")):
        if index.stat().st_size > 2**20:
            continue
        tried += 1
        prefix = str(index).removesuffix(".index")
        with contextlib.suppress(CkpttoolError):
            edit(prefix, str(tmp_path / "d"), asked, Options(overwrite=True, dry_run=True))
    assert tried > 10


def test_bytes_flipped_in_an_object_graph(prepare, tmp_path):
    """The graph is needed to edit: its checksum is looked at, whether asked for or not."""
    data = tmp_path / "in" / "ckpt-4.data-00000-of-00001"
    whole = data.read_bytes()
    at = whole.index(b"VARIABLE_VALUE")
    for offset in range(at - 40, at + 200, 7):
        data.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x15]) + whole[offset + 1 :])
        with pytest.raises(CkpttoolError):
            work(tmp_path, "out/new")
        assert files(tmp_path / "out") == {}
