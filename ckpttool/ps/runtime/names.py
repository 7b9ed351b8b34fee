"""Which variables a TensorFlow 1 cluster may hold, and under which names it has them.

There is no request that lists them, so names come from a checkpoint, a ``.meta`` or a
manifest (JSON: ``[{"name", "dtype", "shape"}, …]``), and are tried. A partitioned variable
``emb`` lives as ``emb/part_0``, ``emb/part_1``, …, and its slot ``emb/Adagrad`` as
``emb/part_0/Adagrad``, … (variable_scope.py; slot_creator.py names a slot after the part).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from ckpttool.errors import CorruptError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.limits import Limits
from ckpttool.sources.registry import open_source
from ckpttool.storage import open_directory

__all__ = ["Wanted", "part_names", "wanted_variables"]

_MANIFEST_BYTES = 64 * 2**20


class Wanted(NamedTuple):
    """A variable that is looked for, as a checkpoint has it."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None


def wanted_variables(path: str, limits: Limits) -> list[Wanted]:
    """What a checkpoint, a ``.meta`` or a manifest names.

    Raises:
        CorruptError: id ``manifest``: a JSON file that is none.
        CkpttoolError: as opening a source.
    """
    if path.endswith(".json"):
        return list(_manifest(path))
    with open_source(path, limits) as source:
        return [
            Wanted(variable.key, variable.dtype, variable.shape)
            for variable in source.variables()
            if variable.dtype in BY_NAME and BY_NAME[variable.dtype].size
        ]


def part_names(name: str, number: int) -> tuple[str, ...]:
    """What part ``number`` of a variable may be called, a slot's after its variable's part."""
    owner, slash, slot = name.rpartition("/")
    plain = f"{name}/part_{number}"
    return (plain, f"{owner}/part_{number}/{slot}") if slash else (plain,)


def _manifest(path: str) -> Iterator[Wanted]:
    folder, _, base = path.rpartition("/")
    with open_directory(folder or "/") as directory, closing(directory.open(base)) as file:
        if file.stat.size > _MANIFEST_BYTES:
            raise _no_manifest(path, f"it has {file.stat.size} bytes, over {_MANIFEST_BYTES}")
        data = file.pread(0, file.stat.size)
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_manifest(path, str(error)[:200]) from None
    if not isinstance(entries, list):
        raise _no_manifest(path, "it is no list")
    for entry in entries:
        name, dtype, shape = (
            (entry.get("name"), entry.get("dtype"), entry.get("shape"))
            if isinstance(entry, dict)
            else (None, None, None)
        )
        if not isinstance(name, str) or dtype not in BY_NAME or not BY_NAME[dtype].size:
            raise _no_manifest(path, f"no name and dtype in {json.dumps(entry)[:100]}")
        if shape is not None and not (
            isinstance(shape, list) and all(isinstance(one, int) and one >= 0 for one in shape)
        ):
            raise _no_manifest(path, f"{name} has a shape that is none")
        yield Wanted(name, dtype, None if shape is None else tuple(shape))


def _no_manifest(path: str, why: str) -> CorruptError:
    return CorruptError(
        f"{path} is no manifest of variables",
        why=why,
        hint='write [{"name": "emb", "dtype": "float32", "shape": [1000, 32]}, …]',
        id="manifest",
    )
