"""What a file or a directory is, by its first and last bytes or its names.

It names our own kinds and everything that people hand over instead (another framework's
checkpoint, an archive, a page that a download brought), each with what to do about it.
It never decides from a file's name; a data shard has no mark and can only be told by its
name, which is the affair of ``sources/address.py``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, ForeignFormatError
from ckpttool.formats.sstable import MAGIC as _TABLE_MAGIC
from ckpttool.storage.base import ReadableFile

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "Sniffed", "sniff", "sniff_directory", "sniff_file"]

HEAD_BYTES = 4096
TAIL_BYTES = 4096


class Sniffed(NamedTuple):
    """What something is.

    Attributes:
        kind: a stable word, a key of ``KINDS``.
        size: bytes of the file; 0 for a directory.
        expected_size: bytes that a pointer stands for (Git LFS), else None.
        oid: the object that a pointer stands for, else empty.
    """

    kind: str
    size: int = 0
    expected_size: int | None = None
    oid: str = ""

    @property
    def description(self) -> str:
        """A phrase to put after "is": ``a PyTorch checkpoint (zip)``."""
        return KINDS[self.kind][0]

    @property
    def hint(self) -> str:
        """What to do about it, with FILE for its path; empty where there is nothing to say."""
        return KINDS[self.kind][1]

    @property
    def ours(self) -> bool:
        """Whether it belongs to a TensorFlow checkpoint or SavedModel."""
        return self.kind in _OURS

    @property
    def named(self) -> bool:
        """Whether it was recognised; damage turns a file of ours into one that is not."""
        return self.kind not in _UNNAMED

    def error(self, path: str) -> CkpttoolError:
        """The error (exit code 11) that says what ``path`` is instead of a checkpoint."""
        if self.kind == "git-lfs":
            stands_for = (
                "an unknown number of" if self.expected_size is None else self.expected_size
            )
            return ForeignFormatError(
                f"{path} is a Git-LFS pointer: the file itself was never downloaded",
                why=f"{self.size} bytes are here, and they stand for {stands_for} bytes"
                + (f" ({self.oid})" if self.oid else ""),
                hint=_lfs_command(path),
                id="git-lfs-pointer",
            )
        return ForeignFormatError(
            f"{path} is {self.description}",
            why="it is not a TensorFlow checkpoint, which is an .index file and .data files "
            "with one prefix",
            hint=self.hint.replace("(FILE", f"({path!r}")  # the argument of a Python function
            if "(FILE" in self.hint
            else self.hint.replace("FILE", shlex.quote(path))
            or "give the prefix of a checkpoint, or the directory of a run",
        )


_TAR_HINT = "unpack it into a new directory, then give that: mkdir NEW && tar -xf FILE -C NEW"

#: Kind → (description, hint).
KINDS: dict[str, tuple[str, str]] = {
    # ours
    "tf-v2-index": ("the index of a V2 checkpoint", ""),
    "tf-v1": ("a V1 checkpoint", ""),
    "table": ("a table file without a checkpoint's header", ""),
    "state": ("a checkpoint state file", ""),
    "metagraph": ("a MetaGraphDef: the graph of a checkpoint, without values", ""),
    "savedmodel-pb": ("the graph of a SavedModel", "give the directory it lies in"),
    # other kinds of TensorFlow and Keras
    "graphdef": ("a GraphDef", "of a frozen graph the weights are constants in it"),
    "graph-text": ("a graph as text (.pbtxt)", "it has no values of variables"),
    "tflite": ("a TFLite model", "give the checkpoint or SavedModel it was converted from"),
    "tfjs": ("the JSON of a TensorFlow.js model", "its weights are in the .bin files beside it"),
    "tfjs-old": (
        "a TensorFlow.js model of the form before 1.0",
        "its weights can be read: give weights_manifest.json, which lies in it",
    ),
    "events": ("a TensorBoard event log", "give the checkpoint beside it"),
    "tfhub-archive": ("an archive with a SavedModel in it, as TF-Hub hands them out", _TAR_HINT),
    "checkpoint-archive": ("an archive with a TensorFlow checkpoint in it", _TAR_HINT),
    "keras-v3": ("a Keras v3 model (.keras)", "keras.saving.load_model reads it"),
    "hdf5": ("an HDF5 file (Keras .h5 weights or model)", "h5py and Keras read it"),
    # other frameworks
    "pytorch-zip": ("a PyTorch checkpoint (zip)", "torch.load(FILE, weights_only=True) reads it"),
    "pytorch-legacy": (
        "a PyTorch checkpoint (pickle, before 1.6)",
        "torch.load(FILE, weights_only=True) reads it",
    ),
    "torchscript": ("a TorchScript model (zip)", "torch.jit.load(FILE) reads it"),
    "pytorch-distributed": ("a PyTorch distributed checkpoint", "torch.distributed reads it"),
    "pickle": ("a Python pickle", "never unpickle what you do not trust"),
    "mindspore": ("a MindSpore checkpoint", "mindspore.load_checkpoint(FILE) reads it"),
    "onnx": ("an ONNX model", "onnx.load(FILE) reads it"),
    "safetensors": ("a safetensors file", "safetensors.safe_open reads it"),
    "gguf": ("a GGUF model", ""),
    "npy": ("a NumPy array (.npy)", "numpy.load(FILE, allow_pickle=False) reads it"),
    "npz": ("NumPy arrays (.npz)", "numpy.load(FILE, allow_pickle=False) reads it"),
    "orbax": ("an Orbax checkpoint (JAX)", "orbax.checkpoint reads it"),
    "zarr": ("a Zarr store", "zarr.open reads it"),
    # pointers and pages
    "git-lfs": ("a Git-LFS pointer", ""),
    "git-annex": ("a git-annex pointer: the file itself is not here", "git annex get FILE"),
    "html": (
        "an HTML page: a download brought a page instead of the file",
        "open it in a browser to see what it says, then download the file again",
    ),
    "xml": (
        "an XML document: a download often brings an error in this form",
        "read it (head FILE), then download the file again",
    ),
    "json": ("a JSON document", ""),
    "appledouble": (
        "a macOS resource file (AppleDouble, ._NAME)",
        "give the file of the same name without ._",
    ),
    # archives and compression
    "zip": ("a zip archive", "unpack it into a new directory, then give that: unzip FILE -d NEW"),
    "tar": ("a tar archive", _TAR_HINT),
    "tar-gzip": ("a compressed tar archive", _TAR_HINT),
    "gzip": ("a gzip-compressed file", "unpack it: gunzip -k FILE"),
    "bzip2": ("a bzip2-compressed file", "unpack it: bunzip2 -k FILE"),
    "xz": ("an xz-compressed file", "unpack it: unxz -k FILE"),
    "zstd": ("a zstd-compressed file", "unpack it: unzstd FILE"),
    "lz4": ("an lz4-compressed file", "unpack it: unlz4 FILE"),
    "7z": ("a 7-Zip archive", "unpack it into a new directory, then give that"),
    "rar": ("a RAR archive", "unpack it into a new directory, then give that"),
    # nothing that says what it is
    "empty": ("empty: 0 bytes", "copy it again from where it is whole"),
    "zeros": (
        "nothing but zero bytes, as after a crash or a full disk",
        "copy it again from where it is whole",
    ),
    "text": ("a text file", ""),
    "unknown": ("of no kind that is known here", ""),
}
_OURS = {"tf-v2-index", "tf-v1", "table", "state", "metagraph", "savedmodel-pb"}
_UNNAMED = {"empty", "zeros", "text", "unknown"}


def sniff_file(file: ReadableFile) -> Sniffed:
    """What an open file is; reads at most ``HEAD_BYTES`` and ``TAIL_BYTES``."""
    size = file.stat.size
    head = file.pread(0, min(size, HEAD_BYTES))
    rest = min(size - len(head), TAIL_BYTES)
    return sniff(head, size, file.pread(size - rest, rest))


def sniff(head: bytes, size: int, tail: bytes = b"") -> Sniffed:
    """What a file of ``size`` bytes is, that begins with ``head`` and ends with ``tail``.

    ``tail`` may be empty where ``head`` is the whole file.
    """
    if size == 0:
        return Sniffed("empty")
    end = head[-TAIL_BYTES:] + tail
    if head.startswith(_LFS_STARTS):
        return _pointer(head, size)
    kind = _table_kind(head, end) or _by_magic(head) or _by_structure(head, size, end)
    if kind is None and not end.strip(b"\0") and not head.strip(b"\0"):
        kind = "zeros"
    if kind is None:
        kind = _text_kind(head) if _is_text(head, size) else "unknown"
    return Sniffed(kind, size)


def sniff_directory(names: Collection[str]) -> Sniffed | None:
    """What a directory with these entries is, where another program wrote it; else None."""
    for kind, marks in _DIRECTORY_MARKS.items():
        if not marks.isdisjoint(names):
            return Sniffed(kind)
    if ".metadata" in names and any(name.endswith(".distcp") for name in names):
        return Sniffed("pytorch-distributed")
    return None


_DIRECTORY_MARKS = {
    "orbax": frozenset({"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"}),
    "zarr": frozenset({".zarray", ".zgroup", ".zmetadata", "zarr.json"}),
    "tfjs-old": frozenset({"tensorflowjs_model.pb"}),
}

_LFS_STARTS = (
    b"version https://git-lfs.github.com/spec/",
    b"version https://hawser.github.com/spec/",
)


def _pointer(text: bytes, size: int) -> Sniffed:
    """The pointer's own words (https://github.com/git-lfs/git-lfs, docs/spec.md)."""
    oid = re.search(rb"^oid ([0-9A-Za-z:]{1,200})\s*$", text, re.MULTILINE)
    length = re.search(rb"^size ([0-9]{1,19})\s*$", text, re.MULTILINE)
    return Sniffed(
        "git-lfs", size, int(length[1]) if length else None, oid[1].decode() if oid else ""
    )


