"""What a source can be converted to: one ``Target`` each, and what is installed for it.

A target is one line here and one module. Nothing is imported to know what is installed:
only the metadata of packages is read, so a broken TensorFlow breaks no list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from ckpttool.conversion.request import Choice, Quantization, Request, Settings
from ckpttool.errors import ConverterMissingError, UsageError
from ckpttool.sources.filenames import SAVED_MODEL_FILES

__all__ = [
    "KERAS_ENDING",
    "SOURCES",
    "TARGETS",
    "Requirement",
    "SourceKindLine",
    "Target",
    "find_target",
    "installed",
    "require_installed",
    "require_no_choice",
    "require_settings",
]


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of result.

    Attributes:
        name: as ``--to`` says it.
        title: in words.
        form: what stands at the destination: one file (with companions whose names begin
            with its own), a directory, or a checkpoint's prefix.
        module: what writes it. With a graph: ``ckpttool.conversion.worker.<module>`` with
            ``write(program, path, settings) -> Written``, called in the child. Without:
            ``ckpttool.conversion.<module>``, called in this process; empty for a checkpoint,
            which ``ops/rewrite`` writes.
        graph: whether it computes something, so that a graph is needed.
        needs: distributions without which it cannot be written.
        runs: distributions that run it for the check; one of them is enough.
        settings: the members of ``Settings`` that it understands.
        suffixes: endings of names by which it is meant where ``--to`` is left out.
        marks: files one of which a directory of this kind has; only such a directory is
            ever replaced.
        holds: what it can and cannot hold, for ``--list``.
        quantizations: the words of ``--quantize`` that it understands.
        single: whether it holds one signature.
    """

    name: str
    title: str
    form: Literal["file", "directory", "prefix"]
    module: str
    graph: bool
    needs: tuple[str, ...]
    runs: tuple[str, ...]
    settings: tuple[str, ...]
    suffixes: tuple[str, ...]
    marks: tuple[str, ...]
    holds: str
    quantizations: tuple[Quantization, ...] = ()
    single: bool = False


#: What measures ranges, by real inputs.
_CALIBRATED = ("int8", "int16x8")

_ALL = (
    Target(
        name="savedmodel",
        title="TensorFlow SavedModel",
        form="directory",
        module="to_savedmodel",
        graph=True,
        needs=("tensorflow",),
        runs=("tensorflow",),
        settings=("batch",),
        suffixes=(),
        marks=SAVED_MODEL_FILES,
        holds="every operation, dtype and signature; tables and assets",
    ),
    Target(
        name="tflite",
        title="TensorFlow Lite (LiteRT)",
        form="file",
        module="to_tflite",
        graph=True,
        needs=("tensorflow",),
        runs=("ai-edge-litert", "tensorflow"),
        settings=("quantize", "calibration", "io_dtype", "batch", "allow_flex"),
        suffixes=(".tflite",),
        marks=(),
        holds="several signatures; only its own operations, unless flex ones are allowed",
        quantizations=("float16", "dynamic-int8", "int8", "int16x8"),
    ),
    Target(
        name="onnx",
        title="ONNX",
        form="file",
        module="to_onnx",
        graph=True,
        needs=("tensorflow", "tf2onnx", "onnx"),
        runs=("onnxruntime",),
        settings=("batch", "opset", "external_data"),
        suffixes=(".onnx",),
        marks=(),
        holds="one signature a file; large weights in a file beside it; no bfloat16, no tables",
        single=True,
    ),
    Target(
        name="tfjs",
        title="TensorFlow.js graph model",
        form="directory",
        module="to_tfjs",
        graph=True,
        needs=("tensorflow",),
        runs=("@tensorflow/tfjs",),
        settings=("quantize", "batch", "shard_bytes"),
        suffixes=(),
        marks=("model.json",),
        holds="one signature; int64 as int32, float64 as float32; no tables",
        single=True,
        quantizations=("float16", "uint8", "uint16"),
    ),
    Target(
        name="h5",
        title="HDF5, or Keras weights",
        form="file",
        module="weights_h5",
        graph=False,
        needs=("h5py",),
        runs=(),
        settings=("dtypes",),
        suffixes=(".h5", ".hdf5"),
        marks=(),
        holds="values only; bfloat16 and float8 need --dtypes",
    ),
    Target(
        name="safetensors",
        title="safetensors",
        form="file",
        module="weights_safetensors",
        graph=False,
        needs=(),
        runs=(),
        settings=("dtypes",),
        suffixes=(".safetensors",),
        marks=(),
        holds="values only; no strings, no complex numbers",
    ),
    Target(
        name="npz",
        title="NumPy arrays",
        form="file",
        module="weights_npz",
        graph=False,
        needs=(),
        runs=(),
        settings=("dtypes",),
        suffixes=(".npz",),
        marks=(),
        holds="values only; bfloat16 and float8 need --dtypes",
    ),
    Target(
        name="checkpoint",
        title="TensorFlow checkpoint (V2)",
        form="prefix",
        module="",
        graph=False,
        needs=(),
        runs=(),
        settings=(),
        suffixes=(),
        marks=(),
        holds="every value, under the names of the source",
    ),
)
#: By this Keras knows a file of its own layout.
KERAS_ENDING = ".weights.h5"
#: ``--to`` → target, in the order in which they are shown.
TARGETS = {target.name: target for target in _ALL}


