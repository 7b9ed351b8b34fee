"""What a file is by its bytes, and whether all of it is here: Keras files, V1 tables.

A name proves nothing: training data is in HDF5 files too. Reads the ends of a file, and
parses no more of HDF5 than how long the file says that it is.
"""

from __future__ import annotations

from ckpttool.formats.sniff import Sniffed, sniff_file
from ckpttool.formats.sstable import MAGIC
from ckpttool.storage.base import ReadableFile
from ckpttool.storage.local import LocalDirectory

__all__ = ["keras_flaw", "kind_of", "v1_flaw"]

#: As much as is looked at for names that Keras gives to groups and attributes.
_LOOK_BYTES = 2**16
#: Of models and weights up to Keras 2 (keras/src/legacy/saving/legacy_h5_format.py) one,
#: of weights from Keras 3 on (keras/src/saving/saving_lib.py) both.
_ONE_OF = (b"keras_version", b"layer_names", b"model_weights", b"_layer_checkpoint_dependencies")
_BOTH = (b"layers\0", b"vars\0")
_ZIP_END = b"PK\x05\x06"


def kind_of(directory: LocalDirectory, name: str) -> Sniffed:
    """What a file is by its bytes.

    Raises:
        CkpttoolError: it cannot be opened or read.
    """
    file = directory.open(name)
    try:
        return sniff_file(file)
    finally:
        file.close()


def v1_flaw(file: ReadableFile) -> str:
    """Why a V1 table is not whole; empty when its end is there."""
    size = file.stat.size
    whole = size >= len(MAGIC) and file.pread(size - len(MAGIC), len(MAGIC)) == MAGIC
    return "" if whole else "the table's end is missing"


def keras_flaw(file: ReadableFile) -> str | None:
    """Why a file of Keras is not whole, empty when it is; None for a file not of Keras.

    Raises:
        StorageError: it cannot be read.
    """
    kind = sniff_file(file).kind
    size = file.stat.size
    head = file.pread(0, min(size, _LOOK_BYTES))
    if kind == "keras-v3" or (kind == "zip" and b"keras_version" in head):
        rest = min(size, _LOOK_BYTES)
        ends = _ZIP_END in file.pread(size - rest, rest)
        return "" if ends else "the archive ends before its list of names"
    if kind != "hdf5":
        return None
    if not (any(mark in head for mark in _ONE_OF) or all(mark in head for mark in _BOTH)):
        return None
    end = _hdf5_end(head)
    if end is None:
        return None
    return "" if size >= end else f"the file has {size} bytes of {end}"


def _hdf5_end(head: bytes) -> int | None:
    """How long an HDF5 file is, by its superblock (HDF5 File Format Specification, II.A)."""
    version = head[8] if len(head) > 64 else 255
    if version in {0, 1}:
        width, at = head[13], 24 + 4 * version
    elif version in {2, 3}:
        width, at = head[9], 12
    else:
        return None
    if width not in {2, 4, 8}:
        return None
    base, end = (int.from_bytes(head[pos : pos + width], "little") for pos in (at, at + 2 * width))
    return base + end
