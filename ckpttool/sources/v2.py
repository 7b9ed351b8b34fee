"""A V2 checkpoint as a source: what is in it, under which name, in which shard.

Streams its variables out of the index; ``v2_variables.py`` makes a variable of its entry
or of the entries of its slices. The values are read by ``v2_values.py``, names and kinds come from
``v2_names.py``, and only when they are asked for. A SavedModel's variables are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    NotFoundError,
)
from ckpttool.formats.bundle import OBJECT_GRAPH_KEY, BundleIndex, Entry
from ckpttool.formats.dtypes import dtype_name
from ckpttool.limits import Limits
from ckpttool.model import Finding, Shard, Variable
from ckpttool.policy.words import plural
from ckpttool.sources.filenames import index_name, split_number
from ckpttool.sources.shard_files import MISSING_NAMED, ShardFiles
from ckpttool.sources.v2_names import BundleNames
from ckpttool.sources.v2_variables import (
    DTYPES,
    Labeller,
    new_variable,
    partitioned,
    unlabelled,
    whole,
)
from ckpttool.storage import open_directory
from ckpttool.storage.base import Closing

# A listing reads no values, and only an object-based one needs names from a graph: what
# these take is imported where it is needed, for it would be a tenth of a listing's time.
if TYPE_CHECKING:
    import numpy as np

    from ckpttool.sources.address import Resolved
    from ckpttool.sources.base import Extent, NameStyle, Read, SourceKind, Style
    from ckpttool.sources.naming import GraphNames
    from ckpttool.sources.selection import Selection
    from ckpttool.sources.v2_values import BundleValues
    from ckpttool.storage import Directory, ReadableFile

__all__ = ["BundleSource", "open_resolved"]

_T = TypeVar("_T")

_GRAPH_KEY = OBJECT_GRAPH_KEY.encode()
#: Slices of one variable from which on their entries are found by a walk.
_MANY_SLICES = 200


def open_resolved(resolved: Resolved, limits: Limits) -> BundleSource:
    """Open the checkpoint that an address came to; raises as `BundleSource`."""
    directory = open_directory(resolved.directory)
    try:
        return BundleSource(
            directory,
            resolved.prefix,
            address=resolved.address,
            location=resolved.location,
            kind="savedmodel" if resolved.kind == "savedmodel" else "tf-v2",
            notes=resolved.notes,
            limits=limits,
        )
    except CkpttoolError:
        directory.close()
        raise


class BundleSource(Closing):
    """An open V2 checkpoint; not to be used by several threads at once.

    Args:
        directory: where its files lie; the source closes it.
        prefix: its name there.
        address: as a person gave it.
        location: the prefix with its directory, for messages.
        kind: what `inspect` calls it.
        notes: how the address was understood.
        limits: bounds on what its files may claim.

    Raises:
        NotFoundError: there is no index.
        CorruptError, LimitError, UnsupportedError: as ``BundleIndex``.
        ChangedError: another program wrote to the index while it was read, here and in
            whatever else reads it.
    """

    def __init__(
        self,
        directory: Directory,
        prefix: str,
        *,
        address: str,
        location: str,
        kind: SourceKind,
        notes: Sequence[str],
        limits: Limits,
    ) -> None:
        self.address = address
        self.location = location
        self.kind: SourceKind = kind
        self.notes: list[str] = list(notes)
        self._directory = directory
        self._prefix = prefix
        self._limits = limits
        self._index_file = directory.open(index_name(prefix))
        try:
            self.index = BundleIndex(self._index_file, limits)
            self._graph_entry = self.index.get(_GRAPH_KEY)
        except CkpttoolError as error:
            try:
                self._require_same_index(error)
            finally:
                self._index_file.close()
            raise
        header = self.index.header
        self._files = ShardFiles(directory, prefix, header.num_shards)
        self._opened_values: BundleValues | None = None
        entry = self._graph_entry
        self._naming = BundleNames(
            None if entry is None else whole(entry, unlabelled),
            self._graph_strings,
            limits,
            self.notes,
        )
        self._slices: dict[bytes, Entry] | None = None
        #: How many bytes of each shard the entries need, and how many variables there
        #: are; known after one whole walk.
        self._walked: tuple[dict[int, int], int] | None = None

    @property
    def index_file(self) -> ReadableFile:
        """The open index."""
        return self._index_file

    @property
    def files(self) -> ShardFiles:
        """The data files, for whoever moves their bytes."""
        return self._files

    @property
    def style(self) -> Style:
        return "name" if self._graph_entry is None else "object"

    @property
    def step(self) -> int | None:
        from ckpttool.sources.step import step_of

        step = step_of(self._directory, self._prefix, self.index)
        return self.number if step is None else step

    @property
    def number(self) -> int | None:
        return split_number(self._prefix)[1]

    @property
    def names(self) -> GraphNames | None:
        """The names of an object-based checkpoint; parses the object graph.

        None for a name-based one, and (with a note) where the graph cannot be read.
        """
        return self._naming.graph

    # Variables ------------------------------------------------------------------------

    def variables(self, *, named: bool = True) -> Iterator[Variable]:
        label = self.labeller() if named else unlabelled
        parts = self._slice_entries()
        made = new_variable
        expected: dict[int, int] = {}
        count = 0
        for block in self.unless_changed(self.index.blocks()):
            count += len(block)
            for entry in block:
                key, number, shape, shard, offset, size, crc32c, slices, _ = entry
                if slices:
                    yield partitioned(entry, label, parts.get)
                    continue
                if offset + size > expected.get(shard, -1):
                    expected[shard] = offset + size
                if key in parts:
                    count -= 1
                    continue
                text = key.decode("utf-8", "surrogateescape")
                name, kind = label(text)
                dtype = DTYPES.get(number) or dtype_name(number)
                yield made((name, text, dtype, shape, size, shard, offset, kind, None, crc32c))
        self._walked = expected, count

    def of_entries(self, entries: Iterable[Entry]) -> Iterator[Variable]:
        """The variables that entries of this index stand for; a slice's own stand for none."""
        label = self.labeller()
        parts = self._slice_entries()
        for entry in entries:
            if entry.slices:
                yield partitioned(entry, label, parts.get)
            elif entry.key not in parts:
                yield whole(entry, label)

    def name_of(self, variable: Variable, names: NameStyle) -> str:
        if names == "key":
            return variable.key
        graph = self.names if names == "path" else None
        return variable.name if graph is None else graph.path(variable.key)

    def lookup(self, name: str) -> Variable | None:
        try:
            return self._lookup(name)
        except CkpttoolError as error:
            self._require_same_index(error)
            raise

    def _lookup(self, name: str) -> Variable | None:
        key = name.encode("utf-8", "surrogateescape")
        entry = self.index.get(key)
        if entry is None or (key[:1] == b"\0" and key in self._slice_entries()):
            entry = self._named_entry(name)
        if entry is None:
            return None
        if entry.slices:
            # One walk of the index costs as much as looking up some hundred keys.
            many = len(entry.slices) > _MANY_SLICES
            part = self._slice_entries().get if many else self.index.get
            return partitioned(entry, self.labeller(), part)
        return whole(entry, self.labeller())

    def find(self, name: str) -> Variable:
        return self.lookup(name) or self._not_found(name)

    def findings(self) -> tuple[Finding, ...]:
        return ()

    def bytes_needed(self) -> dict[int, int]:
        """Shard → bytes that it needs to have; a whole walk, which raises as ``variables``."""
        return self._walk()[0]

    def checksummed(self, variable: Variable) -> bool:
        """Whether it has a checksum, or every part of it has one."""
        parts = variable.slices or (variable,)
        return all(part.crc32c is not None for part in parts)

    def sums(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        return iter(())

    def shards(self) -> list[Shard]:
        expected, _ = self._walk()
        on_disk = self._files.on_disk()
        absent = sorted(expected.keys() - on_disk.keys())
        return [
            Shard(
                self._files.path(shard),
                on_disk[shard].size if shard in on_disk else None,
                expected.get(shard, 0),
                shard in on_disk,
            )
            for shard in sorted([*on_disk, *absent[:MISSING_NAMED]])
        ]

    def unless_changed(self, read: Iterator[_T]) -> Iterator[_T]:
        """The same, of what is read from the index.

        Raises:
            ChangedError: in the place of another error, where another program wrote to the
                index meanwhile.
        """
        try:
            yield from read
        except CkpttoolError as error:
            self._require_same_index(error)
            raise

    def _require_same_index(self, error: CkpttoolError) -> None:
        from ckpttool.sources.settling import changes_soon

        if not isinstance(error, ChangedError) and changes_soon([self._index_file]):
            raise ChangedError(
                f"{self.location} changed while its index was read",
                why=f"another program rewrote, replaced or removed it ({error})",
                hint="run it again when the checkpoint is complete, or read a copy",
            ) from error

    def _walk(self) -> tuple[dict[int, int], int]:
        """The bytes that each shard needs, and the number of variables."""
        if self._walked is None:
            parts = self._slice_entries()
            expected: dict[int, int] = {}
            count = 0
            for entry in self.unless_changed(self.index.entries()):
                count += entry.key not in parts
                end = entry.offset + entry.size
                if not entry.slices and end > expected.get(entry.shard, -1):
                    expected[entry.shard] = end
            self._walked = expected, count
        return self._walked

    def _slice_entries(self) -> dict[bytes, Entry]:
        """The entries of slices, by key; a first walk where there may be any.

        Their keys begin with a zero byte, so they lie before all others; but so may a
        variable's own name, and only the owners (anywhere in the index) tell.
        """
        if self._slices is None:
            blocks = self.unless_changed(self.index.blocks())
            first = next((block[0].key for block in blocks if block), b"")
            self._slices = self._find_slices() if first[:1] == b"\0" else {}
        return self._slices

    def _find_slices(self) -> dict[bytes, Entry]:
        candidates: dict[bytes, Entry] = {}
        owned: set[bytes] = set()
        budget = self.index.budget()
        for entry in self.unless_changed(self.index.entries()):
            if entry.slices:
                owned.update(spec.key(entry.key) for spec in entry.slices)
            elif entry.key[:1] == b"\0":
                self.index.parser.count_slice(entry.key, 0, budget)
                candidates[entry.key] = entry
        return {key: candidates[key] for key in owned & candidates.keys()}

    # Names ----------------------------------------------------------------------------

    def labeller(self) -> Labeller:
        """What gives a key its name and kind; parses the object graph, as ``names``."""
        return self._naming.labeller()

    def graph_bytes(self) -> bytes:
        """The serialised object graph; raises as ``BundleNames.graph_bytes``."""
        return self._naming.graph_bytes()

    def _graph_strings(self, variable: Variable) -> list[bytes]:
        from ckpttool.sources.selection import Selection

        return self._values.strings(variable, Selection.whole(()), check=True)

    def _named_entry(self, name: str) -> Entry | None:
        """The entry of a readable name or an object path."""
        key = self._naming.key_of(name)
        return None if key is None else self.index.get(key.encode("utf-8", "surrogateescape"))

    def _known_names(self) -> set[str]:
        """Every name and key; no slice is looked up for that."""
        label = self.labeller()
        known = set()
        for entry in self.unless_changed(self.index.entries()):
            if entry.key[:1] == b"\0" and entry.key in self._slice_entries():
                continue
            key = entry.key.decode("utf-8", "surrogateescape")
            known.add(key)
            known.add(label(key)[0])
        return known

    def _not_found(self, name: str) -> NoReturn:
        from shlex import quote

        from ckpttool.sources.nearest import nearest

        near, number = nearest(name, self._known_names()), self._walk()[1]
        raise NotFoundError(
            f"there is no variable {name} in {self.location}",
            why=f"none of its {number} {plural(number, 'variable')} has this name, key or path",
            hint=f"did you mean: {', '.join(near)}"
            if near
            else f"ckpttool list {quote(self.address)}",
            id="variable-not-found",
        )

    # Values ---------------------------------------------------------------------------

    @property
    def _values(self) -> BundleValues:
        if self._opened_values is None:
            from ckpttool.sources.v2_values import BundleValues

            self._opened_values = BundleValues(
                self._files,
                big_endian=self.index.header.big_endian,
                limits=self._limits,
                location=self.location,
                index_file=self._index_file,
            )
        return self._opened_values

    def chunks(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> Iterator[bytes]:
        return self._values.chunks(variable, selection, check=check)

    def strings(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> list[bytes]:
        return self._values.strings(variable, selection, check=check)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        return self._values.reads(variable, selection)

    def extent(self, variable: Variable) -> Extent | None:
        return self._values.extent(variable)

    def read(self, variable: Variable, selection: Selection, *, check: bool = True) -> np.ndarray:
        from ckpttool.sources.arrays import array_of

        return array_of(self, variable, selection, check=check)

    def close(self) -> None:
        self._files.close()
        self._index_file.close()
        self._directory.close()
