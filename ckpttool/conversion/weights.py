"""The variables of a source as the arrays of a file of weights, in the words of its format.

What is common to ``weights_h5.py``, ``weights_safetensors.py`` and ``weights_npz.py``: which
variables, what they are called, and what becomes of a dtype that the format does not have.
Reads no element before a writer asks for it, and knows no path.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ckpttool.errors import NotFoundError, UnsupportedError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.formats.elements import cast, cast_target
from ckpttool.formats.named_array import NamedArray, Place
from ckpttool.model import Kind, Variable, shape_text
from ckpttool.policy.words import count
from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle, Source
    from ckpttool.storage import NewFile

__all__ = ["RAW", "DtypePolicy", "WeightFormat", "Weights", "array_of", "weights_of"]

DtypePolicy = Literal["error", "cast", "raw"]
#: The member of a file's metadata that says what arrays of bytes really are.
RAW = "raw_dtypes"
#: The strings that Keras 2 keeps beside a model's variables, to build it anew.
_KERAS_CONFIG = "/.ATTRIBUTES/OBJECT_CONFIG_JSON"
#: Looking where less lies takes longer than to read it.
_LARGE = 2**16
#: Variables that a message names; the rest are counted.
_NAMED = 5


class WeightFormat(Protocol):
    """A module that writes one format: ``weights_X.py``."""

    @property
    def FORMAT(self) -> str:  # noqa: N802 - a constant of a module
        """The ending of its files, without the dot."""
        ...

    @property
    def holds(self) -> Callable[[str], bool]:
        """Whether it has a type for a dtype (TensorFlow's word)."""
        ...

    @property
    def write(self) -> Callable[[Sequence[NamedArray], NewFile, Mapping[str, str]], None]:
        """Write arrays, and what is said about them, to a file that is not committed."""
        ...

    @property
    def says(self) -> Callable[[Source, Mapping[str, str]], bool]:
        """Whether a file that was written, and read again, says just this about its arrays."""
        ...


class Weights(NamedTuple):
    """What is to be written.

    Attributes:
        arrays: in the order of the source; their elements come as the file has them.
        about: the step, and under ``raw_dtypes`` a JSON object, name → dtype, of arrays that
            are bytes in the file; text by name.
        warnings: what became of dtypes, and what was left out.
    """

    arrays: tuple[NamedArray, ...]
    about: dict[str, str]
    warnings: tuple[str, ...]


def weights_of(
    source: Source,
    format: WeightFormat,
    policy: DtypePolicy,
    naming: NameStyle,
    wanted: Callable[[str, Kind], bool],
) -> Weights:
    """The chosen variables of an open source, which has to stay open until they are written.

    Args:
        source: what has them.
        format: the writer.
        policy: what becomes of a dtype that it does not have: an error; a cast to the
            narrowest type that holds every value; or its bytes, as ``uint8`` with one more
            dimension, the bytes of an element.
        naming: what they are called.
        wanted: which of them, by name and kind; the object graph is none.

    Raises:
        UnsupportedError: ids ``dtype-not-representable``, ``shape-unknown``.
        NotFoundError: id ``nothing-chosen``: none is chosen.
        CkpttoolError: as reading the source's list.
    """
    arrays: list[NamedArray] = []
    misfits: list[tuple[NamedArray, Variable]] = []
    widened: list[str] = []
    raw: dict[str, str] = {}
    configs = 0
    for variable in source.variables():
        if variable.kind == "object_graph":
            continue
        if variable.key.endswith(_KERAS_CONFIG) and variable.dtype == "string":
            configs += 1
            continue
        name = source.name_of(variable, naming)
        if not wanted(name, variable.kind):
            continue
        array = array_of(source, name, variable)
        if not format.holds(variable.dtype):
            changed = _changed(array, format, policy)
            if changed is None:
                misfits.append((array, variable))
                continue
            if policy == "raw":
                raw[name] = variable.dtype
            else:
                widened.append(f"{name} ({variable.dtype} → {changed.dtype})")
            array = changed
        arrays.append(array)
    if misfits:
        raise _not_representable(format, policy, [array for array, _ in misfits])
    if not arrays:
        raise NotFoundError(
            f"nothing of {source.location} is chosen",
            why="no variable is of these names and kinds",
            hint="ckpttool list shows their names",
            id="nothing-chosen",
        )
    about = {} if source.step is None else {"step": str(source.step)}
    if raw:
        about[RAW] = json.dumps(raw)
    return Weights(tuple(arrays), about, tuple(_words(widened, raw, configs)))


def array_of(source: Source, name: str, variable: Variable) -> NamedArray:
    """A variable under a name, its elements read, and checked, when they are asked for.

    It has a place where a checksum is stored of all its bytes, and they lie as they come.

    Raises:
        UnsupportedError: id ``shape-unknown``.
    """
    if variable.shape is None:
        raise UnsupportedError(
            f"{variable.name} of {source.location} has no known shape",
            why=f"its rank is {shape_text(None)}, and an array needs one",
            hint=f"leave it out: --exclude '{name}'",
            id="shape-unknown",
        )
    selection = Selection.whole(variable.shape)
    return NamedArray(
        name,
        variable.dtype,
        variable.shape,
        partial(source.chunks, variable, selection),
        partial(source.strings, variable, selection),
        partial(_place, source, variable),
    )


def _place(source: Source, variable: Variable) -> Place | None:
    if variable.crc32c is None or variable.nbytes < _LARGE:
        return None
    extent = source.extent(variable)
    if extent is None or not extent.little_endian:
        return None
    return Place(extent.file, extent.offset, extent.nbytes, variable.crc32c)


def _changed(array: NamedArray, format: WeightFormat, policy: DtypePolicy) -> NamedArray | None:
    """The array in a dtype that the format has; None where there is none."""
    if policy == "raw":
        size = _size(array.dtype)
        if not size:
            return None
        return array._replace(dtype="uint8", shape=(*array.shape, size))
    target = cast_target(array.dtype, "auto") if policy == "cast" else None
    if target is None or target == array.dtype or not format.holds(target):
        return None
    return array.to_be_read()._replace(dtype=target, chunks=partial(_cast, array, target))


def _cast(array: NamedArray, target: str) -> Iterator[bytes]:
    for piece in array.chunks():
        yield cast(piece, array.dtype, target)


def _size(dtype: str) -> int:
    known = BY_NAME.get(dtype)
    return known.size if known else 0


def _not_representable(
    format: WeightFormat, policy: DtypePolicy, misfits: Sequence[NamedArray]
) -> UnsupportedError:
    named = _some([f"{one.name} ({one.dtype})" for one in misfits])
    ways = []
    them = "it" if len(misfits) == 1 else "them"
    if policy == "error":
        if all(_changed(one, format, "cast") is not None for one in misfits):
            ways.append("--dtypes cast widens them exactly")
        if all(_size(one.dtype) for one in misfits):
            ways.append("--dtypes raw keeps their bytes")
    return UnsupportedError(
        f"the values cannot be saved as .{format.FORMAT}",
        why=f"it has no type for {named}",
        hint=", ".join(ways) or f"leave {them} out: {_without(misfits)}",
        id="dtype-not-representable",
    )


def _without(misfits: Sequence[NamedArray]) -> str:
    said = " ".join(f"--exclude {shlex.quote(one.name)}" for one in misfits[:_NAMED])
    return said if len(misfits) <= _NAMED else f"{said} …"


def _words(widened: Sequence[str], raw: Mapping[str, str], configs: int) -> Iterable[str]:
    if widened:
        yield f"widened, exactly: {_some(widened)}"
    if raw:
        names = _some([f"{name} ({dtype})" for name, dtype in raw.items()])
        yield f"bytes (uint8) in the file: {names}"
    if configs:
        yield f"left out, for it is no weight: Keras's configuration ({count(configs, 'string')})"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
