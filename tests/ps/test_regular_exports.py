"""Exports that are made again and again while ``tf_keras``' own ``fit`` trains."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import until
from tests.support.trained import training

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc"),
    pytest.mark.slow,
]


def test_several_names_by_time_and_by_steps_at_once(tmp_path: Path) -> None:
    """Each has versions of its own, of which the newest stays; ``fit`` goes on."""
    for package in ("tensorflow", "tf_keras"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    env = {"TF_USE_LEGACY_KERAS": "1", "CKPTTOOL_TEST_EPOCHS": "100000"}
    words = (
        *("--partition", "fixed", "--snapshot-every", "0", "--keep-exports", "1"),
        *("--export", "served=savedmodel", "--export", "values=checkpoint"),
        *("--export-every", "2", "--export-every-steps", "100"),
    )
    with training(tmp_path, "fit_pushed", *words, env=env) as running:
        running.wait_for()
        with LiveClient(str(running.directory), timeout=300) as live:

            def exports(name: str) -> list[dict[str, Any]]:
                assert running.process.poll() is None, running.said()
                found = [one for one in live.ask("status")["exports"] if one["name"] == name]
                assert not [one for one in found if one["state"] == "failed"], found
                return [one for one in found if one["state"] == "done"]

            def three(name: str) -> bool:
                return any(one["version"] >= 3 for one in exports(name))

            for name in ("served", "values"):
                until(partial(three, name), name, 900)
            served, values = exports("served"), exports("values")
            step = live.ask("status")["step"]
            until(lambda: live.ask("status")["step"] > step, "the training stands still")
        assert all(one["refreshed"] for one in served)
        assert [one["step"] for one in values] == sorted(one["step"] for one in values)
        assert running.interrupt() == 0
        running.wait_until_gone()
    for name in ("served", "values"):
        folder = running.directory / "exports" / name
        versions = sorted(int(path.name) for path in folder.iterdir() if path.is_dir())
        assert len(versions) <= 2
        assert versions[-1] >= 3
        assert 1 not in versions
    with ckpttool.open(str(folder / str(versions[-1]) / "model.ckpt")) as source:
        assert source.step is not None
