"""The reference of the check: what the restored original computes, written to files.

The inputs are real ones (``given_data.py``) or made up (``feeds.py``). A function that
gives other values each time it is run is no reference.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.conversion.job import Case
from ckpttool.conversion.metrics import compare
from ckpttool.conversion.ports import Port
from ckpttool.conversion.request import Request
from ckpttool.conversion.worker.batches import run_in_batches
from ckpttool.conversion.worker.cases import plain_array, save_case
from ckpttool.conversion.worker.feeds import OPEN_SIZES, is_count, make_feeds
from ckpttool.conversion.worker.given_data import calibration_feeds, read_given
from ckpttool.conversion.worker.graph_facts import GraphFacts, facts_of
from ckpttool.conversion.worker.program import Function, Program
from ckpttool.errors import CkpttoolError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["record"]

#: Two sizes, so that a result in which one of them was baked is found out.
_BATCHES = (2, 3)
#: An NRMSE that sums in another order do not reach; what is over it is chance in the graph.
_SAME = 1e-5
#: Random operations that are named.
_NAMED = 3


class _Run(NamedTuple):
    batch: int | None
    feeds: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def record(program: Program, folder: str, request: Request) -> tuple[tuple[Case, ...], str]:
    """Run every function of a program, and keep what went in and came out.

    Args:
        program: as it was restored.
        folder: an existing directory.
        request: its check says with what.

    Returns:
        The cases, and which signatures have none and why: some take no made-up inputs, some
        give other values each time.

    Raises:
        NotFoundError, UsageError: id ``check-data``: the given data do not fit.
    """
    cases: list[Case] = []
    reasons: list[str] = []
    names = {port.name for one in program.functions for port in one.signature.inputs}
    data = None if request.check.data is None else read_given(request.check.data, sorted(names))
    if data is not None:
        outputs = {port.name for one in program.functions for port in one.signature.outputs}
        data.require_outputs(outputs)
    measured: Mapping[str, dict[str, np.ndarray]] = {}
    if data is None and request.settings.calibration is not None:
        signatures = [one.signature for one in program.functions]
        measured = calibration_feeds(request.settings.calibration, signatures)
    for function in program.functions:
        name = function.signature.name
        facts = facts_of(function)
        try:
            if data is not None:
                runs = [_run_on(function, data.feeds(function.signature))]
            elif name in measured:
                runs = [_run_on(function, measured[name])]
            else:
                runs = _runs(function, request, facts)
            again = _run_on(function, runs[0].feeds).outputs
        except CkpttoolError:
            raise
        except Exception as error:  # noqa: BLE001 - TensorFlow's errors are of every class
            traceback.print_exc()
            said = " ".join(str(error).split())[:300]
            is_made_up = data is None and name not in measured
            which = "made-up inputs" if is_made_up else "these inputs"
            reasons.append(f"the signature {name} does not take {which} ({said})")
            if is_made_up:
                reasons[-1] += "; give it real ones: --check-data FILE.npz"
            continue
        if _differ(runs[0].outputs, again):
            reasons.append(_changing(name, facts))
            continue
        for run in runs:
            labels = {} if data is None else data.labels(function.signature, run.outputs)
            path = os.path.join(folder, f"case-{len(cases)}.npz")
            save_case(path, run.feeds, run.outputs, labels)
            cases.append(Case(name, run.batch, path, facts.precision))
    return tuple(cases), "; ".join(reasons)


def _run_on(function: Function, feeds: dict[str, np.ndarray]) -> _Run:
    """Run a function on real inputs, whatever batches it takes."""
    ports = function.signature.inputs
    return _Run(None, feeds, run_in_batches(function.run, ports, feeds))


def _runs(function: Function, request: Request, facts: GraphFacts) -> list[_Run]:
    """Run a function on made-up inputs of every batch size that is wanted.

    Sizes of other open dimensions are tried until one is taken and gives something: what the
    graph wants of them, only running it tells. Of too few pixels some processors make an
    error, others nothing, whose mean is NaN.
    """
    ports = function.signature.inputs
    is_open = any(port.shape and port.shape[0] is None for port in ports)
    fixed = request.settings.batch
    batches = _BATCHES if is_open and fixed is None else (fixed or 1,)
    # A number of steps may have to be one or more, which no graph says.
    counts = (None, 1) if any(map(is_count, ports)) else (None,)
    attempts = [(size, count) for count in counts for size in _open_sizes(ports)]
    empty: list[_Run] | None = None
    for size, count in attempts:
        try:
            runs = [_made_up(function, batch, size, count, request, facts) for batch in batches]
        except Exception:  # TensorFlow's errors are of every class
            if (size, count) == attempts[-1] and empty is None:
                raise
            traceback.print_exc()
            continue
        if all(_says_something(array) for run in runs for array in run.outputs.values()):
            return runs
        empty = empty or runs
    assert empty is not None, "the last size returns or raises"
    return empty


def _says_something(output: np.ndarray) -> bool:
    """Whether there is a number to compare with."""
    import numpy as np

    array = plain_array(output)
    return bool(np.isfinite(array).any()) if array.dtype.kind in "fc" else array.size > 0


def _open_sizes(ports: Sequence[Port]) -> Sequence[int]:
    """Sizes to try for open dimensions: ours, and those that other inputs have fixed."""
    sizes = [size for port in ports for size in (port.shape or ())[1:]]
    if None not in sizes:
        return OPEN_SIZES[:1]
    return list(dict.fromkeys([*OPEN_SIZES, *(size for size in sizes if size)]))


def _made_up(
    function: Function,
    batch: int,
    size: int,
    count: int | None,
    request: Request,
    facts: GraphFacts,
) -> _Run:
    seed = request.check.seed or 0
    feeds = make_feeds(function, batch, seed, size=size, facts=facts, scalar=count)
    return _Run(batch, feeds, function.run(feeds))


def _differ(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    """Whether two runs on the same inputs gave other values."""
    for name, array in first.items():
        one, other = plain_array(array), plain_array(second[name])
        if one.shape != other.shape:
            return True
        figures = compare(one, other)
        is_real = one.dtype.kind in "fc"
        if figures.nonfinite or (is_real and (figures.nrmse or 0.0) > _SAME):
            return True
        if not is_real and figures.equal < 1.0:
            return True
    return False


def _changing(name: str, facts: GraphFacts) -> str:
    said = f"the signature {name} gives other values each time it is run"
    if facts.random:
        said += f", by {', '.join(facts.random[:_NAMED])}"
    return f"{said}; nothing can be compared with that"
