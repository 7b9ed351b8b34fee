"""Small whole checkpoints and state files, written by hand and without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.support.handmade import EntryFields, write_bundle

__all__ = ["save", "write_state"]


def save(
    directory: Path,
    prefix: str,
    *,
    shards: int = 1,
    step: int | None = None,
    step_key: bytes = b"global_step",
    when: float | None = None,
) -> Path:
    """A checkpoint with one float32 vector in each shard, and maybe a step (int64).

    ``when`` sets the time of its files, in seconds. Returns the prefix.
    """
    directory.mkdir(parents=True, exist_ok=True)
    entries: dict[bytes, EntryFields | bytes] = {}
    data = []
    for shard in range(shards):
        data.append(bytes([shard + 1]) * 8)
        entries[b"w%d" % shard] = {"shape": (2,), "shard": shard, "size": 8}
    if step is not None:
        entries[step_key] = {"dtype": 9, "offset": 8, "size": 8}
        data[0] += step.to_bytes(8, "little", signed=True)
    target = write_bundle(directory, prefix, entries, data)
    if when is not None:
        for path in directory.iterdir():
            if path.name.startswith(f"{prefix}."):
                os.utime(path, (when, when))
    return target


def write_state(
    directory: Path,
    latest: str,
    paths: Sequence[str] | None = None,
    times: Sequence[float] = (),
    *,
    name: str = "checkpoint",
) -> Path:
    """A state file as TensorFlow writes it; the list is ``latest`` alone unless given."""
    lines = [f'model_checkpoint_path: "{latest}"']
    lines += [f'all_model_checkpoint_paths: "{path}"' for path in (paths or [latest])]
    lines += [f"all_model_checkpoint_timestamps: {time!r}" for time in times]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_bytes(os.fsencode("\n".join(lines) + "\n"))
    return path
