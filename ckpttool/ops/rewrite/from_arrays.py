"""Arrays of a program as the contents of a checkpoint's entries.

Knows numpy's arrays and their types; nothing of files. An array is laid out while it is
written, a piece at a time, so one that is transposed, broadcast, big-endian or mapped from a
file is never copied as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ckpttool.errors import UnsupportedError, UsageError
from ckpttool.formats.dtypes import BY_NAME, STRING, DType, numpy_dtype
from ckpttool.model import numel
from ckpttool.ops.rewrite.tensors import Computed, strings_content

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["ArrayContent", "Pieces", "array_content"]

#: Bytes that are made and written at once.
_PIECE = 2**19
#: Of a shape.
_DIMENSIONS = 254
_ELEMENTS = 2**63


@dataclass(frozen=True, slots=True)
class Pieces:
    """A variable whose elements come one piece after the other, so that it may be of any size.

    Attributes:
        dtype: TensorFlow's word (``"bfloat16"``), or whatever ``numpy.dtype`` takes. Not
            strings: what stands before them in the file are the lengths of all of them.
        shape: of the whole variable.
        pieces: its elements in C order, as arrays of that dtype (of any shape) or as bytes
            (little-endian, whole elements). Asked for once, when the variable is written.
    """

    dtype: DTypeLike
    shape: Sequence[int]
    pieces: Iterable[np.ndarray | bytes]


class ArrayContent(NamedTuple):
    """What an entry is made of: TensorFlow's dtype, the shape, the bytes."""

    dtype: DType
    shape: tuple[int, ...]
    content: Computed


def array_content(name: str, value: ArrayLike | Pieces) -> ArrayContent:
    """A value as the content of the variable ``name``; its elements are not looked at yet.

    Strings are arrays of ``bytes`` or ``str`` objects (kept as UTF-8), or of NumPy's own
    kinds of text. Of those all are looked at, for their lengths.

    Raises:
        UnsupportedError: id ``dtype-not-representable``; id ``package-missing``.
        UsageError: id ``value-shape``: a shape that none can have, or a value that is no array.
    """
    if isinstance(value, Pieces):
        return _pieces(name, value)
    import numpy as np

    if hasattr(value, "mask") and hasattr(value, "filled"):
        raise UsageError(
            f"the value of {name} is a masked array",
            why="a checkpoint has no mask: what is masked out would count",
            hint="give value.filled(…)",
            id="value-shape",
        )
    try:
        array = np.asarray(value)
        if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
            array = np.asarray(value, object)  # NumPy's own text drops zero bytes at its end
    except (ValueError, TypeError, RuntimeError) as error:  # what other libraries' tensors raise
        raise UsageError(
            f"the value of {name} is no array",
            why=str(error),
            hint="give it the form that numpy.asarray takes",
            id="value-shape",
        ) from None
    if array.dtype.kind in "SUOT":  # T: numpy.dtypes.StringDType
        values = [_text(name, item) for item in array.flat]
        return ArrayContent(BY_NAME["string"], array.shape, strings_content(values))
    dtype = _dtype(name, array.dtype)
    return ArrayContent(
        dtype, array.shape, Computed(partial(_laid_out, array, dtype), array.nbytes)
    )


def _pieces(name: str, value: Pieces) -> ArrayContent:
    dtype = _dtype(name, value.dtype)
    if dtype.number == STRING:
        raise UsageError(
            f"{name} cannot be written in pieces",
            why="the lengths of all strings stand before the first",
            hint="give it as one array of bytes objects",
            id="value-shape",
        )
    shape = _shape(name, value.shape)
    nbytes = numel(shape) * dtype.size
    return ArrayContent(
        dtype, shape, Computed(partial(_streamed, name, value, dtype, nbytes), nbytes)
    )


