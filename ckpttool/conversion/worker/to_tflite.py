"""The target TensorFlow Lite: one file, every signature in it, floats or quantised.

Always made of frozen functions with plain names (``frozen_model.py``): what the converter
makes of other SavedModels depends on who wrote them. Of one that has several signatures
and an attribute ``serve`` it keeps a single one and says nothing
(tensorflow/lite/python/lite.py: TFLiteConverterV2.from_saved_model), and recurrent layers
of Keras 3 read variables that are not there.
"""

from __future__ import annotations

import gc
import os
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.request import Settings
from ckpttool.conversion.worker.calibration import Calibration, open_calibration
from ckpttool.conversion.worker.freezing import with_batch
from ckpttool.conversion.worker.frozen_model import save_frozen
from ckpttool.conversion.worker.no_space import no_space
from ckpttool.conversion.worker.program import Program, Written
from ckpttool.conversion.worker.tflite_errors import explained, signatures_16x8
from ckpttool.conversion.worker.tflite_file import (
    flex_operators,
    float_operators,
    float_weights,
    operators_text,
    read_file,
)
from ckpttool.errors import CkpttoolError, ConversionError
from ckpttool.formats.metagraph import TensorInfo
from ckpttool.formats.tflite import TfliteModel

__all__ = ["stored_signatures", "write"]

#: Weights with fewer elements stay floats, where only weights are quantised
#: (tensorflow/compiler/mlir/lite/quantization/common/quantization_lib/quantization_config.h:
#: minimum_elements_for_weights).
_FEW_ELEMENTS = 1024
_NAMED = 5
#: Intermediate forms whose copies are worth the tenths of a second that looking takes.
_LARGE_BYTES = 16 * 2**20
_IO_DTYPES = {None: tf.float32, "int8": tf.int8, "uint8": tf.uint8}


def write(program: Program, path: str, settings: Settings) -> Written:
    """Write a file.

    Args:
        program: what is converted.
        path: of the file, which does not exist yet; beside it there is room for the
            intermediate form.
        settings: ``quantize``, ``calibration``, ``io_dtype``, ``batch``, ``allow_flex``.

    Raises:
        RefusedError: ids ``tflite-flex``, ``tflite-open-batch``.
        UnsupportedError: ids ``stateful-graph``, ``tflite-no-op``, ``tflite-16x8``,
            ``tflite-open-list``, ``tflite-flex-measured``.
        LimitError: id ``graph-too-large``.
        NotFoundError, UsageError: id ``calibration-data``.
        ConversionError: the converter, or a person's function, failed.
    """
    functions = program.functions
    names = [one.signature.name for one in functions]
    if settings.quantize == "int16x8" and len(names) > 1:
        raise signatures_16x8(names)
    signatures = [with_batch(one.signature, settings.batch) for one in functions]
    calibration = None
    if settings.calibration is not None:
        calibration = open_calibration(settings.calibration, signatures)
    with tempfile.TemporaryDirectory(prefix=".frozen-", dir=_room(path)) as folder:
        frozen = os.path.join(folder, "model")
        save_frozen(functions, frozen, batch=settings.batch)
        is_large = os.path.getsize(os.path.join(frozen, "saved_model.pb")) > _LARGE_BYTES
        if is_large:
            gc.collect()  # graphs are in circles, and each of them has all the weights
        converter = tf.lite.TFLiteConverter.from_saved_model(frozen, signature_keys=names)
        if is_large:
            gc.collect()
        _set_up(converter, settings, calibration)
        try:
            data = converter.convert()
        except CkpttoolError:
            raise  # of the calibration, whose examples the converter asks for
        except Exception as error:
            traceback.print_exc()
            if (full := no_space(error)) is not None:
                raise full from error
            has_open_batch = any(
                port.shape is None or None in port.shape[:1]
                for one in signatures
                for port in one.inputs
            )
            raise explained(error, settings, has_open_batch=has_open_batch) from error
    with open(path, "wb") as file:
        file.write(data)
    model = read_file(path)
    return Written(
        stored_signatures(model, signatures),
        (*_warnings(model, settings), *(calibration.warnings if calibration else ())),
        _facts(model, settings, calibration),
    )


