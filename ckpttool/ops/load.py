"""``load``: the values of chosen variables, read as far as they are wanted.

Finds the variables that a list of names means, and hands out their elements as bytes or
as Python values. Nothing is read before it is asked for. Files are written by
``ops/save_values.py``, text is made by ``ops/value_text.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ckpttool.errors import ChangedError, CkpttoolError, NotFoundError, UsageError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.formats.elements import cast, cast_target, values
from ckpttool.limits import Limits
from ckpttool.model import Variable, shape_text
from ckpttool.sources.base import Read
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import (
    Index,
    Selection,
    index_text,
    parse_brackets,
    split_name,
)
from ckpttool.storage.base import Closing

if TYPE_CHECKING:
    from ckpttool.formats.elements import Value
    from ckpttool.sources.base import NameStyle, Source

__all__ = ["RANGES_KEPT", "Loaded", "Picked", "Plan", "Progress", "load", "pick"]

#: Called with bytes done and to be done.
Progress = Callable[[int, int], None]

#: Contiguous ranges of one variable that a `Plan` names.
RANGES_KEPT = 100

#: Variables that a message names; the rest are counted.
_NAMED = 3

#: Bytes turned into Python values at once; a value takes some ten times as many.
_BATCH_BYTES = 2**16


class Picked(NamedTuple):
    """A variable and what is wanted of it.

    ``dtype`` is that of the elements handed out: the variable's, or what it is cast to.
    """

    variable: Variable
    subscript: Index
    selection: Selection
    dtype: str

    @property
    def name(self) -> str:
        """The variable's name, with the index as it is typed."""
        return self.variable.name + index_text(self.subscript)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.selection.result_shape

    @property
    def nbytes(self) -> int | None:
        """Bytes of the result; None where its elements have no fixed size."""
        dtype = BY_NAME.get(self.dtype)
        return self.selection.size * dtype.size if dtype and dtype.size else None


class Plan(NamedTuple):
    """What getting one variable takes: calls, bytes, and the first ranges of them."""

    item: Picked
    reads: int
    nbytes: int
    ranges: tuple[Read, ...]


