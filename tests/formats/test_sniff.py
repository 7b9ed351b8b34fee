from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import ForeignFormatError
from ckpttool.formats.sniff import (
    HEAD_BYTES,
    KINDS,
    TAIL_BYTES,
    Sniffed,
    sniff,
    sniff_directory,
    sniff_file,
)
from ckpttool.storage import open_directory
from tests.support.handmade import build_table, entry, header, varint

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 369690\n" % (b"ab" * 32)


def of(data: bytes) -> Sniffed:
    """As `sniff_file` looks at it."""
    head = data[:HEAD_BYTES]
    return sniff(head, len(data), data[max(len(head), len(data) - TAIL_BYTES) :])


def zipped(*names: str, padding: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, b"x" * padding)
    return out.getvalue()


def tarred(*names: str, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return out.getvalue()


def proto(number: int, payload: bytes | int) -> bytes:
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


V2_INDEX = build_table([(b"", header()), (b"w", entry())])
V1_VALUE = proto(1, proto(1, proto(1, b"weights") + proto(2, b"")))
V1 = build_table([(b"", V1_VALUE), (b"\0w", b"x")])
NODE = proto(1, b"Placeholder") + proto(2, b"Placeholder")
OPS = proto(1, proto(1, b"Add") + proto(2, proto(1, b"x")))
SAFETENSORS_HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})

