"""Where a result is made: it appears whole, replaces only its like, leaves nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpttool.conversion import staging as staging_module
from ckpttool.conversion.staging import Staging, require_free
from ckpttool.errors import NotFoundError, RefusedError, UsageError
from ckpttool.storage import exchange
from ckpttool.storage.local import LocalDirectory

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


def test_what_is_in_the_way_is_named_as_a_person_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx.data").write_text("mine")
    with (
        pytest.raises(RefusedError, match=r"^m\.onnx\.data"),
        Staging("m.onnx", overwrite=False) as staging,
    ):
        Path(staging.artefact).write_text("graph")
        Path(f"{staging.artefact}.data").write_text("weights")
        staging.commit()
    assert Path("m.onnx.data").read_text() == "mine"


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


def test_a_companion_that_is_not_the_former_results_stays(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("old")
    (tmp_path / "m.onnx.data").write_text("somebody's")
    with (
        pytest.raises(RefusedError, match=r"m\.onnx\.data exists"),
        Staging(str(tmp_path / "m.onnx"), overwrite=True) as staging,
    ):
        write_pair(staging, "new")
        staging.commit()
    assert read_all(tmp_path) == {"m.onnx": "old", "m.onnx.data": "somebody's"}


def write_pair(staging: Staging, text: str) -> None:
    Path(staging.artefact).write_text(text)
    Path(f"{staging.artefact}.data").write_text(text)


def read_all(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("m.*")}


OLD, NEW = ({"m.onnx": text, "m.onnx.data": text} for text in ("old", "new"))


def interrupted() -> None:
    raise KeyboardInterrupt


def killed() -> None:
    os._exit(9)


def replace_pair(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: float, end: Callable[[], None] = interrupted
) -> int:
    """Replace a model and its weights; end at a change (1.5: behind the first).

    Gives how many changes there were.
    """
    (folder / "m.onnx").write_text("old")
    (folder / "m.onnx.data").write_text("old")
    done = 0

    def ending(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*args: object) -> None:
            nonlocal done
            done += 1
            if done == at:
                end()
            change(*args)
            if done + 0.5 == at:
                end()

        return changed

    with monkeypatch.context() as patched:
        patched.setattr(LocalDirectory, "move", ending(LocalDirectory.move))
        patched.setattr(staging_module, "exchange", ending(exchange.exchange))
        with Staging(str(folder / "m.onnx"), overwrite=True) as staging:
            staging.outdated.add("m.onnx.data")
            write_pair(staging, "new")
            staging.commit()
    return done


def test_a_former_pair_is_replaced_in_three_changes(tmp_path, monkeypatch) -> None:
    assert replace_pair(tmp_path, monkeypatch, at=0) == 3
    assert read_all(tmp_path) == NEW


@pytest.mark.parametrize("at", [1, 1.5, 2, 3])
def test_an_interrupted_replacement_is_undone(tmp_path, monkeypatch, at) -> None:
    with pytest.raises(KeyboardInterrupt):
        replace_pair(tmp_path, monkeypatch, at)
    assert read_all(tmp_path) == OLD
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("at", [1, 1.5, 2, 2.5, 3, 3.5])
def test_a_killed_replacement_leaves_no_model_with_other_weights(tmp_path, monkeypatch, at) -> None:
    child = os.fork()
    if child == 0:
        try:
            replace_pair(tmp_path, monkeypatch, at, killed)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    found = read_all(tmp_path)
    assert found in (OLD, NEW) or "m.onnx" not in found


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