def _shape(name: str, given: Sequence[int]) -> tuple[int, ...]:
    """A shape that TensorFlow can have: see ``TensorShape`` in core/framework/tensor_shape.h."""
    try:
        shape = tuple(map(index, given))
    except TypeError:
        why = "a shape is a sequence of whole numbers"
    else:
        if any(size < 0 for size in shape):
            why = "a dimension is negative"
        elif len(shape) > _DIMENSIONS:
            why = f"it has {len(shape)} dimensions, and TensorFlow allows {_DIMENSIONS}"
        elif numel(tuple(filter(None, shape))) >= _ELEMENTS:
            why = "the number of its elements does not fit into 64 bits"
        else:
            return shape
    raise UsageError(f"{name} cannot have the shape {given!r:.200}", why=why, id="value-shape")


def _dtype(name: str, given: Any) -> DType:  # noqa: ANN401 - whatever numpy.dtype takes
    """TensorFlow's type of an array's; the words of both are the same but for its quantised."""
    word = given if isinstance(given, str) else getattr(given, "name", None)
    if not isinstance(word, str) or word not in BY_NAME:
        import numpy as np

        try:
            word = np.dtype(given).name
        except TypeError:
            word = str(given)
    dtype = BY_NAME.get(word)
    if dtype is None or not (dtype.size or dtype.number == STRING):
        raise UnsupportedError(
            f"{name} cannot be in a checkpoint",
            why=f"its dtype is {word}, which TensorFlow does not store",
            hint="cast it first",
            id="dtype-not-representable",
        )
    return dtype


def _text(name: str, item: object) -> bytes:
    if isinstance(item, bytes):
        return bytes(item)
    if isinstance(item, str):
        try:
            return item.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise UnsupportedError(
                f"{name} cannot be in a checkpoint",
                why=f"one of its strings is no Unicode: {error.reason} at {error.start}",
                hint="give bytes",
                id="dtype-not-representable",
            ) from None
    raise UnsupportedError(
        f"{name} cannot be in a checkpoint",
        why=f"it is an array of objects, and one is of type {type(item).__name__}",
        hint="strings are bytes or str; anything else needs a dtype of its own",
        id="dtype-not-representable",
    )


def _laid_out(array: np.ndarray, dtype: DType) -> Iterator[bytes]:
    """The elements in C order, little-endian."""
    import numpy as np

    size = _PIECE // dtype.size
    pieces = np.nditer(
        array,
        ["external_loop", "buffered", "zerosize_ok"],
        op_dtypes=[numpy_dtype(dtype.numpy)],
        order="C",
        casting="equiv",
        buffersize=size,
    )
    for piece in cast("Iterable[np.ndarray]", pieces):
        # Where nothing has to be laid out anew, it is all of the array at once.
        for start in range(0, piece.size, size):
            yield piece[start : start + size].tobytes()


def _streamed(name: str, value: Pieces, dtype: DType, nbytes: int) -> Iterator[bytes]:
    """The elements of all pieces, which have to come to the size that was promised."""
    import numpy as np

    done = 0
    for piece in cast("Iterable[object]", value.pieces):
        if not isinstance(piece, (bytes, np.ndarray)):
            kind = type(piece).__name__
            raise _misfit(name, value, f"a piece is a {kind}, no array and no bytes")
        size = len(piece) if isinstance(piece, bytes) else piece.nbytes
        done += size
        if done > nbytes or size % dtype.size:
            raise _misfit(name, value, f"{done} bytes have come, and it has {nbytes}")
        if isinstance(piece, bytes):
            yield from (piece[start : start + _PIECE] for start in range(0, size, _PIECE))
            continue
        if piece.dtype.name != dtype.numpy:
            raise _misfit(name, value, f"a piece is {piece.dtype.name}, and it is {dtype.name}")
        yield from _laid_out(piece, dtype)
    if done != nbytes:
        raise _misfit(name, value, f"the last piece ends at byte {done} of {nbytes}")


def _misfit(name: str, value: Pieces, why: str) -> UsageError:
    return UsageError(
        f"the pieces of {name} do not make up its shape {list(value.shape)}",
        why=why,
        hint="pieces are whole elements of its dtype, as many as the shape says",
        id="value-shape",
    )
