"""Runs a TensorFlow Lite file for the check: ai-edge-litert, else TensorFlow's interpreter.

Inputs are resized for every run, as those who serve it do. Integers that stand for other
numbers by a scale and a zero point are quantised on the way in and de-quantised on the way
out, so that the check compares what they mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.targets import installed
from ckpttool.conversion.worker.tflite_file import flex_operators, operators_text, read_file
from ckpttool.errors import ConverterMissingError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["TfliteRunner", "open_result"]

_LITERT, _TENSORFLOW = "ai-edge-litert", "tensorflow"
#: What an interpreter says of an operation that it was not built with
#: (tensorflow/lite/core/subgraph.cc).
_UNRESOLVED = "unresolved custom op"


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An input or output as the interpreter has it."""

    index: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # -1 where it may be any
    scale: float  # 0 where it stands for itself
    zero_point: int

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> _Tensor:
        import numpy as np

        scale, zero_point = details["quantization"]
        kind = np.dtype(details["dtype"])
        shape = tuple(int(size) for size in details["shape_signature"])
        return cls(details["index"], kind, shape, float(scale), int(zero_point))

    def port(self, name: str) -> Port:
        is_text = self.dtype.kind in "OSU"
        sizes = tuple(size if size >= 0 else None for size in self.shape)
        return Port(name, "string" if is_text else self.dtype.name, sizes)

    def stored(self, array: np.ndarray, name: str) -> np.ndarray:
        """Real numbers as this tensor stores them; everything else as it is."""
        import numpy as np

        self._require_shape(array, name)
        if not self.scale or array.dtype.kind != "f":
            return array
        limits = np.iinfo(self.dtype)
        found = np.round(np.asarray(array, np.float64) / self.scale) + self.zero_point
        return np.clip(found, limits.min, limits.max).astype(self.dtype)

    def real(self, array: np.ndarray) -> np.ndarray:
        """What stored numbers mean."""
        import numpy as np

        if not self.scale or array.dtype.kind not in "iu":
            return array
        found = (np.asarray(array, np.float64) - self.zero_point) * self.scale
        return found.astype(np.float32)

    def _require_shape(self, array: np.ndarray, name: str) -> None:
        """Check that an array has the sizes that do not vary.

        An interpreter would resize these too, and compute with what was made for others.
        """
        if not self.shape:
            return  # a scalar, or a rank that may be any: the file does not tell
        sizes = list(array.shape)
        pairs = zip(self.shape, sizes, strict=False)
        if len(sizes) != len(self.shape) or any(a not in {-1, b} for a, b in pairs):
            raise ValueError(f"{name} takes {list(self.shape)}, and {sizes} is given")


class TfliteRunner:
    """An open file."""

    def __init__(self, path: str, interpreter: Any, runtime: str) -> None:  # noqa: ANN401
        self.runtime = runtime
        self._path = path
        self._interpreter = interpreter
        self._has_names = bool(interpreter.get_signature_list())
        # As the file has them: a run changes what the interpreter says of their shapes.
        self._ends = {
            name: self._ends_of(name) for name in interpreter.get_signature_list() or [""]
        }

    def signatures(self) -> Sequence[Signature]:
        """As the file says; a file without signatures has one without a name."""
        return [
            Signature(
                name,
                tuple(tensor.port(key) for key, tensor in inputs.items()),
                tuple(tensor.port(key) for key, tensor in outputs.items()),
            )
            for name, (inputs, outputs) in self._ends.items()
        ]

    def run(self, signature: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs, outputs = self._ends[signature]
        given = {name: tensor.stored(feeds[name], name) for name, tensor in inputs.items()}
        try:
            found = self._called(signature, given) if self._has_names else self._invoked(given)
        except RuntimeError as error:
            if _UNRESOLVED in str(error):
                raise _not_here(self._path, " ".join(str(error).split())[:200]) from error
            raise
        return {name: tensor.real(found[name]) for name, tensor in outputs.items()}

    def _ends_of(self, signature: str) -> tuple[dict[str, _Tensor], dict[str, _Tensor]]:
        """Inputs and outputs by name."""
        if not self._has_names:
            ends = (self._interpreter.get_input_details(), self._interpreter.get_output_details())
            return _by_name(ends[0]), _by_name(ends[1])
        runner = self._interpreter.get_signature_runner(signature)
        return (
            {name: _Tensor.of(one) for name, one in runner.get_input_details().items()},
            {name: _Tensor.of(one) for name, one in runner.get_output_details().items()},
        )

    def _called(self, signature: str, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        runner = self._interpreter.get_signature_runner(signature)
        # What it returns may be a view of memory that the next run overwrites.
        return {name: array.copy() for name, array in runner(**given).items()}

    def _invoked(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        interpreter = self._interpreter
        inputs, outputs = self._ends[""]
        for name, array in given.items():
            interpreter.resize_tensor_input(inputs[name].index, list(array.shape))
        interpreter.allocate_tensors()
        for name, array in given.items():
            interpreter.set_tensor(inputs[name].index, array)
        interpreter.invoke()
        return {name: interpreter.get_tensor(one.index) for name, one in outputs.items()}


def open_result(path: str) -> TfliteRunner:
    """Open a file.

    Raises:
        CorruptError: it is no such file.
        UnsupportedError: id ``tflite-not-here``: it needs operations that the interpreter
            for Python does not have; also from ``run``.
        ConverterMissingError: no interpreter is installed.
    """
    flex = flex_operators(read_file(path))
    if flex:
        raise _not_here(path, f"TensorFlow's own operations {operators_text(flex)}")
    make, runtime = _interpreter()
    try:
        path.encode()
    except UnicodeEncodeError:  # a name that only the file system understands
        with open(path, "rb") as file:
            return TfliteRunner(path, make(model_content=file.read()), runtime)
    return TfliteRunner(path, make(model_path=path), runtime)


def _interpreter() -> tuple[Callable[..., Any], str]:
    """The interpreter that is installed, and the distribution that has it."""
    if installed(_LITERT).version is not None:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter, _LITERT
    if installed(_TENSORFLOW).version is None:
        raise ConverterMissingError(
            "a TensorFlow Lite file cannot be run",
            why=f"neither {_LITERT} nor {_TENSORFLOW} is installed here",
            hint=f"pip install {_LITERT}",
        )
    import tensorflow as tf

    def make(**given: Any) -> Any:  # noqa: ANN401
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it moves to the other distribution
            return tf.lite.Interpreter(**given)

    return make, _TENSORFLOW


def _not_here(path: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path} cannot be run here",
        why=f"it needs {what}, which the interpreter for Python does not have",
        hint="try it where it is to be served",
        id="tflite-not-here",
    )


def _by_name(details: Sequence[Mapping[str, Any]]) -> dict[str, _Tensor]:
    return {one["name"]: _Tensor.of(one) for one in details}
