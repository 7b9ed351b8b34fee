"""Every V2 checkpoint of the public corpus: what TensorFlow reads, or the right error."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.model import Variable
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection

#: Addresses that cannot be opened: exit code and id.
UNREADABLE = {
    "bad-lfs-pointers": (11, "git-lfs-pointer"),
    "bad-lfs-pointers/network_01239000": (11, "git-lfs-pointer"),
    "bad-lfs-pointers/network_01900000": (11, "git-lfs-pointer"),
    "bad-pytorch-ckpt": (11, "foreign-format"),
    "bad-pytorch-ckpt/model.ckpt": (11, "foreign-format"),
    "derived-damaged-iris/crlf-index/model.ckpt": (20, "block-checksum"),
    "derived-damaged-iris/no-index/model.ckpt": (20, "index-missing"),
    "derived-damaged-iris/truncated-index/model.ckpt": (20, "table-magic"),
    "derived-damaged-iris/zero-byte-index/model.ckpt": (20, "table-empty"),
}

#: Prefixes that can be listed, and some of whose variables cannot be read: how many, why.
INCOMPLETE = {
    "bad-missing-shard-sudoku/model/variables/variables": (131, "shard-missing"),
    "derived-damaged-iris/bitflip-data/model.ckpt": (1, "checksum-mismatch"),
    "derived-damaged-iris/index-only/model.ckpt": (18, "shard-missing"),
    "derived-damaged-iris/missing-shard0/model.ckpt": (1, "shard-missing"),
    "derived-damaged-iris/truncated-data/model.ckpt": (8, "shard-short"),
    "derived-damaged-iris/zero-byte-data/model.ckpt": (17, "shard-short"),
}


def prefixes(corpus: Path) -> Iterator[str]:
    """Every prefix that has an index, relative to the corpus."""
    for folder, folders, files in os.walk(corpus):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".index"):
                yield str(Path(folder, name.removesuffix(".index")).relative_to(corpus))


def values(source: Source, variable: Variable) -> np.ndarray:
    assert variable.shape is not None
    return source.read(variable, Selection.whole(variable.shape))


def equal(ours: np.ndarray, theirs: Any) -> bool:
    """The same dtype, shape and bits (NaN too); strings element by element."""
    expected = np.asarray(theirs, dtype=object if isinstance(theirs, bytes) else None)
    if (ours.dtype, ours.shape) != (expected.dtype, expected.shape):
        return False
    if ours.dtype == object:
        return bool((ours == expected).all())
    return ours.tobytes() == expected.tobytes()


def test_every_name_shape_dtype_and_value_is_tensorflows(corpus: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    compared = Counter[str]()
    for prefix in prefixes(corpus):
        if prefix in UNREADABLE:
            continue
        path = str(corpus / prefix)
        reader = tf.train.load_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
        with open_source(path) as source:
            found = list(source.variables())
            assert {variable.key: list(variable.shape or ()) for variable in found} == shapes
            assert {variable.key: variable.dtype for variable in found} == {
                key: dtype.name for key, dtype in dtypes.items()
            }
            failed = Counter[str]()
            for variable in found:
                try:
                    ours = values(source, variable)
                except CkpttoolError as error:
                    failed[error.id if variable.name in error.what else "unnamed"] += 1
                    continue
                assert equal(ours, reader.get_tensor(variable.key)), (prefix, variable.key)
                compared["values"] += 1
        count, id = INCOMPLETE.get(prefix, (0, ""))
        assert failed == Counter({id: count} if count else {}), prefix
        compared["checkpoints"] += 1
    assert compared["checkpoints"] >= 54
    assert compared["values"] > 1100


def test_what_a_damaged_checkpoint_still_has_is_what_was_saved(corpus: Path) -> None:
    with open_source(str(corpus / "obj-iris-2shard")) as original:
        saved = {variable.key: values(original, variable) for variable in original.variables()}
    for prefix in INCOMPLETE:
        if "iris" not in prefix:
            continue
        with open_source(str(corpus / prefix)) as source:
            read = 0
            for variable in source.variables():
                try:
                    ours = values(source, variable)
                except CkpttoolError:
                    continue
                assert equal(ours, saved[variable.key])
                read += 1
            assert read == len(saved) - INCOMPLETE[prefix][0]


@pytest.mark.parametrize("address", UNREADABLE)
def test_what_cannot_be_read_says_why(corpus: Path, address: str) -> None:
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(corpus / address))
    assert (caught.value.exit_code, caught.value.id) == UNREADABLE[address]
    assert caught.value.why
    assert caught.value.hint
