"""``convert`` to a file of weights: streamed, without a graph, and compared byte by byte.

Writes where ``Staging`` says; what is the same for every conversion (what is in the way,
the report, the move into place) is in ``ops/convert.py``.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

from ckpttool.conversion.check import CheckResult, not_run
from ckpttool.conversion.job import Made, Origin
from ckpttool.conversion.targets import KERAS_ENDING
from ckpttool.conversion.weights import weights_of
from ckpttool.errors import UsageError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.ops.convert_child import of_running
from ckpttool.ops.output_file import require_no_source
from ckpttool.ops.same_bytes import same_bytes
from ckpttool.ops.wanted import wanted
from ckpttool.sources.address import resolve
from ckpttool.sources.registry import open_resolved, open_source
from ckpttool.storage import open_directory
from ckpttool.storage.system import keep_buffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckpttool.conversion.request import Request
    from ckpttool.conversion.targets import Target
    from ckpttool.conversion.weights import WeightFormat, Weights
    from ckpttool.formats.named_array import NamedArray
    from ckpttool.limits import Limits

__all__ = ["values_origin", "write_weights"]

#: Arrays that a failed check names.
_NAMED = 5


def _require_no_graph(request: Request) -> None:
    given = {
        "--graph": request.graph,
        "--model": request.model,
        "--model-arg": request.model_args,
        "--root": request.root,
        "--like": request.like,
        "--input": request.inputs,
        "--output": request.outputs,
        "--signature": request.signatures,
        "--freeze-input": request.freeze,
        "--allow-training-graph": request.allow_training_graph,
        **of_running(request),
        "--check-only": request.check.only,
        "--check run": request.check.execute,
        "--map": request.maps,
    }
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} means nothing for {request.target}",
                why="it is values only, which are compared byte by byte, and nothing of it is run",
                hint="leave it out; Keras's own layout: --to h5 --model … DST.weights.h5",
                id="target-setting",
            )


def _no_keras(request: Request) -> tuple[str, ...]:
    if not request.destination.lower().endswith(KERAS_ENDING):
        return ()
    said = "Keras does not load this file, in spite of its name: only a model knows Keras's layout"
    return (f"{said}; --model FILE.py:FUNCTION",)


def values_origin(request: Request, limits: Limits) -> Origin:
    """Where the values come from; there is no graph.

    Raises:
        UsageError: id ``target-setting``: something was asked for that only a graph has.
        CkpttoolError: as ``resolve``.
    """
    _require_no_graph(request)
    resolved = resolve(request.source, limits)
    address = resolved.location
    if resolved.kind == "savedmodel":
        address = os.path.dirname(resolved.directory) or "."
    return Origin("values", "", address, notes=resolved.notes)


def write_weights(
    request: Request, target: Target, origin: Origin, path: str, limits: Limits
) -> tuple[Made, CheckResult]:
    """Write the chosen variables to a new file, and compare what was written.

    Args:
        request: which variables, under which names, and what becomes of dtypes.
        target: its module is the writer.
        origin: has the address of the values.
        path: the file; its directory exists.
        limits: bounds on what the source may claim.

    Raises:
        RefusedError: id ``output-is-source``: a file of the source would be replaced.
        UnsupportedError: ids ``dtype-not-representable``, ``name-not-representable``.
        UsageError: id ``output-twice``: two variables have one name; id ``bad-regex``.
        NotFoundError: id ``nothing-chosen``.
        CkpttoolError: as reading the source and writing.
    """
    writer: WeightFormat = import_module(f"ckpttool.conversion.{target.module}")
    choice = request.choice
    chosen = wanted(choice.include, choice.exclude, choice.regex, choice.kinds)
    assert origin.values is not None, "there is nothing else"
    keep_buffers()
    started = time.monotonic()
    with open_source(origin.values, limits) as source:
        require_no_source(request.destination, source.location, source.shards())
        weights = weights_of(source, writer, request.settings.dtypes, choice.names, chosen.__call__)
        arrays: Sequence[NamedArray] = weights.arrays
        if not request.check.run:  # then reading is what finds damage of the source
            arrays = [array.to_be_read() for array in arrays]
        folder, name = os.path.split(path)
        with open_directory(folder) as directory, directory.create(name) as file:
            writer.write(arrays, file, weights.about)
            file.commit()
        written = time.monotonic()
        seconds = {"write": round(written - started, 3)}
        checked = not_run("no check was asked for")
        if request.check.run:
            checked = _compared(weights, writer, path, limits)
            seconds["check"] = round(time.monotonic() - written, 3)
    facts: dict[str, object] = {"variables": len(weights.arrays), **weights.about}
    return Made((), (*weights.warnings, *_no_keras(request)), seconds=seconds, facts=facts), checked


def _compared(weights: Weights, writer: WeightFormat, path: str, limits: Limits) -> CheckResult:
    """Read the file back; compare every array with its source, and what is said about them."""
    different: list[str] = []
    with closing(open_resolved(resolve(path, limits), limits)) as result:
        found = {variable.name: variable for variable in result.variables()}
        for array in weights.arrays:
            variable = found.get(array.name)
            if variable is None:
                different.append(f"{array.name} is not in it")
            elif variable.shape != array.shape:
                different.append(f"{array.name} has another shape")
            elif _stored_as(variable.dtype) != _stored_as(array.dtype):
                different.append(f"{array.name} has another type")
            elif not same_bytes(array, result, variable, check=False):  # bytes tell more
                different.append(f"{array.name} has other values")
        if not writer.says(result, weights.about):
            different.append("what it says about its arrays is other than was written")
    if different:
        more = f" and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
        return CheckResult("failed", "bytes", why=", ".join(different[:_NAMED]) + more)
    return CheckResult("passed", "bytes")


def _stored_as(dtype: str) -> str:
    """What a format stores a dtype as: of quantised integers, which none has, the plain ones."""
    known = BY_NAME.get(dtype)
    return known.numpy if known else dtype
