from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpttool.limits import Limits
from ckpttool.sources.run import read_run
from ckpttool.sources.whole import Candidate, flaws, newest_first, newest_whole
from ckpttool.storage import open_directory
from tests.support.handmade import EntryFields, header, slice_key, write_bundle
from tests.support.saved import save, write_state


def wrong(directory: Path, prefix: str) -> list[str]:
    with open_directory(str(directory)) as opened:
        return [str(flaw) for flaw in flaws(opened, prefix, Limits())]


def order(directory: Path) -> list[str]:
    with open_directory(str(directory)) as opened:
        return [item.prefix for item in newest_first(read_run(opened, Limits()))]


def newest(directory: Path) -> tuple[str | None, list[str]]:
    with open_directory(str(directory)) as opened:
        run = read_run(opened, Limits())
        found, passed = newest_whole(run, opened, Limits())
    where = found.path(run.path) if found else None
    return where, [f"{item.prefix}: {flaw}" for item, flaw in passed]


def test_whole(tmp_path: Path) -> None:
    save(tmp_path, "m", shards=3, step=7)
    assert wrong(tmp_path, "m") == []


def test_a_missing_shard(tmp_path: Path) -> None:
    save(tmp_path, "m", shards=3)
    (tmp_path / "m.data-00001-of-00003").unlink()
    assert wrong(tmp_path, "m") == ["m.data-00001-of-00003 is missing"]


def test_a_short_shard(tmp_path: Path) -> None:
    save(tmp_path, "m")
    os.truncate(tmp_path / "m.data-00000-of-00001", 7)
    assert wrong(tmp_path, "m") == ["m.data-00000-of-00001 has 7 bytes of at least 8"]


