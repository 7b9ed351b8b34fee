"""What a conversion was asked for: plain frozen data, on its way from the command to a target.

Made by the command or by Python, read by everything in ``conversion/``; reads no file and
knows no library. ``Settings`` is for the target, ``CheckSettings`` for the check; what is
to be converted stands in ``Request`` itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ckpttool.conversion.specs import NamedValue, PortSpec
from ckpttool.model import Kind

__all__ = ["QUANTIZATIONS", "CheckSettings", "Choice", "Quantization", "Request", "Settings"]

Quantization = Literal["float16", "dynamic-int8", "int8", "int16x8", "uint8", "uint16"]
QUANTIZATIONS: tuple[Quantization, ...] = (
    "float16",
    "dynamic-int8",
    "int8",
    "int16x8",
    "uint8",
    "uint16",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the result is to be made; a target refuses what it cannot do (``Target.settings``).

    Attributes:
        quantize: how weights (and for int8 activations) are stored; None: as they are.
        calibration: ``data.npz`` or ``module:function``, for what has to see real inputs.
        io_dtype: the dtype of inputs and outputs of a full int8 model; None: float32.
        batch: fixes the first dimension of every input where it is open.
        opset: ONNX's operator set; None: the highest that the converter knows.
        external_data: weights beside the ONNX file; None: where they are large.
        shard_bytes: the size of a TF.js weight file.
        allow_flex: TFLite may use TensorFlow's own operators, which few runtimes have.
        dtypes: what happens to a dtype that a file of weights cannot hold.
    """

    quantize: Quantization | None = None
    calibration: str | None = None
    io_dtype: Literal["int8", "uint8"] | None = None
    batch: int | None = None
    opset: int | None = None
    external_data: bool | None = None
    shard_bytes: int | None = None
    allow_flex: bool = False
    dtypes: Literal["error", "cast", "raw"] = "error"


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How the result is proven.

    Attributes:
        run: False: ``--no-check``.
        data: an ``.npz`` of inputs by name; None: seeded ones, of two batch sizes.
        tolerance: the NRMSE that is accepted; None: by precision.
        require: a result that cannot be checked is an error (50).
        only: check what is at the destination already, made by anyone's converter.
        execute: also run what could be compared byte by byte (``--check=run``).
        report: where the report is written; None: beside the result.
        seed: of the inputs; None: 0.
    """

    run: bool = True
    data: str | None = None
    tolerance: float | None = None
    require: bool = False
    only: bool = False
    execute: bool = False
    report: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which variables go into a file of weights, and what they are called there.

    Attributes:
        names: by their readable name, the literal key, or the object path.
        include: globs one of which a name has to match; empty: any name.
        exclude: globs that no name may match.
        regex: an expression that is found in every name.
        kinds: what they are for; empty: anything.
    """

    names: Literal["full", "key", "path"] = "full"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    regex: str | None = None
    kinds: tuple[Kind, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A whole conversion.

    Attributes:
        source: the address of the values; of a SavedModel or Keras file, of the graph too.
        destination: the path to write.
        target: a name of ``targets.TARGETS``; empty: the destination's ending says it.
        graph: a ``.meta``, ``.pb`` or ``.pbtxt`` that has the graph.
        model: ``module:function`` or ``file.py:function`` that builds the model.
        model_args: keyword arguments of that function.
        root: the attribute of the checkpoint under which the model was saved; None: found.
        like: an existing SavedModel whose graph is taken and whose values are replaced.
        maps: files that say which variable of the source is which of ``like``.
        inputs: chosen inputs; empty: as found.
        outputs: chosen outputs; empty: as found.
        signatures: chosen signatures; empty: all.
        freeze: inputs that become constants.
        allow_training_graph: a graph made for training is converted all the same.
        choice: of variables, for a file of weights.
        settings: for the target.
        check: how it is proven.
        overwrite: what is at the destination may be replaced.
        seconds: time for the child; None: as the limits say.
        memory: bytes for the child; None: as the limits say.
        log: where the child's output is kept; None: a temporary file, kept on failure.
    """

    source: str
    destination: str
    target: str
    graph: str | None = None
    model: str | None = None
    model_args: tuple[NamedValue, ...] = ()
    root: str | None = None
    like: str | None = None
    maps: tuple[str, ...] = ()
    inputs: tuple[PortSpec, ...] = ()
    outputs: tuple[PortSpec, ...] = ()
    signatures: tuple[str, ...] = ()
    freeze: tuple[NamedValue, ...] = ()
    allow_training_graph: bool = False
    choice: Choice = field(default_factory=Choice)
    settings: Settings = field(default_factory=Settings)
    check: CheckSettings = field(default_factory=CheckSettings)
    overwrite: bool = False
    seconds: float | None = None
    memory: int | None = None
    log: str | None = None
