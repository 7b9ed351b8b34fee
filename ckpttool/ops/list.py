"""``list``: the variables of a source, filtered, sorted, named as asked.

Streams: nothing but the totals is held, unless an order other than the file's is asked
for. Reads the index and the names of the data files, never data. How a variable looks is
the caller's affair; for the plain listing of a million variables it hands over the two
texts of a line, and gets finished lines back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from ckpttool.errors import CkpttoolError
from ckpttool.formats.dtypes import BY_NAME, dtype_name
from ckpttool.limits import Limits
from ckpttool.model import KINDS, Kind, Variable, shape_text
from ckpttool.ops.wanted import Wanted, wanted
from ckpttool.sources.registry import open_source
from ckpttool.sources.v2 import BundleSource

if TYPE_CHECKING:
    from ckpttool.formats.bundle import Entry
    from ckpttool.formats.bundle_scan import Lines
    from ckpttool.ops.name_map import NamesOf
    from ckpttool.sources.base import NameStyle, Source
    from ckpttool.sources.kinds import Label

__all__ = ["SORTS", "Listing", "Look", "SortKey", "list_variables"]

SortKey = Literal["name", "bytes", "params", "shape", "dtype", "kind", "shard"]
SORTS: tuple[SortKey, ...] = ("name", "bytes", "params", "shape", "dtype", "kind", "shard")

#: Data files that a warning names.
_NAMED = 3
#: Up to so many variables, listed at speed, a second walk of the index tells for certain
#: how long its data files have to be; it takes some milliseconds.
_WALKED = 2000


class Look(NamedTuple):
    """How a line looks: its name, made safe, then two texts.

    Attributes:
        safe: a name made fit for one line of output; asked for odd ones only.
        middle: what follows the name; may depend on dtype, shape, size and shard only (the
            variable it is given has nothing else).
        end: what follows that, by the kind, with the line break.
    """

    safe: Callable[[str], str]
    middle: Callable[[Variable], str]
    end: Callable[[Kind], str]


class Listing:
    """The variables of an open source; a context manager that closes it.

    Attributes:
        source: the address as given.
        location: what it came to.
        notes: what a person should be told about how the address was understood.
        count, parameters, nbytes: of what ``variables`` has given so far. Elements of
            strings, variants and unknown dtypes are no parameters.
    """

    def __init__(
        self, source: Source, want: Wanted, sort: SortKey | None, names: NameStyle
    ) -> None:
        self._source = source
        self._want = want
        self._sort = sort
        self._names = names
        self._seen = self._matched = 0
        #: Shard → bytes that it needs to have, as far as that is known.
        self._needed: dict[int, int] = {}
        self.source = source.address
        self.location = source.location
        self.count = self.parameters = self.nbytes = 0
        if isinstance(source, BundleSource) and source.style == "object":
            _ = source.names  # here, for a graph that cannot be read adds a note
        self.notes: Sequence[str] = source.notes

    def variables(self) -> Iterator[Variable]:
        """The wanted variables, in the order asked for.

        Raises:
            CorruptError, LimitError: possibly after some were given.
        """
        for variable in self._chosen():
            self.count += 1
            self.nbytes += variable.nbytes
            if variable.dtype in _NUMBERS:
                self.parameters += variable.parameters
            yield variable

    def names(self) -> Iterator[NamesOf]:
        """Every name of each wanted variable, in the order of the keys; raises as `variables`.

        The object graph is none, and is left out.
        """
        from ckpttool.ops.name_map import NamesOf

        source = self._source
        graph = source.names if isinstance(source, BundleSource) else None
        for variable in source.variables():
            key, name, kind = variable.key, variable.name, variable.kind
            if kind != "object_graph" and self._want(source.name_of(variable, self._names), kind):
                yield NamesOf(
                    key,
                    name,
                    name if graph is None else graph.full_name(key),
                    source.name_of(variable, "path"),
                    kind,
                    variable.dtype,
                    shape_text(variable.shape),
                )

    def lines(self, look: Look) -> Iterator[bytes | str | Iterator[Variable]]:
        """The same as lines of text, as far as that is quicker; else as variables.

        Counts no parameters and bytes.
        """
        source = self._source
        if isinstance(source, BundleSource) and self._want.everything and self._sort is None:
            yield from self._lines(source, look)
        else:
            yield self._chosen()

    def _lines(
        self, source: BundleSource, look: Look
    ) -> Iterator[bytes | str | Iterator[Variable]]:
        from ckpttool.formats.bundle_scan import Texts, scan
        from ckpttool.sources.kinds import SCOPE_OPENINGS, kind_of_ending

        def of_entry(entry: Entry) -> str:
            self._needed.setdefault(entry.shard, 0)
            dtype = dtype_name(entry.dtype)
            return look.middle(
                Variable("", "", dtype, entry.shape, entry.size, entry.shard, None, "other")
            )

        label = self._label(source)
        if label is None:  # the key is the name, and tells the kind
            openings = tuple(opening.encode() for opening in SCOPE_OPENINGS)
            texts = Texts(of_entry, lambda ending: look.end(kind_of_ending(ending)), openings)
        else:
            texts = Texts(of_entry, lambda _: "")
        last = b""
        for piece in source.unless_changed(scan(source.index, texts)):
            if isinstance(piece, list):
                yield map(self._renamed, self._noted(source.of_entries(piece)))
                continue
            self._seen += len(piece.keys)
            last = piece.keys[-1] if piece.keys else last
            yield piece.joined() if label is None else _labelled(piece, label, look)
        if self._seen <= _WALKED:
            for shard, nbytes in source.bytes_needed().items():
                self._need(shard, nbytes)
        elif last and (entry := source.index.get(last)) is not None:
            # TensorFlow writes in the order of the keys, so the last one lies at an end.
            self._need(entry.shard, entry.offset + entry.size)

    def _label(self, source: BundleSource) -> Callable[[str], Label] | None:
        """What gives a key of an object-based checkpoint its name and kind."""
        if source.style == "name":
            return None
        label, graph = source.labeller(), source.names
        if self._names == "key":
            return lambda key: (key, label(key)[1])
        if self._names == "path" and graph is not None:
            return lambda key: (graph.path(key), label(key)[1])
        return label

    def _chosen(self) -> Iterator[Variable]:
        """The wanted variables, in the order asked for."""
        found = self._noted(self._source.variables())
        if self._names != "full":
            found = map(self._renamed, found)
        if not self._want.everything:
            found = self._matching(found)
        if self._sort is not None:
            found = iter(sorted(found, key=_ORDERS[self._sort]))
        return found

    def warnings(self) -> list[str]:
        """What is odd about what was listed; complete when all of it was."""
        found = []
        if not self._seen:
            found.append(f"{self.location} has no variables")
        elif not self._want.everything and not self._matched:
            found.append(
                f"none of the {self._seen} variables of {self.location} matches"
                if self._seen > 1
                else f"the only variable of {self.location} does not match"
            )
        return found + self._of_files()

    def _of_files(self) -> list[str]:
        """The data files that are needed and not there, or are too short."""
        if not isinstance(self._source, BundleSource):
            return []
        files = self._source.files
        try:
            on_disk = files.on_disk()
        except CkpttoolError as error:
            return [f"whether the data files are there cannot be told: {error}"]
        found = []
        absent = [files.path(shard) for shard in sorted(self._needed.keys() - on_disk.keys())]
        if absent:
            verb, whose = ("is", "its") if len(absent) == 1 else ("are", "their")
            found.append(
                f"{_some(absent)} {verb} missing: {whose} variables are listed, but cannot be read"
            )
        cut = [
            f"{files.path(shard)} ({stat.size} bytes of at least {self._needed[shard]})"
            for shard, stat in sorted(on_disk.items())
            if stat.kind == "file" and stat.size < self._needed.get(shard, 0)
        ]
        if cut:
            verb, whose = ("is", "its") if len(cut) == 1 else ("are", "their")
            found.append(
                f"{_some(cut)} {verb} cut off: {whose} variables are listed, "
                "but not all can be read"
            )
        return found

    def _need(self, shard: int, nbytes: int) -> None:
        if nbytes > self._needed.get(shard, -1):
            self._needed[shard] = nbytes

    def _noted(self, found: Iterable[Variable]) -> Iterator[Variable]:
        """Keep in mind how many there are, and the shards that hold them."""
        need = self._need
        for variable in found:
            self._seen += 1
            if variable.slices:
                for part in variable.slices:
                    if part.shard is not None and part.offset is not None:
                        need(part.shard, part.offset + (part.nbytes or 0))
            elif variable.shard is not None:
                need(variable.shard, (variable.offset or 0) + variable.nbytes)
            yield variable

    def _matching(self, found: Iterable[Variable]) -> Iterator[Variable]:
        want = self._want
        for variable in found:
            if want(variable.name, variable.kind):
                self._matched += 1
                yield variable

    def _renamed(self, variable: Variable) -> Variable:
        """The variable under the name that was asked for."""
        if self._names == "full":
            return variable
        return variable._replace(name=self._source.name_of(variable, self._names))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._source.close()


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _labelled(found: Lines, label: Callable[[str], Label], look: Look) -> str:
    """Lines whose names and kinds do not stand in the keys."""
    ends = {kind: look.end(kind) for kind in KINDS}
    lines = []
    for key, text in zip(found.keys, found.texts, strict=True):
        name, kind = label(key.decode())
        shown = name if name.isprintable() else look.safe(name)
        lines.append(f"{shown}{text.decode()}{ends[kind]}")
    return "".join(lines)


def list_variables(
    address: str,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    regex: str | None = None,
    kinds: Iterable[Kind] = (),
    sort: SortKey | None = None,
    names: NameStyle = "full",
    limits: Limits | None = None,
) -> Listing:
    """Open a source to list its variables; the caller closes the listing.

    Args:
        address: whatever has variables.
        include: globs, of which the name that is shown must match one (``wanted.py``).
        exclude: globs, of which it must match none.
        regex: an expression that must be found in it.
        kinds: only variables of these.
        sort: an order other than that of the keys; sizes with the largest first.
        names: what stands as the name: the readable one, the literal key, the object path.
        limits: bounds on what files may claim; None: those of this process.

    Raises:
        UsageError: id ``bad-regex``.
        CkpttoolError: as ``open_source``.
    """
    want = wanted(include, exclude, regex, kinds)
    return Listing(open_source(address, limits), want, sort, names)


#: Dtypes whose elements are numbers or truth values.
_NUMBERS = frozenset(name for name, dtype in BY_NAME.items() if dtype.size)

_ORDERS: dict[SortKey, Callable[[Variable], tuple[object, ...]]] = {
    "name": lambda variable: (variable.name,),
    "bytes": lambda variable: (-variable.nbytes,),
    "params": lambda variable: (-variable.parameters,),
    "shape": lambda variable: (variable.shape is None, variable.shape or ()),
    "dtype": lambda variable: (variable.dtype,),
    "kind": lambda variable: (KINDS.index(variable.kind),),
    "shard": lambda variable: (_first_shard(variable),),
}


def _first_shard(variable: Variable) -> int:
    """The shard that holds it, or its first slice; where none does, past all."""
    if variable.shard is not None:
        return variable.shard
    return min(
        (part.shard for part in variable.slices or () if part.shard is not None), default=2**32
    )
