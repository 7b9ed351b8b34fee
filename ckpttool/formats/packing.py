"""Elements of half a byte: two in a byte, as most formats have them, or one, as TensorFlow.

The first element of a pair is in the low bits (safetensors, ONNX's onnx.proto, TFLite's
schema.fbs all say so). Knows bytes only.
"""

from __future__ import annotations

from functools import cache

__all__ = ["pack_halves", "unpack_halves"]


def pack_halves(data: bytes) -> bytes:
    """Pairs of elements of a byte each, as a byte each; ``data`` has an even length."""
    size = len(data) // 2
    low = int.from_bytes(data[::2], "little")
    high = int.from_bytes(data[1::2], "little")
    mask = int.from_bytes(b"\x0f" * size, "little")
    return ((low & mask) | (high & mask) << 4).to_bytes(size, "little")


def unpack_halves(data: bytes, *, signed: bool = False) -> bytes:
    """Two elements a byte, as a byte each.

    Args:
        data: the pairs.
        signed: whether the upper bits of an element repeat its sign, as in TensorFlow's int4.
    """
    spread = bytearray(2 * len(data))
    low, high = _tables(signed)
    spread[::2] = data.translate(low)
    spread[1::2] = data.translate(high)
    return bytes(spread)


@cache
def _tables(signed: bool) -> tuple[bytes, bytes]:
    """The byte of the low and of the high half, for each byte."""
    halves = [half | 0xF0 if signed and half & 8 else half for half in range(16)]
    return (
        bytes(halves[byte & 15] for byte in range(256)),
        bytes(halves[byte >> 4] for byte in range(256)),
    )
