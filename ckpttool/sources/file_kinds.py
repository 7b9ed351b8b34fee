"""What an address can come to, and which file is which, by what its bytes are."""

from __future__ import annotations

from typing import Literal

__all__ = ["FILES", "ResolvedKind"]

ResolvedKind = Literal[
    "checkpoint",
    "run",
    "savedmodel",
    "tf-v1",
    "hdf5",
    "keras-v3",
    "safetensors",
    "npz",
    "graph",
    "tflite",
    "onnx",
    "tfjs",
    "ps",
]

#: What one file is by its bytes → what it is as a source of its own.
FILES: dict[str, ResolvedKind] = {
    "hdf5": "hdf5",
    "keras-v3": "keras-v3",
    "safetensors": "safetensors",
    "npz": "npz",
    "npy": "npz",
    "metagraph": "graph",
    "savedmodel-pb": "graph",
    "graphdef": "graph",
    "graph-text": "graph",
    "tflite": "tflite",
    "onnx": "onnx",
    "tfjs": "tfjs",
}
