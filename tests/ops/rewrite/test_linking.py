"""``--link``: data files that stay as they are become one file under two names."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from ckpttool.errors import CorruptError
from ckpttool.ops.copy import copy_checkpoint
from ckpttool.ops.merge import merge
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.verify import verify
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.system import raise_os_error
from tests.support.handmade import masked_crc, write_bundle

LINK = Options(link=True, verify=True)


@pytest.fixture
def pieces(tmp_path: Path) -> list[str]:
    """Two checkpoints of two data files each, with other variables."""
    made = []
    for letter in "ab":
        folder = tmp_path / letter
        folder.mkdir()
        contents = [f"{letter}{shard}".encode() * 8 for shard in range(2)]
        entries = {
            f"{letter}/v{shard}".encode(): {
                "shape": (4,),
                "size": 16,
                "shard": shard,
                "crc": masked_crc(contents[shard]),
            }
            for shard in range(2)
        }
        write_bundle(folder, "m", entries, contents)  # type: ignore[arg-type]
        made.append(str(folder / "m"))
    return made


def inodes(prefix: str, count: int) -> list[int]:
    return [os.stat(f"{prefix}.data-{n:05d}-of-{count:05d}").st_ino for n in range(count)]


@pytest.mark.parametrize("check", [False, True])
def test_whole_pieces_are_linked(pieces, tmp_path, check):
    to = str(tmp_path / "whole")
    options = Options(link=True, check=check, verify=True)
    result = merge(pieces, to, "error", (), options)
    assert inodes(to, 4) == inodes(pieces[0], 2) + inodes(pieces[1], 2)
    assert result.warnings == ()
    assert verify(pieces[0]).healthy
    again = str(tmp_path / "again")
    repartition([to], again, Repartition(), options)
    assert inodes(again, 4) == inodes(to, 4)


def test_a_data_file_that_changes_is_copied(pieces, tmp_path):
    to = str(tmp_path / "m")
    repartition([pieces[0]], to, Repartition(slices=("a/v1=axis0:2",)), LINK)
    one, other = inodes(to, 2)
    assert one == inodes(pieces[0], 2)[0]
    assert other != inodes(pieces[0], 2)[1]
    result = repartition([pieces[0]], str(tmp_path / "n"), Repartition(shards=1), LINK)
    assert any("all was copied" in warning for warning in result.warnings)


def test_a_file_with_more_in_it_than_entries_is_copied(pieces, tmp_path):
    with open(f"{pieces[0]}.data-00001-of-00002", "ab") as data:
        data.write(b"more")
    repartition([pieces[0]], str(tmp_path / "m"), Repartition(), LINK)
    assert os.path.getsize(tmp_path / "m.data-00001-of-00002") == 16


def test_a_linked_file_is_checked_too(pieces, tmp_path):
    path = Path(f"{pieces[0]}.data-00001-of-00002")
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(CorruptError) as caught:
        merge(pieces, str(tmp_path / "m"), "error", (), Options(link=True, check=True))
    assert caught.value.id == "checksum-mismatch"
    assert not list(tmp_path.glob("m.*"))


def test_a_copy_of_links_outlives_what_it_was_made_of(pieces, tmp_path):
    to = str(tmp_path / "m")
    copy_checkpoint(pieces[0], to, LINK)
    assert inodes(to, 2) == inodes(pieces[0], 2)
    # Whoever writes the source anew replaces its files, and the copy stays.
    repartition([pieces[0]], pieces[0], Repartition(shards=1), Options(overwrite=True))
    assert verify(to).healthy
    shutil.rmtree(tmp_path / "a")
    assert verify(to).healthy


def test_where_there_are_no_links_it_is_copied(pieces, tmp_path, monkeypatch):
    def refuse(self: LocalDirectory, *_: object) -> None:
        raise_os_error(OSError(errno.EPERM, os.strerror(errno.EPERM)), "cannot link")

    monkeypatch.setattr(LocalDirectory, "link", refuse)
    result = merge(pieces, str(tmp_path / "m"), "error", (), LINK)
    assert any("all was copied" in warning for warning in result.warnings)
    copy_checkpoint(pieces[0], str(tmp_path / "n"), LINK)
    assert verify(str(tmp_path / "n")).healthy
