"""HDF5 files as sources: Keras' models and weights, and any other with datasets.

The key of a variable is its path in the file; ``keras_names.py`` makes the readable name of
it. What lies plainly in the file is read from where it is, without the library. The
configuration of a model is read as data and never made into a model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, CorruptError, IncompleteError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.formats.hdf5 import Dataset, Hdf5, Oddity
from ckpttool.formats.hdf5_process import Hdf5Process
from ckpttool.formats.hdf5_writer import NAME_ATTRIBUTE
from ckpttool.model import Finding, Variable, numel
from ckpttool.sources.base import Extent
from ckpttool.sources.filenames import file_number
from ckpttool.sources.keras_config import lambda_findings, parse_object, summary_of
from ckpttool.sources.keras_names import Stored, labels, style_of
from ckpttool.sources.kinds import Label, label_of_name
from ckpttool.sources.listed import ListedSource
from ckpttool.sources.selection import Selection
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.model import Kind
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.base import SourceKind
    from ckpttool.storage.base import Directory, ReadableFile

__all__ = ["Hdf5Source", "KerasH5Source", "open_resolved"]

#: What a counter of steps may be stored as.
_INTEGERS = frozenset({"int32", "int64"})
_ENDINGS = (".weights.h5", ".h5", ".hdf5", ".keras")


def open_resolved(resolved: Resolved, limits: Limits) -> KerasH5Source:
    """Open an HDF5 file.

    Raises:
        CorruptError: id ``hdf5-unreadable``. LimitError. UnsupportedError: no h5py.
    """
    return KerasH5Source(open_directory(resolved.directory), resolved, limits)


class Hdf5Source(ListedSource):
    """The variables of an HDF5 file, wherever that lies; a subclass calls `read_file`."""

    def __init__(
        self, directory: Directory, resolved: Resolved, limits: Limits, *, kind: SourceKind
    ) -> None:
        super().__init__(directory, resolved, limits, kind=kind)
        self._hdf5: Hdf5 | None = None
        self._datasets: dict[str, Dataset] = {}
        name = resolved.prefix
        for ending in _ENDINGS:
            name = name.removesuffix(ending)
        self.number = file_number(name)

    def read_file(
        self,
        file: ReadableFile,
        *,
        start: int = 0,
        size: int | None = None,
        known: Mapping[str, str] | None = None,
    ) -> Hdf5:
        """List what an HDF5 file holds, and what is odd about it.

        Args:
            file: the file.
            start: where in it the HDF5 file begins.
            size: its bytes; None: up to the end.
            known: names of the layers by their groups, for a file that does not say them;
                counts only where it has every group of the file's model.
        """
        self._hdf5 = hdf5 = Hdf5Process(file, self._limits, start=start, size=size)
        found = hdf5.walk()
        for oddity in found.oddities:
            self.found(_link_finding(oddity))
        self._datasets = {dataset.path: dataset for dataset in found.datasets}
        groups = set(found.groups)
        style = style_of(
            list(self._datasets), found.groups, layer_names=hdf5.has_attribute("", "layer_names")
        )
        layers = {}
        if style == "numbered":
            if self.kind == "keras-h5":
                self.kind = "keras-weights"
            for group in groups:
                if group.endswith("/vars"):
                    layers[group.removesuffix("/vars")] = hdf5.attribute(group, "name") or ""
            if known and not any(layers.values()):
                top = {group for group in groups if re.fullmatch("layers/[^/]+", group)}
                layers = dict(known) if top <= known.keys() else layers
        elif style == "plain":
            self.notes.append("an HDF5 file that Keras did not write: its datasets as they are")
        stored = [Stored(data.path, data.shape, data.type.name) for data in found.datasets]
        named = labels(stored, style, layers)
        if style == "plain":
            named |= self._spelled(hdf5, named)
        self.publish(
            self._variable(dataset, *named[path]) for path, dataset in self._datasets.items()
        )
        self._find_step()
        return hdf5

    def attribute(self, name: str) -> str | None:
        """A text that the file says of itself; None where it does not.

        Raises:
            LimitError: id ``limit-keras-config``. CorruptError: id ``hdf5-unreadable``.
        """
        return self._opened().attribute("", name)

    @staticmethod
    def _spelled(hdf5: Hdf5, named: Mapping[str, Label]) -> dict[str, Label]:
        """The labels of datasets whose names could not be their paths: see hdf5_writer.py."""
        found = {}
        taken = set(named)
        for path in named:
            name = (hdf5.attribute(path, NAME_ATTRIBUTE) or "") if ":" in path else ""
            if name not in taken and name.replace("/", ":") == path.replace("/", ":"):
                taken.add(name)
                found[path] = label_of_name(name)
        return found

    def describe(self, version: str | None, config: str | bytes | None, what: str) -> None:
        """Say which Keras wrote the file, and what the configuration of the model says."""
        said = [f"written by Keras {version}"] if version else []
        if config is not None:
            try:
                summary = summary_of(parse_object(config, what))
            except CorruptError as error:
                self.found(Finding(error.id, "warning", what, str(error)))
            else:
                said.insert(0, str(summary))
                for finding in lambda_findings(summary, what):
                    self.found(finding)
        if said:
            self.notes.append(f"{os.path.basename(self.location)}: {', '.join(said)}")

    def extent(self, variable: Variable) -> Extent | None:
        dataset, element = self._datasets[variable.key], BY_NAME.get(variable.dtype)
        if dataset.offset is None or element is None or not element.size:
            return None
        hdf5 = self._opened()
        if dataset.stored != variable.nbytes:
            raise CorruptError(
                f"the size of {variable.name} does not fit its shape",
                why=f"{dataset.stored} bytes are stored, and {variable.nbytes} are needed",
                hint="take the file from another copy",
                id="size-mismatch",
            )
        if dataset.offset + dataset.stored > hdf5.size:
            raise IncompleteError(
                f"{hdf5.file.path} ends before {variable.name} does",
                why=f"it needs bytes up to {dataset.offset + dataset.stored} of {hdf5.size}",
                hint="copy the file again from where it is whole",
                id="short-read",
            )
        start = hdf5.start + dataset.offset
        return Extent(hdf5.file, start, dataset.stored, dataset.type.little_endian)

    def checksummed(self, variable: Variable) -> bool:
        return self._datasets[variable.key].checksummed

    def close(self) -> None:
        if self._hdf5 is not None:
            self._hdf5.close()
        super().close()

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        from ckpttool.formats.elements import swap_words
        from ckpttool.sources.hdf5_values import read_elements

        element = self._fixed(variable)
        self.extent(variable)  # a size that does not fit is told before anything is given out
        dataset = self._datasets[variable.key]
        for piece in read_elements(self._opened(), dataset, selection, element.size, check=check):
            yield piece if dataset.type.little_endian else swap_words(piece, element.word)

    def _strings(self, variable: Variable, selection: Selection, *, check: bool) -> list[bytes]:
        from ckpttool.sources.hdf5_values import read_strings, require_readable

        dataset = self._datasets[variable.key]
        require_readable(dataset)
        return read_strings(self._opened(), dataset, selection, check=check)

    def _opened(self) -> Hdf5:
        assert self._hdf5 is not None, "a subclass calls read_file in its constructor"
        return self._hdf5

    def _variable(self, dataset: Dataset, name: str, kind: Kind) -> Variable:
        element = BY_NAME.get(dataset.type.name)
        if element is None and dataset.type.name == "opaque":
            self.found(
                Finding(
                    "hdf5-opaque",
                    "note",
                    dataset.path,
                    f"its elements of {dataset.type.size} bytes are said to be nothing"
                    + ("; bfloat16 is stored so" if dataset.type.size == 2 else ""),
                )
            )
        if dataset.layout in {"virtual", "external"}:
            self.found(
                Finding(
                    "hdf5-elsewhere",
                    "error",
                    dataset.path,
                    "its values are in other files, which are not opened",
                )
            )
        elements = dataset.shape is not None and element is not None and bool(element.size)
        nbytes = numel(dataset.shape or ()) * dataset.type.size if elements else dataset.stored
        return Variable(
            name, dataset.path, dataset.type.name, dataset.shape, nbytes, 0, dataset.offset, kind
        )

    def _find_step(self) -> None:
        """Read the optimizer's counter, where there is exactly one."""
        counters = [variable for variable in self._variables if variable.kind == "step"]
        if len(counters) == 1 and counters[0].shape == () and counters[0].dtype in _INTEGERS:
            try:
                data = b"".join(self._chunks(counters[0], Selection.whole(()), check=True))
            except CkpttoolError:
                return  # reading it says what is wrong
            self.step = int.from_bytes(data, "little", signed=True)


class KerasH5Source(Hdf5Source):
    """An HDF5 file of its own."""

    def __init__(self, directory: Directory, resolved: Resolved, limits: Limits) -> None:
        super().__init__(directory, resolved, limits, kind="keras-h5")
        try:
            hdf5 = self.read_file(self.open(resolved.prefix))
            config = hdf5.attribute("", "model_config")
            self.describe(hdf5.attribute("", "keras_version"), config, "model_config")
        except BaseException:
            self.close()
            raise


def _link_finding(oddity: Oddity) -> Finding:
    return Finding("hdf5-link", "warning", oddity.path, f"it is not followed: {oddity.why}")