def _lfs_command(path: str) -> str:
    """The command that fetches ``path`` and the other files of its checkpoint."""
    folder, _, name = path.rpartition("/")
    stem = re.sub(r"\.(index|meta|data-\d{5,}-of-\d{5,})$", "", name)
    where = f"git -C {shlex.quote(folder)}" if folder else "git"
    if re.search(r"[*?\[\]\\,]", stem):  # they would mean something else in a pattern
        return f"{where} lfs pull"
    return f"{where} lfs pull --include {shlex.quote(stem + '*')}"


def _table_kind(head: bytes, end: bytes) -> str | None:
    """A table by the magic number at its end, or by the first entry of a checkpoint.

    The first key is empty in both versions. Its value is a BundleHeaderProto in V2 (field
    1 a number, or 2 or 3), and a SavedTensorSlices in V1 (field 1 a message).
    """
    is_table = end.endswith(_TABLE_MAGIC)
    # TensorFlow 1.14 and later may compress the first block of a small index.
    entry = re.match(_FIRST_ENTRY, head if head[:1] == b"\0" else _snappy_literal(head))
    if entry is None:
        return "table" if is_table else None
    if is_table:
        return "tf-v1" if entry[1] == b"\x0a" else "tf-v2-index"
    # The end is missing: only what TensorFlow itself writes is recognised.
    if re.match(_V2_HEADER, head):
        return "tf-v2-index"
    return "tf-v1" if re.match(_V1_HEADER, head) else None


