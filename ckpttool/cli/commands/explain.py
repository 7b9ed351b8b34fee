"""``ckpttool explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.explain import ExplainView
from ckpttool.ops.explain import explain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["command"]


def _topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from ckpttool.cli.complete import topics

    del param
    return topics(ctx, incomplete)


@options.command("explain", examples=["ckpttool explain shard-missing", "ckpttool explain 20"])
@click.argument("topic", metavar="[ID|EXIT_CODE]", required=False, shell_complete=_topics)
@options.output(quiet=True)
def command(out: Output, topic: str | None) -> int:
    """Explain an error id or an exit code.

    Every error ends with its id in brackets. Without an argument all ids are listed.
    """
    return out.show(ExplainView(explain(topic)))
