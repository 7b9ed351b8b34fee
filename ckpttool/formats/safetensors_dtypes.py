"""The element types of safetensors, and which of TensorFlow's they are.

Words and widths are those of ``Dtype`` in safetensors/src/tensor.rs (version 0.8). Types
narrower than a byte are packed there, the first element in the low bits; TensorFlow
stores them a byte each.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BY_TENSORFLOW", "BY_WORD", "RANKS", "SafetensorsType"]


class SafetensorsType(NamedTuple):
    """One element type: its word, bits an element, and TensorFlow's word.

    A type that TensorFlow does not have keeps its own word, in small letters.
    """

    word: str
    bits: int
    dtype: str


#: In the order of the enum, by which the library sorts the arrays of a file, the last first.
_TYPES = (
    SafetensorsType("BOOL", 8, "bool"),
    SafetensorsType("F4", 4, "float4_e2m1fn"),
    SafetensorsType("F6_E2M3", 6, "f6_e2m3"),
    SafetensorsType("F6_E3M2", 6, "f6_e3m2"),
    SafetensorsType("U8", 8, "uint8"),
    SafetensorsType("I8", 8, "int8"),
    SafetensorsType("F8_E5M2", 8, "float8_e5m2"),
    SafetensorsType("F8_E4M3", 8, "float8_e4m3fn"),
    SafetensorsType("F8_E8M0", 8, "f8_e8m0"),
    SafetensorsType("F8_E4M3FNUZ", 8, "float8_e4m3fnuz"),
    SafetensorsType("F8_E5M2FNUZ", 8, "float8_e5m2fnuz"),
    SafetensorsType("I16", 16, "int16"),
    SafetensorsType("U16", 16, "uint16"),
    SafetensorsType("F16", 16, "float16"),
    SafetensorsType("BF16", 16, "bfloat16"),
    SafetensorsType("I32", 32, "int32"),
    SafetensorsType("U32", 32, "uint32"),
    SafetensorsType("F32", 32, "float32"),
    SafetensorsType("C64", 64, "complex64"),
    SafetensorsType("F64", 64, "float64"),
    SafetensorsType("I64", 64, "int64"),
    SafetensorsType("U64", 64, "uint64"),
)

BY_WORD: dict[str, SafetensorsType] = {known.word: known for known in _TYPES}
RANKS: dict[str, int] = {known.word: rank for rank, known in enumerate(_TYPES)}

#: TensorFlow's word → the type it is written as. Quantised integers are plain ones, as
#: TensorFlow's reader gives them.
BY_TENSORFLOW: dict[str, SafetensorsType] = {known.dtype: known for known in _TYPES} | {
    quantised: BY_WORD[word]
    for quantised, word in (
        ("qint8", "I8"),
        ("quint8", "U8"),
        ("qint16", "I16"),
        ("quint16", "U16"),
        ("qint32", "I32"),
    )
}
