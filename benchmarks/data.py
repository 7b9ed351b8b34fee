"""Makes the checkpoints that are measured, once, in a cache folder.

TensorFlow writes them (in a child process: `python -m benchmarks.data KIND DIRECTORY`),
except that of a million variables, for which it would need 6 GB and minutes: that one is
built from raw pieces by the tests' `handmade` module (TensorFlow's own was compared once:
the same entries, 29,983,709 bytes of index instead of 29,988,369).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import ROOT

if TYPE_CHECKING:
    from tests.support.handmade import EntryFields

__all__ = ["EMBEDDING", "GIGABYTE_TENSORS", "prepare"]

EMBEDDING = "embedding/table"
GIGABYTE_TENSORS = 116
_PREFIX = "model.ckpt-1"


def prepare(cache: Path, kind: str) -> str:
    """The prefix of a checkpoint of this kind, written if it is not there yet.

    ``names-N``: N small variables, name-based; ``objects-N``: N variables of an object
    graph; ``gigabyte``: 116 variables of 1.007 GB, one of them an embedding of 512 MB;
    ``size-N``: kernels of 33.6 MB, N GB in all; ``adam``: 10 kernels with two slots each, 1 GB;
    ``graph-N``: a MetaGraph of N nodes (its path; it has no checkpoint);
    ``mean-N``: 6 kernels, 200 MB, other numbers for every N; ``piece-N``: 250 MB of a model;
    ``moved-N``: 30 kernels, 1 GB, other numbers for every N; ``served``: an export of 100 MB
    beside a checkpoint of its model; ``products-N``: N matrix products of 25 MB, with a graph.
    """
    folder = cache / kind
    if not folder.is_dir():
        print(f"making {kind} in {cache} …", file=sys.stderr, flush=True)
        unfinished = cache / f"{kind}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        subprocess.run(
            [sys.executable, "-m", "benchmarks.data", kind, str(unfinished)],
            cwd=ROOT,
            check=True,
        )
        unfinished.rename(folder)
    return str(folder / _PREFIX)


def _names(count: int) -> Iterator[str]:
    """Names as a transformer with Adam slots has them."""
    parts = ("query", "key", "value", "output", "inner", "outer", "norm_1", "norm_2")
    ends = ("kernel", "bias", "kernel/Adam", "bias/Adam", "kernel/Adam_1", "bias/Adam_1")
    for number in range(count):
        layer, rest = divmod(number, len(parts) * len(ends))
        part, end = divmod(rest, len(ends))
        yield f"encoder/layer_{layer:05d}/{parts[part]}/{ends[end]}"


def _write_names(prefix: str, count: int) -> None:
    import numpy as np

    from tests.support import tf_write

    value = np.arange(8, dtype=np.float32)
    tf_write.write_name_based(prefix, dict.fromkeys(_names(count), value))


def _write_names_by_hand(folder: Path, count: int) -> None:
    from tests.support import handmade

    element = bytes(range(32))
    crc = handmade.masked_crc(element)
    entries: dict[bytes, EntryFields | bytes] = {
        name.encode(): {"shape": (8,), "offset": 32 * number, "size": 32, "crc": crc}
        for number, name in enumerate(_names(count))
    }
    handmade.write_bundle(folder, _PREFIX, entries, [element * count])


def _write_objects(prefix: str, count: int) -> None:
    import tensorflow as tf

    class Layer(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name in ("kernel", "bias", "momentum", "velocity"):
                setattr(self, name, tf.Variable([0.0] * 8, name=name))

    blocks = [{f"layer_{n}": Layer() for n in range(10)} for _ in range(count // 40)]
    tf.train.Checkpoint(blocks=blocks).write(prefix)


def _write_gigabyte(prefix: str) -> None:
    import numpy as np

    from tests.support import tf_write

    generator = np.random.default_rng(1)
    variables: dict[str, Any] = {
        EMBEDDING: generator.random((131072, 1024), dtype=np.float32),
        "vocabulary": [f"word {number}".encode() for number in range(100_000)],
    }
    for number in range(14):
        variables[f"block_{number}/kernel"] = generator.random((4096, 2048), dtype=np.float32)
    for number in range(GIGABYTE_TENSORS - len(variables)):
        variables[f"small_{number:03d}"] = generator.random(1000, dtype=np.float32)
    tf_write.write_name_based(prefix, variables)


def _write_kernels(prefix: str, names: Iterable[str], seed: int, *, alike: bool = False) -> None:
    """Kernels of 33.6 MB; ``alike``: the same numbers in all, so that it takes no memory."""
    import numpy as np

    from tests.support import tf_write

    generator = np.random.default_rng(seed)
    first = generator.random((4096, 2048), dtype=np.float32)
    variables = {
        name: first if alike else generator.random(first.shape, dtype=np.float32) for name in names
    }
    tf_write.write_name_based(prefix, variables)


def _write_for_writing(prefix: str, what: str, number: int) -> None:
    """What the benchmarks of the writing commands read."""
    if what == "size":
        _write_kernels(prefix, (f"kernel_{n:03d}" for n in range(30 * number)), 2, alike=True)
    elif what == "adam":
        ends = ("", "/Adam", "/Adam_1")
        names = (f"layer_{layer}/kernel{end}" for layer in range(10) for end in ends)
        _write_kernels(prefix, names, 3)
    elif what == "mean":
        _write_kernels(prefix, (f"layer_{n}/kernel" for n in range(6)), 10 + number)
    elif what == "moved":
        _write_kernels(prefix, (f"layer_{n}/kernel" for n in range(30)), 30 + number)
    elif what == "piece":
        _write_kernels(prefix, (f"piece_{number}/kernel_{n}" for n in range(7)), 20 + number)
    else:
        raise ValueError(f"there is no data called {what}")


def _main(kind: str, folder: Path) -> None:
    prefix = str(folder / _PREFIX)
    what, _, count = kind.partition("-")
    if what == "graph":
        from benchmarks.graphs import write_metagraph

        write_metagraph(prefix, int(count))
        return
    if what == "gigabyte":
        _write_gigabyte(prefix)
    elif what == "served":
        from benchmarks.served_model import write

        write(folder)
    elif what == "products":
        from benchmarks.products import write as write_products

        write_products(prefix, int(count))
    elif what == "objects":
        _write_objects(prefix, int(count))
    elif what != "names":
        _write_for_writing(prefix, what, int(count or 0))
    elif int(count) <= 100_000:
        _write_names(prefix, int(count))
    else:
        _write_names_by_hand(folder, int(count))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
