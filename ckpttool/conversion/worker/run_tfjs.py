"""Runs a TensorFlow.js model for the check: in ``node``, with the package of the user.

``run_tfjs.cjs`` does it there; what goes in and comes out passes in files. Its backend is
the one in JavaScript alone, which every installation of @tensorflow/tfjs has.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.node_packages import MODULES_VARIABLE, find_package
from ckpttool.conversion.ports import Port, Signature
from ckpttool.errors import ConversionError, ConverterMissingError, UnsupportedError
from ckpttool.formats.dtypes import numpy_dtype
from ckpttool.model import numel

if TYPE_CHECKING:
    import numpy as np

__all__ = ["JsRunner", "open_result"]

_PACKAGE = "@tensorflow/tfjs"
_SCRIPT = os.path.join(os.path.dirname(__file__), "run_tfjs.cjs")
#: What is given and taken as bytes; a boolean is one byte.
_BYTES = {"float32": "float32", "int32": "int32", "bool": "uint8"}


class JsRunner:
    """A loaded model, in a ``node`` that waits for the next run."""

    runtime = _PACKAGE

    def __init__(self, node: str, package: str, path: str) -> None:
        self._node = subprocess.Popen(  # noqa: S603 - the user's own node and package
            [node, _SCRIPT, package, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        # It ends when its input does; so it also ends where this process is killed.
        weakref.finalize(self, self._node.communicate)
        said = self._answer()
        self._ports = {role: said[role] for role in ("inputs", "outputs")}

    def signatures(self) -> Sequence[Signature]:
        inputs, outputs = (tuple(map(_port, self._ports[key])) for key in ("inputs", "outputs"))
        return [Signature("", inputs, outputs)]

    def run(
        self,
        signature: str,  # noqa: ARG002 - a model has one
        feeds: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory(prefix="ckpttool-tfjs-") as folder:
            inputs = []
            for at, port in enumerate(self._ports["inputs"]):
                file = os.path.join(folder, f"in-{at}")
                inputs.append({"tensor": port["tensor"], **_write(feeds[port["name"]], file)})
            outputs = [
                {key: port[key] for key in ("name", "tensor")}
                | {"file": os.path.join(folder, f"out-{at}")}
                for at, port in enumerate(self._ports["outputs"])
            ]
            assert self._node.stdin is not None
            job = json.dumps({"inputs": inputs, "outputs": outputs})
            self._node.stdin.write(f"{job}\n")
            self._node.stdin.flush()
            return {one["name"]: _read(one) for one in self._answer()["outputs"]}

    def _answer(self) -> dict[str, Any]:
        assert self._node.stdout is not None
        line = self._node.stdout.readline()
        if not line:
            code = self._node.wait()
            raise ConversionError("node ended", why=f"with exit code {code}, without an answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def open_result(path: str) -> JsRunner:
    """Load the model of a directory.

    Raises:
        ConverterMissingError: id ``node-package``: there is no ``node``, or no package.
        UnsupportedError: id ``tfjs-layers``: it is a model of layers.
    """
    _require_graph_model(path)
    package = find_package(_PACKAGE)
    if package is None:
        raise ConverterMissingError(
            f"the model cannot be run without {_PACKAGE}",
            why="node and that package are not both installed here",
            hint=f"npm install {_PACKAGE} in this directory, or name a node_modules directory: "
            f"{MODULES_VARIABLE}=web/node_modules",
            id="node-package",
        )
    return JsRunner(package.node, package.path, path)


def _require_graph_model(path: str) -> None:
    with open(os.path.join(path, "model.json"), "rb") as file:
        model = json.load(file)
    topology = model.get("modelTopology") if isinstance(model, dict) else None
    if not isinstance(topology, dict) or "node" not in topology:
        raise UnsupportedError(
            f"{path} is a model of layers",
            why="only graph models are run here",
            hint="convert it --to tfjs, which makes one",
            id="tfjs-layers",
        )


def _port(said: Mapping[str, Any]) -> Port:
    shape = said.get("shape")
    sizes = None if shape is None else tuple(None if one < 0 else one for one in shape)
    return Port(said["name"], said.get("dtype") or "", sizes, said["tensor"])


def _write(array: np.ndarray, file: str) -> dict[str, object]:
    import numpy as np

    array = np.asarray(array)
    is_text = array.dtype == object
    dtype = "string" if is_text else array.dtype.name
    if is_text:
        texts = [bytes(one) for one in array.reshape(numel(array.shape)).tolist()]
        data = b"".join(len(one).to_bytes(4, "little") + one for one in texts)
    else:
        data = array.tobytes()
    with open(file, "wb") as opened:
        opened.write(data)
    return {"dtype": dtype, "shape": list(array.shape), "file": file}


def _read(said: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    with open(said["file"], "rb") as file:
        data = file.read()
    dtype, shape = said["dtype"], tuple(said["shape"])
    if dtype == "string":
        texts = np.empty(numel(shape), object)
        at = 0
        for number in range(len(texts)):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            texts[number], at = data[at + 4 : end], end
        return texts.reshape(shape)
    array = np.frombuffer(data, numpy_dtype(_BYTES.get(dtype, dtype))).reshape(shape)
    return array.astype(bool) if dtype == "bool" else array