class Loaded(Closing):
    """Chosen variables of an open source; a context manager.

    Made by `load`. The elements are read when they are asked for, so a file that another
    program replaces shows while reading: the source is then opened anew, once, provided
    that nothing has been handed out yet (`restart` does the same on request).
    """

    def __init__(
        self,
        address: str,
        names: Sequence[str],
        *,
        cast: str | None,
        check: bool,
        limits: Limits | None,
        progress: Progress | None,
        naming: NameStyle = "full",
    ) -> None:
        self._progress = progress
        self._naming: NameStyle = naming
        self._address = address
        self._names = tuple(names)
        self._cast = cast
        self._check = check
        self._limits = limits
        self._given = False
        self._restarted = False
        self._open()

    def _open(self) -> None:
        source = open_source(self._address, self._limits)
        try:
            items = self._called(source, pick(source, self._names, self._naming))
            self.items = items if self._cast is None else _cast(items, self._cast)
        except CkpttoolError:
            source.close()
            raise
        self.source: Source = source
        self._done = 0
        self._total = sum(_stored_bytes(item) for item in self.items)

    def _called(self, source: Source, items: tuple[Picked, ...]) -> tuple[Picked, ...]:
        """The items under the names that were asked for."""
        if self._naming == "full":
            return items
        return tuple(
            item._replace(
                variable=item.variable._replace(name=source.name_of(item.variable, self._naming))
            )
            for item in items
        )

    def restart(self, error: ChangedError) -> None:
        """Open the source anew, after ``error``; raises it when that was done before.

        Where that fails, the source that was open stays so.
        """
        if self._restarted:
            raise error
        self._restarted = True
        self._given = False
        before = self.source
        self._open()
        before.close()

    def chunks(self, number: int) -> Iterator[bytes]:
        """The elements of item ``number`` in C order, little-endian, in some MiB.

        Raises:
            UnsupportedError, CorruptError, IncompleteError, ChangedError: as the source.
        """
        shape, dtype = self.items[number].shape, self.items[number].dtype
        try:
            yield from self._chunks(number)
        except ChangedError as error:
            if self._given:
                raise
            self.restart(error)
            item = self.items[number] if number < len(self.items) else None
            if item is None or (item.shape, item.dtype) != (shape, dtype):
                raise
            yield from self._chunks(number)

    def _chunks(self, number: int) -> Iterator[bytes]:
        item = self.items[number]
        variable = item.variable
        for piece in self.source.chunks(variable, item.selection, check=self._check):
            self._given = True
            yield cast(piece, variable.dtype, item.dtype)
            if self._progress is not None:
                self._done += len(piece)
                self._progress(self._done, self._total)

    def strings(self, number: int) -> list[bytes]:
        """The elements of item ``number``, which is of strings; raises as `chunks`."""
        item = self.items[number]
        try:
            found = self.source.strings(item.variable, item.selection, check=self._check)
        except ChangedError as error:
            if self._given:
                raise
            self.restart(error)
            item = self.items[number]
            found = self.source.strings(item.variable, item.selection, check=self._check)
        self._given = True
        return found

    def batches(self, number: int) -> Iterator[Sequence[Value | bytes]]:
        """The elements of item ``number`` in C order as Python values, some at a time."""
        item = self.items[number]
        if item.variable.dtype == "string":
            yield self.strings(number)
            return
        known = BY_NAME.get(item.dtype)
        size = known.size if known and known.size else 1
        step = _BATCH_BYTES // size * size
        for piece in self.chunks(number):
            for at in range(0, len(piece), step):
                yield values(piece[at : at + step], item.dtype)

    def some(self, number: int, selection: Selection) -> Sequence[Value | bytes]:
        """Elements of item ``number``'s variable as Python values, another selection of them.

        They come as one list and are not counted as progress.
        """
        item = self.items[number]
        variable = item.variable
        self._given = True
        if variable.dtype == "string":
            return self.source.strings(variable, selection, check=self._check)
        pieces = self.source.chunks(variable, selection, check=self._check)
        return values(cast(b"".join(pieces), variable.dtype, item.dtype), item.dtype)

    def plans(self) -> list[Plan]:
        """What getting the items takes, without doing it."""
        return [self._plan(item) for item in self.items]

    def _plan(self, item: Picked) -> Plan:
        reads = nbytes = 0
        ranges: list[Read] = []
        for path, offset, size in self.source.reads(item.variable, item.selection):
            reads += 1
            nbytes += size
            last = ranges[-1] if ranges else None
            if last and (last.path, last.offset + last.nbytes) == (path, offset):
                ranges[-1] = Read(path, last.offset, last.nbytes + size)
            elif len(ranges) < RANGES_KEPT:
                ranges.append(Read(path, offset, size))
        return Plan(item, reads, nbytes, tuple(ranges))

    @property
    def warnings(self) -> list[str]:
        """What is odd about what was chosen: an index that leaves nothing of what is there."""
        empty = [
            f"{item.name} (its shape is {shape_text(item.variable.shape)})"
            for item in self.items
            if not item.selection.size and item.variable.parameters
        ]
        return [f"no value is chosen of {_some(empty)}"] if empty else []

    def close(self) -> None:
        """Close the source."""
        self.source.close()