KNOWN = [
    ("tf-v2-index", V2_INDEX),
    ("tf-v2-index", build_table([(b"", header(3)), *((b"k%d" % i, entry()) for i in range(9999))])),
    ("tf-v2-index", build_table([(b"", header(300)), (b"w", entry())], snappy=True)),
    ("tf-v2-index", build_table([(b"", header(2, big_endian=True)), (b"w", entry())])),
    ("tf-v2-index", V2_INDEX[:-60]),
    ("tf-v1", V1),
    ("tf-v1", build_table([(b"", V1_VALUE), (b"\0w", b"x" * 200)], snappy=True)),
    ("tf-v1", V1[:-60]),
    ("table", build_table([(b"a", b"b")])),
    ("table", build_table([])),
    ("state", b'model_checkpoint_path: "a"\n'),
    ("state", b"\xef\xbb\xbf# c\r\n\r\nall_model_checkpoint_paths : 'a'"),
    ("metagraph", proto(1, proto(2, OPS)) + proto(2, b"")),
    ("savedmodel-pb", proto(1, 1) + proto(2, proto(1, proto(2, OPS)))),
    ("graphdef", proto(1, NODE)),
    ("graphdef", proto(1, proto(1, b"a/very/" + b"long/" * 60 + b"name") + proto(2, b"Const"))),
    ("graph-text", b'node {\n  name: "x"\n}\n'),
    ("graph-text", b"# comment\nmeta_info_def {\n}\n"),
    ("tflite", b"\x1c\0\0\0TFL3\x14\0 \0"),
    ("tfjs", b'{"format": "layers-model", "modelTopology": {}}'),
    ("tfjs", b'[{"paths": ["group1"], "weights": []}]'),
    ("events", struct.pack("<QI", 24, 7) + b"\x09" + b"\0" * 8 + b"\x1a\x0dbrain.Event:2"),
    ("tfhub-archive", tarred("./", "./saved_model.pb", "./variables/", mode="w:gz")),
    ("tfhub-archive", tarred("tfhub_module.pb", "saved_model.pb")),
    ("checkpoint-archive", tarred("m/model.ckpt.data-00000-of-00001", mode="w:gz")),
    ("checkpoint-archive", zipped("bert/bert_model.ckpt.data-00000-of-00001", "x.txt")),
    ("keras-v3", zipped("metadata.json", "config.json", "model.weights.h5", padding=9000)),
    ("hdf5", b"\x89HDF\r\n\x1a\n" + b"\0" * 100),
    ("hdf5", b"\0" * 512 + b"\x89HDF\r\n\x1a\n" + b"\0" * 100),
    ("pytorch-zip", zipped("archive/data.pkl", "archive/data/0", "archive/version")),
    ("torchscript", zipped("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl")),
    ("pytorch-legacy", pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)),
    ("pickle", pickle.dumps({"a": 1}, 4)),
    ("pickle", pickle.dumps([1, 2], 2)),
    ("mindspore", proto(1, proto(1, b"w") + proto(2, proto(1, 10) + proto(2, b"Float32")))),
    ("onnx", proto(1, 8) + proto(2, b"pytorch") + proto(3, b"2.1") + proto(7, NODE)),
    ("onnx", proto(1, 10) + proto(7, proto(1, NODE))),
    (
        "safetensors",
        struct.pack("<Q", len(SAFETENSORS_HEADER)) + SAFETENSORS_HEADER.encode() + b"abcd",
    ),
    ("gguf", b"GGUF\x03\0\0\0"),
    ("npy", b"\x93NUMPY\x01\0v\0{'descr'"),
    ("npz", zipped("a.npy", "b.npy")),
    ("git-lfs", LFS),
    ("git-annex", b"/annex/objects/SHA256E-s100--abc\n"),
    ("html", b"<!DOCTYPE html>\n<html>"),
    ("html", b"\n  <HTML><head>"),
    ("xml", b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'),
    ("json", b'{"error": 404}'),
    ("appledouble", b"\0\x05\x16\x07\0\x02\0\0Mac OS X"),
    ("zip", zipped("readme.txt")),
    ("zip", b"PK\x05\x06" + b"\0" * 18),
    ("tar", tarred("readme.txt")),
    ("tar-gzip", tarred("readme.txt", mode="w:gz")),
    ("gzip", gzip.compress(b"hello")),
    ("gzip", b"\x1f\x8b\x08broken"),
    ("bzip2", b"BZh91AY&SY"),
    ("xz", b"\xfd7zXZ\0\0\x04"),
    ("zstd", b"\x28\xb5\x2f\xfd\x24"),
    ("lz4", b"\x04\x22\x4d\x18"),
    ("7z", b"7z\xbc\xaf\x27\x1c"),
    ("rar", b"Rar!\x1a\x07\x01\0"),
    ("empty", b""),
    ("zeros", b"\0"),
    ("zeros", b"\0" * 100_000),
    ("text", "just words, naïve ones\n".encode()),
    ("text", ("é" * 5000).encode()),
    ("unknown", struct.pack("<256f", *range(1, 257))),
    ("unknown", b"\0" * 5000 + b"\1" + b"\0" * 5000 + b"\xff"),
]


@pytest.mark.parametrize(
    ("kind", "data"), KNOWN, ids=[f"{k}-{i}" for i, (k, _) in enumerate(KNOWN)]
)
def test_known_kinds(kind: str, data: bytes) -> None:
    assert of(data).kind == kind


def test_every_kind_of_file_is_tested() -> None:
    directories = {"orbax", "zarr", "pytorch-distributed", "tfjs-old"}
    assert {kind for kind, _ in KNOWN} == KINDS.keys() - directories


def test_directories() -> None:
    assert sniff_directory({"_CHECKPOINT_METADATA", "default"}) == Sniffed("orbax")
    assert sniff_directory([".zgroup", "w"]) == Sniffed("zarr")
    assert sniff_directory(["tensorflowjs_model.pb", "group1"]) == Sniffed("tfjs-old")
    assert sniff_directory({".metadata", "__0_0.distcp"}) == Sniffed("pytorch-distributed")
    assert sniff_directory({"checkpoint", "ckpt-1.index", ".metadata"}) is None


