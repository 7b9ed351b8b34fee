"""The reference of the check: what the restored original computes, written to files.

Each case is an ``.npz`` of ``in:NAME`` and ``out:NAME``, the form of ``job.Case``, which
any NumPy can read without pickles.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ckpttool.convert.job import Case
from ckpttool.convert.request import Request
from ckpttool.convert.worker.feeds import make_feeds
from ckpttool.convert.worker.program import Function, Program
from ckpttool.errors import NotFoundError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["plain_array", "record", "save_case"]

#: Two sizes, so that a result in which one of them was baked is found out.
_BATCHES = (2, 3)


def record(program: Program, folder: str, request: Request) -> tuple[tuple[Case, ...], str]:
    """Run every function of a program, and keep what went in and came out.

    Args:
        program: as it was restored.
        folder: an existing directory.
        request: its check says with what.

    Returns:
        The cases, and which signatures have none and why: some take no made-up inputs.

    Raises:
        NotFoundError: id ``check-data``: the given data lack an input.
    """
    cases: list[Case] = []
    reasons: list[str] = []
    for function in program.functions:
        name = function.signature.name
        try:
            for batch, feeds in _feeds(function, request):
                path = os.path.join(folder, f"case-{len(cases)}.npz")
                save_case(path, feeds, function.run(feeds))
                cases.append(Case(name, batch, path))
        except Exception as error:  # TensorFlow's errors are of every class
            if request.check.data is not None:
                raise
            traceback.print_exc()
            said = str(error).strip().split("\n")[0][:300]
            reasons.append(f"the signature {name} does not take made-up inputs ({said})")
    return tuple(cases), "; ".join(reasons)


def save_case(
    path: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> None:
    """Write a case."""
    import numpy as np

    arrays = {f"in:{name}": plain_array(array) for name, array in inputs.items()}
    arrays |= {f"out:{name}": plain_array(array) for name, array in outputs.items()}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def plain_array(array: np.ndarray) -> np.ndarray:
    """The same values in a dtype of NumPy's own: strings of fixed width, narrow floats wide."""
    import numpy as np

    array = np.asarray(array)
    if array.dtype == object:
        return array.astype(np.bytes_)
    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8", "float4")):
        return array.astype(np.float32)
    return array


def _feeds(
    function: Function, request: Request
) -> Iterator[tuple[int | None, dict[str, np.ndarray]]]:
    check = request.check
    if check.data is not None:
        yield None, _given(check.data, function)
        return
    ports = function.signature.inputs
    is_open = any(port.shape and port.shape[0] is None for port in ports)
    fixed = request.settings.batch
    if fixed is not None or not is_open:
        yield fixed, make_feeds(function, fixed or 1, check.seed)
        return
    for batch in _BATCHES:
        yield batch, make_feeds(function, batch, check.seed)


def _given(path: str, function: Function) -> dict[str, np.ndarray]:
    import numpy as np

    with np.load(path, allow_pickle=False) as data:
        missing = [one.name for one in function.signature.inputs if one.name not in data]
        if missing:
            raise NotFoundError(
                f"{path} lacks inputs",
                why=f"there is no {', '.join(missing)}; it has {', '.join(data) or 'nothing'}",
                hint="name the arrays as the inputs of the signature are named",
                id="check-data",
            )
        return {one.name: data[one.name] for one in function.signature.inputs}
