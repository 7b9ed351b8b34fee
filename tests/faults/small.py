"""One small checkpoint that has everything in it: for flipping each of its bits."""

from __future__ import annotations

from pathlib import Path

from tests.support import handmade
from tests.support.handmade import EntryFields, slice_key, varint, write_bundle

__all__ = ["write_small"]

GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def _variants(values: list[bytes]) -> tuple[bytes, int]:
    stored = covered = b""
    for value in values:
        covered += len(value).to_bytes(8, "little") + value
        checksum = handmade.masked_crc(covered).to_bytes(4, "little")
        covered += checksum
        stored += varint(len(value)) + value + checksum
    return stored, handmade.masked_crc(covered)


def write_small(folder: Path) -> bytes:
    """Write checkpoint ``m``: floats, strings, a variant, two slices, an object graph.

    Its index has several blocks. Returns the bytes of its one data file.
    """
    message = handmade._message
    names = (b"floats", b"strings", b"variants", b"rows", b"empty")
    values = (message(2, message(1, b"VARIABLE_VALUE") + message(3, name)) for name in names)
    graph, graph_crc = handmade.string_payload([message(1, b"".join(values))])
    strings, strings_crc = handmade.string_payload([b"one", b"", b"x" * 130])
    variants, variants_crc = _variants([b"opaque", b""])
    payloads = [bytes(range(16)), strings, variants, bytes(range(100, 112)), bytes(12), graph]
    starts = [sum(map(len, payloads[:number])) for number in range(len(payloads) + 1)]
    rows: list[handmade.Slice] = [[(0, 1), (0, None)], [(1, 1), (0, 3)]]

    def place(number: int) -> EntryFields:
        return {"offset": starts[number], "size": len(payloads[number])}

    entries: dict[bytes, EntryFields | bytes] = {
        b"floats": {"shape": (2, 2), **place(0)},
        b"strings": {"dtype": 7, "shape": (3,), "crc": strings_crc, **place(1)},
        b"variants": {"dtype": 21, "shape": (2,), "crc": variants_crc, **place(2)},
        b"rows": {"shape": (2, 3), "slices": rows},
        slice_key(b"rows", rows[0]): {"shape": (1, 3), **place(3)},
        slice_key(b"rows", rows[1]): {"shape": (1, 3), **place(4)},
        b"empty": {"shape": (0, 7)},
        GRAPH: {"dtype": 7, "crc": graph_crc, **place(5)},
    }
    data = b"".join(payloads)
    write_bundle(folder, "m", entries, [data], block_size=120, restart_interval=2)
    return data
