"""Array files and models: reads that fail, files that change, and sparse files that claim much."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ckpttool.errors import ChangedError, CkpttoolError
from ckpttool.limits import Limits
from ckpttool.sources.address import resolve
from ckpttool.sources.array_file import ArrayFileSource
from ckpttool.sources.base import SourceKind
from ckpttool.sources.npz import NpzSource
from ckpttool.sources.onnx import OnnxSource
from ckpttool.sources.registry import open_source
from ckpttool.sources.safetensors import SafetensorsSource
from ckpttool.sources.selection import Selection
from ckpttool.sources.tfjs import TfjsSource
from ckpttool.sources.tflite import TfliteSource
from ckpttool.storage import open_directory
from tests.support.command import RunCli
from tests.support.crafted_files import npy
from tests.support.faults import Faults, faulty
from tests.support.flatbuffer import Field, Tables, Text, Vector, tflite

#: MiB of address space: what Python and the imports take, and little more.
MEMORY = 120
GIB = 2**30

SOURCES: dict[str, tuple[type[ArrayFileSource], SourceKind]] = {
    "arrays/model.safetensors": (SafetensorsSource, "safetensors"),
    "arrays/model-7.npz": (NpzSource, "npz"),
    "arrays/odd.npz": (NpzSource, "npz"),
    "models/dense.onnx": (OnnxSource, "onnx"),
    "models/dense.tflite": (TfliteSource, "tflite"),
    "models/tfjs": (TfjsSource, "tfjs"),
}


def everything(path: Path, address: str, faults: Faults) -> dict[str, list[bytes]]:
    """All elements of all variables, read through a storage with faults."""
    resolved = resolve(str(path))
    make, kind = SOURCES[address]
    directory = faulty(open_directory(resolved.directory), faults)
    found: dict[str, list[bytes]] = {}
    with make(directory, resolved, Limits(), kind) as source:
        for variable in source.variables():
            whole = Selection.whole(variable.shape or ())
            if variable.dtype == "string":
                found[variable.name] = source.strings(variable, whole)
            else:
                found[variable.name] = list(source.chunks(variable, whole))
    return found


@pytest.mark.parametrize("how", ["eio", "short"])
@pytest.mark.parametrize("address", SOURCES)
def test_whichever_read_fails_is_told(
    fixtures_dir: Path, address: str, how: Literal["eio", "short"]
) -> None:
    path = fixtures_dir / address
    counting = Faults()
    expected = everything(path, address, counting)
    assert counting.reads
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, len(counting.reads) + 1):
        code = 0
        try:
            found = everything(path, address, Faults(number, how))
        except CkpttoolError as error:
            code = error.exit_code
        # A step that could not be read is done without.
        assert code in {20, 40} or found == expected, number
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("address", SOURCES)
def test_a_file_that_is_replaced_while_it_is_read(
    fixtures_dir: Path, tmp_path: Path, address: str
) -> None:
    path = tmp_path / Path(address).name
    if (fixtures_dir / address).is_dir():
        shutil.copytree(fixtures_dir / address, path)
    else:
        shutil.copy(fixtures_dir / address, path)
        shutil.copy(fixtures_dir / "models" / "dense.bin", tmp_path)
    with open_source(str(path)) as source:
        name = next(variable.name for variable in source.variables() if variable.dtype != "string")
        variable = source.find(name)
        for file in sorted(path.rglob("*.bin")) if path.is_dir() else [path]:
            data = file.read_bytes()
            file.unlink()
            file.write_bytes(data)
        with pytest.raises(ChangedError) as caught:
            list(source.chunks(variable, Selection.whole(variable.shape or ())))
        assert caught.value.exit_code == 30


def sparse(path: Path, head: bytes, nbytes: int, tail: bytes = b"") -> Path:
    """A file with a hole of so many bytes."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + nbytes)
        file.seek(0, os.SEEK_END)
        file.write(tail)
    return path


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes, more: int = 0) -> bytes:
    """A length-delimited field whose last bytes, ``more`` of them, are in a hole behind it."""
    return varint(number << 3 | 2) + varint(len(data) + more) + data


ROWS, COLUMNS = 2**21, 1024
SIZE = 4 * ROWS * COLUMNS


def large_safetensors(folder: Path) -> Path:
    header = {"x": {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [0, SIZE]}}
    text = json.dumps(header).encode()
    return sparse(folder / "x.safetensors", struct.pack("<Q", len(text)) + text, SIZE)


