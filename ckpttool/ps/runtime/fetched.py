"""Arrays as they come from a server → the bytes of a file, without copying them.

Memory that was never touched before is what copying costs most: a piece of 16 MB is mapped
anew each time. So a checksum is computed and a file is written from where the piece lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

__all__ = ["chunks_of"]

#: What is written and summed at once: the second finds it in the cache, and other threads
#: of this process (the training's own) wait no longer for the interpreter.
_CHUNK_BYTES = 2**20


def chunks_of(array: np.ndarray) -> Iterator[bytes]:
    """The elements of an array, in C order.

    The large ones are views that ``write``, ``len`` and ``crc32c.extend`` take as they take
    bytes; what is smaller than a chunk, and may be put together with others, is bytes.
    """
    data = np.ravel(array).view(np.uint8)
    for first in range(0, data.nbytes, _CHUNK_BYTES):
        chunk = data[first : first + _CHUNK_BYTES]
        yield cast(bytes, chunk) if chunk.nbytes == _CHUNK_BYTES else chunk.tobytes()
