"""Elements of less than a byte: several in a byte, as most formats have them, or one each.

The first element of a byte is in its low bits (safetensors, ONNX's onnx.proto, TFLite's
schema.fbs all say so); TensorFlow stores a byte each. Knows bytes only.
"""

from __future__ import annotations

from functools import cache

__all__ = ["pack_halves", "unpack"]


def pack_halves(data: bytes) -> bytes:
    """Pairs of elements of a byte each, as a byte each; ``data`` has an even length."""
    size = len(data) // 2
    low = int.from_bytes(data[::2], "little")
    high = int.from_bytes(data[1::2], "little")
    mask = int.from_bytes(b"\x0f" * size, "little")
    return ((low & mask) | (high & mask) << 4).to_bytes(size, "little")


def unpack(data: bytes, bits: int, *, signed: bool = False) -> bytes:
    """Elements of ``bits`` bits (2 or 4), as a byte each.

    Args:
        data: the packed elements.
        bits: of an element.
        signed: whether the upper bits of a byte repeat the sign, as in TensorFlow's int4.
    """
    tables = _tables(bits, signed)
    spread = bytearray(len(tables) * len(data))
    for place, table in enumerate(tables):
        spread[place :: len(tables)] = data.translate(table)
    return bytes(spread)


@cache
def _tables(bits: int, signed: bool) -> tuple[bytes, ...]:
    """For each place in a byte: the element there, for each byte."""
    full = (1 << bits) - 1
    upper = 0xFF ^ full
    elements = [part | upper if signed and part >> bits - 1 else part for part in range(full + 1)]
    return tuple(
        bytes(elements[byte >> shift & full] for byte in range(256)) for shift in range(0, 8, bits)
    )
