"""The test tools themselves: TensorFlow reads what `handmade` builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import handmade, tf_write


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.mark.parametrize(
    ("block_size", "restart_interval", "snappy"),
    [(262144, 16, False), (64, 1, False), (64, 3, True), (4096, 10**6, True)],
)
def test_tensorflow_reads_handmade_bundles(
    tf: Any, tmp_path: Path, block_size: int, restart_interval: int, snappy: bool
) -> None:
    words, words_crc = handmade.string_payload([b"one", b"", b"x" * 200])
    shards = [b"\0\0\x80\x3f" * 6, words]
    names = {f"dense/{number}": {"shape": (2, 3), "size": 24} for number in range(50)}
    entries: dict[bytes, handmade.EntryFields | bytes] = {
        name.encode(): handmade.EntryFields(shape=(2, 3), size=24) for name in names
    }
    entries[b"words"] = {
        "dtype": 7, "shape": (3,), "shard": 1, "size": len(words), "crc": words_crc,
    }  # fmt: skip
    prefix = handmade.write_bundle(
        tmp_path, "m", entries, shards,
        block_size=block_size, restart_interval=restart_interval, snappy=snappy,
    )  # fmt: skip
    reader = tf.train.load_checkpoint(str(prefix))
    assert len(reader.get_variable_to_shape_map()) == 51
    assert reader.get_tensor("dense/7").tolist() == [[1.0] * 3] * 2
    assert reader.get_tensor("words").tolist() == [b"one", b"", b"x" * 200]


@pytest.mark.parametrize("name", [b"emb", b"a\x00b\xffc"])
def test_tensorflow_reads_handmade_slices(tf: Any, tmp_path: Path, name: bytes) -> None:
    parts: list[list[handmade.Dim]] = [[(0, 100), (0, None)], [(100, 20000), (0, None)]]
    offsets = [0, 100 * 4]
    data = b"".join(number.to_bytes(4, "little") for number in range(20100))
    entries: dict[bytes, handmade.EntryFields | bytes] = {
        name: {"dtype": 3, "shape": (20100, 1), "slices": parts}
    }
    for dims, offset in zip(parts, offsets, strict=True):
        rows = dims[0][1] or 0
        entries[handmade.slice_key(name, dims)] = {
            "dtype": 3, "shape": (rows, 1), "offset": offset, "size": rows * 4,
        }  # fmt: skip
    prefix = handmade.write_bundle(tmp_path, "m", entries, [data])
    whole = tf.raw_ops.RestoreV2(
        prefix=str(prefix), tensor_names=[name], shape_and_slices=[""], dtypes=[tf.int32]
    )[0]
    assert whole.numpy()[:, 0].tolist() == list(range(20100))


def test_tensorflow_writes(tf: Any, tmp_path: Path) -> None:
    named = tf_write.write_name_based(tmp_path / "named", {"b": [1.0], "a": 2})
    assert tf.train.list_variables(named) == [("a", []), ("b", [1])]
    sharded = tf_write.write_sharded(tmp_path / "many", [{"b": [1.0]}, {"a": 2}])
    assert tf.train.load_variable(sharded, "a") == 2
    assert (tmp_path / "many.data-00001-of-00002").is_file()
    parts = [([0, 0], [1, 2], [[1.0, 2.0]]), ([1, 0], [2, 2], [[3.0, 4.0], [5.0, 6.0]])]
    sliced = tf_write.write_slices(tmp_path / "sliced", "emb", [3, 2], parts, {"step": 7})
    assert tf.train.load_variable(sliced, "emb").tolist() == [[1, 2], [3, 4], [5, 6]]
    objects = tf_write.write_object_based(tmp_path / "objects", step=tf.Variable(5))
    assert tf.train.load_variable(objects, "step/.ATTRIBUTES/VARIABLE_VALUE") == 5
