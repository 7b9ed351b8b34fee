"""What is fuzzed: a parser behind one function of bytes, and seeds out of the fixtures.

The parsers are imported when a target is loaded, so that atheris can instrument them first.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "TARGETS", "Run", "Target", "attempt"]

ROOT = Path(__file__).resolve().parent.parent
_FIXTURES = ROOT / "fixtures"

Run = Callable[[bytes], None]

#: Bytes of a variable up to which its values are read.
_READ_BYTES = 2**16
#: Variables of a source that are read.
_READ_VARIABLES = 50
#: Seeds larger than this are left out: libFuzzer is slow on long inputs.
_SEED_BYTES = 2**17


class Target(NamedTuple):
    """A parser: how to load it, the fixtures to start from (globs), and seeds made here."""

    load: Callable[[], Run]
    seeds: tuple[str, ...] = ()
    made: Callable[[], Iterable[bytes]] = tuple

    def inputs(self) -> Iterator[bytes]:
        """The seeds, and an empty input."""
        yield b""
        yield from self.made()
        for pattern in self.seeds:
            for path in sorted(_FIXTURES.glob(pattern)):
                if path.is_file() and path.stat().st_size <= _SEED_BYTES:
                    yield path.read_bytes()


def attempt(run: Run, data: bytes) -> None:
    """Run a parser; an error of ours is an answer, and anything else a find."""
    from ckpttool.errors import CkpttoolError

    try:
        run(data)
    except CkpttoolError as error:
        str(error), error.as_dict()


# Parsers of bytes ------------------------------------------------------------------------


def _wire() -> Run:
    from ckpttool.formats.wire import fields

    def run(data: bytes) -> None:
        for _, _, value in fields(data):
            if isinstance(value, tuple):
                list(fields(data, *value))

    return run


def _sstable() -> Run:
    from ckpttool.formats.sstable import Table
    from ckpttool.limits import Limits
    from tests.support.memory_file import MemoryFile

    def run(data: bytes) -> None:
        table = Table(MemoryFile(data), Limits())
        keys = [key for block in table.blocks() for key, _ in block]
        for key in keys[:5]:
            table.get(key)

    return run


def _bundle() -> Run:
    from ckpttool.formats.bundle import BundleIndex
    from ckpttool.limits import Limits
    from tests.support.memory_file import MemoryFile

    def run(data: bytes) -> None:
        list(BundleIndex(MemoryFile(data), Limits()).entries())
        list(BundleIndex(MemoryFile(data), Limits(), lambda *_: None).entries())

    return run


def _snappy() -> Run:
    from ckpttool.formats.snappy import decompress

    return lambda data: _ignore(decompress(data, 2**20))


def _state() -> Run:
    from ckpttool.formats.state import parse_state

    return lambda data: _ignore(parse_state(data, "checkpoint"))


def _object_graph() -> Run:
    from ckpttool.formats.object_graph import parse_object_graph
    from ckpttool.limits import Limits
    from ckpttool.sources.naming import GraphNames

    def run(data: bytes) -> None:
        graph = parse_object_graph(data, Limits())
        names = GraphNames(graph)
        for key in graph.keys[:50]:
            names.label(key), names.path(key)

    return run


def _ordered_code() -> Run:
    from ckpttool.formats.ordered_code import decode_slice_key, encode_slice_key

    def run(data: bytes) -> None:
        name, slices = decode_slice_key(data)
        assert decode_slice_key(encode_slice_key(name, slices)) == (name, slices)

    return run


def _strings() -> Run:
    from ckpttool.formats.tensor_bytes import read_strings
    from tests.support.memory_file import MemoryFile

    def run(data: bytes) -> None:
        read_strings(MemoryFile(data[1:]), 0, len(data[1:]), data[0] if data else 0)

    return run


def _npy() -> Run:
    from ckpttool.formats.npy import element_type, header_end, read_header

    def run(data: bytes) -> None:
        header_end(data)
        element_type(read_header(data).descr)

    return run


def _zip() -> Run:
    from ckpttool.formats.zip_directory import read_directory, read_member
    from ckpttool.limits import Limits
    from tests.support.memory_file import MemoryFile

    def run(data: bytes) -> None:
        file = MemoryFile(data)
        for member in read_directory(file, Limits()):
            read_member(file, member, 2**20)

    return run


def _keras_config() -> Run:
    from ckpttool.sources.keras_config import lambda_findings, parse_object, summary_of

    def run(data: bytes) -> None:
        summary = summary_of(parse_object(data, "config"))
        str(summary), lambda_findings(summary, "config")

    return run


def _graph_text() -> Run:
    from ckpttool.formats.graph_text import encode_text

    return lambda data: _ignore(encode_text(data, "graph.pbtxt"))


def _ignore(_: object) -> None:
    """What a parser gave is of no interest."""


# Sources ---------------------------------------------------------------------------------


def _source(kind: str, name: str) -> Callable[[], Run]:
    """A file of one kind, opened by its adapter whatever its bytes say; and all its values."""

    def load() -> Run:
        from ckpttool.limits import Limits
        from ckpttool.sources.address import Resolved
        from ckpttool.sources.registry import open_resolved

        folder = tempfile.mkdtemp(prefix="fuzz-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder, name)
        resolved = Resolved(str(path), kind, folder, name, "prefix")  # type: ignore[arg-type]
        limits = Limits(
            string_bytes=2**20, v1_decoded_bytes=2**22, constant_bytes=2**22, hdf5_seconds=2
        )

        def run(data: bytes) -> None:
            path.write_bytes(data)
            with open_resolved(resolved, limits) as source:
                _read_all(source)

        return run

    return load


def _read_all(source: object) -> None:
    from ckpttool.errors import CkpttoolError
    from ckpttool.sources.base import Source
    from ckpttool.sources.selection import Selection

    found: Source = source  # type: ignore[assignment]
    found.findings(), found.notes, found.shards()
    for number, variable in enumerate(found.variables()):
        if variable.shape is None or number >= _READ_VARIABLES:
            continue
        whole = Selection.whole(variable.shape)
        try:
            if variable.dtype == "string":
                found.strings(variable, whole)
            elif max(variable.nbytes, variable.parameters) <= _READ_BYTES:
                for _ in found.chunks(variable, whole):
                    pass
        except CkpttoolError as error:
            str(error), error.as_dict()


# Seeds -----------------------------------------------------------------------------------


def _object_graphs() -> Iterator[bytes]:
    from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY
    from ckpttool.sources.registry import open_source
    from ckpttool.sources.selection import Selection

    for name in ("keras3", "module/encoder", "savedmodel"):
        with open_source(str(_FIXTURES / name)) as source:
            variable = source.find(OBJECT_GRAPH_KEY)
            yield from source.strings(variable, Selection.whole(()))


def _slice_keys() -> Iterator[bytes]:
    from ckpttool.formats.ordered_code import encode_slice_key

    yield encode_slice_key(b"w", [(0, -1), (3, 5)])
    yield encode_slice_key(b"a\0\xff/b", [(2**40, 2**33)] * 3)


def _npy_files() -> Iterator[bytes]:
    from ckpttool.formats.npy import header

    yield header("<f4", (2, 3)) + bytes(24)
    yield header("|S12", ()) + bytes(12)


def _archives() -> Iterator[bytes]:
    import io
    import zipfile

    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as file:
            for number, data in enumerate(_npy_files()):
                file.writestr(f"{number}.npy", data)
        yield buffer.getvalue()


def _configurations() -> Iterator[bytes]:
    import zipfile

    for path in sorted(_FIXTURES.glob("keras-files/*.keras")):
        with zipfile.ZipFile(path) as file:
            yield file.read("config.json")


def _state_files() -> Iterator[bytes]:
    yield b"model_checkpoint_path: \"a\\303\\251\" 'b' # c\nall_model_checkpoint_timestamps: -1e3\n"


def _graph_texts() -> Iterator[bytes]:
    yield (
        b'node { name: "a" op: "Const" attr { key: "value" value { tensor { dtype: DT_FLOAT '
        b"tensor_shape { dim { size: 2 } } float_val: 1.5 float_val: nan } } } } "
        b"versions < producer: 27, >"
    )


def _tensors() -> Iterator[bytes]:
    text = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"__metadata__":{"a":"b"}}'
    yield len(text).to_bytes(8, "little") + text + bytes(4)


TARGETS: dict[str, Target] = {
    "wire": Target(_wire, ("savedmodel/*.pb",)),
    "sstable": Target(_sstable, ("**/*.index", "v1*/*")),
    "bundle": Target(_bundle, ("**/*.index",)),
    "snappy": Target(_snappy, made=lambda: (b"\x0c\x0cabcd\x01\x04\x00\x00",)),
    "state": Target(_state, ("**/checkpoint",), _state_files),
    "object-graph": Target(_object_graph, made=_object_graphs),
    "ordered-code": Target(_ordered_code, made=_slice_keys),
    "strings": Target(_strings, made=lambda: (b"\2\1\2" + bytes(4) + b"abc",)),
    "npy": Target(_npy, made=_npy_files),
    "zip": Target(_zip, ("keras-files/*.keras",), _archives),
    "keras-config": Target(_keras_config, made=_configurations),
    "graph-text": Target(_graph_text, ("**/*.pbtxt",), _graph_texts),
    "v1": Target(_source("tf-v1", "model.ckpt"), ("v1*/*",)),
    "graph": Target(
        _source("graph", "graph.pb"), ("**/*.meta", "**/*.pb", "**/*.pbtxt"), _graph_texts
    ),
    "safetensors": Target(_source("safetensors", "m.safetensors"), ("**/*.safetensors",), _tensors),
    "npz": Target(_source("npz", "m.npz"), ("**/*.npz",), _archives),
    "npy-file": Target(_source("npz", "m.npy"), ("**/*.npy",), _npy_files),
    "hdf5": Target(_source("hdf5", "m.h5"), ("keras-files/*.h5",)),
    "keras": Target(_source("keras-v3", "m.keras"), ("keras-files/*.keras",)),
    "tflite": Target(_source("tflite", "m.tflite"), ("**/*.tflite",)),
    "onnx": Target(_source("onnx", "m.onnx"), ("**/*.onnx",)),
    "tfjs": Target(_source("tfjs", "model.json"), ("**/model.json",)),
}
