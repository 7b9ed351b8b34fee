"""Every option that more than one command has, as a decorator: same flag, same meaning.

``@options.output(...)`` gives a command its ``Output`` as first argument, with the common
options; the others add keyword arguments. Options that shape the output are written into
``Output.settings`` while the line is parsed, and commands never see them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from ckpttool.cli.output import Output
from ckpttool.cli.parameters import DURATION, SIZE
from ckpttool.errors import UsageError

__all__ = [
    "CONTEXT",
    "arguments",
    "child",
    "command",
    "common",
    "complete_addresses",
    "complete_variables",
    "current_output",
    "destination",
    "directory",
    "dry_run",
    "filters",
    "inputs",
    "jobs",
    "min_age",
    "model_code",
    "model_root",
    "names",
    "naming",
    "output",
    "overwrite",
    "plain_output",
    "progress",
    "source",
    "sources",
    "version",
    "yes",
]

_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])

#: Where a command's own arguments lie in click's context.
_ARGUMENTS = "ckpttool.arguments"

#: What every command is made with.
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


#: Options that every command may have: their own section of the help, below.
_COMMON = {"json", "ndjson", "quiet", "progress", "color", "no_input", "verbose", "help"}


class Options(click.Command):
    """A command whose help goes through ``Output``, so that its errors are ours too.

    ``examples`` are command lines, printed one a line at the end of the help.
    """

    examples: Sequence[str] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                is_common = max(param.opts, key=len).lstrip("-").replace("-", "_") in _COMMON
                (common if is_common else own).append(record)
        for title, records in (("Options", own), ("Common options", common)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Show this help and exit."
            option.callback = _show_help
        return option


def command(
    name: str, *, examples: Sequence[str] = (), epilog: str | None = None
) -> Callable[[Callable[..., int]], Options]:
    """``click.command`` as every command here uses it; the function returns the exit code."""

    def decorate(function: Callable[..., int]) -> Options:
        made = click.command(name, cls=Options, context_settings=CONTEXT, epilog=epilog)(function)
        made.examples = examples
        return made

    return decorate


def output(
    *, ndjson: bool = False, quiet: bool = False, notes: bool = False
) -> Callable[[Callable[Concatenate[Output, _P], int]], Callable[_P, int]]:
    """The common options and ``--json``, and where it applies ``--ndjson`` and ``-q``.

    Args:
        ndjson: whether the result can be records.
        quiet: whether it has names, which are all that ``-q`` prints.
        notes: whether it has none, so that ``-q`` leaves out notes only.
    """

    def decorate(function: Callable[Concatenate[Output, _P], int]) -> Callable[_P, int]:
        wrapped = plain_output(function)
        if quiet:
            wrapped = _setting("-q", "--quiet", is_flag=True, help="Print only names.")(wrapped)
        if notes:
            wrapped = _setting(
                "-q",
                "--quiet",
                "unnoted",
                is_flag=True,
                help="Do not say which checkpoint was chosen; warnings stay.",
            )(wrapped)
        if ndjson:
            wrapped = _setting(
                "--ndjson", is_flag=True, help="One JSON object a line, a summary last."
            )(wrapped)
        return _setting("--json", is_flag=True, help="One JSON document.")(wrapped)

    return decorate


def plain_output(function: Callable[Concatenate[Output, _P], int]) -> Callable[_P, int]:
    """The ``Output`` and the common options, for a command that prints one kind of text."""

    def call(*args: _P.args, **kwargs: _P.kwargs) -> int:
        return function(current_output(click.get_current_context()), *args, **kwargs)

    return common(update_wrapper(call, function))


def common(function: _F) -> _F:
    """``--color``, ``--no-input`` and ``-v``: on every command, and before it."""
    for option in (
        _setting(
            "-v",
            "--verbose",
            count=True,
            help="Say more on stderr; tracebacks of bugs. Twice: of all errors.",
        ),
        _setting("--no-input", is_flag=True, help="Never ask a question: end with 4 instead."),
        _setting(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            help="Colours; 'always' prints for people into a pipe too.  [default: auto]",
        ),
    ):
        function = option(function)
    return function


def progress(function: _F) -> _F:
    """``--progress``: for commands whose work may take long (``Output.progress``)."""
    return _setting(
        "--progress",
        type=click.Choice(["auto", "json", "none"]),
        help="A bar on a terminal, JSON lines on stderr, or nothing.  [default: auto]",
    )(function)


def model_code(function: _F) -> _F:
    """``--model`` and ``--model-arg``: code of a person's own that builds a model."""
    for option in (
        click.option(
            "--model-arg",
            multiple=True,
            metavar="NAME=VALUE",
            help="An argument of that function. Repeatable.",
        ),
        click.option(
            "--model",
            metavar="FILE.py:FUNCTION",
            help="Code that builds the model, or MODULE:FUNCTION.",
        ),
    ):
        function = option(function)
    return function


def model_root(function: _F) -> _F:
    """``--root``: where a checkpoint has the model."""
    return click.option(
        "--root",
        metavar="NAME",
        help="The attribute under which the checkpoint has the model.  [default: found]",
    )(function)


def inputs(function: _F) -> _F:
    """``--input``: what a model or a graph is called with, as the tuple ``input``."""
    return click.option("--input", multiple=True, metavar="SPEC", help="An input. Repeatable.")(
        function
    )