def test_a_longer_shard_and_unused_shards_do_no_harm(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {b"w": {"shape": (1,), "size": 4}}
    write_bundle(tmp_path, "m", entries, [b"abcd and more"], head=header(2))
    (tmp_path / "m.data-00000-of-00001").rename(tmp_path / "m.data-00000-of-00002")
    assert wrong(tmp_path, "m") == []


def test_an_empty_variable_needs_its_shard(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {b"w": {"shape": (0,)}}, [b""])
    assert wrong(tmp_path, "m") == []
    (tmp_path / "m.data-00000-of-00001").unlink()
    assert wrong(tmp_path, "m") == ["m.data-00000-of-00001 is missing"]


def test_a_partitioned_variable_lies_where_its_slices_lie(tmp_path: Path) -> None:
    dims = [(0, 2)], [(2, 2)]
    entries: dict[bytes, EntryFields | bytes] = {
        b"w": {"shape": (4,), "shard": 9, "offset": 1000, "slices": dims},
        slice_key(b"w", dims[0]): {"shape": (2,), "size": 8},
        slice_key(b"w", dims[1]): {"shape": (2,), "size": 8, "shard": 1},
    }
    write_bundle(tmp_path, "m", entries, [b"x" * 8, b"y" * 8])
    assert wrong(tmp_path, "m") == []
    os.truncate(tmp_path / "m.data-00001-of-00002", 0)
    assert wrong(tmp_path, "m") == ["m.data-00001-of-00002 has 0 bytes of at least 8"]


def test_a_shard_that_is_something_else(tmp_path: Path) -> None:
    save(tmp_path, "m", shards=4)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 8\n"
    entries: dict[bytes, EntryFields | bytes] = {b"w": {"shape": (250,), "size": 1000}}
    write_bundle(tmp_path, "lfs", entries, [b"x" * 1000])
    (tmp_path / "lfs.data-00000-of-00001").write_bytes(pointer)
    assert wrong(tmp_path, "lfs") == ["lfs.data-00000-of-00001 is a Git-LFS pointer"]
    link, pipe, folder = (tmp_path / f"m.data-{shard:05d}-of-00004" for shard in (1, 2, 3))
    for path in (link, pipe, folder):
        path.unlink()
    link.symlink_to("m.data-00000-of-00004")
    os.mkfifo(pipe)
    folder.mkdir()
    assert wrong(tmp_path, "m") == [
        "m.data-00001-of-00004 is a symbolic link",
        "m.data-00002-of-00004 is not a regular file",
        "m.data-00003-of-00004 is not a regular file",
    ]


def test_an_index_that_cannot_be_read(tmp_path: Path) -> None:
    save(tmp_path, "m")
    index = tmp_path / "m.index"
    index.write_bytes(index.read_bytes()[:-9])
    assert wrong(tmp_path, "m")[0].startswith("m.index ")
    index.write_bytes(b"<!doctype html>")
    assert wrong(tmp_path, "m")[0].startswith("m.index is an HTML page")
    index.unlink()
    assert wrong(tmp_path, "m")[0].startswith("m.index ")
    index.symlink_to("m.index")
    assert "symbolic link" in wrong(tmp_path, "m")[0] or "points to" in wrong(tmp_path, "m")[0]


def test_flaws_are_bounded(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"w%05d" % shard: {"shape": (1,), "size": 4, "shard": shard} for shard in range(5000)
    }
    write_bundle(tmp_path, "m", entries, [b"x" * 4], head=header(5000))
    assert len(wrong(tmp_path, "m")) == 20


# The newest ---------------------------------------------------------------------------


def test_order_latest_then_list_then_number(tmp_path: Path) -> None:
    for prefix in ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-9", "ckpt-10", "last"]:
        save(tmp_path, prefix, when=1000)
    write_state(tmp_path, "ckpt-2", ["ckpt-1", "ckpt-3", "ckpt-2"])
    assert order(tmp_path) == ["ckpt-2", "ckpt-3", "ckpt-1", "ckpt-10", "ckpt-9", "last"]


def test_order_without_state_file(tmp_path: Path) -> None:
    save(tmp_path, "a-5", when=1)
    save(tmp_path, "b-5", when=2)
    save(tmp_path, "a-40", when=0)
    assert order(tmp_path) == ["a-40", "b-5", "a-5"]


def test_the_newest_whole_one(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save(tmp_path, f"ckpt-{number}")
    write_state(tmp_path, "ckpt-3", ["ckpt-1", "ckpt-2", "ckpt-3"])
    (tmp_path / "ckpt-3.data-00000-of-00001").unlink()
    os.truncate(tmp_path / "ckpt-2.index", 20)
    found, passed = newest(tmp_path)
    assert found == str(tmp_path / "ckpt-1")
    assert passed[0] == "ckpt-3: ckpt-3.data-00000-of-00001 is missing"
    assert passed[1].startswith("ckpt-2: ckpt-2.index ")


def test_none_is_whole(tmp_path: Path) -> None:
    save(tmp_path, "ckpt-1")
    (tmp_path / "ckpt-1.data-00000-of-00001").unlink()
    assert newest(tmp_path)[0] is None


def test_one_in_another_directory(tmp_path: Path) -> None:
    save(tmp_path / "other", "ckpt-1")
    write_state(tmp_path / "run", "../other/ckpt-1")
    with open_directory(str(tmp_path / "run")) as opened:
        (candidate,) = newest_first(read_run(opened, Limits()))
    assert candidate == Candidate("ckpt-1", str(tmp_path / "run" / ".." / "other"))
    assert newest(tmp_path / "run")[0] == str(tmp_path / "run" / ".." / "other" / "ckpt-1")


def test_damage_in_the_corpus(corpus: Path) -> None:
    damaged = corpus / "derived-damaged-iris"
    expected = {
        "bitflip-data": [],  # only a checksum tells, and no data is read
        "crlf-index": ["model.ckpt.index"],
        "index-only": ["model.ckpt.data-00000-of-00002", "model.ckpt.data-00001-of-00002"],
        "missing-shard0": ["model.ckpt.data-00000-of-00002"],
        "no-index": ["model.ckpt.index"],
        "truncated-data": ["model.ckpt.data-00001-of-00002"],
        "truncated-index": ["model.ckpt.index"],
        "zero-byte-data": ["model.ckpt.data-00001-of-00002"],
        "zero-byte-index": ["model.ckpt.index"],
    }
    found = {}
    for name in expected:
        with open_directory(str(damaged / name)) as opened:
            found[name] = [flaw.name for flaw in flaws(opened, "model.ckpt", Limits())]
    assert found == expected


@pytest.mark.parametrize("name", ["obj-iris-2shard", "v2-widedeep-5steps", "v2-taxi-2shard-tf1x"])
def test_whole_ones_of_the_corpus(corpus: Path, name: str) -> None:
    assert newest(corpus / name)[1] == []
