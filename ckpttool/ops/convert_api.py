"""``convert`` as Python calls it: the command's options as keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from ckpttool.conversion.request import (
    QUANTIZATIONS,
    CheckSettings,
    Choice,
    Quantization,
    Request,
    Settings,
)
from ckpttool.conversion.specs import NamedValue, Value, parse_named_value, parse_port
from ckpttool.limits import Limits
from ckpttool.model import KINDS, Kind
from ckpttool.ops.convert import ConvertResult
from ckpttool.ops.convert import convert as convert_request
from ckpttool.ops.keywords import Words, require_choice, words
from ckpttool.sources.address import Address
from ckpttool.sources.base import NameStyle

__all__ = ["convert"]

_Dtypes = Literal["error", "cast", "raw"]
_InputDtype = Literal["int8", "uint8"]


def convert(
    source: Address,
    destination: Address,
    *,
    to: str = "",
    graph: Address | None = None,
    model: str | None = None,
    model_arg: Words | Mapping[str, Value] = (),
    like: Address | None = None,
    map: Words = (),
    root: str | None = None,
    input: Words = (),
    output: Words = (),
    signature: Words = (),
    freeze_input: Words | Mapping[str, Value] = (),
    allow_training_graph: bool = False,
    quantize: Quantization | None = None,
    calibration: str | None = None,
    io_dtype: _InputDtype | None = None,
    batch: int | None = None,
    opset: int | None = None,
    external_data: bool | None = None,
    shard_bytes: int | None = None,
    allow_flex: bool = False,
    dtypes: _Dtypes = "error",
    names: NameStyle = "full",
    include: Words = (),
    exclude: Words = (),
    regex: str | None = None,
    kind: Kind | Sequence[Kind] = (),
    no_check: bool = False,
    check: Literal["run"] | None = None,
    check_data: str | None = None,
    tolerance: float | None = None,
    require_check: bool = False,
    check_only: bool = False,
    report: str | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    log: str | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    limits: Limits | None = None,
    said: Callable[[str], None] | None = None,
    replacing: Callable[[], None] | None = None,
) -> ConvertResult:
    """Convert a checkpoint with its graph into what is served, prove it, move it into place.

    TensorFlow runs in a process of its own; the result appears whole, or not at all.
    ``docs/convert.md`` says more of every argument.

    Args:
        source: the values: an address; of a SavedModel or Keras file, the graph too.
        destination: the path to write.
        to: ``savedmodel``, ``tflite``, ``onnx``, ``tfjs``, ``h5``, ``safetensors``, ``npz``
            or ``checkpoint``; without it the destination's ending says it.
        graph: a ``.meta``, ``.pb`` or ``.pbtxt`` that has the graph.
        model: ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` that builds the model.
        model_arg: arguments of that function: a mapping, or ``NAME=VALUE``.
        like: refresh: the graph of this SavedModel with the values of ``source``.
        map: with ``like``: files that say which variable is which.
        root: the attribute under which the checkpoint has the model; None: found.
        input: inputs, ``[NAME=]TENSOR[:INDEX][:DTYPE][SHAPE]``; none: as found.
        output: outputs, in the same words; none: as found.
        signature: only these signatures.
        freeze_input: inputs that become constants: a mapping, or ``NAME=VALUE``.
        allow_training_graph: convert a graph that was made for training all the same.
        quantize: how weights are stored (tflite, tfjs).
        calibration: real inputs for ``int8``: an ``.npz``, or ``FILE.py:FUNCTION``.
        io_dtype: of inputs and outputs of an ``int8`` model (tflite).
        batch: fixes the batch size where it is open.
        opset: ONNX's operator set; None: the highest.
        external_data: weights beside the ONNX file; None: where they are large.
        shard_bytes: size of weight files (tfjs).
        allow_flex: let TensorFlow's own operators in (tflite).
        dtypes: what becomes of a dtype that a file of weights cannot hold.
        names: what variables are called in a file of weights.
        include: globs one of which a name has to match (weights).
        exclude: globs that no name may match (weights).
        regex: an expression that is found in every name (weights).
        kind: what variables are for (weights).
        no_check: do not prove the result.
        check: ``run``: also run what is compared byte by byte (``like``).
        check_data: an ``.npz`` of inputs by name; None: seeded ones.
        tolerance: the NRMSE that is accepted; None: by precision.
        require_check: a result that cannot be checked is an error.
        check_only: check what is at the destination, and write nothing.
        report: where the report of the check goes; None: beside the result (not of
            weights, which have none).
        seed: of the check's inputs; None: 0.
        timeout: seconds for the child; None: as the limits say.
        memory: bytes for the child (Linux); None: as the limits say.
        log: where TensorFlow's messages are kept; None: only on failure.
        overwrite: what is at the destination may be replaced.
        dry_run: find out all that can be known without TensorFlow, and write nothing.
        limits: bounds on what files may claim, and on the child.
        said: told the last lines of the child's log when it fails.
        replacing: called before a former result is replaced, after all that would refuse
            it; may raise.

    Returns:
        ``outputs``, ``signatures``, and in ``check`` whether it is proven: ``passed`` with
        its metrics, or ``not_run`` with the reason.

    Raises:
        UsageError: a word that cannot be understood, or arguments that do not go together.
        ConverterMissingError: a package is not installed; id ``check-not-run``: with
            ``require_check``, it cannot be proven.
        NoGraphError: there is no graph to convert with.
        RefusedError: ids ``exists``, ``destination-other``, ``output-is-source``,
            ``training-graph``.
        ConversionError: TensorFlow or a converter failed.
        ResultDiffersError: the result computes something else; nothing is in place.
        UnsupportedError: the target cannot hold what there is.
        NotFoundError, CorruptError, IncompleteError, LimitError: as opening the source.

    >>> import ckpttool
    >>> result = ckpttool.convert("fixtures/mlp-v1", "weights.npz", kind="model")
    >>> result.target, result.check.state, result.check.how
    ('npz', 'passed', 'bytes')
    """
    require_choice("quantize", quantize, (None, *QUANTIZATIONS))
    require_choice("io_dtype", io_dtype, (None, *get_args(_InputDtype)))
    require_choice("dtypes", dtypes, get_args(_Dtypes))
    require_choice("names", names, get_args(NameStyle))
    require_choice("check", check, (None, "run"))
    kinds = words(kind)
    for one in kinds:
        require_choice("kind", one, KINDS)
    request = Request(
        os.fsdecode(source),
        os.fsdecode(destination),
        to,
        graph=None if graph is None else os.fsdecode(graph),
        model=model,
        model_args=_named("--model-arg", model_arg),
        like=None if like is None else os.fsdecode(like),
        maps=words(map),
        root=root,
        inputs=tuple(parse_port(one) for one in words(input)),
        outputs=tuple(parse_port(one) for one in words(output)),
        signatures=words(signature),
        freeze=_named("--freeze-input", freeze_input),
        allow_training_graph=allow_training_graph,
        choice=Choice(names, words(include), words(exclude), regex, kinds),
        settings=Settings(
            quantize,
            calibration,
            io_dtype,
            batch,
            opset,
            external_data,
            shard_bytes,
            allow_flex,
            dtypes,
        ),
        check=CheckSettings(
            run=not no_check,
            data=check_data,
            tolerance=tolerance,
            require=require_check,
            only=check_only,
            execute=check == "run",
            report=report,
            seed=seed,
        ),
        overwrite=overwrite,
        seconds=timeout,
        memory=memory,
        log=log,
    )
    return convert_request(request, dry_run=dry_run, limits=limits, said=said, replacing=replacing)


def _named(option: str, given: Words | Mapping[str, Value]) -> tuple[NamedValue, ...]:
    if isinstance(given, Mapping):
        return tuple(NamedValue(name, value) for name, value in given.items())
    return tuple(parse_named_value(option, one) for one in words(given))
