"""Options that would do nothing, and files that are not there, are refused before the work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.conversion.child import Bounds
from ckpttool.conversion.request import Settings
from ckpttool.conversion.stored import wanted_signatures
from ckpttool.conversion.targets import TARGETS, find_target, require_settings
from ckpttool.errors import CkpttoolError, NotFoundError, UsageError
from ckpttool.limits import Limits
from tests.support.command import RunCli

MLP = "fixtures/mlp-v1"
EXPORT = "fixtures/savedmodel"

#: What is about running a result, or the processes that do.
RUNNING: list[Mapping[str, Any]] = [
    {"seed": 0},
    {"tolerance": 0.1},
    {"check_data": __file__},
    {"timeout": 5.0},
    {"memory": 2**30},
    {"log": "log"},
]


def refused(source: str, destination: str | Path, **given: Any) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        ckpttool.convert(source, destination, dry_run=True, **given)
    return caught.value


@pytest.mark.parametrize("given", RUNNING, ids=str)
@pytest.mark.parametrize("to", ["npz", "safetensors", "h5", "checkpoint"])
def test_of_values_nothing_is_run(
    to: str, given: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(MLP, tmp_path / "out", to=to, **given)
    assert (error.exit_code, error.id) == (2, "target-setting")
    assert error.what.endswith(f"means nothing for {to}")


@pytest.mark.parametrize("given", RUNNING, ids=str)
def test_of_a_refreshed_export_nothing_is_run_unless_asked_for(
    given: Mapping[str, Any], tmp_path: Path
) -> None:
    more = {"to": "savedmodel", "like": EXPORT, **given}
    error = refused(EXPORT, tmp_path / "out", **more)
    assert (error.exit_code, error.id) == (2, "target-setting")
    assert "means nothing with --like" in error.what
    assert error.hint == "add --check run, or leave it out"
    if "log" in given:
        more["log"] = tmp_path / "log"
    ckpttool.convert(EXPORT, tmp_path / "out", dry_run=True, check="run", **more)


@pytest.mark.parametrize("given", RUNNING[:3], ids=str)
def test_without_a_check_nothing_is_about_it(given: Mapping[str, Any], tmp_path: Path) -> None:
    error = refused(MLP, tmp_path / "m.onnx", no_check=True, **given)
    assert (error.exit_code, error.id) == (2, "options-contradict")
    assert "--no-check" in error.what


def test_a_seed_makes_no_real_inputs(tmp_path: Path) -> None:
    error = refused(MLP, tmp_path / "m.onnx", check_data=__file__, seed=1)
    assert (error.exit_code, error.id) == (2, "options-contradict")
    measured = {"quantize": "int8", "calibration": __file__}  # its examples are the check's
    error = refused(MLP, tmp_path / "m.tflite", **measured, seed=1)
    assert (error.exit_code, error.id) == (2, "options-contradict")
    assert "--calibration" in error.what


@pytest.mark.parametrize("bounds", [{"timeout": 0.0}, {"timeout": -1.0}, {"memory": 0}])
def test_no_time_and_no_memory(bounds: Mapping[str, Any], tmp_path: Path) -> None:
    error = refused(MLP, tmp_path / "m.onnx", **bounds)
    assert error.exit_code == 2
    assert "leaves nothing to work with" in error.what
    with pytest.raises(UsageError):
        Bounds.of(Limits(), 0, None)


@pytest.mark.parametrize(
    ("given", "code", "id"),
    [
        ({"check_data": "absent.npz"}, 10, "check-data"),
        ({"check_data": "fixtures"}, 2, "check-data"),
        ({"calibration": "absent.npz", "quantize": "int8"}, 10, "calibration-data"),
        ({"calibration": "fixtures", "quantize": "int8"}, 2, "calibration-data"),
        ({"calibration": "absent.py:rows", "quantize": "int8"}, 2, "model-function"),
        ({"model": "absent.py:build"}, 2, "model-function"),
    ],
    ids=str,
)
def test_a_plan_looks_for_the_files(
    given: Mapping[str, Any], code: int, id: str, tmp_path: Path
) -> None:
    error = refused(MLP, tmp_path / "m.tflite", **given)
    assert (error.exit_code, error.id) == (code, id)


def test_a_name_that_promises_keras_s_layout(tmp_path: Path) -> None:
    """Refused by the name alone, said where HDF5 was asked for."""
    place = tmp_path / "m.weights.h5"
    assert refused(MLP, place).id == "keras-weights-layout"
    assert find_target("", str(place), "build.py:build").module == "to_keras_weights"
    found = ckpttool.convert(MLP, place, to="h5")
    assert any("Keras does not load this file" in one for one in found.warnings)
    assert not any("Keras" in one for one in ckpttool.convert(MLP, tmp_path / "m.h5").warnings)


def test_words() -> None:
    """Messages say what is meant, in words that fit every target."""
    with pytest.raises(UsageError) as caught:
        require_settings(TARGETS["onnx"], Settings(dtypes="cast"))
    assert caught.value.why.startswith("of ONNX it knows")
    with pytest.raises(NotFoundError) as unknown:
        wanted_signatures(["serve"], [], "model.meta")
    assert unknown.value.hint == "leave --signature out; --output says what is computed"
    error = refused(MLP, "m.onnx", map="names.csv")
    assert error.what == "--map means nothing without --like"


def test_the_folder_that_is_missing_is_the_result_s(tmp_path: Path, run_cli: RunCli) -> None:
    place = tmp_path / "absent" / "m.onnx"
    with pytest.raises(NotFoundError) as caught:
        ckpttool.convert(MLP, place)
    assert caught.value.what == f"cannot write {place}"
    with pytest.raises(NotFoundError) as other:
        ckpttool.convert(MLP, tmp_path / "m.onnx", report=str(tmp_path / "absent" / "r.json"))
    assert other.value.what.endswith("r.json")
    result = run_cli(["convert", MLP, str(tmp_path / "m.npz"), "--seed", "0"])
    assert result.returncode == 2