def test_a_pointer_tells_what_it_stands_for() -> None:
    found = of(LFS)
    assert (found.expected_size, found.oid) == (369690, f"sha256:{'ab' * 32}")
    error = found.error("a dir/model.ckpt-1.index")
    assert (error.exit_code, error.id) == (11, "git-lfs-pointer")
    assert "369690 bytes" in error.why
    assert error.hint == "git -C 'a dir' lfs pull --include 'model.ckpt-1*'"
    assert of(LFS).error("run[1]/[x].index").hint == "git -C 'run[1]' lfs pull"
    assert of(LFS).error("x.data-00000-of-00001").hint == "git lfs pull --include 'x*'"


def test_a_pointer_without_size() -> None:
    error = of(b"version https://git-lfs.github.com/spec/v1\n").error("x.index")
    assert "unknown number" in error.why


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_errors_name_the_kind_and_what_to_do(kind: str) -> None:
    error = Sniffed(kind).error("dir/it's")
    assert isinstance(error, ForeignFormatError)
    assert error.what.startswith("dir/it's is ")
    assert error.why
    assert error.hint
    assert "FILE" not in error.hint


def test_ours_and_named() -> None:
    assert of(V2_INDEX).ours
    assert of(V2_INDEX).named
    assert not of(LFS).ours
    assert of(LFS).named
    assert not of(b"").named


@given(st.binary(max_size=300))
def test_any_bytes_are_something(data: bytes) -> None:
    assert of(data).kind in KINDS


@pytest.mark.parametrize("byte", [0x08, 0x0A, 0x12, 0x20, 0x5C, 0x80, 0xFF])
def test_no_pattern_backtracks_over_a_hostile_head(byte: int) -> None:
    assert of(bytes([byte]) * 20_000).kind in KINDS
    assert of(b"\x0a\x08\x0a\x02ab\x12\x60" + bytes([byte]) * 20_000).kind in KINDS


def test_an_open_file(tmp_path: Path) -> None:
    sizes = [0, 1, HEAD_BYTES, HEAD_BYTES + 1, HEAD_BYTES + TAIL_BYTES, HEAD_BYTES + TAIL_BYTES + 9]
    for size in sizes:
        (tmp_path / "x").write_bytes(b"\0" * max(0, size - 8) + b"\1" * min(size, 8))
        with open_directory(str(tmp_path)) as directory:
            file = directory.open("x")
            assert sniff_file(file).kind == ("empty" if size == 0 else "unknown"), size
            file.close()


# Real files ---------------------------------------------------------------------------

#: By what a name ends with, what the corpus has under it.
ENDINGS = {
    ".meta": "metagraph",
    ".tflite": "tflite",
    ".h5": "hdf5",
    ".keras": "keras-v3",
    "saved_model.pb": "savedmodel-pb",
    "frozen.pb": "graphdef",
    "model.json": "tfjs",
    "checkpoint": "state",
}
ODD = {
    "mixed-v1-v2-tdgammon/checkpoint-447880": "tf-v1",
    "v1-acrobot-adam/model.ckpt": "tf-v1",
    "v1-badhalfplustwo-abspath/export": "tf-v1",
    "v1-deepq-dotdot-path/karpathy_game.ckpt": "tf-v1",
    "v1-halfplustwo-sharded/export-00000-of-00001": "tf-v1",
    "bad-pytorch-ckpt/model.ckpt": "pytorch-zip",
    "derived-damaged-iris/zero-byte-index/model.ckpt.index": "empty",
}


def test_every_file_of_the_corpus(corpus: Path) -> None:
    wrong = []
    for path in sorted(corpus.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(corpus).as_posix()
        kind = of(path.read_bytes()).kind
        if name.startswith("bad-lfs-pointers/network"):
            expected = {"git-lfs"}
        elif name in ODD:
            expected = {ODD[name]}
        elif name.endswith(".index"):
            expected = {"tf-v2-index"}
        elif ".data-" in name:
            expected = {"unknown", "empty"}
        else:
            expected = {kind for end, kind in ENDINGS.items() if name.endswith(end)}
            expected = expected or {"text", "unknown"}
        if kind not in expected:
            wrong.append((name, kind, expected))
    assert not wrong
