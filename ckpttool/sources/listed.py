"""What sources have in common whose variables are all known as soon as they are open.

A format's adapter reads its directory of variables and says where the bytes of each lie;
everything that is asked of a ``Source`` follows from that here. Where bytes are compressed,
sliced or encoded, an adapter hands out the elements itself. Knows no format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    IncompleteError,
    NotFoundError,
    UnsupportedError,
)
from ckpttool.formats.dtypes import BY_NAME, DType
from ckpttool.model import Finding, Shard, Variable, numel, shape_text
from ckpttool.policy.words import count
from ckpttool.sources.base import Extent, Read
from ckpttool.storage.base import Closing

if TYPE_CHECKING:
    import numpy as np

    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.base import NameStyle, SourceKind, Style
    from ckpttool.sources.selection import Selection
    from ckpttool.storage.base import Directory, ReadableFile

__all__ = ["ListedSource", "require_fit", "selection_shape"]


class ListedSource(Closing):
    """An open source; not to be used by several threads at once.

    A subclass opens its files with ``self.open``, calls ``self.publish`` with its variables,
    and overrides ``extent`` (where a variable lies as it is) or ``_chunks`` and ``_strings``
    (where it has to be decoded). When its constructor raises, it calls ``close`` first.

    Args:
        directory: where its files lie; the source closes it.
        resolved: what the address came to.
        limits: bounds on what its files may claim.
        kind: what `inspect` calls it.
        style: name-based or object-based, where the kind knows such a thing.
    """

    def __init__(
        self,
        directory: Directory,
        resolved: Resolved,
        limits: Limits,
        *,
        kind: SourceKind,
        style: Style | None = None,
    ) -> None:
        self.address = resolved.address
        self.location = resolved.location
        self.kind: SourceKind = kind
        self.style: Style | None = style
        #: A subclass that finds one inside sets it.
        self.step: int | None = None
        self.number: int | None = None
        self.notes: list[str] = list(resolved.notes)
        self._directory = directory
        self._limits = limits
        self._files: list[ReadableFile] = []
        self._variables: tuple[Variable, ...] = ()
        self._findings: list[Finding] = []
        self._by_name: dict[str, Variable] | None = None

    # For subclasses -------------------------------------------------------------------

    def open(self, name: str) -> ReadableFile:
        """Open a file of the directory; it is closed with the source."""
        file = self._directory.open(name)
        self._files.append(file)
        return file

    def publish(self, variables: Iterable[Variable]) -> None:
        """State what is in it, in any order."""
        key = _key_bytes
        self._variables = tuple(sorted(variables, key=key))

    def found(self, finding: Finding) -> None:
        """State something wrong or odd that does not keep the rest from being read."""
        self._findings.append(finding)

    def _chunks(
        self,
        variable: Variable,
        selection: Selection,
        *,
        check: bool,  # noqa: ARG002 - for formats that have checksums
    ) -> Iterator[bytes]:
        """The selected elements; this one reads them from where they lie as they are."""
        from ckpttool.formats.elements import swap_words
        from ckpttool.sources.assemble import Box, pieces

        dtype = self._fixed(variable)
        extent = self._whole_extent(variable)
        shape = selection_shape(variable)

        def read(_part: int, offset: int, size: int) -> bytes:
            return extent.file.pread(extent.offset + offset, size)

        for piece in pieces(selection, dtype.size, [Box((0,) * len(shape), shape)], read):
            yield piece if extent.little_endian else swap_words(piece, dtype.word)

    def _strings(
        self,
        variable: Variable,
        selection: Selection,  # noqa: ARG002 - for formats that have strings
        *,
        check: bool,  # noqa: ARG002 - the same
    ) -> list[bytes]:
        """The selected strings; a format without strings need not override it."""
        raise UnsupportedError(
            f"the strings of {variable.name} cannot be read",
            why=f"a {self.kind} source has none",
            id="dtype-unsupported",
        )

    def opened(self) -> Sequence[ReadableFile]:
        """The open files, for whoever has to know whether they are still the same."""
        return self._files

    # Source ---------------------------------------------------------------------------

    def variables(self, *, named: bool = True) -> Iterator[Variable]:
        if named:
            return iter(self._variables)
        return (variable._replace(name=variable.key, kind="other") for variable in self._variables)

    def name_of(self, variable: Variable, names: NameStyle) -> str:
        return variable.key if names == "key" else variable.name

    def lookup(self, name: str) -> Variable | None:
        if self._by_name is None:
            self._by_name = {variable.name: variable for variable in reversed(self._variables)}
            self._by_name |= {variable.key: variable for variable in self._variables}
        return self._by_name.get(name)

    def find(self, name: str) -> Variable:
        return self.lookup(name) or self._not_found(name)

    def findings(self) -> Sequence[Finding]:
        return tuple(self._findings)

    def checksummed(
        self,
        variable: Variable,  # noqa: ARG002 - for formats that have checksums
    ) -> bool:
        return False

    def sums(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        return iter(())

    def shards(self) -> Sequence[Shard]:
        return [
            Shard(file.path, file.stat.size, file.stat.size, present=True) for file in self._files
        ]

    def chunks(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> Iterator[bytes]:
        self._fixed(variable)
        try:
            yield from self._chunks(variable, selection, check=check)
        except (CorruptError, IncompleteError) as error:
            self._require_unchanged(variable, error)
            raise
        self._require_unchanged(variable)

    def strings(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> list[bytes]:
        if variable.dtype != "string":
            raise UnsupportedError(
                f"{variable.name} holds no strings",
                why=f"its dtype is {variable.dtype}",
                id="dtype-unsupported",
            )
        selection_shape(variable)
        try:
            values = self._strings(variable, selection, check=check)
        except (CorruptError, IncompleteError) as error:
            self._require_unchanged(variable, error)
            raise
        self._require_unchanged(variable)
        return values

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        from ckpttool.sources.assemble import Box, reads

        extent = self.extent(variable)
        if extent is None:  # encoded: the whole of it is what has to be read
            file = self._files[variable.shard or 0]
            yield Read(file.path, variable.offset or 0, variable.nbytes)
            return
        shape = selection_shape(variable)
        box = Box((0,) * len(shape), shape)
        for _, offset, size in reads(selection, self._fixed(variable).size, [box]):
            yield Read(extent.file.path, extent.offset + offset, size)

    def extent(
        self,
        variable: Variable,  # noqa: ARG002 - for formats that store values as they are
    ) -> Extent | None:
        """As ``Source.extent``; None unless a subclass knows."""
        return None

    def read(self, variable: Variable, selection: Selection, *, check: bool = True) -> np.ndarray:
        from ckpttool.sources.arrays import array_of

        return array_of(self, variable, selection, check=check)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._directory.close()

    # ----------------------------------------------------------------------------------

    def _whole_extent(self, variable: Variable) -> Extent:
        extent = self.extent(variable)
        assert extent is not None, "a subclass that has no extent overrides _chunks"
        return extent

    def _fixed(self, variable: Variable) -> DType:
        """The dtype of a variable whose elements have a fixed size, and whose shape is known."""
        dtype = BY_NAME.get(variable.dtype)
        if dtype is None or not dtype.size:
            raise UnsupportedError(
                f"the values of {variable.name} cannot be read: its dtype is {variable.dtype}",
                why="its elements have no fixed size that is known here",
                hint="the variable can be listed",
                id="dtype-unsupported",
            )
        selection_shape(variable)
        return dtype

    def _not_found(self, name: str) -> NoReturn:
        from shlex import quote

        from ckpttool.sources.nearest import nearest

        known = {variable.name for variable in self._variables}
        known |= {variable.key for variable in self._variables}
        near = nearest(name, known)
        raise NotFoundError(
            f"there is no variable {name} in {self.location}",
            why=f"none of its {count(len(self._variables), 'variable')} has this name or key",
            hint=f"did you mean: {', '.join(near)}"
            if near
            else f"ckpttool list {quote(self.address)}",
            id="variable-not-found",
        )

    def _require_unchanged(self, variable: Variable, cause: CkpttoolError | None = None) -> None:
        if not any(file.changed() for file in self._files):
            return
        raise ChangedError(
            f"{self.location} changed while {variable.name} was read",
            why="another program rewrote, replaced or removed it"
            + (f" ({cause})" if cause else ""),
            hint="run it again when it is complete, or read a copy",
        ) from cause


def _key_bytes(variable: Variable) -> bytes:
    return variable.key.encode("utf-8", "surrogateescape")


def selection_shape(variable: Variable) -> tuple[int, ...]:
    """The shape of a variable whose values are wanted.

    Raises:
        UnsupportedError: id ``shape-unknown``.
    """
    if variable.shape is None:
        raise UnsupportedError(
            f"the values of {variable.name} cannot be read: its shape is not known",
            why="its file does not say its rank",
            id="shape-unknown",
        )
    return variable.shape


def require_fit(variable: Variable) -> None:
    """Check that the stored bytes are as many as dtype and shape need.

    Raises:
        CorruptError: id ``size-mismatch``.
    """
    dtype = BY_NAME.get(variable.dtype)
    if dtype is None or not dtype.size or variable.shape is None:
        return
    needed = numel(variable.shape) * dtype.size
    if needed != variable.nbytes:
        raise CorruptError(
            f"the size of {variable.name} does not fit its shape",
            why=f"{variable.nbytes} bytes are stored, and {shape_text(variable.shape)} elements "
            f"of {dtype.name} are {needed}",
            hint="take the file from another copy",
            id="size-mismatch",
        )