#: What ``--to h5`` is where a model says how Keras lays its weights out.
_KERAS_WEIGHTS = replace(
    TARGETS["h5"],
    title="Keras weights",
    module="to_keras_weights",
    graph=True,
    needs=("tensorflow", "keras", "h5py"),
    settings=(),
)


@dataclass(frozen=True, slots=True)
class SourceKindLine:
    """A source of a graph, for ``--list``: what is given, and what it needs installed."""

    name: str
    title: str
    needs: tuple[str, ...]


SOURCES = (
    SourceKindLine("meta", "a checkpoint with its .meta", ("tensorflow",)),
    SourceKindLine("graph", "a checkpoint and --graph FILE (.meta, .pb, .pbtxt)", ("tensorflow",)),
    SourceKindLine("frozen-graph", "a frozen graph (.pb, .pbtxt)", ("tensorflow",)),
    SourceKindLine("model", "a checkpoint and --model FILE.py:FUNCTION", ("tensorflow", "keras")),
    SourceKindLine("savedmodel", "a SavedModel, of TensorFlow 1 or 2", ("tensorflow",)),
    SourceKindLine("keras", "a Keras file (.keras, .h5)", ("tensorflow", "keras", "h5py")),
    SourceKindLine("keras2", "what only Keras 2 can load", ("tensorflow", "tf_keras")),
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A distribution (or a program), and its version; None where it is not installed."""

    name: str
    version: str | None


def installed(name: str) -> Requirement:
    """Whether a distribution is installed; of a name with a scope, a package of Node.js."""
    if name.startswith("@"):
        from ckpttool.conversion.node_packages import find_package

        found = find_package(name)
        return Requirement(name, None if found is None else found.version)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Requirement(name, version(name))
    except PackageNotFoundError:
        if name == "tensorflow":  # the same library without GPUs is another distribution
            return Requirement(name, installed("tensorflow-cpu").version)
        return Requirement(name, None)


def find_target(name: str, destination: str, model: str | None = None) -> Target:
    """The target of this name; where that is empty, the one that the destination's ending means.

    With a model the name of a ``.weights.h5`` means Keras's own layout, for only the model
    knows it.

    Raises:
        UsageError: id ``target-unknown``; id ``keras-weights-layout``: there is no model.
    """
    lower = destination.lower()
    found = TARGETS.get(name)
    if not name:
        ends = (one for one in _ALL if one.suffixes and lower.endswith(one.suffixes))
        found = next(ends, None)
    if found is TARGETS["h5"] and model is not None and lower.endswith(KERAS_ENDING):
        return _KERAS_WEIGHTS
    if found is TARGETS["h5"] and not name and lower.endswith(KERAS_ENDING):
        raise UsageError(
            f"Keras would not load {destination}",
            why="only a model's code knows how Keras lays its weights out",
            hint="add --model FILE.py:FUNCTION; or for the values alone give another name: "
            "values.h5",
            id="keras-weights-layout",
        )
    if found is not None:
        return found
    from ckpttool.sources.nearest import nearest

    near = nearest(name, TARGETS)
    raise UsageError(
        f"there is no target '{name}'" if name else "it is not said what to convert to",
        why=f"the targets are {', '.join(TARGETS)}",
        hint=f"did you mean: --to {near[0]}" if near else "add --to; ckpttool convert --list",
        id="target-unknown",
    )


def require_installed(what: str, needs: Sequence[str]) -> None:
    """Check that all of these are installed.

    Raises:
        ConverterMissingError: names those that are not.
    """
    missing = [name for name in needs if installed(name).version is None]
    if missing:
        raise ConverterMissingError(
            f"{what} needs {' and '.join(missing)}",
            why="not installed here",
            hint=f"pip install {' '.join(missing)}",
        )


def require_settings(target: Target, settings: Settings, *, is_made: bool = True) -> None:
    """Check that the target understands every setting that was made, and all of them together.

    Args:
        target: what is wanted.
        settings: how.
        is_made: whether a result is made; of one that is there already they say what it is.

    Raises:
        UsageError: ids ``target-setting``, ``calibration-needed``, ``options-contradict``.
    """
    default = Settings()
    for one in fields(Settings):
        name = one.name
        if getattr(settings, name) != getattr(default, name) and name not in target.settings:
            known = [f"--{other.replace('_', '-')}" for other in target.settings]
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing for {target.name}",
                why=f"of {target.title} it knows {', '.join(known) or 'none of these options'}",
                hint="ckpttool convert --list",
                id="target-setting",
            )
    if settings.quantize is not None and settings.quantize not in target.quantizations:
        raise UsageError(
            f"--quantize {settings.quantize} means nothing for {target.name}",
            why=f"{target.title} can be stored as {', '.join(target.quantizations)}"
            if target.quantizations
            else f"the weights of {target.title} are stored as they are",
            hint="choose one of these" if target.quantizations else "leave it out",
            id="target-setting",
        )
    _require_calibration(settings, is_made=is_made)


def _require_calibration(settings: Settings, *, is_made: bool) -> None:
    """Check that real inputs come with what needs them, and only with that."""
    asked = f"--quantize {settings.quantize}" if settings.quantize else "a model of floats"
    is_calibrated = settings.quantize in _CALIBRATED
    if is_calibrated and settings.calibration is None and is_made:
        raise UsageError(
            f"{asked} needs real inputs",
            why="the range of every value inside the model is measured with them",
            hint="add --calibration data.npz, or --calibration FILE.py:FUNCTION; "
            "--quantize dynamic-int8 needs none",
            id="calibration-needed",
        )
    for name, value, words in (
        ("--calibration", settings.calibration, _CALIBRATED),
        ("--io-dtype", settings.io_dtype, ("int8",)),
    ):
        if value is not None and settings.quantize not in words:
            raise UsageError(
                f"{name} {value} would do nothing",
                why=f"{asked} has no use for it",
                hint=f"add --quantize {words[0]}, or leave it out",
                id="options-contradict",
            )


def require_no_choice(request: Request, target: Target) -> None:
    """Check that no variables were chosen where the graph says which are needed.

    Raises:
        UsageError: id ``target-setting``.
    """
    if request.maps:
        raise UsageError(
            "--map means nothing without --like",
            why="it says which variable is which of the export that --like refreshes",
            hint="leave it out, or add --like EXPORT",
            id="target-setting",
        )
    if request.choice != Choice():
        raise UsageError(
            f"no variables can be chosen for {target.name}",
            why="its graph says which it needs, and what they are called",
            hint="--include, --exclude, --regex, --kind and --names are for files of weights: "
            "safetensors, npz, h5",
            id="target-setting",
        )
