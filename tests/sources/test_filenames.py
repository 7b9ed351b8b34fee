from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.sources.filenames import (
    Part,
    file_number,
    graph_name,
    index_name,
    is_sharded_v1,
    join,
    shard_name,
    split_number,
    split_part,
)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.ckpt-7.index", Part("model.ckpt-7", "index")),
        ("model.ckpt-7.meta", Part("model.ckpt-7", "meta")),
        ("m.data-00001-of-00002", Part("m", "shard", 1, 2)),
        ("m.data-100000-of-100001", Part("m", "shard", 100_000, 100_001)),
        ("a.index.index", Part("a.index", "index")),
        ("a\nb.index", Part("a\nb", "index")),
        ("[a]*?.index", Part("[a]*?", "index")),
        (".index", None),
        ("model.index.bak", None),
        ("m.data-0001-of-0002", None),
        ("m.data-00001-of-00002\n", None),
        ("m.data-00000-of-00001.tempstate123", None),
        ("checkpoint", None),
    ],
)
def test_split_part(name: str, part: Part | None) -> None:
    assert split_part(name) == part


@given(
    st.text(min_size=1).filter(lambda text: "/" not in text),
    st.integers(0, 99_999),
    st.integers(1, 99_999),
)
def test_names_and_their_parts(prefix: str, shard: int, shards: int) -> None:
    assert split_part(index_name(prefix)) == Part(prefix, "index")
    assert split_part(shard_name(prefix, shard, shards)) == Part(prefix, "shard", shard, shards)


@pytest.mark.parametrize(
    ("prefix", "series", "number"),
    [
        ("model.ckpt-1000", "model.ckpt", 1000),
        ("trained_weights_10", "trained_weights", 10),
        ("ckpt.5", "ckpt", 5),
        ("0001", "", 1),
        ("cp-0010.ckpt", "cp.ckpt", 10),
        ("weights.05-0.33", "weights", 5),
        ("weights.05-0.33.ckpt", "weights.ckpt", 5),
        ("model.ckpt-18446744073709551616", "model.ckpt", 2**64),
        ("ckpt-1-best", "ckpt-1-best", None),
        ("model-0.33", "model-0.33", None),
        ("model.ckpt", "model.ckpt", None),
        ("ckpt-٣", "ckpt-٣", None),  # a digit, but not one that TensorFlow writes
    ],
)
def test_split_number(prefix: str, series: str, number: int | None) -> None:
    assert split_number(prefix) == (series, number)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model-7", 7),
        ("weights.05-0.33", 5),
        ("epoch10", 10),
        ("model.ckpt-20", 20),
        ("7", 7),
        ("resnet50", None),
        ("vgg_v2", None),
        ("w_bf16", None),
        ("weights_0.5", None),
        ("model", None),
        ("model-00001-of-00002", None),
        ("model-7-00001-of-00002", 7),
    ],
)
def test_file_number(name: str, number: int | None) -> None:
    assert file_number(name) == number


def test_v1_names() -> None:
    assert is_sharded_v1("export-00000-of-00001") == "export"
    assert is_sharded_v1("export-?????-of-00001") == "export"
    assert is_sharded_v1("export-1-of-2") is None
    assert graph_name("export-?????-of-00001") == "export.meta"
    assert graph_name("model.ckpt-7") == "model.ckpt-7.meta"


def test_join() -> None:
    assert join("", "m") == join(".", "m") == "m"
    assert join("run/", "m") == join("run", "m") == "run/m"
