"""Whether a Keras file asks for code, or leads to other files: before Keras sees it.

Code is a Lambda, or a class of a module that is not Keras'. Keras has a safe mode, which
Keras 2 does not keep in every format, and to load a class a file may name any module that
is installed. So the configuration is read as data first.
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
_NAMED = 5


def require_no_code(path: str, limits: Limits) -> None:
    """Check a ``.keras`` archive or an HDF5 file.

    Raises:
        UnsafeError: id ``keras-code``: it names what would be run.
        CorruptError: id ``keras-config``. LimitError: id ``limit-keras-config``.
    """
    config = _config(path, limits.keras_config_bytes)
    if config is None:
        return  # weights alone
    found = list(dict.fromkeys(_code(parse_object(config, path))))
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


def _code(config: dict[str, Any]) -> Iterator[str]:
    """What in a configuration is code, or leads to some."""
    waiting: list[Any] = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
            name, module = value.get("class_name"), value.get("module")
            if isinstance(name, str) and name in _LAMBDAS:
                yield f"the layer {name}"
            if isinstance(module, str) and module.partition(".")[0] not in _KERAS:
                yield f"the module {module}"
