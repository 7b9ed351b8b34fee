"""What TensorFlow Lite's converter says when it fails → an error that says what to do.

It tells the operations that it cannot convert as records
(tensorflow/compiler/mlir/lite/metrics/converter_error_data.proto); what its quantisers
cannot do, as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ckpttool.conversion.request import Settings
from ckpttool.errors import CkpttoolError, ConversionError, RefusedError, UnsupportedError

__all__ = ["explained", "signatures_16x8"]

#: Codes of converter_error_data.proto.
_NEEDS_FLEX, _NEEDS_CUSTOM = 1, 2
#: The operations of a list of tensors, by which loops collect what each step gives.
_TENSOR_LIST = re.compile(r"TensorList\w+' op requires element_shape to be static")
_LISTS_FAILED = "Lowering tensor list ops is failed"
_NO_16X8 = re.compile(r"Quantization to 16x8-bit not yet supported for op: '(\w+)'")
_NO_FLEX_HERE = "Select TensorFlow op(s)"
_NOT_MEASURED = re.compile(r"should be recorded during calibration: Failed for tensor (\S+)")
#: MLIR's words for dtypes that few operations of TensorFlow Lite compute with.
_RARE = {"f64": "float64", "bf16": "bfloat16", "f16": "float16", "i8": "int8", "i16": "int16"}
_FIRST_DTYPE = re.compile(r": \(tensor<(?:[\d?x*]*x)?([a-z]+\d+)>")


def explained(error: Exception, settings: Settings, *, has_open_batch: bool) -> CkpttoolError:
    """The error of ours for one of the converter.

    Args:
        error: what it raised.
        settings: what was asked of it.
        has_open_batch: whether an input may have any number of rows.
    """
    text = str(error)
    records: Sequence[Any] = getattr(error, "errors", ())
    if has_open_batch and _TENSOR_LIST.search(text):
        return _open_batch()
    if _LISTS_FAILED in text or _TENSOR_LIST.search(text):
        return _open_list()
    if custom := _operations(records, _NEEDS_CUSTOM):
        return UnsupportedError(
            "the model has operations that TensorFlow Lite does not have",
            why=f"neither its own nor TensorFlow's (Flex) can do {', '.join(custom)}",
            hint="replace them in the model, or convert it --to savedmodel",
            id="tflite-no-op",
        )
    if flex := _operations(records, _NEEDS_FLEX):
        return RefusedError(
            "the model has operations that TensorFlow Lite does not have",
            why=f"it would need TensorFlow's own (Flex) for {', '.join(flex)}",
            hint="replace them in the model; --allow-flex takes TensorFlow's, which few runtimes "
            "have: the result cannot be checked here",
            id="tflite-flex",
        )
    if without := sorted(set(_NO_16X8.findall(text))):
        return UnsupportedError(
            "the model cannot be quantised to int16x8",
            why=f"TensorFlow's quantiser does not know {', '.join(without)} in 16 bits",
            hint="use --quantize int8 or dynamic-int8",
            id="tflite-16x8",
        )
    if settings.calibration is not None and _NO_FLEX_HERE in text:
        return UnsupportedError(
            f"the model cannot be quantised to {settings.quantize}",
            why="it has to be run to be measured, and TensorFlow's own operations (Flex) in it "
            "do not run here",
            hint="use --quantize dynamic-int8, which measures nothing",
            id="tflite-flex-measured",
        )
    if unmeasured := _NOT_MEASURED.search(text):
        return UnsupportedError(
            f"the model cannot be quantised to {settings.quantize}",
            why=f"TensorFlow's quantiser did not measure {unmeasured[1]}: of integers it keeps no "
            "range",
            hint="use --quantize int8 or dynamic-int8",
            id="tflite-16x8",
        )
    said = [one.error_message for one in records if one.error_message] or [text]
    return ConversionError(
        "TensorFlow Lite's converter failed",
        why=f"{type(error).__name__}: {_first_line(said[0])[:500]}",
        hint="convert it --to savedmodel or onnx, which have other operations",
        id="tflite-failed",
    )


def _first_line(text: str) -> str:
    lines = (line.strip() for line in text.split("\n"))
    return next((line for line in lines if line), "it says nothing more")


def signatures_16x8(names: Sequence[str]) -> UnsupportedError:
    """The refusal of a model that the converter would make wrong without a word."""
    return UnsupportedError(
        f"{len(names)} signatures cannot be quantised to int16x8 in one file",
        why="TensorFlow's quantiser mixes up their values: the result computes nonsense",
        hint=f"convert one at a time: --signature {names[0]}",
        id="tflite-16x8",
    )


def _open_batch() -> RefusedError:
    return RefusedError(
        "the model has a loop that collects results, and takes any number of rows",
        why="TensorFlow Lite reserves the place for them (TensorListReserve) when it converts, "
        "so it has to know how many; recurrent layers are such loops",
        hint="add --batch 1, or another number of rows",
        id="tflite-open-batch",
    )


def _open_list() -> UnsupportedError:
    return UnsupportedError(
        "the model has a loop that collects results of a size that is not fixed",
        why="it was traced for any number of rows, and the lists of its loops (TensorListReserve) "
        "say so whatever batch it is converted for",
        hint="convert the checkpoint with the model's code: --model FILE.py:FUNCTION --batch 1; or "
        "export the model for that size, or with unroll=True",
        id="tflite-open-list",
    )


def _operations(records: Sequence[Any], code: int) -> list[str]:
    """The operations of some records, each once, with the dtype where that may be why."""
    found = {
        record.operator.name.removeprefix("tf.") + _dtype_text(record.error_message)
        for record in records
        if record.error_code == code
    }
    return sorted(found)


def _dtype_text(message: str) -> str:
    match = _FIRST_DTYPE.search(message)
    word = _RARE.get(match[1], "") if match else ""
    return f" of {word}" if word else ""
