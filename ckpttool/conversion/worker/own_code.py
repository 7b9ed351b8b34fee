"""A person's own code that failed: told by the person's own lines.

What stands above them in a traceback is ours and TensorFlow's, and nobody's who reads it.
Knows no model and no option.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from types import TracebackType

from ckpttool.errors import ConversionError

__all__ = ["FAILURES", "function_failed", "line_of", "print_own", "said_of"]

#: What a person's code may end with; ``sys.exit`` is no ``Exception``.
FAILURES = (Exception, SystemExit)

#: Characters of an exception that an error repeats; the log has all of it.
_SAID = 1000
_OURS = os.path.join(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")), "")
_LIBRARIES = tuple(
    os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "purelib", "platlib")
)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
#: TensorFlow's account of what failed inside a ``tf.function``: a line for each frame, then
#: the exception.
_IN_GRAPH = "in user code:"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
#: Keras puts this behind an exception of a layer, with everything that it was called with.
_KERAS_MORE = "Arguments received by"


def function_failed(spec: str, error: BaseException, option: str = "--model") -> ConversionError:
    """The error of a person's own code that raised something: what, and in which line."""
    place = line_of(error)
    return ConversionError(
        f"{option} {spec} failed",
        why=said_of(error) + (f" ({place})" if place else ""),
        hint="run it in Python first",
        id="model-function-failed",
    )


def said_of(error: BaseException) -> str:
    """An exception in one line, without what TensorFlow and Keras put around it."""
    text = _COLOR.sub("", str(error)).partition(_KERAS_MORE)[0].strip()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if lines and lines[0] == _IN_GRAPH:
        return lines[-1][:_SAID]  # with its own class before it
    return f"{type(error).__name__}: {' '.join(lines)[:_SAID] or 'it says nothing more'}"


def line_of(error: BaseException) -> str:
    """The last line of the person's own on the way to an exception: ``train.py:12``.

    Empty where no line of a traceback is anybody's but ours and the libraries'.
    """
    if isinstance(error, SyntaxError):
        return ""  # what it says has the line
    if _is_of_graph(error):
        places = [(path, int(line)) for path, line in _FRAME.findall(str(error))]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        places = [(one.filename, one.lineno or 0) for one in frames]
    own = [(path, line) for path, line in places if _is_own(path)]
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""


def print_own(error: BaseException) -> None:
    """Print a traceback from the person's first line on; the whole where there is none."""
    if _is_of_graph(error):  # it tells the lines itself; the traceback has those of TensorFlow
        traceback.print_exception(type(error), error, None, chain=False)
        return
    start: TracebackType | None = error.__traceback__
    while start is not None and not _is_own(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    traceback.print_exception(type(error), error, start or error.__traceback__)


def _is_of_graph(error: BaseException) -> bool:
    return str(error).lstrip().startswith(_IN_GRAPH)


def _is_own(path: str) -> bool:
    return not path.startswith((_OURS, *_LIBRARIES, "<")) and "__autograph_generated" not in path
