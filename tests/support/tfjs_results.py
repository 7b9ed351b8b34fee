"""What convert --to tfjs writes, run by the real package in node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckpttool.conversion.request import Settings

if TYPE_CHECKING:
    from ckpttool.conversion.worker.program import Program, Written
    from ckpttool.conversion.worker.runner import Runner

__all__ = ["close", "run_js", "write_js"]


def write_js(program: Program, folder: Path, **settings: Any) -> Written:
    """Write the model of a program."""
    from ckpttool.conversion.worker.to_tfjs import write

    return write(program, str(folder), Settings(**settings))


def run_js(runner: Runner, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Run it on the inputs of the original, in the dtypes that it takes."""
    (signature,) = runner.signatures()
    given = {}
    for port in signature.inputs:
        array = np.asarray(feeds[port.name])
        given[port.name] = array if array.dtype == object else array.astype(port.dtype)
    return runner.run("", given)


def close(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float = 1e-5) -> None:
    """Compare outputs: real numbers nearly, all else exactly."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        result = np.asarray(found[name])
        assert result.shape == array.shape
        if array.dtype.kind in "fV":
            assert result.dtype == np.float32
            scale = max(1.0, float(np.abs(array.astype(np.float64)).max()))
            error = np.abs(result.astype(np.float64) - array.astype(np.float64)).max()
            assert error <= tolerance * scale, (name, error)
        else:
            assert (result == array).all(), name
