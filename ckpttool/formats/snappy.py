"""One snappy block, bounded: the declared length is checked before the library sees a byte.

A decoder that trusts the length in front of a block allocates 4 GiB for 5 bytes, and
cramjam's then aborts the interpreter. Snappy cannot expand by more than 64/3 (a copy of
64 bytes takes 3), so a longer claim is a lie that needs no memory to be seen.
"""

from __future__ import annotations

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.formats.wire import read_varint

__all__ = ["decompress"]


def decompress(data: bytes, limit: int) -> bytes:
    """The bytes of a raw snappy block.

    Raises:
        CorruptError: id ``snappy-malformed``: the stream breaks, or claims more than
            snappy can hold in so few bytes.
        LimitError: id ``limit-block``: it claims more than ``limit`` bytes.
    """
    try:
        claimed, _ = read_varint(data, 0, min(len(data), 5))
    except CkpttoolError as error:
        raise _broken(error.why) from None
    if claimed * 3 > len(data) * 64:
        raise _broken(f"{len(data)} bytes claim to hold {claimed}, more than snappy can")
    if claimed > limit:
        raise LimitError(
            "a snappy block is too large",
            why=f"it claims {claimed} bytes, and the limit is {limit}",
            hint="if the file is trusted, raise block_expanded_bytes in CKPTTOOL_LIMITS",
            id="limit-block",
        )
    import cramjam  # here, because few indexes are compressed and a start counts every ms

    expanded = bytearray(claimed)
    try:
        written = cramjam.snappy.decompress_raw_into(data, expanded)
    except cramjam.DecompressionError as error:
        raise _broken(str(error)) from None
    if written != claimed:
        raise _broken(f"it claims {claimed} bytes and holds {written}")
    return bytes(expanded)


def _broken(why: str) -> CorruptError:
    return CorruptError("a snappy block cannot be expanded", why=why, id="snappy-malformed")
