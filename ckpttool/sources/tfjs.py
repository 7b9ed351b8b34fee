"""A TensorFlow.js model as a source: ``model.json``, and the weight files that it names.

Quantised weights are handed out as the numbers that they stand for, as TensorFlow.js does
when it loads them. Missing and short files are findings, and errors of just the weights
that lie in them.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.errors import CorruptError
from ckpttool.formats.bounds import require_within
from ckpttool.formats.elements import cast
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.formats.tfjs import Quantisation, TfjsModel, Weight, parse_model
from ckpttool.model import Finding, Shard, Variable, numel
from ckpttool.sources.array_file import ArrayFileSource
from ckpttool.sources.assemble import Box, pieces, reads
from ckpttool.sources.base import Extent, Read
from ckpttool.sources.beside import BesideFiles
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.listed import selection_shape
from ckpttool.sources.tfjs_files import WeightFiles
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.formats.model_summary import ModelSummary
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.selection import Selection

__all__ = ["TfjsSource", "open_resolved"]

_LENGTH_BYTES = 4
#: Read at once where lengths are looked for: there may be millions of them, a few bytes apart.
_WINDOW = 2**14


class _Place(NamedTuple):
    """Where a weight lies: in which group, from which byte of it."""

    weight: Weight
    group: int
    offset: int
    nbytes: int


def open_resolved(resolved: Resolved, limits: Limits) -> TfjsSource:
    """Open the model that an address came to; raises as `TfjsSource`."""
    return TfjsSource(open_directory(resolved.directory), resolved, limits, "tfjs")


class TfjsSource(ArrayFileSource):
    """An open model.

    Attributes:
        summary: what the model says of itself; None of a manifest alone.

    Raises:
        CorruptError, LimitError, UnsupportedError: as ``parse_model``.
        UnsafeError: a weight file outside the directory, or a link.
    """

    summary: ModelSummary | None
    _places: dict[str, _Place]
    _groups: list[WeightFiles]
    _beside: BesideFiles

    def _load(self, name: str) -> Iterator[Variable]:
        self._groups, self._places = [], {}
        file = self.open(name)
        require_within(file.path, file.stat.size, self._limits, "tfjs_model_bytes")
        model = parse_model(file.pread(0, file.stat.size), file.path, self._limits)
        self.summary = model.summary
        self._open_groups(model, file.path)
        return map(self._variable, self._places.values())

    def _open_groups(self, model: TfjsModel, who: str) -> None:
        self._beside = BesideFiles(self._directory, who, self._files)
        for number, group in enumerate(model.groups):
            files = WeightFiles(self._beside, [self._beside.add(path) for path in group.paths])
            self._groups.append(files)
            files.place(sum(weight.nbytes for weight in group.weights))
            at = 0
            for weight in group.weights:
                nbytes = weight.nbytes if weight.itemsize else self._strings_end(files, weight, at)
                self._places[weight.name] = _Place(weight, number, at, nbytes)
                at += nbytes
            files.place(at)
            self._judge(files, at, number)
        for finding in self._beside.findings():
            self.found(finding)

    def _variable(self, place: _Place) -> Variable:
        weight = place.weight
        found = self._groups[place.group].locate(place.offset, place.nbytes)
        shard, offset = (None, None) if found is None else found
        name, kind = weight.name, kind_of_name(weight.name)
        return Variable(name, name, weight.dtype, weight.shape, place.nbytes, shard, offset, kind)

    def _judge(self, files: WeightFiles, needed: int, number: int) -> None:
        """Say what is wrong with the files of a group."""
        if files.missing or files.size == needed:
            return
        which = f"weight group {number + 1}"
        text = f"its files have {files.size} bytes, and its weights need {needed}"
        if files.size < needed:
            self.found(Finding("weights-short", "error", which, text))
        else:
            self.found(Finding("weights-spare", "warning", which, text))

    def _strings_end(self, files: WeightFiles, weight: Weight, at: int) -> int:
        """The bytes of a weight of strings, of which only its own lengths tell."""
        count = numel(weight.shape)
        require_bounded(f"reading {weight.name}", count, count * _LENGTH_BYTES, self._limits)
        there = files.size
        end = start = at
        window = b""  # what is read already, from ``start`` on
        for _ in range(count):
            if end - start + _LENGTH_BYTES > len(window):
                start, window = end, files.some(end, _WINDOW, weight.name)
                if len(window) < _LENGTH_BYTES:  # a length may go from one file into the next
                    window = files.read(end, _LENGTH_BYTES, weight.name)
            length = window[end - start : end - start + _LENGTH_BYTES]
            end += _LENGTH_BYTES + int.from_bytes(length, "little")
            if end - at > there:
                raise _malformed_texts(
                    weight.name, f"one ends at byte {end}, and the files have {there}"
                )
        return end - at

    # Source ---------------------------------------------------------------------------

    def shards(self) -> Sequence[Shard]:
        return self._beside.shards(dict(pair for files in self._groups for pair in files.needed()))

    def extent(self, variable: Variable) -> Extent | None:
        place = self._places[variable.key]
        if not place.weight.itemsize or place.weight.quantisation is not None:
            return None
        found = self._groups[place.group].locate(place.offset, place.nbytes)
        if found is None:
            return None
        return Extent(self._beside.file(found[0]), found[1], place.nbytes, little_endian=True)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        place = self._places[variable.key]
        ranges = [(0, place.offset, place.nbytes)]
        if place.weight.itemsize:
            box = _box(variable)
            ranges = [
                (0, place.offset + offset, size)
                for _, offset, size in reads(selection, place.weight.itemsize, [box])
            ]
        for _, offset, size in ranges:
            yield from self._groups[place.group].reads(offset, size, variable.name)

    def _chunks(
        self,
        variable: Variable,
        selection: Selection,
        *,
        check: bool,  # noqa: ARG002 - there are no checksums
    ) -> Iterator[bytes]:
        place = self._places[variable.key]
        files = self._groups[place.group]

        def read(_part: int, offset: int, size: int) -> bytes:
            return files.read(place.offset + offset, size, variable.name)

        stored = place.weight.quantisation
        convert = bytes if stored is None else partial(_meant, stored, place.weight.dtype)
        for piece in pieces(selection, place.weight.itemsize, [_box(variable)], read):
            yield convert(piece)

    def _strings(
        self,
        variable: Variable,
        selection: Selection,
        *,
        check: bool,  # noqa: ARG002 - there are no checksums
    ) -> list[bytes]:
        place = self._places[variable.key]
        count = numel(place.weight.shape)
        require_bounded(f"reading {variable.name}", count, place.nbytes, self._limits)
        data = self._groups[place.group].read(place.offset, place.nbytes, variable.name)
        texts, at = [], 0
        for _ in range(count):
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
            texts.append(data[at + _LENGTH_BYTES : end])
            at = end
        if at != len(data):
            raise _malformed_texts(variable.name, f"they end at byte {at} of {len(data)}")
        return [text for start, run in selection.runs() for text in texts[start : start + run]]


def _malformed_texts(name: str, why: str) -> CorruptError:
    return CorruptError(
        f"the texts of {name} are malformed",
        why=why,
        hint="take the files from another copy",
        id="strings-malformed",
    )


def _box(variable: Variable) -> Box:
    shape = selection_shape(variable)
    return Box((0,) * len(shape), shape)


def _meant(stored: Quantisation, dtype: str, data: bytes) -> bytes:
    """The numbers that quantised elements stand for (io_utils.ts: decodeWeights)."""
    if stored.dtype == "float16":
        return cast(data, "float16", "float32")
    codes = array("B" if stored.dtype == "uint8" else "H", data)
    if sys.byteorder == "big":
        codes.byteswap()
    table = _table(stored, dtype)
    numbers = array(table.typecode, map(table.__getitem__, codes))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _table(stored: Quantisation, dtype: str) -> array[int] | array[float]:
    """The number of each code."""
    count = 2**8 if stored.dtype == "uint8" else 2**16
    numbers = (stored.minimum + code * stored.scale for code in range(count))
    if dtype == "float32":
        return array("f", numbers)
    return array("i", map(_rounded, numbers))


def _rounded(number: float) -> int:
    """``Math.round``, and what an Int32Array holds of it (ECMA-262: ToInt32)."""
    if not math.isfinite(number):
        return 0
    return (math.floor(number + 0.5) + 2**31) % 2**32 - 2**31
