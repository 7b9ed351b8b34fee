"""Runs an ONNX model for the check, in onnxruntime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.ports import Port, Signature
from ckpttool.errors import ConverterMissingError, UnsupportedError
from ckpttool.formats.dtypes import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OnnxRunner", "open_result"]

#: onnxruntime's words where they are not TensorFlow's.
_DTYPES = {"float": "float32", "double": "float64"}
#: Types that onnxruntime takes, and no NumPy array has.
_WITHOUT_ARRAYS = ("bfloat16", "float8", "int4", "uint4")
#: Errors only: it warns of initializers that nobody uses, and of the machine.
_LOG_LEVEL = 3


class OnnxRunner:
    """A loaded model."""

    runtime = "onnxruntime"

    def __init__(self, session: Any) -> None:  # noqa: ANN401
        self._session = session
        self._signature = Signature("", _ports(session.get_inputs()), _ports(session.get_outputs()))

    def signatures(self) -> Sequence[Signature]:
        return [self._signature]

    def run(self, signature: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:  # noqa: ARG002
        import numpy as np

        given = {port.name: _fed(port, feeds[port.name]) for port in self._signature.inputs}
        names = [port.name for port in self._signature.outputs]
        found = self._session.run(names, given)
        return {name: np.asarray(_taken(one)) for name, one in zip(names, found, strict=True)}


def open_result(path: str) -> OnnxRunner:
    """Load a model, with its weights beside it.

    Raises:
        ConverterMissingError: onnxruntime is not installed.
        UnsupportedError: id ``onnx-not-runnable``: valid, but not for this runtime.
    """
    try:
        import onnxruntime as ort
        from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel
    except ImportError as error:
        raise ConverterMissingError(
            "running an ONNX model needs onnxruntime",
            why=str(error),
            hint="pip install onnxruntime",
        ) from None
    options = ort.SessionOptions()
    options.log_severity_level = _LOG_LEVEL
    # Weights are used as they lie in the file, and are not copied to be a little faster.
    options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except NoKernel as error:
        raise _not_runnable(" ".join(str(error).split())[:300]) from None
    return OnnxRunner(session)


def _not_runnable(why: str) -> UnsupportedError:
    return UnsupportedError(
        "onnxruntime cannot run the model",
        why=why,
        hint="check it in the runtime that it is for",
        id="onnx-not-runnable",
    )


def _ports(found: Sequence[Any]) -> tuple[Port, ...]:
    """Ports as onnxruntime tells them: ``tensor(float)``, names for open dimensions."""
    ports = []
    for one in found:
        kind = one.type.removeprefix("tensor(").removesuffix(")")
        if not one.type.startswith("tensor(") or kind.startswith(_WITHOUT_ARRAYS):
            raise _not_runnable(f"{one.name} is {one.type}, of which no array can be made")
        shape = tuple(size if isinstance(size, int) else None for size in one.shape)
        ports.append(Port(one.name, _DTYPES.get(kind, kind), shape))
    return tuple(ports)


def _fed(port: Port, array: np.ndarray) -> np.ndarray:
    """An input as onnxruntime takes it: an array also of a scalar, text as ``str``."""
    import numpy as np

    if port.dtype == "string":
        texts = [_text(one) for one in np.asarray(array, object).flat]
        return np.array(texts, object).reshape(np.shape(array))
    return np.ascontiguousarray(array, numpy_dtype(port.dtype)).reshape(np.shape(array))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _taken(found: Any) -> Any:  # noqa: ANN401
    """An output; its texts as bytes, which is what TensorFlow gives."""
    import numpy as np

    if not isinstance(found, np.ndarray) or found.dtype.kind not in "OU":
        return found
    return np.array([str(one).encode() for one in found.flat], object).reshape(found.shape)
