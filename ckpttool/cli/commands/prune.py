"""``ckpttool prune``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.parameters import AT_LEAST_0, DURATION, SIZE, WHEN
from ckpttool.cli.screen import bytes_text
from ckpttool.cli.views.prune import PruneView
from ckpttool.errors import UsageError
from ckpttool.ops.prune.api import make_request
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan, plan_prune
from ckpttool.policy.words import count
from ckpttool.sources.address import require_run

__all__ = ["command"]

_SETTINGS = (
    "policy",
    "scope",
    "max_to_keep",
    "keep_every_n_hours",
    "since",
    "keep_every_n_steps",
    "keep_within",
    "keep_best",
    "pin",
    "max_total_size",
    "broken",
    "include_preserved",
    "min_age",
    "order",
)
_MODES = ("undo", "empty_trash", "apply_file", "watch", "recursive", "plan_file")


@options.command(
    "prune",
    examples=[
        "ckpttool prune run/ --max-to-keep 5",
        "ckpttool prune run/ --keep-within 7d --keep-best metrics.jsonl:val_loss:min:3 -n",
        "ckpttool prune run/ --undo",
    ],
    epilog="Exit codes: 1 with --check: something may go; 3 partly done; 30 the state file was "
    "written by another program; 31 refused.",
)
@options.directory
@click.option(
    "--policy",
    type=click.Choice(["manager", "saver"]),
    default="manager",
    show_default=True,
    help="Whose word --max-to-keep and --keep-every-n-hours are: what this class of TensorFlow "
    "would have left.",
)
@click.option(
    "--scope",
    type=click.Choice(["listed", "all"]),
    default="listed",
    show_default=True,
    help="What the state file lists, or all checkpoints of the directory.",
)
@click.option("--max-to-keep", type=click.IntRange(min=0), metavar="N", help="The newest N stay.")
@click.option(
    "--keep-every-n-hours",
    type=AT_LEAST_0,
    metavar="H",
    help="Of those that --max-to-keep lets go, one every H hours stays.",
)
@click.option(
    "--since",
    type=WHEN,
    metavar="TIME",
    help="With --policy saver: when the Saver was built.  [default: the oldest one's time]",
)
@click.option(
    "--keep-every-n-steps",
    type=click.IntRange(min=1),
    metavar="S",
    help="The first from each multiple of S on stays.",
)
@click.option(
    "--keep-within",
    type=DURATION,
    metavar="AGE",
    help="Those at most this much older than the newest stay: 36h, 7d.",
)
@click.option(
    "--keep-best",
    multiple=True,
    metavar="FILE:METRIC:min|max:N",
    help="The N best by a metric in a JSON, JSONL or CSV file stay. Repeatable.",
)
@click.option(
    "--pin",
    multiple=True,
    metavar="PREFIX|GLOB",
    help="These stay, like those in the directory's file .ckptpins. Repeatable.",
)
@click.option(
    "--max-total-size",
    type=SIZE,
    metavar="SIZE",
    help="Of what stays, the oldest go until the rest fits: 500GB.",
)
@click.option(
    "--broken", is_flag=True, help="Incomplete checkpoints and leftovers of saves go too."
)
@click.option(
    "--include-preserved",
    is_flag=True,
    help="With --scope all: also what TensorFlow may have preserved for ever.",
)
@options.min_age
@click.option(
    "--order",
    type=click.Choice(["state", "name", "step", "time"]),
    help="What says which is older.  [default: the first of these that all have]",
)
@click.option("--trash", is_flag=True, help="With -y: move into the trash instead of deleting.")
@click.option("--undo", is_flag=True, help="Take back the last removal that went to the trash.")
@click.option("--empty-trash", is_flag=True, help="Delete what is in the trash for good.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(),
    metavar="FILE",
    help="Save the plan, and do nothing else.",
)
@click.option(
    "--apply",
    "apply_file",
    type=click.Path(),
    metavar="FILE",
    help="Carry out a saved plan, if everything is still as it says.",
)
@click.option("--check", is_flag=True, help="Do nothing; exit code 1 if something may go.")
@click.option("-r", "--recursive", is_flag=True, help="Every run at or below DIR.")
@click.option(
    "--watch",
    type=DURATION,
    metavar="EVERY",
    help="Prune again and again, and write each round as a line of JSON: 10m.",
)
@options.overwrite
@options.dry_run
@options.yes
@options.progress
@options.output(ndjson=True, quiet=True)
def command(out: Output, /, directory: str, **given: Any) -> int:  # noqa: ANN401
    """Delete old checkpoints by a retention policy; every decision has a reason.

    Keep rules unite. The newest whole checkpoint, pinned ones, what another state file names
    and what may still be being written always stay. The plan is shown before anything is
    done, and on a terminal what goes moves into the trash, so that --undo takes it back.
    """
    modes = [mode for mode in _MODES if given[mode]]
    if len(modes) > 1:
        names = [f"--{mode.removesuffix('_file').replace('_', '-')}" for mode in modes]
        raise UsageError(
            f"{' and '.join(names)} exclude each other",
            why="each is another thing to do",
            hint="ckpttool prune --help",
        )
    looking = [f"--{name.replace('_', '-')}" for name in ("dry_run", "check") if given[name]]
    if looking and any(given[mode] for mode in ("undo", "empty_trash", "watch")):
        mode = next(one for one in ("undo", "empty_trash", "watch") if given[one])
        raise UsageError(
            f"{looking[0]} does not go with --{mode.replace('_', '-')}",
            why="a plan is made of a policy, and is not watched",
            hint=f"ls -R {shlex.quote(directory)}/.ckpttool-trash shows the trash"
            if mode != "watch"
            else "leave --watch out to see what would go now",
        )
    if given["undo"] or given["empty_trash"]:
        return _trash(out, directory, emptying=given["empty_trash"], yes=given["yes"])
    if given["apply_file"]:
        _refuse_settings()
        return _apply_saved(out, directory, given)
    if given["recursive"]:
        return _recursive(out, directory, make_request(**_settings(given)), given)
    run = require_run(directory)
    request = make_request(**_settings(given), state_name=run.state_name)
    if given["watch"]:
        return _watch(out, run.directory, request, given)
    plan = plan_prune(run.directory, request)
    if given["plan_file"]:
        from ckpttool.ops.prune.record import save_plan

        save_plan(plan, given["plan_file"], overwrite=given["overwrite"])
        return out.show(PruneView(plan))
    if given["dry_run"] or given["check"] or plan.empty:
        return out.show(PruneView(plan, check=given["check"]))
    return _apply(out, plan, given)


def _refuse_settings() -> None:
    """A saved plan is carried out as it was saved: nothing can be added to it."""
    context = click.get_current_context()
    said = [
        param.opts[-1]
        for param in context.command.params
        if param.name in _SETTINGS
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]
    if said:
        raise UsageError(
            f"{said[0]} does not go with --apply",
            why="the plan is carried out as it was saved",
            hint="make a new plan with --plan",
        )


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """What to keep, without what to do about it."""
    return {name: given[name] for name in _SETTINGS}


def _apply(out: Output, plan: PrunePlan, given: dict[str, Any], *, exact: bool = False) -> int:
    trash = given["trash"]
    if not given["yes"]:
        if out.mode == "human":
            out.show(PruneView(plan))
        what = f"{count(len(plan.removals), 'checkpoint')} ({bytes_text(plan.nbytes)})"
        out.confirm(
            f"Move {what} into the trash (--undo takes it back)?"
            if plan.removals
            else "Rewrite the state file?"
        )
        trash = True
    with out.progress("prune") as report:
        result = apply_plan(plan, trash=trash, exact=exact, progress=report)
    return out.show(PruneView(result.plan, result))


def _apply_saved(out: Output, directory: str, given: dict[str, Any]) -> int:
    from ckpttool.ops.prune.record import load_plan

    saved = load_plan(given["apply_file"], require_run(directory).directory)
    if given["dry_run"] or given["check"]:
        plan = plan_prune(saved.directory, saved.request)
        return out.show(PruneView(plan, check=given["check"]))
    return _apply(out, saved, given, exact=True)


def _trash(out: Output, directory: str, *, emptying: bool, yes: bool) -> int:
    from ckpttool.cli.views.prune_more import UndoView
    from ckpttool.ops.prune.undo import empty, take_back

    if not emptying:
        return out.show(UndoView(take_back(directory)))
    if not yes:
        out.confirm(f"Delete what is in the trash of {shlex.quote(directory)} for good?")
    return out.show(UndoView(empty(directory)))


def _recursive(out: Output, root: str, request: Request, given: dict[str, Any]) -> int:
    from ckpttool.cli.views.prune_more import PruneManyView
    from ckpttool.ops.prune.many import apply_many, plan_many

    reports = plan_many(root, request)
    planned = PruneManyView(root, request.retention, reports, applied=False, check=given["check"])
    going = sum(len(report.plan.removals) for report in reports if report.plan)
    if given["dry_run"] or given["check"] or not going:
        return out.show(planned)
    trash = given["trash"]
    if not given["yes"]:
        if out.mode == "human":
            out.show(planned)
        out.confirm(f"Move {count(going, 'checkpoint')} into the trash of their runs?")
        trash = True
    return out.show(
        PruneManyView(root, request.retention, apply_many(reports, trash=trash), applied=True)
    )


def _watch(out: Output, directory: str, request: Request, given: dict[str, Any]) -> int:
    from ckpttool.cli.jsontext import dumps
    from ckpttool.cli.signals import finishing
    from ckpttool.cli.views.prune_more import round_record
    from ckpttool.ops.prune.watch import watch

    if not given["yes"]:
        out.confirm(f"Prune {directory} every {given['watch']:g} seconds without asking?")
    plan_prune(directory, request)  # what cannot work at all is said at once
    request = replace(request, idle_pins=True)  # what is pinned may go another way later
    rounds = 0
    with finishing() as wait:
        for one in watch(
            directory, request, trash=given["trash"], wait=lambda: wait(given["watch"])
        ):
            rounds += 1
            out.write(dumps(round_record(directory, one)) + "\n")
            out.flush()
    out.write(dumps({"type": "summary", "rounds": rounds}) + "\n")
    return 0