def load(
    address: str,
    names: Sequence[str],
    *,
    cast: str | None = None,
    check: bool = True,
    limits: Limits | None = None,
    progress: Progress | None = None,
    naming: NameStyle = "full",
) -> Loaded:
    """Choose variables of a source.

    Args:
        address: the source.
        names: names, keys or object paths, each maybe with an index (``emb[0:10]``). One
            that holds ``*`` or ``?`` and is nothing's own name is a pattern, for all of
            these, and for what ``naming`` calls variables.
        cast: a dtype that all are widened to; ``auto``: only those that numpy does not have.
        check: compare checksums where a whole variable is read.
        limits: bounds on what the files may claim.
        progress: called with the bytes handed out and those of all items.
        naming: what variables are called, and members of a file that holds several.

    Raises:
        NotFoundError: some names are no variable's; all of them are named.
        UsageError: an index does not fit, or a cast would not be exact.
        CkpttoolError: as ``open_source``.
    """
    return Loaded(
        address,
        names,
        cast=cast,
        check=check,
        limits=limits,
        progress=progress,
        naming=naming,
    )


def pick(source: Source, names: Sequence[str], naming: NameStyle = "full") -> tuple[Picked, ...]:
    """What a list of names means in a source; names and errors as of `load`."""
    found: dict[str, Variable | None] = {}

    def lookup(name: str) -> Variable | None:
        if name not in found:
            found[name] = source.lookup(name)
        return found[name]

    items: list[Picked] = []
    unknown: list[str] = []
    for text in names:
        name, index = split_name(text, lambda name: lookup(name) is not None)
        variable = lookup(name)
        if variable is not None:
            items.append(_picked(variable, index))
            continue
        matches = _matching(source, text, naming)
        if matches:
            index = ()  # the brackets were part of the pattern
        elif "[" in text:
            for at in dict.fromkeys((text.rfind("["), text.find("["))):
                if matches := _matching(source, text[:at], naming):
                    index = parse_brackets(text[at:])
                    break
        if not matches:
            unknown.append(name)
        items += [_picked(variable, index) for variable in matches]
    if unknown:
        _refuse(source, unknown)
    return tuple(items)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _picked(variable: Variable, index: Index) -> Picked:
    # A variable without a shape is refused by the source when its values are wanted.
    selection = Selection.of(variable.shape or (), index, variable.name)
    return Picked(variable, index, selection, variable.dtype)


def _cast(items: Sequence[Picked], target: str) -> tuple[Picked, ...]:
    """The items with the dtype they are cast to; refused where one would lose something."""
    found: list[Picked] = []
    misfits: list[str] = []
    for item in items:
        dtype = cast_target(item.dtype, target)
        if dtype is None:
            misfits.append(f"{item.variable.name} ({item.dtype})")
        else:
            found.append(item._replace(dtype=dtype))
    if misfits:
        raise UsageError(
            f"a cast to {target} would not be exact",
            why=f"{target} does not hold every value of {_some(misfits)}",
            hint="choose a wider type or other variables; --cast auto widens only what NumPy "
            "has no type for",
            id="cast-not-exact",
        )
    return tuple(found)


def _stored_bytes(item: Picked) -> int:
    dtype = BY_NAME.get(item.variable.dtype)
    return item.selection.size * dtype.size if dtype else 0


def _matching(source: Source, pattern: str, naming: NameStyle) -> list[Variable]:
    """The variables that a pattern matches, by any name of theirs; the object graph is none."""
    if "*" not in pattern and "?" not in pattern:
        return []
    from fnmatch import fnmatchcase

    return [
        variable
        for variable in source.variables()
        if variable.kind != "object_graph"
        and any(
            fnmatchcase(name, pattern)
            for name in (
                variable.key,
                source.name_of(variable, naming),
                source.name_of(variable, "path"),
            )
        )
    ]


def _refuse(source: Source, unknown: list[str]) -> NoReturn:
    """Raise the error of names that are no variable's; of several, one error for all."""
    errors: list[NotFoundError] = []
    for name in unknown:
        try:
            source.find(name)
        except NotFoundError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    hints = [error.hint for error in errors if error.hint.startswith("did you mean")]
    raise NotFoundError(
        f"{len(unknown)} of the variables are not in {source.location}",
        why=f"there is no {', no '.join(unknown)}",
        hint="; ".join(dict.fromkeys(hints)) or errors[0].hint,
        id="variable-not-found",
    )