def large_npz(folder: Path) -> Path:
    head = npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {COLUMNS})}}")
    size = len(head) + SIZE
    local = struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, 5, 20)
    wide = struct.pack("<HHQQ", 1, 16, size, size)
    body = local + b"x.npy" + wide + head
    central = struct.pack(
        "<4sHHHHHHLLLHH", b"PK\1\2", 45, 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, 5, 20
    )
    central += struct.pack("<HHHLL", 0, 0, 0, 0, 0) + b"x.npy" + wide
    at = len(body) + SIZE
    end64 = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(central), at)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at + len(central), 1)
    end = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    return sparse(folder / "x.npz", body, SIZE, central + end64 + locator + end)


def large_onnx(folder: Path) -> Path:
    tensor = b"\x08" + varint(ROWS) + b"\x08" + varint(COLUMNS) + b"\x10\x01" + field(8, b"x")
    tensor += field(9, b"", SIZE)
    node = field(1, field(4, b"Relu"))
    graph = node + field(5, tensor, SIZE)
    model = b"\x08\x08" + field(2, b"tests") + field(7, graph, SIZE)
    return sparse(folder / "x.onnx", model, SIZE)


def large_tflite(folder: Path) -> Path:
    tensor: dict[int, Field] = {
        0: Vector("i", (ROWS, COLUMNS)),
        1: ("b", 0),
        2: ("I", 1),
        3: Text(b"x"),
    }
    size = len(tflite((tensor,), f4=Tables(({}, {1: ("Q", 1), 2: ("Q", SIZE)}))))
    head = tflite((tensor,), f4=Tables(({}, {1: ("Q", size), 2: ("Q", SIZE)})))
    return sparse(folder / "x.tflite", head, SIZE)


def large_tfjs(folder: Path) -> Path:
    weights = [{"name": "x", "shape": [ROWS, COLUMNS], "dtype": "float32"}]
    groups = [{"paths": ["a.bin", "b.bin"], "weights": weights}]
    model = {"format": "graph-model", "weightsManifest": groups}
    (folder / "model.json").write_text(json.dumps(model))
    sparse(folder / "a.bin", b"", GIB)
    sparse(folder / "b.bin", b"", SIZE - GIB)
    return folder


@pytest.mark.parametrize(
    "make", [large_safetensors, large_npz, large_onnx, large_tflite, large_tfjs]
)
def test_eight_gigabytes_are_listed_and_rows_are_read(
    run_cli: RunCli, tmp_path: Path, make
) -> None:
    (tmp_path / "source").mkdir()
    path = make(tmp_path / "source")
    for command in ("list", "inspect"):
        done = run_cli([command, path], memory_mb=MEMORY)
        assert done.returncode == 0, done.stderr
        assert str(SIZE) in done.stdout
    out = tmp_path / "out.npy"
    done = run_cli(
        ["load", path, f"x[{ROWS // 2}:{ROWS // 2 + 3}, ::2]", "-o", out], memory_mb=MEMORY
    )
    assert done.returncode == 0, done.stderr
    assert np.load(out).tolist() == np.zeros((3, COLUMNS // 2)).tolist()


def test_a_bomb_is_unpacked_as_far_as_it_is_wanted(run_cli: RunCli, tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte, as an honest archive: rows cost little memory."""
    rows = 2**18
    head = npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 1024)}}")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = [packer.compress(head)]
    block = bytes(2**20)
    crc = zlib.crc32(head)
    for _ in range(1024):
        packed.append(packer.compress(block))
        crc = zlib.crc32(block, crc)
    data = b"".join([*packed, packer.flush()])
    size = len(head) + 2**30
    common = struct.pack("<HHHHHLLLHH", 20, 0, 8, 0, 33, crc, len(data), size, 5, 0)
    body = b"PK\3\4" + common + b"x.npy" + data
    central = b"PK\1\2\0\3" + common + struct.pack("<HHHLL", 0, 0, 0, 0, 0) + b"x.npy"
    end = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 1, 1, len(central), len(body), 0)
    path = tmp_path / "x.npz"
    path.write_bytes(body + central + end)
    assert path.stat().st_size < 2**21
    done = run_cli(["inspect", path], memory_mb=MEMORY)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out.npy"
    done = run_cli(["load", path, "x[10:12]", "-o", out], memory_mb=MEMORY)
    assert done.returncode == 0, done.stderr
    assert np.load(out).shape == (2, 1024)
