"""Whether a Keras file asks for code, or leads to other files: before Keras sees it.

Code is a Lambda, a class of a module that is not Keras', or a function of TensorFlow that does
more than compute: layers of Keras 2 name those, and call them while the model is loaded. Keras
has a safe mode, which Keras 2 does not keep in every format, and to load a class a file may
name any module that is installed. So the configuration is read as data first.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import Any

from ckpttool.errors import LimitError, UnsafeError
from ckpttool.limits import Limits
from ckpttool.sources.base import Source
from ckpttool.sources.keras_config import parse_object

__all__ = ["require_contained", "require_no_code"]

_CONFIG = "config.json"
_ATTRIBUTE = "model_config"
_LAMBDAS = {"Lambda", "__lambda__"}
#: What our reader says of values in other files, and of links, which Keras never writes.
_ELSEWHERE = {"hdf5-elsewhere", "hdf5-link"}
#: Whose classes Keras may look up.
_KERAS = {"keras", "tf_keras", "builtins"}
#: Layers of Keras 2 around a function, or a method of a class, of TensorFlow → what names it
#: (keras/src/layers/core/tf_op_layer.py).
_OF_TENSORFLOW = {
    "ClassMethod": "cls_ref",
    "SlicingOpLambda": "function",
    "TFOpLambda": "function",
}
#: The modules of TensorFlow whose functions compute, and do nothing else.
_COMPUTING = {
    "__operators__",
    "audio",
    "bitwise",
    "dtypes",
    "image",
    "linalg",
    "math",
    "nn",
    "quantization",
    "ragged",
    "random",
    "sets",
    "signal",
    "sparse",
    "strings",
}
#: The classes whose methods Keras 2 makes layers of; another one may be a session to elsewhere.
_CLASSES = {"IndexedSlices", "RaggedTensor", "SparseTensor", "sparse.SparseTensor"}
#: Functions of TensorFlow itself that do more: by name, and by how their names begin.
_ACTING = {
    "import_graph_def",
    "load_file_system_library",
    "load_library",
    "load_op_library",
    "matching_files",
    "numpy_function",
    "print",
    "py_func",
    "py_function",
    "read_file",
    "write_file",
}
_CHANGING = ("delete_", "disable_", "enable_", "get_session_", "initialize_", "set_")
#: Layers that load a whole model from a path.
_LOADERS = {"TFSMLayer": "filepath"}
_NAMED = 5


def require_no_code(path: str, limits: Limits) -> None:
    """Check a ``.keras`` archive or an HDF5 file.

    Raises:
        UnsafeError: id ``keras-code``: it names what would be run; id ``keras-elsewhere``: it
            names files that would be read.
        CorruptError: id ``keras-config``. LimitError: id ``limit-keras-config``.
    """
    config = _config(path, limits.keras_config_bytes)
    if config is None:
        return  # weights alone
    layers = list(_objects(parse_object(config, path)))
    found = list(dict.fromkeys(name for one in layers for name in _code(one)))
    files = list(dict.fromkeys(name for one in layers for name in _files(one)))
    if files and not found:
        raise UnsafeError(
            f"{path} asks for other files, which are not read",
            why=f"its configuration names {', '.join(files[:_NAMED])}",
            hint="give the code yourself: --model FILE.py:FUNCTION",
            id="keras-elsewhere",
        )
    if found:
        raise UnsafeError(
            f"{path} asks for code, which is not run",
            why=f"its configuration names {', '.join(found[:_NAMED])}",
            hint="give the code yourself: --model FILE.py:FUNCTION",
            id="keras-code",
        )


def require_contained(source: Source) -> None:
    """Check that all values of a Keras file lie in it: the HDF5 library follows any link.

    Raises:
        UnsafeError: id ``hdf5-elsewhere``.
    """
    elsewhere = [one for one in source.findings() if one.id in _ELSEWHERE]
    if elsewhere:
        raise UnsafeError(
            f"{source.location} leads to other files",
            why=f"{elsewhere[0].object}: {elsewhere[0].message}",
            hint="write it again as one file: h5repack, or h5py where you trust it",
            id="hdf5-elsewhere",
        )


def _config(path: str, most: int) -> bytes | str | None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if _CONFIG not in archive.namelist():
                return None
            with archive.open(_CONFIG) as member:
                data: bytes | str = member.read(most + 1)
    else:
        import h5py

        with h5py.File(path, "r") as file:
            if _ATTRIBUTE not in file.attrs:
                return None
            data = file.attrs[_ATTRIBUTE]
    if len(data) > most:
        raise LimitError(
            f"the configuration of {path} is over a limit",
            why=f"it has more than {most} bytes",
            hint="if the file is trusted, raise keras_config_bytes in CKPTTOOL_LIMITS",
            id="limit-keras-config",
        )
    return data


def _objects(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every object in a configuration."""
    waiting: list[Any] = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
            yield value


def _code(value: dict[str, Any]) -> Iterator[str]:
    """What of an object is code, or leads to some."""
    name, module, config = value.get("class_name"), value.get("module"), value.get("config")
    if not isinstance(name, str):
        name = ""
    if name in _LAMBDAS:
        yield f"the layer {name}"
    if isinstance(module, str) and module.partition(".")[0] not in _KERAS:
        yield f"the module {module}"
    if name in _OF_TENSORFLOW and isinstance(config, dict):
        function = config.get(_OF_TENSORFLOW[name])
        computes = _computes_in_methods if name == "ClassMethod" else _computes
        if not (isinstance(function, str) and computes(function)):
            yield f"the function {function} of TensorFlow"


def _computes(function: str) -> bool:
    """Whether a function of TensorFlow, by its name there, computes and does nothing else."""
    head, dot, _ = function.removeprefix("compat.v1.").partition(".")
    if dot:
        return head in _COMPUTING
    is_function = head[:1].islower() or head == "Assert"  # the others are classes
    return is_function and head not in _ACTING and not head.startswith(_CHANGING)


def _computes_in_methods(kind: str) -> bool:
    """Whether the methods of a class of TensorFlow, by its name there, compute."""
    return kind.removeprefix("compat.v1.") in _CLASSES


def _files(value: dict[str, Any]) -> Iterator[str]:
    """The files outside that an object names: a vocabulary, a model."""
    name, config = value.get("class_name"), value.get("config")
    if not isinstance(config, dict):
        return
    for key in ("vocabulary", _LOADERS.get(name, "") if isinstance(name, str) else ""):
        if isinstance(config.get(key), str):
            yield config[key]
