"""TensorFlow.js models made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Quantised", "manifest", "write_tfjs"]


class Quantised(NamedTuple):
    """Codes, and the numbers that they stand for: ``minimum + code * scale``, or float16."""

    codes: np.ndarray
    dtype: str = "float32"
    minimum: float = 0.0
    scale: float = 1.0

    @property
    def meant(self) -> np.ndarray:
        if self.codes.dtype == np.float16:
            return self.codes.astype(np.float32)
        numbers = self.minimum + self.codes.astype(np.float64) * self.scale
        return (numbers if self.dtype == "float32" else np.floor(numbers + 0.5)).astype(self.dtype)


def manifest(weights: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes]:
    """The manifest entries of arrays, lists of bytes or `Quantised`, and their bytes."""
    entries: list[dict[str, Any]] = []
    data = b""
    for name, value in weights.items():
        if isinstance(value, list):
            entries.append({"name": name, "shape": [len(value)], "dtype": "string"})
            data += b"".join(len(text).to_bytes(4, "little") + text for text in value)
            continue
        array = value.codes if isinstance(value, Quantised) else value
        entry: dict[str, Any] = {
            "name": name,
            "shape": list(array.shape),
            "dtype": array.dtype.name,
        }
        if isinstance(value, Quantised):
            entry["dtype"] = value.dtype
            entry["quantization"] = {"dtype": array.dtype.name}
            if array.dtype != np.float16:
                entry["quantization"] |= {"min": value.minimum, "scale": value.scale}
        entries.append(entry)
        data += array.tobytes()
    return entries, data


def write_tfjs(
    directory: Path, weights: dict[str, Any], *, shard: int = 64, **more: Any
) -> tuple[Path, list[str]]:
    """A graph model in one group, its weights in files of at most ``shard`` bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    entries, data = manifest(weights)
    count = max(1, -(-len(data) // shard))
    paths = [f"group1-shard{i + 1}of{count}.bin" for i in range(count)]
    for i, path in enumerate(paths):
        (directory / path).write_bytes(data[i * shard : (i + 1) * shard])
    model = {
        "format": "graph-model",
        "generatedBy": "2.21.0",
        "convertedBy": "a test",
        "signature": {
            "inputs": {
                "x": {
                    "name": "x:0",
                    "dtype": "DT_FLOAT",
                    "tensorShape": {"dim": [{"size": "-1"}, {"size": "4"}]},
                }
            },
            "outputs": {"y": {"name": "Identity:0", "dtype": "DT_FLOAT", "tensorShape": {}}},
        },
        "modelTopology": {
            "node": [{"name": name, "op": "Const"} for name in weights]
            + [{"name": "x", "op": "Placeholder"}, {"name": "y", "op": "MatMul"}],
            "library": {"function": [{"nodeDef": [{"name": "z", "op": "Const"}]}]},
        },
        "weightsManifest": [{"paths": paths, "weights": entries}],
    } | more
    (directory / "model.json").write_text(json.dumps(model))
    return directory, paths
