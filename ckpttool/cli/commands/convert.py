"""``ckpttool convert``."""

from __future__ import annotations

from typing import Any

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.parameters import SIZE
from ckpttool.cli.views.convert import ConvertView, OffersView
from ckpttool.conversion.request import QUANTIZATIONS
from ckpttool.ops.convert import offers
from ckpttool.ops.convert_api import convert

__all__ = ["command"]


def _list(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """``--list``: instead of a conversion, for which it needs no SRC and DST."""
    del param
    if value and not ctx.resilient_parsing:
        ctx.exit(options.current_output(ctx).show(OffersView(offers())))


@options.command(
    "convert",
    examples=[
        "ckpttool convert run/ export/1 --to savedmodel --output scores=dense/Softmax",
        "ckpttool convert run/@1000 model.tflite --model train.py:build --quantize dynamic-int8",
        "ckpttool convert run/ model.onnx --freeze-input is_training=False -n",
        "ckpttool convert export/1 web/ --to tfjs --signature serving_default",
        "ckpttool convert run/ export/2 --to savedmodel --like export/1",
        "ckpttool convert run/ model.safetensors --kind model",
        "ckpttool convert run/ theirs.onnx --check-only --check-data holdout.npz",
    ],
    epilog="An input or output is [NAME=]TENSOR[:INDEX][:DTYPE][SHAPE]: input, image=x:0, "
    "ids:int64[?,128]. Without them, what ckpttool inspect --graph finds is taken, and said. "
    "ckpttool convert --list shows what can be converted to what.",
)
@options.source
@options.destination
@click.option("--to", default="", metavar="TARGET", help="What to make; see --list.")
@click.option(
    "--list",
    is_flag=True,
    expose_value=False,
    callback=_list,
    help="Show sources and targets, and what is installed.",
)
@click.option("--graph", metavar="FILE", help="The graph: a .meta, .pb or .pbtxt.")
@options.model_code
@click.option(
    "--like",
    metavar="EXPORT",
    help="Refresh: the graph of this SavedModel with the values of SRC. Needs no TensorFlow.",
)
@click.option(
    "--map",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="With --like: which variable is which, JSON or CSV of old and new names.",
)
@options.model_root
@options.inputs
@click.option("--output", multiple=True, metavar="SPEC", help="An output. Repeatable.")
@click.option(
    "--signature",
    multiple=True,
    metavar="NAME",
    help="Only this signature. Repeatable.",
)
@click.option(
    "--freeze-input",
    multiple=True,
    metavar="NAME=VALUE",
    help="Make an input a constant. Repeatable.",
)
@click.option(
    "--allow-training-graph",
    is_flag=True,
    help="Convert a graph that was made for training all the same.",
)
@click.option(
    "--quantize", type=click.Choice(QUANTIZATIONS), help="How weights are stored (tflite, tfjs)."
)
@click.option(
    "--calibration",
    metavar="DATA",
    help="Real inputs for int8: an .npz, or FILE.py:FUNCTION (tflite).",
)
@click.option(
    "--io-dtype",
    type=click.Choice(["int8", "uint8"]),
    help="Inputs and outputs of an int8 model (tflite).",
)
@click.option("--batch", type=click.IntRange(1), help="Fix the batch size where it is open.")
@click.option(
    "--opset", type=click.IntRange(1), help="The operator set.  [onnx; default: the highest]"
)
@click.option(
    "--external-data/--no-external-data",
    default=None,
    help="Weights in a file beside it.  [onnx; default: where they are large]",
)
@click.option(
    "--shard-bytes", type=SIZE, metavar="SIZE", help="Size of weight files.  [tfjs; default: 4MB]"
)
@click.option("--allow-flex", is_flag=True, help="Let TensorFlow's own operators in (tflite).")
@click.option(
    "--dtypes",
    type=click.Choice(["error", "cast", "raw"]),
    default="error",
    help="What becomes of a dtype that the file cannot hold.  [weights; default: error]",
)
@options.naming
@options.filters
@click.option("--no-check", is_flag=True, help="Do not prove the result.")
@click.option(
    "--check",
    type=click.Choice(["run"]),
    help="Also run what is compared byte by byte (--like).",
)
@click.option(
    "--check-data", metavar="FILE.npz", help="Inputs for the check, by name.  [default: seeded]"
)
@click.option(
    "--tolerance",
    type=float,
    metavar="NRMSE",
    help="The error that is accepted.  [default: by precision]",
)
@click.option(
    "--require-check", is_flag=True, help="A result that cannot be checked is an error (50)."
)
@click.option(
    "--check-only", is_flag=True, help="Check what is at DST, made by whatever converter."
)
@click.option(
    "--report",
    metavar="FILE",
    help="Where the report goes.  [default: beside a new graph; of values none]",
)
@click.option("--seed", type=int, help="Of the check's inputs.  [default: 0]")
@options.child
@options.overwrite
@options.dry_run
@options.yes
@options.output(notes=True)
def command(
    out: Output,
    /,
    source: str,
    destination: str,
    dry_run: bool,
    yes: bool,
    **asked: Any,  # noqa: ANN401
) -> int:
    """Convert a checkpoint with its graph into what is served, and prove the result.

    The graph is that of a .meta beside the checkpoint, of --graph, of the code of --model,
    or of SRC itself (a SavedModel, a Keras file, a frozen graph). TensorFlow runs in a
    process of its own; the result is moved into place whole, or not at all.
    """
    asked["kind"], asked["names"] = asked.pop("kinds"), asked.pop("naming")
    ask = None if yes else lambda: out.confirm(f"replace {destination}?")
    result = convert(source, destination, dry_run=dry_run, said=out.note, replacing=ask, **asked)
    for note in result.notes:
        out.note(note)
    return out.show(ConvertView(result))
