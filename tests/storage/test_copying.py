"""Ranges of files, copied in whichever way, are the bytes of the source."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import IncompleteError
from ckpttool.storage import open_directory
from ckpttool.storage.copying import copy_range

SIZE = 3 * 2**20
PAGE = 4096
#: A range that begins in one place of a page, and is written to another.
PLACES = [(0, 0), (PAGE, 0), (100, 100), (0, 8), (8, 0), (5, 2 * PAGE)]


@pytest.fixture(scope="module")
def data() -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in range(SIZE // 4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> Path:
    path = tmp_path_factory.mktemp("copying")
    (path / "source").write_bytes(data)
    return path


def copied(folder: Path, to: Path, offset: int, size: int, begun: int) -> bytes:
    """A range of the source behind so many bytes, as it stands in the new file."""

    def write(part: bytes) -> None:
        file.write(part)

    with to.open("wb", buffering=0) as file, open_directory(str(folder)) as directory:
        file.write(b"x" * begun)
        source = directory.open("source")
        try:
            copy_range(source, offset, size, file.fileno(), write)
        finally:
            source.close()
        assert file.tell() == begun + size
    return to.read_bytes()[begun:]


@pytest.mark.parametrize(("offset", "begun"), PLACES)
@pytest.mark.parametrize("size", [0, 1, PAGE, 2**20 - 1, 2**20, 2 * 2**20 + 77])
def test_any_place_in_a_page(
    folder: Path, data: bytes, tmp_path: Path, offset: int, begun: int, size: int
) -> None:
    found = copied(folder, tmp_path / "new", offset, size, begun)
    assert found == data[offset : offset + size]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_range(
    folder: Path, data: bytes, tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    offset = draw.draw(st.integers(0, SIZE))
    size = draw.draw(st.integers(0, SIZE - offset))
    begun = draw.draw(st.one_of(st.integers(0, 3 * PAGE), st.just(offset % PAGE)))
    to = tmp_path_factory.getbasetemp() / "any"
    assert copied(folder, to, offset, size, begun) == data[offset : offset + size]


@pytest.mark.parametrize("missing", ["splice", "copy_file_range", "both", "large pipes"])
def test_what_a_kernel_does_not_have(
    folder: Path, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in ("splice", "copy_file_range"):
        if missing in {name, "both"}:
            monkeypatch.delattr(os, name)
    if missing == "large pipes":
        monkeypatch.setattr("ckpttool.storage.copying._SET_PIPE_SIZE", 2**20)
    for offset, begun in PLACES:
        found = copied(folder, tmp_path / "new", offset, 2 * 2**20, begun)
        assert found == data[offset : offset + 2 * 2**20]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_kernel_that_gives_up_in_the_middle(
    folder: Path, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What is still in the pipe is read again."""
    real, calls = os.splice, iter(range(99))

    def splice(*args: int, **named: int) -> int:
        if next(calls) == 3:
            raise OSError(code, os.strerror(code))
        return real(*args, **named)

    monkeypatch.setattr(os, "splice", splice)
    assert copied(folder, tmp_path / "new", 0, SIZE, 0) == data


def test_other_errors_are_raised(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: int, **named: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "splice", full)
    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space left"):
        copied(folder, tmp_path / "new", 0, SIZE, 0)


@pytest.mark.parametrize("begun", [0, 8])
def test_a_source_that_ends_early(folder: Path, tmp_path: Path, begun: int) -> None:
    with pytest.raises(IncompleteError) as error:
        copied(folder, tmp_path / "new", PAGE, SIZE, begun)
    assert error.value.id == "short-read"
    assert (tmp_path / "new").stat().st_size <= begun + SIZE - PAGE
