"""Where a result is made: it appears whole, replaces only its like, leaves nothing behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ckpttool.conversion.staging import Staging, require_free
from ckpttool.errors import NotFoundError, RefusedError, UsageError
from ckpttool.storage import exchange

MARKS = ("saved_model.pb",)


def write_model(folder: str | Path, text: str = "graph") -> None:
    path = Path(folder)
    (path / "variables").mkdir(parents=True)
    (path / "saved_model.pb").write_text(text)
    (path / "variables" / "variables.index").write_text(text)


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_directory(tmp_path: Path) -> None:
    with Staging(str(tmp_path / "export"), overwrite=False) as staging:
        write_model(staging.artefact)
        Path(staging.scratch, "log").write_text("x")
        assert [(one.path, one.nbytes) for one in staging.outputs] == [
            (str(tmp_path / "export" / "saved_model.pb"), 5),
            (str(tmp_path / "export" / "variables" / "variables.index"), 5),
        ]
        assert not (tmp_path / "export").exists()
        staging.commit()
    assert entries(tmp_path) == ["export/saved_model.pb", "export/variables/variables.index"]


def test_a_file_and_its_companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Staging("m.onnx", overwrite=False) as staging:
        Path(staging.artefact).write_text("graph")
        Path(f"{staging.artefact}.data").write_text("weights")
        assert [one.path for one in staging.outputs] == ["m.onnx", "m.onnx.data"]
        staging.commit()
    assert entries(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    place = Staging(str(tmp_path / "export"), overwrite=False)
    with pytest.raises(ValueError, match="broken"), place as staging:
        write_model(staging.artefact)
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_former_result_is_replaced(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(exchange, "_at_once", lambda *_: False)
    write_model(tmp_path / "export", "old")
    (tmp_path / "export" / "only in the old").write_text("old")
    with Staging(str(tmp_path / "export"), overwrite=True) as staging:
        write_model(staging.artefact, "new")
        staging.commit()
    assert entries(tmp_path) == ["export/saved_model.pb", "export/variables/variables.index"]
    assert (tmp_path / "export" / "saved_model.pb").read_text() == "new"


def test_what_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    destination = str(tmp_path / "m.tflite")
    with pytest.raises(RefusedError) as caught, Staging(destination, overwrite=False) as staging:
        Path(staging.artefact).write_text("new")
        (tmp_path / "m.tflite").write_text("somebody else's")
        staging.commit()
    assert caught.value.id == "exists"
    assert (tmp_path / "m.tflite").read_text() == "somebody else's"
    assert entries(tmp_path) == ["m.tflite"]


def test_what_a_killed_conversion_left_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / ".ckpttool-convert-0123456789ab"
    write_model(dead / "result" / "export")
    an_hour_ago = time.time() - 3600
    os.utime(dead, (an_hour_ago, an_hour_ago))
    with Staging(str(tmp_path / "one"), overwrite=False) as first:
        an_hour_ago_ns = int(an_hour_ago * 1e9)
        os.utime(os.path.dirname(first.scratch), ns=(an_hour_ago_ns, an_hour_ago_ns))
        assert not dead.exists()
        with Staging(str(tmp_path / "two"), overwrite=False):
            pass
        assert os.path.isdir(first.scratch), "one that is at work stays"


def test_require_free(tmp_path: Path) -> None:
    def check(name: str, *, overwrite: bool = False) -> None:
        require_free(str(tmp_path / name), "directory", MARKS, overwrite=overwrite)

    check("new")
    check("new/")
    with pytest.raises(NotFoundError) as missing:
        check("nowhere/new")
    assert missing.value.id == "destination-directory"
    write_model(tmp_path / "export")
    with pytest.raises(RefusedError) as taken:
        check("export")
    assert taken.value.id == "exists"
    check("export", overwrite=True)
    (tmp_path / "home").mkdir()
    check("home", overwrite=True)
    (tmp_path / "home" / "thesis.tex").write_text("years")
    with pytest.raises(RefusedError) as other:
        check("home", overwrite=True)
    assert (other.value.id, other.value.exit_code) == ("destination-other", 31)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError) as form:
        check("file", overwrite=True)
    assert form.value.id == "destination-form"
    with pytest.raises(UsageError):
        require_free("", "file", (), overwrite=False)
