"""``--log``: messages are added to a log of ours, and to nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.child import last_lines
from ckpttool.conversion.log_file import FIRST_LINE
from ckpttool.conversion.request import CheckSettings, Request
from ckpttool.errors import CkpttoolError, ConversionError
from ckpttool.ops.convert import convert
from ckpttool.ops.convert_child import kept_log

MODEL = "fixtures/mlp-v1"


class _Started(Exception):
    """A child would be started."""


def _start(task: str, job: Mapping[str, object], **rest: Any) -> dict[str, Any]:
    raise _Started


def asked(folder: Path, log: str, **more: Any) -> Request:
    check = CheckSettings(report=str(folder / "report.json"))
    request = Request(MODEL, str(folder / "m.onnx"), "onnx", log=str(folder / log), check=check)
    return replace(request, **more)


@pytest.mark.parametrize("only", [False, True], ids=["convert", "check-only"])
@pytest.mark.parametrize(
    ("log", "id", "said"),
    [
        ("notes.txt", "log-other", "is no log of ckpttool"),
        ("data.npz", "log-other", "is no log of ckpttool"),
        ("folder", "output-not-a-file", "it is no regular file"),
        ("folder/", "output-not-a-file", "it is no regular file"),
        ("absent/log", "destination-directory", "there is no directory"),
        ("notes.txt/log", "destination-directory", "is no directory"),
        ("m.onnx", "output-not-a-file", "the result itself"),
        ("link.onnx", "output-not-a-file", "the result itself"),
        ("m.onnx.data", "output-not-a-file", "another file of the result"),
        ("report.json", "output-not-a-file", "another file of the result"),
    ],
)
def test_a_log_that_has_no_place(log: str, id: str, said: str, only: bool, tmp_path: Path) -> None:
    """It is refused before a child is started, and nothing is changed."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "link.onnx").symlink_to("m.onnx")
    if only:
        (tmp_path / "m.onnx").write_bytes(b"a model")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.exists()}
    check = CheckSettings(report=str(tmp_path / "report.json"), only=only)
    with pytest.raises(CkpttoolError) as caught:
        convert(asked(tmp_path, log, check=check), run=_start)
    assert caught.value.id == id
    assert said in f"{caught.value} {caught.value.why}"
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_log_is_continued_and_known_again(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for log in ("new", "empty"):
        for run in ("one", "two"):
            with pytest.raises(_Started):
                convert(asked(tmp_path, log), run=_start)
            with (tmp_path / log).open("a") as file:
                file.write(f"{run}\n")
        assert (tmp_path / log).read_text() == f"{FIRST_LINE}\none\ntwo\n"
        assert last_lines(str(tmp_path / log)) == ["one", "two"]


def test_the_first_line_is_not_what_a_child_said(tmp_path: Path) -> None:
    lines: list[str] = []
    with (
        pytest.raises(ConversionError),
        kept_log(str(tmp_path / "log"), lines.append),
    ):
        raise ConversionError("it failed", why="of this")
    assert lines == []