def _room(path: str) -> str | None:
    """The directory for the intermediate form: that of the result, where there is room for it.

    The system's own (None) where TensorFlow could not write: it takes names in UTF-8 only.
    """
    folder = os.path.dirname(path) or "."
    try:
        folder.encode()
    except UnicodeEncodeError:
        return None
    return folder


def _set_up(converter: Any, settings: Settings, calibration: Calibration | None) -> None:  # noqa: ANN401
    known = tf.lite.OpsSet
    converter.target_spec.supported_ops = [
        {
            "int8": known.TFLITE_BUILTINS_INT8,
            "int16x8": known.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
        }.get(settings.quantize or "", known.TFLITE_BUILTINS)
    ]
    if settings.allow_flex:
        converter.target_spec.supported_ops.append(known.SELECT_TF_OPS)
    if settings.quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if settings.quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if calibration is not None:
        has_several = len(calibration.signatures) > 1
        converter.representative_dataset = lambda: (
            sample if has_several else sample[1] for sample in calibration.samples()
        )
        converter.inference_input_type = _IO_DTYPES[settings.io_dtype]
        converter.inference_output_type = _IO_DTYPES[settings.io_dtype]


def stored_signatures(model: TfliteModel, wanted: Sequence[Signature]) -> tuple[Signature, ...]:
    """The signatures of a file, in the order of those of which it was made.

    Raises:
        ConversionError: one of them, an input or an output is not in it.
    """
    found = {one.name: one for one in model.summary.signatures}
    lost = [one.name for one in wanted if one.name not in found]
    if lost:
        raise _lost("signatures", lost)
    return tuple(
        Signature(
            one.name,
            _ports(one.inputs, found[one.name].inputs, f"inputs of {one.name}"),
            _ports(one.outputs, found[one.name].outputs, f"outputs of {one.name}"),
        )
        for one in wanted
    )


def _ports(wanted: Sequence[Port], stored: Sequence[TensorInfo], what: str) -> tuple[Port, ...]:
    found = {one.name: one for one in stored}
    lost = [one.name for one in wanted if one.name not in found]
    if lost:
        raise _lost(what, lost)
    return tuple(
        replace(
            port,
            dtype=found[port.name].dtype,
            # A rank that is unknown is stored as that of a scalar.
            shape=None if port.shape is None else _sizes(found[port.name]),
            tensor=found[port.name].tensor,
        )
        for port in wanted
    )


def _sizes(stored: TensorInfo) -> tuple[int | None, ...] | None:
    return None if stored.shape is None else tuple(n if n >= 0 else None for n in stored.shape)


def _lost(what: str, names: Sequence[str]) -> ConversionError:
    return ConversionError(
        "TensorFlow Lite's converter lost a part of the model",
        why=f"the {what} {', '.join(names)} are not in its result",
        hint="convert --to savedmodel, and report this",
    )


def _warnings(model: TfliteModel, settings: Settings) -> list[str]:
    """What of the result is not as it may be expected to be."""
    found = []
    if flex := flex_operators(model):
        found.append(
            f"it uses TensorFlow's own operations, {operators_text(flex)}: it runs only where "
            "the runtime has the Select TF ops (Flex) delegate"
        )
    weights = float_weights(model, _FEW_ELEMENTS)
    if settings.quantize == "dynamic-int8" and not model.summary.quantised:
        found.append("nothing was quantised: " + (_listed(weights) if weights else _too_small()))
    elif settings.quantize is not None and weights:
        found.append(f"not all was quantised: {_listed(weights)}")
    operators = float_operators(model) if settings.calibration is not None else {}
    if operators:
        found.append(
            f"it is no model of integers only: {operators_text(operators)} compute with floats, "
            "since the converter cannot quantise them"
        )
    return found


def _too_small() -> str:
    return f"no weight has {_FEW_ELEMENTS} elements or more, and smaller ones stay floats"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more} stayed floats"


def _facts(
    model: TfliteModel, settings: Settings, calibration: Calibration | None
) -> dict[str, object]:
    facts: dict[str, object] = {
        "operators": dict(model.summary.ops),
        "flex": list(flex_operators(model)),
        "quantize": settings.quantize,
        "quantised_tensors": model.summary.quantised,
    }
    if calibration is not None:
        facts["calibration"] = dict(calibration.counts)
    return facts
