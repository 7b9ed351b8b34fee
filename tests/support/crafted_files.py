"""Files of arrays made by hand, so that each field may lie."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping

__all__ = ["npy", "safetensors", "zip_of"]


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of any header: bytes as they are, anything else as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """A .npy file of any literal."""
    text = header.encode("latin-1" if version < 3 else "utf-8")
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + size + text + data


def zip_of(
    members: Mapping[str, bytes],
    *,
    deflated: bool = False,
    sizes: Mapping[str, int] | None = None,
    crcs: Mapping[str, int] | None = None,
    offsets: Mapping[str, int] | None = None,
    mode: int = 0,
    flags: int = 0,
    method: int | None = None,
) -> bytes:
    """A zip archive whose directory may claim other sizes, checksums and places."""
    body, directory = b"", b""
    for name, data in members.items():
        raw = name.encode()
        packed = data
        if deflated:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = packer.compress(data) + packer.flush()
        how = (8 if deflated else 0) if method is None else method
        crc = (crcs or {}).get(name, zlib.crc32(data))
        size = (sizes or {}).get(name, len(data))
        offset = (offsets or {}).get(name, len(body))
        common = struct.pack(
            "<HHHHHLLLHH", 20, flags, how, 0, 33, crc, len(packed), size, len(raw), 0
        )
        directory += b"PK\1\2" + struct.pack("<H", 3 << 8) + common
        directory += struct.pack("<HHHLL", 0, 0, 0, mode << 16, offset) + raw
        body += b"PK\3\4" + common + raw + packed
    end = struct.pack(
        "<4sHHHHLLH", b"PK\5\6", 0, 0, len(members), len(members), len(directory), len(body), 0
    )
    return body + directory + end
