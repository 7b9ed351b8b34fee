"""``average``: the mean of several checkpoints' floats; everything else is the last one's.

Sums are made in float64 (complex128), a piece of every source at a time, so that memory
does not grow with the variables. Steps, counters, strings, the object graph and the
``.meta`` are those of the last source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import fsum, isfinite
from typing import TYPE_CHECKING

from ckpttool.errors import RefusedError, UsageError
from ckpttool.formats.dtypes import BY_NUMBER, dtype_name, numpy_dtype
from ckpttool.formats.elements import swap_words
from ckpttool.limits import Limits
from ckpttool.model import Oddity, shape_text
from ckpttool.ops.rewrite.destination import destination, prefix_of
from ckpttool.ops.rewrite.layout import StoredPart, Variable, content_of
from ckpttool.ops.rewrite.reading import bundle_from
from ckpttool.ops.rewrite.run import (
    Change,
    Options,
    RewriteResult,
    carry_out,
    finish_pending,
    open_graph,
)
from ckpttool.ops.rewrite.slicing import Layout
from ckpttool.ops.rewrite.stream import stream
from ckpttool.ops.rewrite.tensors import Bundle, Computed, Content, Tensor, for_threads
from ckpttool.sources.address import resolve
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_resolved
from ckpttool.sources.series import series_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["average"]

#: Elements of every source that are summed at once: they stay in the processor's cache.
_ELEMENTS = 2**16
#: Differences that one error, and checkpoints that one note, name; the rest are counted.
_NAMED = 10


def average(
    addresses: Sequence[str], to: str, weights: Sequence[float] | None, options: Options
) -> RewriteResult:
    """Write the weighted mean of checkpoints that hold the same variables.

    Args:
        addresses: the sources; two or more, or ``RUN/@*`` for all of a run.
        to: the destination.
        weights: one a source, divided by their sum; None: equal.
        options: how.

    Raises:
        UsageError: fewer than two sources; weights that make no sense.
        RefusedError: id ``sources-differ``: names, dtypes or shapes; all are listed.
        CkpttoolError: as reading the sources and ``carry_out``.
    """
    pending = [] if options.dry_run else finish_pending(to)
    addresses, said = _each(addresses, options.limits)
    shares = _shares(addresses, weights)
    with ExitStack() as opened:
        found = [resolve(address, options.limits) for address in addresses]
        sources = [opened.enter_context(open_resolved(one, options.limits)) for one in found]
        where = destination(to, prefix_of(found[-1]))
        bundles = [bundle_from(source) for source in sources]
        tables = [_variables(bundle) for bundle in bundles]
        _require_alike(sources, tables)
        changes = _average(sources[-1], bundles, tables, shares)
        bundles[-1].inputs = tuple(one for bundle in bundles for one in bundle.inputs)
        location = " ".join(source.location for source in sources)
        notes = [*pending, *said, *(note for one in found for note in one.notes)]
        graph = open_graph(found[-1], opened)
        return carry_out(location, bundles[-1], where, changes, options, graph=graph, notes=notes)


def _each(addresses: Sequence[str], limits: Limits) -> tuple[list[str], list[str]]:
    """Every source by its own address, and what was understood by one that stands for several."""
    each: list[str] = []
    notes: list[str] = []
    for address in addresses:
        series = series_of(address, limits)
        if series is None:
            each.append(address)
            continue
        members = [member.address for member in series.members]
        each += members
        names = ", ".join(map(os.path.basename, members[:_NAMED]))
        more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
        notes.append(f"{address}, by step: {names}{more}")
        notes += [Oddity(f"{prefix} is left out: {why}") for prefix, why in series.passed_over]
    return each, notes


def _shares(addresses: Sequence[str], weights: Sequence[float] | None) -> list[float]:
    if len(addresses) < 2:
        raise UsageError(
            "there is nothing to average",
            why=f"{len(addresses)} source was given",
            hint="give two or more, each by its name: RUN/@9000 RUN/@10000; or all: 'RUN/@*'",
        )
    given = [1.0] * len(addresses) if weights is None else list(weights)
    total = fsum(given)
    if len(given) != len(addresses) or not all(map(isfinite, given)) or not total > 0:
        raise UsageError(
            f"the weights {', '.join(map(str, given))} cannot be used",
            why=f"there are {len(addresses)} sources; the weights have to be as many, and "
            "their sum more than 0",
            hint="for example --weights 0.7,0.3",
        )
    return [weight / total for weight in given]


def _variables(bundle: Bundle) -> dict[bytes, Variable]:
    return {variable.key: variable for variable in Layout(bundle).variables()}


def _require_alike(sources: Sequence[Source], tables: Sequence[Mapping[bytes, Variable]]) -> None:
    last, name = tables[-1], sources[-1].location
    wrong = []
    for source, table in zip(sources[:-1], tables[:-1], strict=True):
        for key in sorted(last.keys() | table.keys()):
            one, other = table.get(key), last.get(key)
            text = key.decode("utf-8", "backslashreplace")
            if one is None or other is None:
                wrong.append(f"{text} is not in {source.location if one is None else name}")
            elif (one.dtype, one.shape) != (other.dtype, other.shape) and (
                _is_float(one.dtype) or _is_float(other.dtype)
            ):
                wrong.append(
                    f"{text} is {dtype_name(one.dtype)} {shape_text(one.shape)} in "
                    f"{source.location} and {dtype_name(other.dtype)} "
                    f"{shape_text(other.shape)} in {name}"
                )
    if wrong:
        more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise RefusedError(
            "the sources do not hold the same variables",
            why="; ".join(wrong[:_NAMED]) + more,
            hint="ckpttool edit --keep or --drop brings them to the same variables",
            id="sources-differ",
        )


def _average(
    last: Source,
    bundles: Sequence[Bundle],
    tables: Sequence[Mapping[bytes, Variable]],
    shares: Sequence[float],
) -> list[Change]:
    """Replace the floats of the last bundle; what each change was."""
    steps = {found.key for found in last.variables() if found.kind == "step"}
    changes: list[Change] = []
    replaced: dict[bytes, Content] = {}
    big_endian = [bundle.big_endian for bundle in bundles]
    for key, variable in tables[-1].items():
        if not _is_float(variable.dtype) or variable.name in steps:
            continue
        for table in tables:
            table[key].check()
        for part in variable.parts:
            contents = [(content_of(table[key], part.box), table[key]) for table in tables]
            mean = _Mean(contents, part, shares, big_endian)
            replaced[part.tensor.key] = Computed(
                mean.chunks,
                part.tensor.content.nbytes,
                for_threads=all(for_threads(content) for content, _ in contents),
            )
        changes.append(Change(variable.name, "averaged", f"the mean of {len(tables)} sources"))
    result = bundles[-1]
    result.tensors = [
        tensor._replace(content=replaced[tensor.key]) if tensor.key in replaced else tensor
        for tensor in result.tensors
    ]
    return changes


class _Mean:
    """The mean of one entry, made while it is written."""

    def __init__(
        self,
        contents: Sequence[tuple[Content, Variable]],
        part: StoredPart,
        shares: Sequence[float],
        big_endian: Sequence[bool],
    ) -> None:
        self._contents = contents
        self._tensor: Tensor = part.tensor
        self._shares = shares
        self._big_endian = big_endian

    def chunks(self) -> Iterator[bytes]:
        import numpy as np

        known = BY_NUMBER[self._tensor.dtype]
        dtype = numpy_dtype(known.name)
        wide = np.dtype(np.complex128 if known.name.startswith("complex") else np.float64)
        pieces = [
            stream(content, variable.parts[0].tensor, _ELEMENTS * known.size)
            for content, variable in self._contents
        ]
        # Two buffers for all pieces: new ones would cost more than the sums.
        sums, terms = np.empty(_ELEMENTS, wide), np.empty(_ELEMENTS, wide)
        for group in zip(*pieces, strict=True):
            arrays = [
                np.frombuffer(swap_words(data, known.word) if big else data, dtype)
                for data, big in zip(group, self._big_endian, strict=True)
            ]
            size = arrays[0].size
            total = self._sum(arrays, sums[:size], terms[:size])
            data = total.astype(dtype).tobytes()
            yield swap_words(data, known.word) if self._big_endian[-1] else data

    def _sum(self, arrays: Sequence[np.ndarray], total: np.ndarray, term: np.ndarray) -> np.ndarray:
        """The mean, in ``total``; ``term`` is overwritten."""
        import numpy as np

        total[:] = arrays[0]
        if len(set(self._shares)) == 1 and arrays[0].itemsize < total.itemsize:
            # The sum of narrower numbers cannot overflow, and is divided once.
            for array in arrays[1:]:
                np.copyto(term, array)
                total += term
            total /= len(arrays)
            return total
        total *= self._shares[0]
        for array, share in zip(arrays[1:], self._shares[1:], strict=True):
            np.copyto(term, array)
            term *= share
            total += term
        return total


def _is_float(number: int) -> bool:
    """Types that have a mean: floats of every width, and complex numbers."""
    return dtype_name(number).startswith(("float", "bfloat", "complex"))
