"""The task that runs a result on the inputs of the reference, in its own runtime.

Knows no runtime: ``run_X.py`` of a target does. Whatever a result does to the process is
its own; what it computes is written to files, and compared elsewhere (``check.py``).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.job import Case, Execution, Ran
from ckpttool.conversion.pairing import Pairing, pair_ports, pair_signatures
from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.targets import TARGETS, installed
from ckpttool.conversion.wire import decode, encode, plain
from ckpttool.conversion.worker.batches import is_filled_up, run_in_batches
from ckpttool.conversion.worker.cases import save_case
from ckpttool.conversion.worker.no_space import no_space
from ckpttool.conversion.worker.runner import Runner
from ckpttool.errors import CkpttoolError
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["run", "run_cases"]

_FILLED_UP = "{} takes whole batches: the last was filled up with rows that are not compared"


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Do an ``Execution``; the value is a ``Ran``.

    Raises:
        ConverterMissingError: the runtime is not installed.
        UnsupportedError: the runtime cannot run such a result.
    """
    execution = decode(Execution, encode(job))
    module = TARGETS[execution.target].module.replace("to_", "run_", 1)
    runtime = import_module(f"ckpttool.conversion.worker.{module}")
    runner: Runner = runtime.open_result(execution.path)
    ran = run_cases(runner, execution)
    return plain(ran)  # type: ignore[return-value]


def run_cases(runner: Runner, execution: Execution) -> Ran:
    """Run every case, and write what comes out of it."""
    found = {one.name: one for one in runner.signatures()}
    pairing = pair_signatures(execution.signatures, list(found.values()))
    has = ", ".join(name or "one without a name" for name in found) or "none"
    problems = [f"it has no signature {name}; it has {has}" for name in pairing.left]
    notes: list[str] = []
    if pairing.over and not pairing.left:
        notes.append(f"it also has the signatures {', '.join(pairing.over)}, which are not checked")
    written: dict[str, str] = {}
    for wanted in execution.signatures:
        if wanted.name not in pairing.names:
            continue
        theirs = found[pairing.names[wanted.name]]
        inputs = pair_ports(wanted.inputs, theirs.inputs)
        outputs = pair_ports(wanted.outputs, theirs.outputs)
        said = _differences(wanted.name, inputs, outputs)
        notes += _matched(wanted.name, inputs, outputs)
        if execution.batch is None:
            notes += _narrower(wanted, theirs, inputs)
        problems += said
        if inputs.over:
            continue  # it wants what nobody has
        mine = [one for one in execution.cases if one.signature == wanted.name]
        for case in mine:
            path = os.path.join(execution.folder, f"result-{len(written)}.npz")
            try:
                feeds = _feeds(case, inputs, theirs.inputs)
                if is_filled_up(theirs.inputs, feeds):
                    notes.append(_FILLED_UP.format(wanted.name))
                results = run_in_batches(partial(runner.run, theirs.name), theirs.inputs, feeds)
                save_case(path, {}, _renamed(results, outputs))
            except CkpttoolError:
                raise
            except Exception as error:  # a runtime's errors are of every class
                traceback.print_exc()
                if (full := no_space(error)) is not None:
                    raise full from error  # which says nothing of the result
                problems.append(_failed(case, error))
            else:
                written[case.path] = path
    version = installed(runner.runtime).version or ""
    return Ran(written, tuple(problems), tuple(dict.fromkeys(notes)), {runner.runtime: version})


def _differences(name: str, inputs: Pairing, outputs: Pairing) -> list[str]:
    found = []
    if inputs.over:
        found.append(
            f"{name} takes {', '.join(inputs.over)}, and the source has no such input"
            + (f" (only {', '.join(inputs.left)})" if inputs.left else "")
        )
    if outputs.left:
        found.append(f"{name} lacks the outputs {', '.join(outputs.left)}")
    if outputs.over:
        found.append(f"{name} gives {', '.join(outputs.over)}, and the source has no such output")
    return found


def _matched(name: str, inputs: Pairing, outputs: Pairing) -> list[str]:
    """What a person should know of how ports were found; an input that is not needed too."""
    found = []
    for role, pairing in (("input", inputs), ("output", outputs)):
        if pairing.how != "name":
            pairs = ", ".join(f"{a} = {b}" for a, b in pairing.names.items())
            found.append(f"{name}: {role}s were matched by {pairing.how}: {pairs}")
    if inputs.left and not inputs.over:
        found.append(f"{name} does not take {', '.join(inputs.left)}; they may not matter")
    return found


def _narrower(wanted: Signature, theirs: Signature, inputs: Pairing) -> list[str]:
    """That a result takes batches of one size where its source takes any."""
    shapes = {port.name: port.shape for port in theirs.inputs}
    pairs = [
        (port.shape, shapes[inputs.names[port.name]])
        for port in wanted.inputs
        if port.name in inputs.names
    ]
    sizes = {b[0] for a, b in pairs if a and b and a[0] is None and b[0] is not None}
    rows = [f"{size} row{'s' if size > 1 else ''}" for size in sorted(sizes)]
    return [f"{wanted.name} takes {one} at a time, and the source any number" for one in rows]


def _feeds(case: Case, pairing: Pairing, ports: Sequence[Port]) -> dict[str, np.ndarray]:
    """The inputs of a case by the result's names, in the dtypes that it takes."""
    import numpy as np

    kinds = {port.name: port.dtype for port in ports}
    with np.load(case.path, allow_pickle=False) as data:
        return {
            theirs: _as_kind(data[f"in:{ours}"], kinds[theirs])
            for ours, theirs in pairing.names.items()
        }


def _as_kind(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array in a dtype of the same kind; as it is where the kind is another.

    Raises:
        OverflowError: an integer does not fit.
    """
    import numpy as np

    if array.dtype.kind == "S":
        return array.astype(object)
    if dtype not in BY_NAME or dtype in {"string", "bool", "resource", "variant"}:
        return array
    is_real = dtype.startswith(("float", "bfloat"))
    if is_real != (array.dtype.kind == "f") or array.dtype.kind not in "iuf":
        return array
    found = array.astype(numpy_dtype(dtype))
    if not is_real and not np.array_equal(found, array):
        raise OverflowError(f"an input has values that {dtype} does not hold")
    return found


def _renamed(results: Mapping[str, np.ndarray], outputs: Pairing) -> dict[str, np.ndarray]:
    return {ours: results[theirs] for ours, theirs in outputs.names.items()}


def _failed(case: Case, error: Exception) -> str:
    said = " ".join(str(error).split())[:300]
    size = "" if case.batch is None else f" on a batch of {case.batch}"
    return f"{case.signature} fails{size}: {type(error).__name__}: {said}"
