"""The registry of targets, and what is installed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from ckpttool.conversion.request import QUANTIZATIONS, Settings
from ckpttool.conversion.targets import (
    TARGETS,
    find_target,
    installed,
    require_installed,
    require_settings,
)
from ckpttool.errors import ConverterMissingError, UsageError


def test_a_target_by_name_or_by_ending() -> None:
    for name, target in TARGETS.items():
        assert find_target(name, "out") is target
        for suffix in target.suffixes:
            assert find_target("", f"some/Model{suffix.upper()}") is target
    with pytest.raises(UsageError, match="pytorch") as unknown:
        find_target("pytorch", "m.onnx")
    assert unknown.value.id == "target-unknown"
    with pytest.raises(UsageError) as near:
        find_target("saved-model", "out")
    assert "savedmodel" in near.value.hint
    with pytest.raises(UsageError):
        find_target("", "export")


def test_a_result_that_is_there_already_needs_no_calibration() -> None:
    settings = Settings(quantize="int8")
    require_settings(TARGETS["tflite"], settings, is_made=False)
    with pytest.raises(UsageError) as caught:
        require_settings(TARGETS["tflite"], settings)
    assert caught.value.id == "calibration-needed"


def test_every_setting_is_some_target_s_and_the_others_refuse_it() -> None:
    changed: dict[str, Any] = {
        "quantize": "float16",
        "calibration": "data.npz",
        "io_dtype": "int8",
        "batch": 2,
        "opset": 17,
        "external_data": False,
        "shard_bytes": 5,
        "allow_flex": True,
        "dtypes": "cast",
    }
    assert changed.keys() == {field.name for field in fields(Settings)}
    # What goes only with others of the same target.
    together: dict[str, Any] = {
        "calibration": {"quantize": "int8"},
        "io_dtype": {"quantize": "int8", "calibration": "data.npz"},
    }
    for name, value in changed.items():
        settings = replace(Settings(), **{name: value}, **together.get(name, {}))
        takers = [one for one in TARGETS.values() if name in one.settings]
        assert takers
        for target in TARGETS.values():
            if target in takers:
                require_settings(target, settings)
            else:
                with pytest.raises(UsageError) as caught:
                    require_settings(target, replace(Settings(), **{name: value}))
                assert f"--{name.replace('_', '-')} " in caught.value.what


def test_every_quantization_is_some_target_s_and_the_others_refuse_it() -> None:
    for word in QUANTIZATIONS:
        takers = [one.name for one in TARGETS.values() if word in one.quantizations]
        assert takers
        for target in (one for one in TARGETS.values() if "quantize" in one.settings):
            settings = Settings(quantize=word, calibration="data.npz")
            if word not in ("int8", "int16x8"):
                settings = replace(settings, calibration=None)
            if target.name in takers:
                require_settings(target, settings)
            else:
                with pytest.raises(UsageError) as caught:
                    require_settings(target, settings)
                assert caught.value.id == "target-setting"


@pytest.mark.parametrize(
    ("settings", "id"),
    [
        (Settings("int8"), "calibration-needed"),
        (Settings("int16x8"), "calibration-needed"),
        (Settings("float16", calibration="data.npz"), "options-contradict"),
        (Settings(calibration="data.npz"), "options-contradict"),
        (Settings("int16x8", "data.npz", "int8"), "options-contradict"),
        (Settings(io_dtype="uint8"), "options-contradict"),
    ],
)
def test_real_inputs_come_with_what_needs_them(settings: Settings, id: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_settings(TARGETS["tflite"], settings)
    assert caught.value.id == id
    assert "--" in caught.value.hint


def test_what_is_not_installed_is_named() -> None:
    require_installed("this", ["click"])
    with pytest.raises(ConverterMissingError) as caught:
        require_installed("--to x", ["click", "no-such-distribution"])
    assert caught.value.exit_code == 50
    assert caught.value.hint == "pip install no-such-distribution"
    assert installed("no-such-distribution").version is None
