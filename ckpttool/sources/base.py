"""The one protocol of everything that has variables.

A source lists its variables and hands out their elements; which files those come from
is its own affair. Elements leave a source in C order, little-endian, in TensorFlow's
element layout (``formats/dtypes.py``), so a consumer never asks what kind it is reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self

from ckpttool.model import Finding, Shard, Variable

if TYPE_CHECKING:
    import numpy as np

    from ckpttool.sources.selection import Selection
    from ckpttool.storage.base import ReadableFile

__all__ = ["Extent", "NameStyle", "Read", "Source", "SourceKind", "Style"]

#: What `inspect` calls a source; the words are part of the JSON contract.
SourceKind = Literal[
    "tf-v2",
    "tf-v1",
    "savedmodel",
    "keras-h5",
    "keras-weights",
    "keras-v3",
    "safetensors",
    "npz",
    "frozen-graph",
    "graph",
    "metagraph",
    "tflite",
    "onnx",
    "tfjs",
    "ps",
]
Style = Literal["object", "name"]

#: What `--names` shows: the readable name, the literal key, or the object path.
NameStyle = Literal["full", "key", "path"]


class Extent(NamedTuple):
    """A contiguous byte range of a file that holds a whole variable.

    The file stays the source's: map it or copy from it before anything else is read.
    """

    file: ReadableFile
    offset: int
    nbytes: int
    little_endian: bool


class Read(NamedTuple):
    """One read that `Source.chunks` or `Source.strings` does."""

    path: str
    offset: int
    nbytes: int


class Source(Protocol):
    """Something that has variables; a context manager that closes its files."""

    @property
    def address(self) -> str:
        """The address as it was given."""
        ...

    @property
    def location(self) -> str:
        """What the address came to: for a checkpoint its prefix."""
        ...

    @property
    def kind(self) -> SourceKind: ...

    @property
    def style(self) -> Style | None:
        """Name-based or object-based; None where the kind knows no such thing."""
        ...

    @property
    def step(self) -> int | None:
        """The training step: the one stored inside, else the number in its name."""
        ...

    @property
    def number(self) -> int | None:
        """The number in its name: a step, an epoch, or a count of saves."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What a person should be told about how the address was understood."""
        ...

    def variables(self, *, named: bool = True) -> Iterator[Variable]:
        """Every variable in key order, streamed where the format allows it.

        Args:
            named: find out names and kinds, which may need the object graph; else the
                name is the key and the kind is ``other``.

        Raises:
            CorruptError, IncompleteError, LimitError: possibly after some were given.
        """
        ...

    def name_of(self, variable: Variable, names: NameStyle) -> str:
        """What a variable of this source is called: by its name, its key or its object path.

        What has no object path (a name-based checkpoint, an array in a file) goes by its name.
        """
        ...

    def lookup(self, name: str) -> Variable | None:
        """The variable with this name, key or object path; None where there is none.

        A key wins over a name, and a name over a path.
        """
        ...

    def find(self, name: str) -> Variable:
        """As `lookup`.

        Raises:
            NotFoundError: id ``variable-not-found``; the hint names the nearest ones.
        """
        ...

    def shards(self) -> Sequence[Shard]:
        """The data files that are there, and the first hundred of those that are missing."""
        ...

    def findings(self) -> Sequence[Finding]:
        """What was seen to be wrong or odd when it was opened; the rest can be used.

        Of a V2 checkpoint nothing: ``ops/verification`` looks at that.
        """
        ...

    def checksummed(self, variable: Variable) -> bool:
        """Whether reading all of it with ``check`` compares every byte with a checksum.

        Also where only ``sums`` does.
        """
        ...

    def sums(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """What has a checksum of its own that reading variables does not compare.

        Gives its name, and its bytes, which raise at their end where they do not match.
        """
        ...

    def chunks(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> Iterator[bytes]:
        """The selected elements, in pieces of whole elements of at most some MiB.

        Only for dtypes of fixed size; reads only the bytes it needs (and short gaps).

        Args:
            variable: as this source gave it.
            selection: of the variable's shape.
            check: compare checksums where the bytes that one covers are read anyway.

        Raises:
            UnsupportedError: an unknown dtype, or one without a fixed size.
            CorruptError, IncompleteError: naming the shard and the variable.
            ChangedError: another program changed the files; opening anew may help.
        """
        ...

    def strings(
        self, variable: Variable, selection: Selection, *, check: bool = True
    ) -> list[bytes]:
        """The selected elements of a string variable, in C order; raises as ``chunks``."""
        ...

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        """The reads that getting these elements takes, without doing them.

        Raises:
            UnsupportedError, CorruptError, IncompleteError: what can be told beforehand; a
                file that is missing or ends before what is planned.
        """
        ...

    def extent(self, variable: Variable) -> Extent | None:
        """Where the whole variable lies, for memory maps; None when it is in pieces.

        Raises:
            IncompleteError: the file is missing or too short.
            ChangedError: as ``chunks``.
        """
        ...

    def read(self, variable: Variable, selection: Selection, *, check: bool = True) -> np.ndarray:
        """The selected elements as an array; imports numpy; raises as ``chunks``."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
