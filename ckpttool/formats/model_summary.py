"""What a file that holds a whole model says of itself, beside its weights.

The same words for TFLite, ONNX and TensorFlow.js. Plain data; knows no format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ckpttool.formats.metagraph import Signature

__all__ = ["ModelSummary", "most_common"]


class ModelSummary(NamedTuple):
    """A model.

    Attributes:
        writer: the program that made it; empty where it does not say.
        form: which form of the format it has, for example ``ONNX IR 8``.
        opsets: its sets of ops, each with the version that it uses.
        signatures: what it takes and gives; one without a name where the format has no names.
        ops: how often each op (of a layers model: each class of layer) is in it, the most
            frequent first.
        quantised: its variables that stand for other numbers by a scale.
    """

    writer: str
    form: str
    opsets: Mapping[str, int]
    signatures: tuple[Signature, ...]
    ops: Mapping[str, int]
    quantised: int


def most_common(ops: Counter[str]) -> dict[str, int]:
    """Counts, the largest first, equal ones by name."""
    return dict(sorted(ops.items(), key=lambda item: (-item[1], item[0])))