def child(function: _F) -> _F:
    """``--timeout``, ``--memory``, ``--log``: the process in which TensorFlow runs."""
    for option in (
        click.option(
            "--log",
            type=click.Path(),
            metavar="FILE",
            help="Keep what TensorFlow says.  [default: only on failure]",
        ),
        click.option(
            "--memory", type=SIZE, metavar="SIZE", help="Stop past this much memory (Linux)."
        ),
        click.option("--timeout", type=DURATION, metavar="TIME", help="Stop after this time."),
    ):
        function = option(function)
    return function


def source(function: _F) -> _F:
    """The argument ``SRC``: one address, as ``source``."""
    return click.argument("source", metavar="SRC", shell_complete=complete_addresses)(function)


def sources(function: _F) -> _F:
    """The arguments ``SRC…``: one address or more, as the tuple ``sources``."""
    return click.argument(
        "sources", metavar="SRC...", nargs=-1, required=True, shell_complete=complete_addresses
    )(function)


def directory(function: _F) -> _F:
    """The argument ``DIR``: a run directory or its state file, as ``directory``."""
    return click.argument("directory", metavar="DIR", shell_complete=complete_addresses)(function)


def names(function: _F) -> _F:
    """The arguments ``NAME…``: variables of SRC, maybe with slices, as the tuple ``names``."""
    return click.argument(
        "names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_variables
    )(function)


def naming(function: _F) -> _F:
    """``--names``: what variables are called, as ``naming``."""
    return click.option(
        "--names",
        "naming",
        type=click.Choice(["full", "key", "path"]),
        default="full",
        help="What variables are called: by their readable name, the literal key, or the object "
        "path; filters and patterns look at that.  [default: full]",
    )(function)


def filters(function: _F) -> _F:
    """``--include``, ``--exclude``, ``--regex`` and ``--kind``: which variables."""
    from ckpttool.model import KINDS

    for option in (
        click.option(
            "--kind",
            "kinds",
            multiple=True,
            type=click.Choice(KINDS),
            help="Only variables of this kind. Repeatable.",
        ),
        click.option("--regex", metavar="RE", help="Only names in which this expression is found."),
        click.option(
            "--exclude",
            multiple=True,
            metavar="GLOB",
            help="Not these. Repeatable.",
            shell_complete=complete_variables,
        ),
        click.option(
            "--include",
            multiple=True,
            metavar="GLOB",
            help="Only names that match: * also crosses '/'. Repeatable.",
            shell_complete=complete_variables,
        ),
    ):
        function = option(function)
    return function


def jobs(function: _F) -> _F:
    """``-j/--jobs``: threads, as ``jobs`` (None: as many as pay)."""
    return click.option(
        "-j", "--jobs", type=click.IntRange(1, 256), help="Work with this many threads."
    )(function)


def overwrite(function: _F) -> _F:
    """``--overwrite``: an existing destination may be replaced."""
    return click.option("--overwrite", is_flag=True, help="Replace what is there already.")(
        function
    )


def dry_run(function: _F) -> _F:
    """``-n/--dry-run``: only the plan."""
    return click.option(
        "-n", "--dry-run", is_flag=True, help="Show what would be done, and do nothing."
    )(function)


def min_age(function: _F) -> _F:
    """``--min-age``: how long ago the last change has to be, as ``min_age`` in seconds."""
    from ckpttool.cli.parameters import DURATION

    return click.option(
        "--min-age",
        type=DURATION,
        default=60.0,
        metavar="AGE",
        help="Leave alone what changed less than this ago (90s, 10m, 2h), for a save may be at "
        "work on it; 0 lifts that.  [default: 60s]",
    )(function)


def yes(function: _F) -> _F:
    """``-y/--yes``: ask nothing."""
    return click.option("-y", "--yes", is_flag=True, help="Do it without asking.")(function)


def destination(function: _F) -> _F:
    """The argument ``DST``: what is written, as ``destination``."""
    return click.argument("destination", metavar="DST", shell_complete=complete_addresses)(function)


def version(function: _F) -> _F:
    """``--version``."""
    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )(function)


def _setting(*names: str, **attributes: Any) -> Callable[[_F], _F]:  # noqa: ANN401
    """An option that is written into the settings of the output."""
    return click.option(*names, expose_value=False, is_eager=True, callback=_store, **attributes)


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:  # noqa: ANN401
    settings = current_output(ctx).settings
    if not value or ctx.resilient_parsing:
        return  # not given here: what was said before the command stays
    assert param.name is not None  # our own options all have one
    if param.name == "verbose":
        value += settings.verbose
    setattr(settings, param.name, value)
    if settings.json + settings.ndjson + settings.quiet > 1:
        raise UsageError(
            "--json, --ndjson and -q exclude each other",
            why="the output has one form",
            hint=f"{ctx.command_path} --help",
        )


def arguments(ctx: click.Context) -> list[str]:
    """The command's arguments as they were given."""
    return list(ctx.meta[_ARGUMENTS])


def current_output(ctx: click.Context) -> Output:
    """The sink of this run; `dispatch` put it into the context."""
    out = ctx.find_object(Output)
    assert out is not None
    return out


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        current_output(ctx).write(ctx.get_help() + "\n")
        ctx.exit()


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        from ckpttool.version import __version__

        current_output(ctx).write(f"ckpttool {__version__}\n")
        ctx.exit()


def complete_addresses(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """What TAB offers where an address stands (``shell_complete``)."""
    from ckpttool.cli.complete import addresses

    del param
    return addresses(ctx, incomplete)


def complete_variables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """What TAB offers where a variable of SRC is named, or a pattern for some."""
    from ckpttool.cli.complete import variables

    del param
    return variables(ctx, incomplete)
