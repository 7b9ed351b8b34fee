"""`verify` and TensorFlow agree: on what TensorFlow writes, and on what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.verify import verify
from tests.support import tf_write
from tests.support.handmade import EntryFields, Slice, slice_key, write_bundle

DTYPES = [
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "float16",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
    "int4",
    "uint4",
]


def test_what_tensorflow_writes_is_healthy_and_both_see_the_same_damage(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    np = pytest.importorskip("numpy")
    variables: dict[str, Any] = {
        name: tf.bitcast(tf.cast([3, 1, 2], name.lstrip("q")), name)
        if name.startswith("q")
        else tf.constant(np.array([3, 1, 2]).astype(tf.as_dtype(name).as_numpy_dtype))
        for name in DTYPES
    }
    variables["strings"] = [b"one", b"", b"x" * 300]
    variables["empty"] = tf.zeros((0, 5))
    variables["no_strings"] = tf.zeros((0,), tf.string)
    variables["variant"] = tf.raw_ops.TensorListFromTensor(
        tensor=tf.constant([1.0, 2.0]), element_shape=tf.constant([], tf.int32)
    )
    prefix = tf_write.write_name_based(tmp_path / "all", variables)
    result = verify(prefix)
    assert (result.healthy, result.findings) == (True, ())
    assert result.checked.variables == len(variables)
    shard = Path(f"{prefix}.data-00000-of-00001")
    whole = shard.read_bytes()
    assert result.checked.nbytes == len(whole)
    for at in range(0, len(whole), 5):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        shard.write_bytes(data)
        (finding,) = verify(prefix).findings
        assert finding.severity == "error"
        if finding.object == "variant":
            continue  # TensorFlow's reader gives no variants in Python
        reader = tf.train.load_checkpoint(prefix)  # one that has read nothing ahead yet
        with pytest.raises((IndexError, tf.errors.OpError)):
            reader.get_tensor(finding.object)
    shard.write_bytes(whole)


def test_slices_shards_and_object_graphs_of_tensorflow(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    rows = tf.reshape(tf.range(20, dtype=tf.float32), (10, 2))
    parts = [((0, 0), (4, 2), rows[:4]), ((4, 0), (6, 2), rows[4:])]
    sliced = tf_write.write_slices(tmp_path / "s", "emb", (10, 2), parts, {"w": rows})
    result = verify(sliced)
    assert (result.findings, result.checked.variables, result.checked.nbytes) == ((), 2, 160)
    sharded = tf_write.write_sharded(tmp_path / "n", [{"a": rows}, {"b": rows, "c": [b"x"]}])
    result = verify(sharded)
    assert (result.findings, result.checked.variables) == ((), 3)
    model = tf.Module()
    model.kernel, model.text = tf.Variable(rows), tf.Variable("text")
    counter = tf.Variable(7, dtype=tf.int64)
    objects = tf_write.write_object_based(tmp_path / "o", model=model, step=counter)
    result = verify(objects)
    assert (result.healthy, result.findings, result.not_checked) == (True, (), ())
    assert result.checked.variables == 4


def test_a_slice_that_is_spelled_as_the_whole_variable(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    cases: list[tuple[tuple[int, ...], Slice, bool]] = [
        ((4,), [(0, 4)], True),
        ((4,), [(0, None)], False),
        ((), [], False),
    ]
    for shape, spelled, restored in cases:
        part: EntryFields = {"shape": shape, "size": 16 if shape else 4}
        data = bytes(range(part["size"]))
        entries: dict[bytes, EntryFields | bytes] = {
            b"v": {"shape": shape, "slices": [spelled]},
            slice_key(b"v", spelled): part,
        }
        write_bundle(tmp_path, "m", entries, [data])
        reader = tf.train.load_checkpoint(str(tmp_path / "m"))
        assert verify(str(tmp_path / "m")).healthy == restored
        if restored:
            assert reader.get_tensor("v").tobytes() == data
        else:
            with pytest.raises(tf.errors.OpError, match="Invalid size in bundle entry"):
                reader.get_tensor("v")
        # Written anew as a whole variable, it is restored.
        whole = tmp_path / "whole"
        repartition([str(tmp_path / "m")], str(whole), Repartition(merge_slices=("v",)), Options())
        assert verify(str(whole)).healthy
        assert tf.train.load_checkpoint(str(whole)).get_tensor("v").tobytes() == data
        for file in tmp_path.glob("whole.*"):
            file.unlink()
