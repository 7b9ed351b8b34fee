"""Fixtures that every test may ask for.

TensorFlow is imported inside the tests that need it (`pytest.importorskip`), and writes
in the test's own process through `tests/support/tf_write.py`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ckpttool.sources import settling
from tests.support import command
from tests.support.command import ROOT, RunCli

# A shell starts what runs in the background with SIGINT ignored, and children inherit
# that: the tests of signals would test nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no finding. In CI the examples are the same every time: what is new there
# comes from the change, and a search for new examples belongs to whoever works on the code.
settings.register_profile(
    "patient",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")


def _shared(*parts: str) -> Path:
    base = Path(os.environ.get("CKPTTOOL_SHARED") or ROOT.parent / "shared")
    path = base.joinpath(*parts).resolve()
    if not path.is_dir():
        pytest.skip(f"no test data at {path}; set CKPTTOOL_SHARED to the folder that has it")
    return path


@pytest.fixture(scope="session", autouse=True)
def _no_second_thoughts() -> None:
    """Tests damage files just before they read them: nothing is gained by waiting a moment."""
    settling._PAUSE = 0


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared test data (environment variable CKPTTOOL_SHARED)."""
    return _shared()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real public checkpoints, in the shared test data."""
    return _shared("corpus")


@pytest.fixture(scope="session")
def hostile() -> Path:
    """Crafted checkpoints, in the shared test data."""
    return _shared("hostile")


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """The small checkpoints of this repository, written by fixtures/make_fixtures.py."""
    return ROOT / "fixtures"


@pytest.fixture(scope="session")
def run_cli() -> RunCli:
    """Runs `ckpttool ARGS` in a child: see `tests/support/command.py`."""
    return command.run_cli
