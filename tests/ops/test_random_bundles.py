"""Random checkpoints of every dtype, in every layout TensorFlow can write, there and back.

TensorFlow writes one checkpoint whole and the same values in slices over several data files.
Made of the one, ours has to be the other, byte for byte; and put together again, TensorFlow
has to read the values that it wrote.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.rewrite.slicing import RESTORABLE

DTYPES = (
    "float32", "float64", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn",
    "int4", "uint4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "bool", "complex64", "complex128", "qint8", "quint8", "qint16", "quint16", "qint32", "string",
)  # fmt: skip
#: What is made of the bits of another.
BITS = {
    "qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32",
}  # fmt: skip


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def random_tensor(tf: Any, dice: random.Random, dtype: str, shape: list[int]) -> Any:
    count = 1
    for size in shape:
        count *= size
    if dtype == "string":
        words = [bytes(dice.randbytes(dice.choice((0, 1, 9, 200)))) for _ in range(count)]
        return tf.constant(words, tf.string, shape)
    below = {"bool": 2, "int4": 8, "uint4": 16}.get(dtype, 120)
    numbers = tf.constant([dice.randrange(below) for _ in range(count)], tf.uint8, shape)
    if dtype.startswith("float8"):
        return tf.constant(numbers.numpy().view(tf.as_dtype(dtype).as_numpy_dtype))
    if dtype in BITS:
        return tf.bitcast(tf.cast(numbers, BITS[dtype]), tf.as_dtype(dtype))
    return tf.cast(numbers, dtype)


def save(tf: Any, prefix: Path, entries: list[tuple[str, str, Any]]) -> str:
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=[name for name, _, _ in entries],
        shape_and_slices=[spec for _, spec, _ in entries],
        tensors=[value for _, _, value in entries],
    )
    return str(prefix)


def as_read(tf: Any, prefix: str, variables: Mapping[str, Any]) -> dict[str, bytes]:
    """The values as RestoreV2 gives them, as bits."""
    names = sorted(variables)
    dtypes = [variables[name].dtype for name in names]
    found = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), dtypes=dtypes
    )
    result = {}
    for name, value in zip(names, found, strict=True):
        array = value.numpy()
        text = value.dtype == tf.string  # a scalar of it is plain bytes already
        plain = np.asarray(array, object).tolist() if text else array.tobytes()
        result[name] = repr((value.dtype.name, value.shape.as_list(), plain)).encode()
    return result


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "seeds",
    [range(20), pytest.param(range(20, 200), marks=pytest.mark.slow)],
    ids=["20", "180 more"],
)
def test_there_as_tensorflow_writes_it_and_back(tf, tmp_path, seeds):
    cut_up = 0
    for seed in seeds:
        dice = random.Random(seed)
        folder = tmp_path / str(seed)
        for name in ("source", "theirs", "ours", "back"):
            (folder / name).mkdir(parents=True)
        variables: dict[str, Any] = {}
        for number, dtype in enumerate(dice.sample(DTYPES, 8)):
            shape = [dice.randint(1, 7) for _ in range(dice.randint(0, 3))]
            if shape and dice.random() < 0.1:
                shape[0] = 0
            variables[f"{'abc'[number % 3]}/v{number}"] = random_tensor(tf, dice, dtype, shape)
        names = sorted(variables)
        source = save(tf, folder / "source" / "m", [(name, "", variables[name]) for name in names])

        shards = dice.randint(1, 4)
        held: list[list[tuple[str, str, Any]]] = [[] for _ in range(shards)]
        cuts, rules = [], []
        for name in names:
            value = variables[name]
            shape = value.shape.as_list()
            shard = dice.randrange(shards)
            rules.append(f"{name}={shard}")
            axis = dice.randrange(len(shape)) if shape else 0
            if not shape or 0 in shape or shape[axis] < 2 or value.dtype.name not in RESTORABLE:
                held[shard].append((name, "", value))
                continue
            ends = sorted(dice.sample(range(1, shape[axis]), dice.randint(1, shape[axis] - 1)))
            cut_up += 1
            lengths = []
            for start, end in itertools.pairwise([0, *ends, shape[axis]]):
                lengths.append(end - start)
                ranges = [f"0,{size}" for size in shape]  # as a Saver spells them
                ranges[axis] = f"{start},{end - start}"
                picked = [slice(None)] * axis + [slice(start, end)]
                spec = f"{' '.join(map(str, shape))} {':'.join(ranges)}"
                held[shard].append((name, spec, value[tuple(picked)]))
            cuts.append(f"{name}=axis{axis}:{','.join(map(str, lengths))}")
        held = [entries for entries in held if entries]
        used = sorted({rule.rpartition("=")[2] for rule in rules})
        rules = [
            f"{rule.rpartition('=')[0]}={used.index(rule.rpartition('=')[2])}" for rule in rules
        ]
        parts = [
            save(tf, folder / "theirs_temp" / f"part-{number:05d}", entries)
            for number, entries in enumerate(held)
        ]
        theirs = str(folder / "theirs" / "m")
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=theirs)

        ours = str(folder / "ours" / "m")
        asked = Repartition(
            shards=len(held), by="fixed", rules=tuple(rules), slices=tuple(cuts), form="slices"
        )
        repartition([source], ours, asked, Options(check=dice.random() < 0.5))
        assert files(folder / "ours") == files(folder / "theirs"), seed
        expected = as_read(tf, source, variables)
        assert as_read(tf, ours, variables) == expected, seed

        back = str(folder / "back" / "m")
        repartition([ours], back, Repartition(shards=1, merge_slices=("*",)), Options())
        assert as_read(tf, back, variables) == expected, seed
        if len(held) == 1:
            assert files(folder / "back") == files(folder / "source"), seed
    assert cut_up > 2 * len(seeds)
