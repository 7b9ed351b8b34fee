"""Functions of TensorFlow as ONNX files, and what those compute, in the test's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.ports import Port
from ckpttool.conversion.request import Settings

if TYPE_CHECKING:
    from ckpttool.conversion.worker.program import Function, Program, Written

__all__ = ["compute", "function_program", "largest_error", "load", "operators", "write_onnx"]


def function_program(
    body: Callable[..., Any], *inputs: tuple[str, str, Sequence[int | None] | None]
) -> Program:
    """A program of one function, whose inputs are (name, dtype, shape)."""
    from ckpttool.conversion.worker.traced_program import TracedProgram, traced

    ports = [
        Port(name, dtype, None if shape is None else tuple(shape)) for name, dtype, shape in inputs
    ]
    return TracedProgram([traced("serving_default", ports, body)], body)


def write_onnx(program: Program, path: Path, **settings: Any) -> Written:
    """Write a model, and let onnx check the file as a whole."""
    import onnx

    from ckpttool.conversion.worker.to_onnx import write

    written = write(program, str(path), Settings(**settings))
    onnx.checker.check_model(str(path), full_check=True)
    return written


def compute(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """What onnxruntime computes with a model."""
    from ckpttool.conversion.worker.run_onnx import open_result

    return open_result(str(path)).run("", feeds)


def largest_error(function: Function, path: Path, feeds: dict[str, Any]) -> float:
    """The largest difference of any output from what the original gives."""
    import numpy as np

    expected, found = function.run(feeds), compute(path, feeds)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape
    return max(
        float(np.max(np.abs(np.asarray(found[name], np.float64) - np.asarray(array, np.float64))))
        for name, array in expected.items()
    )


def load(path: Path) -> Any:
    """The model, its weights outside left where they are."""
    import onnx

    return onnx.load(str(path), load_external_data=False)


def operators(path: Path) -> set[str]:
    """What the main graph of a model has."""
    return {node.op_type for node in load(path).graph.node}