# Patterns are compiled when they are first used: doing it at import would cost every
# command 2 ms, and the usual file needs one of them.
#: No shared and no own bytes of a key, the length of the value, its first byte.
_FIRST_ENTRY = rb"\0\0[\x80-\xff]{0,4}[\0-\x7f]([\x08\x10\x1a\x0a])"
#: The number of shards, and a version that was produced by 1.
_V2_HEADER = rb"(?s)\0\0.\x08[\x80-\xff]{0,4}[\0-\x7f]\x1a\x02\x08\x01"
#: The first variable's message, in the meta message, in the value.
_LENGTH = rb"[\x80-\xff]{0,4}[\0-\x7f]"
_V1_HEADER = rb"\0\0" + (_LENGTH + rb"\x0a") * 3 + rb"[\0-\x7f]"


def _snappy_literal(head: bytes) -> bytes:
    """The bytes that a snappy block begins with; empty where it is none.

    Its length as a varint, then a literal: a tag with the number of bytes, or with the
    number of bytes that say it.
    """
    block = re.match(rb"[\x80-\xff]{0,4}[\x01-\x7f]", head)
    if block is None or len(head) <= block.end() or head[block.end()] & 3:
        return b""
    length = head[block.end()] >> 2
    return head[block.end() + 1 + max(0, length - 59) :]


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (512, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (1024, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (2048, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (0, b"\x93NUMPY", "npy"),
    # torch.serialization.MAGIC_NUMBER, pickled with protocol 2
    (0, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "pytorch-legacy"),
    (4, b"TFL3", "tflite"),
    (257, b"ustar", "tar"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "rar"),
    (0, b"GGUF", "gguf"),
    (0, b"\0\x05\x16\x07", "appledouble"),
    (0, b"/annex/objects/", "git-annex"),
)


def _by_magic(head: bytes) -> str | None:
    for offset, magic, kind in _MAGIC:
        if head.startswith(magic, offset):
            return _archive_kind(head, kind) if kind == "tar" else kind
    return None


def _by_structure(head: bytes, size: int, end: bytes) -> str | None:
    """What has no magic number of its own, or one that says too little."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(head + end)
    if head.startswith(b"\x1f\x8b"):
        return _gzip_kind(head)
    if head[8:10] in {b'{"', b"{}"} and int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if b"brain.Event:" in head[20:64]:  # the first record of every event file
        return "events"
    if re.match(rb"\x80[\x02-\x05][\x80-\x95(\]}cKXMJGN]", head):
        return "pickle"
    return _protobuf_kind(head)


#: What in a zip archive's list of names says what it is; the first that fits counts.
_ZIP_NAMES = (
    (b"/code/", "torchscript"),
    (b"/data.pkl", "pytorch-zip"),
    (b"model.weights.h5", "keras-v3"),
    (b"saved_model.pb", "tfhub-archive"),
    (b".data-00000-of-", "checkpoint-archive"),
    (b".npyPK", "npz"),
)


def _zip_kind(ends: bytes) -> str:
    for name, kind in _ZIP_NAMES:
        if name in ends:
            return kind
    first = ends[30 : 30 + int.from_bytes(ends[26:28], "little")]
    return "npz" if first.endswith(b".npy") else "zip"


def _gzip_kind(head: bytes) -> str:
    import zlib

    try:
        start = zlib.decompressobj(31).decompress(head, 4 * HEAD_BYTES)
    except zlib.error:
        return "gzip"
    return _archive_kind(start, "tar-gzip") if start.startswith(b"ustar", 257) else "gzip"


def _archive_kind(start: bytes, otherwise: str) -> str:
    """What a tar archive holds, by the first names in it."""
    if b"saved_model.pb\0" in start or b"tfhub_module.pb\0" in start:
        return "tfhub-archive"
    return "checkpoint-archive" if b".data-00000-of-" in start else otherwise


# Protobuf messages have no magic number: these are the fields that their writers put
# first. Lengths are skipped, because they run past what is looked at.
_NAME = rb"\x0a" + _LENGTH + rb"\x0a" + _LENGTH + rb"[ -~]{1,400}?"
_PROTOBUF: tuple[tuple[bytes, str], ...] = (
    # SavedModel: saved_model_schema_version 1, then a MetaGraphDef
    (rb"\x08\x01\x12" + _LENGTH + rb"[\x0a\x12\x1a\x22\x2a\x32\x3a]", "savedmodel-pb"),
    # ModelProto: ir_version from 3 on, then producer_name, graph or opset_import
    (rb"\x08[\x03-\x20](?:\x12.[ -~]|\x3a" + _LENGTH + rb"[\x0a\x12\x2a]|\x42.\x0a)", "onnx"),
    # GraphDef: a node with its name and op
    (_NAME + rb"\x12" + _LENGTH + rb"[A-Z_][0-9A-Za-z_>]", "graphdef"),
    # MindSpore's Checkpoint: a name, then a tensor with its shape and its type in words
    (
        _NAME + rb"\x12" + _LENGTH + rb"(?:\x08" + _LENGTH + rb"){0,8}"
        rb"\x12" + _LENGTH + rb"(?:B?Float|U?Int|Bool)",
        "mindspore",
    ),
    # MetaGraphDef: a MetaInfoDef that begins with the list of ops
    (
        rb"\x0a" + _LENGTH + rb"\x12" + (_LENGTH + rb"\x0a") * 2 + rb".[A-Z_]",
        "metagraph",
    ),
)


def _protobuf_kind(head: bytes) -> str | None:
    for pattern, kind in _PROTOBUF:
        if re.match(pattern, head):
            return kind
    return None


def _is_text(head: bytes, size: int) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if size <= len(head) or error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")  # a character that the cut divides
    return not re.search(r"[\0-\x08\x0e-\x1f\x7f]", text)


_TEXT: tuple[tuple[bytes, str], ...] = (
    (
        (
            rb"(?:\s|#[^\n]*\n)*(?:model_checkpoint_path|all_model_checkpoint_(?:paths|timestamps)"
            rb"|last_preserved_timestamp)\s*:"
        ),
        "state",
    ),
    (rb"(?i)\s*<(?:!doctype\s+html|html|head|body|script)\b", "html"),
    (rb"\s*<\?xml|\s*<Error>", "xml"),
    (rb'\s*\{\s*"(?:format"|modelTopology"|weightsManifest")', "tfjs"),
    (rb'\s*\[\s*\{\s*"(?:paths|weights)"\s*:\s*\[', "tfjs"),
    (rb'\s*[{\[]\s*["\]}\[{0-9]', "json"),
    (rb"(?:\s|#[^\n]*\n)*(?:node|meta_info_def|graph_def)\s*:?\s*\{", "graph-text"),
)


def _text_kind(head: bytes) -> str:
    text = head.removeprefix(b"\xef\xbb\xbf")
    for pattern, kind in _TEXT:
        if re.match(pattern, text):
            return kind
    return "text"
