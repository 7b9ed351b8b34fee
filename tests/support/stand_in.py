"""Runs ckpttool's frame in a child around a body of Python given by a test.

The body is the inside of ``dispatch(arguments, out)``: what a command does between the
parsed line and the exit code. The process, its signals and its streams are the real ones.
"""

from __future__ import annotations

import sys
import textwrap

__all__ = ["stand_in"]

_FRAME = """
import os, sys, time
import ckpttool.cli.app as app
from ckpttool.cli.main import run
from ckpttool.errors import *

def dispatch(arguments, out):
{body}

app.dispatch = dispatch
run()
"""


def stand_in(body: str, *args: str) -> list[str]:
    """The command line (``argv``) that runs the body with the frame around it."""
    code = _FRAME.format(body=textwrap.indent(textwrap.dedent(body), "    "))
    return [sys.executable, "-c", code, *args]
