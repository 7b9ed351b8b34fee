"""The real @tensorflow/tfjs for tests: `npm install` in tests/node puts it there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ckpttool.conversion.node_packages import MODULES_VARIABLE
from tests.support.command import ROOT

__all__ = ["node_modules"]


def node_modules() -> Path:
    """The node_modules directory with the package; skips the test where there is none."""
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    places = [ROOT / "tests" / "node" / "node_modules"]
    if MODULES_VARIABLE in os.environ:
        places.insert(0, Path(os.environ[MODULES_VARIABLE]))
    for place in places:
        if (place / "@tensorflow" / "tfjs" / "package.json").exists():
            return place.absolute()
    pytest.skip("there is no @tensorflow/tfjs here: npm install in tests/node")
