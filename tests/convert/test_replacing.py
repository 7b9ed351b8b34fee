"""`convert --overwrite`: what goes with the former result, what stays, and what comes first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.convert_table import in_this_process
from ckpttool.conversion.request import CheckSettings, Request, Settings
from ckpttool.conversion.staging import Staging
from ckpttool.errors import CorruptError, RefusedError
from ckpttool.ops.convert import ConvertResult, convert
from tests.support.command import RunCli
from tests.support.converting import request

UNCHECKED = CheckSettings(run=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def to_onnx(models: Path, destination: Path, *, beside: bool, **given: Any) -> ConvertResult:
    asked = request(
        models / "mlp-ref",
        target="onnx",
        destination=str(destination),
        settings=Settings(external_data=beside),
        check=UNCHECKED,
        **given,
    )
    return convert(asked, run=in_this_process)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_weights_beside_go_with_their_model(models: Path, tmp_path: Path) -> None:
    pytest.importorskip("tf2onnx")
    path = tmp_path / "m.onnx"
    to_onnx(models, path, beside=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    to_onnx(models, path, beside=True, overwrite=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    to_onnx(models, path, beside=False, overwrite=True)
    assert names(tmp_path) == ["m.onnx"]
    (tmp_path / "m.onnx.data").write_text("somebody's")
    to_onnx(models, path, beside=False, overwrite=True)
    assert (tmp_path / "m.onnx.data").read_text() == "somebody's"


def to_npz(fixtures_dir: Path, destination: Path, **given: Any) -> ConvertResult:
    source = fixtures_dir / "mlp-v1" / "model.ckpt-1000"
    return convert(Request(str(source), str(destination), "npz", **given))


def test_a_report_goes_with_its_result(tmp_path: Path, fixtures_dir: Path) -> None:
    path, report = tmp_path / "m.npz", tmp_path / "m.npz.report.json"
    to_npz(fixtures_dir, path, check=CheckSettings(report=str(report)))
    assert json.loads(report.read_text())["check"]["state"] == "passed"
    to_npz(fixtures_dir, path, check=UNCHECKED, overwrite=True)
    assert names(tmp_path) == ["m.npz"]
    report.write_text('{"schema": "another/1"}')
    to_npz(fixtures_dir, path, check=UNCHECKED, overwrite=True)
    assert names(tmp_path) == ["m.npz", "m.npz.report.json"]


def test_what_is_no_former_result_is_refused_before_anybody_is_asked(
    tmp_path: Path, fixtures_dir: Path, run_cli: RunCli
) -> None:
    source = str(fixtures_dir / "mlp-v1")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years")
    args = ["convert", source, "home", "--to", "savedmodel", "--overwrite"]
    refused = run_cli(args, cwd=tmp_path)
    assert refused.returncode == 31
    assert "replace home?" not in refused.stderr
    (tmp_path / "m.npz").write_text("old")
    args = ["convert", source, "m.npz", "--overwrite"]
    asked = run_cli([*args, "--include", "*"], cwd=tmp_path)
    assert asked.returncode == 4
    assert "replace m.npz?" in asked.stderr
    assert (tmp_path / "m.npz").read_text() == "old"
    unknown = run_cli([*args, "--graph", "x.meta"], cwd=tmp_path)
    assert unknown.returncode == 2
    assert run_cli([*args, "-y", "-q"], cwd=tmp_path).returncode == 0


def test_a_checkpoint_is_asked_for_too(tmp_path: Path, fixtures_dir: Path, run_cli: RunCli) -> None:
    source = str(fixtures_dir / "mlp-v1")
    args = ["convert", source, "new", "--to", "checkpoint", "--overwrite"]
    assert run_cli(args, cwd=tmp_path).returncode == 0
    asked = run_cli(args, cwd=tmp_path)
    assert asked.returncode == 4
    assert "replace new?" in asked.stderr


@pytest.mark.parametrize("option", ["--overwrite", "--dry-run"])
def test_a_check_replaces_nothing(
    option: str, tmp_path: Path, fixtures_dir: Path, run_cli: RunCli
) -> None:
    source = str(fixtures_dir / "mlp-v1")
    result = run_cli(["convert", source, "m.onnx", "--check-only", option], cwd=tmp_path)
    assert result.returncode == 2
    assert f"--check-only and {option} do not go together" in result.stderr


def test_errors_name_the_path_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("out/m.onnx", "m.onnx", str(tmp_path / "m.onnx")):
        Path("out").mkdir(exist_ok=True)
        with pytest.raises(RefusedError) as caught, Staging(given, overwrite=False) as staging:
            absolute = Path(staging.artefact).resolve()
            raise RefusedError(f"{staging.artefact} is bad", why=str(absolute), hint="none")
        assert caught.value.what == f"{given} is bad"
        assert caught.value.why == str(Path(given).resolve())


def test_a_bad_fingerprint_is_the_export_s(tmp_path: Path, fixtures_dir: Path) -> None:
    import shutil

    export = tmp_path / "export"
    shutil.copytree(fixtures_dir / "savedmodel", export)
    (export / "fingerprint.pb").write_bytes(b"\xff" * 12)
    asked = Request(str(export), str(tmp_path / "new"), "savedmodel", like=str(export))
    with pytest.raises(CorruptError) as caught:
        convert(asked)
    assert str(export / "fingerprint.pb") in str(caught.value)
    assert ".ckpttool-convert-" not in str(caught.value)
    assert names(tmp_path) == ["export"]
    shutil.rmtree(export / "assets", ignore_errors=True)
    (export / "fingerprint.pb").unlink()
    assert convert(replace(asked, check=UNCHECKED)).applied
