"""The header of a ``.npy`` file, written and read, without numpy.

Magic, version, length, and a Python literal padded so that the data starts at a multiple
of 64 (numpy/lib/format.py). What follows it are the elements. The literal is read by a
grammar of the few words that it may have: nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import CorruptError, UnsupportedError

__all__ = [
    "PREAMBLE_BYTES",
    "NpyHeader",
    "NpyType",
    "element_type",
    "header",
    "header_end",
    "read_header",
]

_MAGIC = b"\x93NUMPY"
_VERSION_1 = b"\x01\x00"
#: numpy leaves room for the first dimension to grow to this many digits.
_GROWTH_DIGITS = 21

#: Magic, version, and the longest length: enough for `header_end`.
PREAMBLE_BYTES = 12
#: Bytes of the literal that are taken; numpy itself trusts 10,000.
_MOST_HEADER_BYTES = 2**16
#: Tuples and lists inside each other: a structured type has a few.
_MOST_DEPTH = 16

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<number>\d{1,20})L?|(?P<word>True|False)"
    r"|(?P<mark>[\[\](){},:]))"
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}


class NpyHeader(NamedTuple):
    """What a header says.

    Attributes:
        descr: numpy's short word for the type of the elements; empty for a structured one.
        fortran_order: whether the first index runs fastest.
        shape: one size a dimension.
        nbytes: bytes of the header, after which the elements come.
    """

    descr: str
    fortran_order: bool
    shape: tuple[int, ...]
    nbytes: int


class NpyType(NamedTuple):
    """What the elements of an array are.

    Attributes:
        dtype: TensorFlow's word; ``string`` for texts of a fixed width; for any other, which
            cannot be read as numbers, numpy's own: ``object``, ``void2``, ``datetime64``…
        size: bytes of an element; 0 where the file does not say.
        little_endian: the order of the bytes of a number, or of the characters of a text.
        unicode: whether it is a text of UTF-32 characters.
    """

    dtype: str
    size: int
    little_endian: bool
    unicode: bool = False


#: numpy's letter and size → TensorFlow's word.
_TYPES = {
    "b1": "bool",
    "f1": "void1",  # float8_e5m2 of ml_dtypes, which numpy itself cannot read
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
}
_DESCR = re.compile(r"([<>=|]?)([a-zA-Z])(\d{0,9})(\[[^\]]*\])?")
#: Texts and what is opaque: letter → word, and bytes of a unit of its size.
_OTHERS = {
    "S": ("string", 1),
    "a": ("string", 1),
    "U": ("string", 4),
    "V": ("void", 1),
    "O": ("object", 0),
    "f": ("float", 1),
    "c": ("complex", 1),
    "M": ("datetime64", 1),
    "m": ("timedelta64", 1),
}


def element_type(descr: str) -> NpyType:
    """What ``descr`` of a header means; an empty one is a structured type.

    Raises:
        CorruptError: id ``npy-malformed``.
    """
    if not descr:
        return NpyType("structured", 0, little_endian=True)
    match = _DESCR.fullmatch(descr)
    if match is None:
        raise _malformed(f"{descr!r} is no type of numpy's")
    order, letter, digits, _ = match.groups()
    little = order != ">"
    size = int(digits or 0)
    if dtype := _TYPES.get(letter + digits):
        return NpyType(dtype, size, little)
    known = _OTHERS.get(letter)
    if known is None:
        raise _malformed(f"{descr!r} is no type of numpy's")
    word, unit = known
    if word == "string":
        return NpyType(word, size * unit, little, unicode=letter == "U")
    named = f"{word}{size if word == 'void' else 8 * size}" if unit and letter in "Vfc" else word
    return NpyType(named, size * unit, little)


def header(descr: str, shape: tuple[int, ...]) -> bytes:
    """What comes before the elements, byte for byte as ``numpy.save`` writes it.

    Args:
        descr: numpy's short word for the element type, for example ``<f4`` or ``|S12``.
        shape: one size a dimension.
    """
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(str(shape[0])))
    before = len(_MAGIC) + len(_VERSION_1) + 2
    text += " " * (-(before + len(text) + 1) % 64) + "\n"
    return _MAGIC + _VERSION_1 + len(text).to_bytes(2, "little") + text.encode("ascii")


def header_end(start: bytes) -> int:
    """How many bytes the header has, from the first ``PREAMBLE_BYTES`` of a file.

    Raises:
        CorruptError: id ``npy-malformed``.
        UnsupportedError: id ``npy-version``.
    """
    if not start.startswith(_MAGIC) or len(start) < PREAMBLE_BYTES:
        raise _malformed("it does not begin as one")
    if start[6] not in {1, 2, 3}:
        raise UnsupportedError(
            "a .npy header cannot be read",
            why=f"it has version {start[6]}, and 1 to 3 are known",
            id="npy-version",
        )
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    if length > _MOST_HEADER_BYTES:
        raise _malformed(f"it claims {length} bytes")
    return 8 + width + length


def read_header(data: bytes) -> NpyHeader:
    """The header that is all of ``data``, which has as many bytes as `header_end` says.

    Raises:
        CorruptError: id ``npy-malformed``. UnsupportedError: id ``npy-version``.
    """
    begin = 10 if data[6] == 1 else 12
    try:
        text = data[begin:].decode("utf-8" if data[6] == 3 else "latin-1")
    except UnicodeDecodeError:
        raise _malformed("its text is not UTF-8") from None
    tokens = _tokens(text)
    found = _value(next(tokens, ""), tokens, 0)
    if next(tokens, ""):
        raise _malformed("something follows its dictionary")
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise _malformed("it is no dictionary of descr, fortran_order and shape")
    descr, fortran, shape = found["descr"], found["fortran_order"], found["shape"]
    if not isinstance(fortran, bool) or not isinstance(descr, str | list):
        raise _malformed("its descr or fortran_order is of another type")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise _malformed("its shape is not of numbers")
    return NpyHeader(descr if isinstance(descr, str) else "", fortran, tuple(shape), len(data))


def _tokens(text: str) -> Iterator[str]:
    """The words of a literal; a text keeps its quotes."""
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _malformed(f"byte {at} of its dictionary begins no word of one")
        at = match.end()
        yield match["text"] or match["number"] or match["word"] or match["mark"]


def _value(word: str, tokens: Iterator[str], depth: int) -> object:
    """The value that begins with a word; tuples become lists."""
    if word[:1] in {"'", '"'}:
        return word[1:-1]
    if word.isdigit():
        return int(word)
    if word in {"True", "False"}:
        return word == "True"
    if word not in _PAIRS or depth > _MOST_DEPTH:
        raise _malformed("its dictionary is none, or too deep")
    items: list[object] = []
    keys: list[object] = []
    close = _PAIRS[word]
    word = next(tokens, "")
    while word != close:
        item = _value(word, tokens, depth + 1)
        word = next(tokens, "")
        if close == "}":
            if word != ":" or not isinstance(item, str) or item in keys:
                raise _malformed("its dictionary has a key that is none, or one twice")
            keys.append(item)
            item = _value(next(tokens, ""), tokens, depth + 1)
            word = next(tokens, "")
        items.append(item)
        if word == ",":
            word = next(tokens, "")
        elif word != close:
            raise _malformed("its dictionary does not end")
    return dict(zip(keys, items, strict=True)) if close == "}" else items


def _malformed(why: str) -> CorruptError:
    return CorruptError(
        "a .npy header is malformed",
        why=why,
        hint="take the file from another copy",
        id="npy-malformed",
    )
