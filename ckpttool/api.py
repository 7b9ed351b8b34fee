"""The Python interface to reading: a checkpoint as a mapping of names to variables.

Nothing here prints or knows the command line. numpy is imported by the first `read`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from operator import index as as_integer
from types import EllipsisType
from typing import TYPE_CHECKING, SupportsIndex

from ckpttool.errors import ChangedError, NotFoundError, UsageError, missing_package
from ckpttool.limits import Limits
from ckpttool.model import Shard, Variable
from ckpttool.sources.address import Address
from ckpttool.sources.base import Source, SourceKind, Style
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Index, Selection, parse_index, split_name
from ckpttool.storage.base import Closing

if TYPE_CHECKING:
    import numpy as np

    from ckpttool.ops.verify import VerifyResult

__all__ = ["Checkpoint", "VariableNotFoundError", "open"]

#: What chooses a part of an array: integers, slices and ``...``, or the text of such.
Chooser = SupportsIndex | slice | EllipsisType | Sequence["SupportsIndex | slice | EllipsisType"]

#: From so many bytes on a variable is mapped rather than read.
_MAPPED_FROM = 2**20


class VariableNotFoundError(NotFoundError, KeyError):
    """No variable of this name; a ``KeyError`` too, as a mapping raises it."""

    default_id = "variable-not-found"


class Checkpoint(Closing, Mapping[str, Variable]):
    """An open checkpoint: a read-only mapping of names to variables; made by `open`.

    A name is a variable's readable name, its literal key, or its path in the object
    graph; iteration gives the readable names, in the order of the keys. Close it, or use
    it as a context manager; arrays that were read stay valid. Not for several threads.

    It never mixes two checkpoints. Where another program replaces the files, what was not
    read before raises `ChangedError`, once anything of the old ones was handed out; until
    then, and once in a `read`, the new ones are opened in their place.

    >>> import ckpttool
    >>> with ckpttool.open("fixtures/partitioned") as checkpoint:
    ...     print(checkpoint["embedding/table"].dtype, checkpoint["embedding/table"].shape)
    ...     print(list(checkpoint))
    float32 (50, 4)
    ['embedding/table', 'embedding/table/Adagrad', 'global_step']
    """

    def __init__(self, address: Address, limits: Limits | None = None) -> None:
        self._address = os.fsdecode(address)
        self._limits = limits
        self._source: Source | None = open_source(self._address, limits)
        #: Whether anything of what lies in the files was handed out.
        self._given = False

    # What it is -----------------------------------------------------------------------

    @property
    def source(self) -> Source:
        """The open source beneath: raw chunks, extents, planned reads.

        Raises:
            UsageError: id ``closed``.
        """
        source = self._opened()
        self._given = True
        return source

    def _opened(self) -> Source:
        """The open source, for what is not handed out; raises as `source`."""
        if self._source is None:
            raise UsageError(
                f"{self._address} is closed",
                why="close() was called, or the with block has ended",
                hint="open it again, or read inside the with block",
                id="closed",
            )
        return self._source

    @property
    def address(self) -> str:
        """The address as it was given; of a path object, its text."""
        return self._address

    @property
    def location(self) -> str:
        """What the address came to: the checkpoint's prefix."""
        return self.source.location

    @property
    def kind(self) -> SourceKind:
        """``tf-v2``, or ``savedmodel``."""
        return self.source.kind

    @property
    def style(self) -> Style | None:
        """``object`` or ``name``: how its keys came about."""
        return self.source.style

    @property
    def step(self) -> int | None:
        """The training step: the one stored inside, else the number in its name, else None.

        Raises:
            CorruptError, LimitError: the index is damaged.
        """
        return self.source.step

    @property
    def number(self) -> int | None:
        """The number in its name: a step, an epoch, or a count of saves; None without one."""
        return self.source.number

    @property
    def shards(self) -> Sequence[Shard]:
        """Its data files, those that are missing too."""
        return self.source.shards()

    @property
    def notes(self) -> Sequence[str]:
        """How the address was understood, where that is worth telling."""
        return self.source.notes

    # The mapping ----------------------------------------------------------------------

    def __getitem__(self, name: str) -> Variable:
        variable = self._find(name)
        self._given = True
        return variable

    def _find(self, name: object) -> Variable:
        source = self._opened()
        if not isinstance(name, str):  # a mapping has no such key; ``get`` gives its default
            raise VariableNotFoundError(
                f"there is no variable {name!r} in {source.location}",
                why=f"a name is a str, and this is of type {type(name).__name__}",
            )
        try:
            return source.find(name)
        except NotFoundError as error:
            raise VariableNotFoundError(error.what, why=error.why, hint=error.hint) from None

    def _has(self, name: object) -> bool:
        return isinstance(name, str) and self._opened().lookup(name) is not None

    def __contains__(self, name: object) -> bool:
        self._given = True
        return self._has(name)

    def __iter__(self) -> Iterator[str]:
        return (variable.name for variable in self.source.variables())

    def __len__(self) -> int:
        return sum(1 for _ in self.source.variables(named=False))

    def __repr__(self) -> str:
        source = self._source
        state = "closed" if source is None else f"{source.kind} {source.location!r}"
        return f"<ckpttool.Checkpoint {state}>"

    # Values ---------------------------------------------------------------------------

    def read(
        self, name: str | Variable, index: Chooser | str = ..., *, copy: bool = False
    ) -> np.ndarray:
        """The values of a variable, or of a part of it, as a NumPy array.

        Only the bytes that are needed are read. Partitioned variables are put together
        whatever their dtype; ``bfloat16``, ``float8`` and ``int4`` come as the types of
        ml_dtypes; strings as an array of ``bytes`` objects.

        The array is read-only. Where the whole variable lies in one piece and a MiB or
        more of it is wanted, the array is mapped: nothing is read until it is used, and
        checksums are not compared (`verify` does that). What a program writes into the
        very file later shows in it, and one that cuts the file short while the array is in
        use kills the process, as with every memory map; ``copy=True`` is safe from both.

        Args:
            name: a name, key or path, maybe with an index: ``"emb[0:10]"``; or one of the
                mapping's variables.
            index: what NumPy takes between brackets, as objects (``3``, ``slice(0, 10)``,
                ``(..., -1)``) or as text (``"0:10, :"``); applied after that of the name.
            copy: read into an array of its own, writable, and compare the checksum when
                all of it is read.

        Raises:
            VariableNotFoundError: there is no such variable; the hint names the nearest.
            UsageError: the index does not fit.
            CorruptError, IncompleteError: damaged or missing data; names variable and shard.
            UnsupportedError: a dtype without readable values.
            ChangedError: another program replaced or rewrote the files: open it again.
            UnsupportedError: id ``package-missing``: numpy is not installed.

        >>> import ckpttool
        >>> with ckpttool.open("fixtures/partitioned") as checkpoint:
        ...     print(checkpoint.read("embedding/table[0:2, 1]"))
        ...     print(checkpoint.read("embedding/table", (slice(0, 10), 0)).shape)
        ...     print(checkpoint.read("global_step").item())
        [-1.5264573  -0.19981895]
        (10,)
        1
        """
        try:
            try:
                array = self._read(name, index, copy=copy)
            except ChangedError as error:
                if self._given or isinstance(name, Variable):
                    raise _of_two(error) from error
                self._reopen()
                array = self._read(name, index, copy=copy)
        except ModuleNotFoundError as error:
            raise missing_package(error) or error from None
        self._given = True
        return array

    def _reopen(self) -> None:
        """Open what the address names by now; the old source stays where that fails."""
        fresh = open_source(self._address, self._limits)
        self._opened().close()
        self._source = fresh

    def _read(self, name: object, index: Chooser | str, *, copy: bool) -> np.ndarray:
        inner: Index = ()
        if isinstance(name, str):
            name, inner = split_name(name, self._has)
        variable = name if isinstance(name, Variable) else self._find(name)
        if inner and index is not ...:
            raise UsageError(
                f"two indices for {variable.name}",
                why="one stands in the name, one is given beside it",
                hint="give one of them",
                id="bad-index",
            )
        wanted = inner or _as_index(index)
        selection = Selection.of(variable.shape or (), wanted, variable.name)
        if not copy:
            mapped = self._mapped(variable, selection, wanted)
            if mapped is not None:
                return mapped
        array = self._opened().read(variable, selection)
        array.flags.writeable = copy
        return array

    def _mapped(self, variable: Variable, selection: Selection, wanted: Index) -> np.ndarray | None:
        """The part of a map of the whole variable, where that can be and pays."""
        shape = variable.shape
        if not shape or variable.slices is not None or variable.nbytes < _MAPPED_FROM:
            return None
        if selection.size * (variable.nbytes // max(1, variable.parameters)) < _MAPPED_FROM:
            return None
        extent = self._opened().extent(variable)
        if extent is None:
            return None
        from ckpttool.sources.arrays import mapped

        whole = mapped(extent, variable.dtype, shape)
        return None if whole is None else whole[wanted]

    def verify(self) -> VerifyResult:
        """Check its structure and every checksum: `ckpttool.verify` of its address."""
        from ckpttool.ops.verify import verify

        return verify(self._address, limits=self._limits)

    # Closing --------------------------------------------------------------------------

    def close(self) -> None:
        """Close its files; a second call does nothing."""
        if self._source is not None:
            self._source.close()
            self._source = None


def open(address: Address, *, limits: Limits | None = None) -> Checkpoint:  # noqa: A001 - as gzip.open
    """Open a checkpoint for reading.

    Args:
        address: a checkpoint's prefix or one of its files, a run directory (its latest
            checkpoint), ``RUN/@STEP``, ``RUN/@latest``, or a SavedModel; a ``str``,
            ``bytes`` or a path object.
        limits: bounds on what its files may claim; None: the defaults, as changed by the
            environment variable ``CKPTTOOL_LIMITS``.

    Raises:
        NotFoundError, ForeignFormatError, UsageError: there is no checkpoint of ours.
        CorruptError, IncompleteError, LimitError, UnsupportedError: it cannot be read.

    >>> import ckpttool
    >>> with ckpttool.open("fixtures/two-shards/model.ckpt-42") as checkpoint:
    ...     print(checkpoint.step, len(checkpoint), len(checkpoint.shards))
    42 4 2
    """
    return Checkpoint(address, limits)


def _as_index(index: Chooser | str) -> Index:
    """What a caller gave as an index, as the index that it means.

    Raises:
        UsageError: id ``bad-index``: a list, a mask, a new axis, or something else.
    """
    if isinstance(index, str):
        return parse_index(index)
    items = index if isinstance(index, tuple) else (index,)
    return tuple(_as_item(item) for item in items)


def _as_item(item: object) -> int | slice | EllipsisType:
    if isinstance(item, slice):
        bounds = (item.start, item.stop, item.step)
        if all(bound is None or _as_integer(bound) is not None for bound in bounds):
            return slice(*map(_as_integer, bounds))
    elif isinstance(item, EllipsisType):
        return item
    elif (number := _as_integer(item)) is not None:
        return number
    raise UsageError(
        f"{item!r} is no index",
        why="integers, slices and one ... choose a part; a new axis, a list or a mask does not",
        hint="read what lies around it, and choose with NumPy",
        id="bad-index",
    )


def _as_integer(item: object) -> int | None:
    """An integer of any kind as Python's; None where it is none, or a truth value."""
    if isinstance(item, SupportsIndex) and not isinstance(item, bool):
        try:
            return as_integer(item)
        except TypeError:
            pass  # a NumPy array has the method, and refuses unless it is a single integer
    return None


def _of_two(error: ChangedError) -> ChangedError:
    """The error where something of the old files was handed out already."""
    return ChangedError(
        error.what,
        why=f"{error.why}; what was handed out before is of the earlier ones",
        hint="open it again with ckpttool.open, and read everything from that",
        id=error.id,
    )
