"""A function that a person named → the model that it builds.

``module:function`` is imported as Python does, with the working directory first on the
path; ``file.py:function`` is run from that very file. It is the person's own code, asked
for by name: nothing out of a checkpoint ever gets here.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ckpttool.conversion.specs import NamedValue
from ckpttool.errors import ConversionError, UsageError

__all__ = ["build_model", "function_failed", "load_function", "same_directory"]

#: Characters of an exception that an error repeats; the log has all of it.
_SAID = 1000


def build_model(spec: str, arguments: Sequence[NamedValue]) -> Any:  # noqa: ANN401
    """Call the function, and give what it returns.

    Raises:
        UsageError: id ``model-function``: there is no such function, or not with these
            arguments.
        ConversionError: id ``model-function-failed``: it raised something.
    """
    function = load_function(spec)
    given = dict(arguments)
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise UsageError(
            f"--model {spec} cannot be called with {', '.join(given) or 'no arguments'}",
            why=str(error),
            hint="give its arguments with --model-arg NAME=VALUE",
            id="model-function",
        ) from None
    except ValueError:
        pass  # a built-in that does not tell its arguments
    try:
        with same_directory():
            model = function(**given)
    except Exception as error:
        traceback.print_exc()
        raise function_failed(spec, error) from error
    if model is None:
        raise UsageError(
            f"--model {spec} returns nothing",
            why="it has to return the model",
            hint="end it with: return model",
            id="model-function",
        )
    return model


@contextmanager
def same_directory() -> Iterator[None]:
    """Go back to the working directory afterwards: paths that were given are relative to it."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def load_function(spec: str, option: str = "--model") -> Callable[..., Any]:
    """The function that ``module:function`` or ``file.py:function`` names; raises as above.

    ``option`` is the one that named it, for errors.
    """
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(
            f"{option} {spec} cannot be understood",
            why="it has to be MODULE:FUNCTION or FILE.py:FUNCTION",
            hint=f"for example {option} train.py:function",
            id="model-function",
        )
    try:
        with same_directory():
            module = _from_file(where, option) if where.endswith(".py") else _by_name(where, option)
    except UsageError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise function_failed(spec, error, option) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = [one for one, value in vars(module).items() if callable(value) and one[0] != "_"]
        from ckpttool.sources.nearest import nearest

        near = nearest(name, known)
        raise UsageError(
            f"there is no function {name} in {where}",
            why=f"it has {', '.join(known[:10]) or 'none'}",
            hint=f"did you mean: {option} {where}:{near[0]}" if near else "name one of those",
            id="model-function",
        )
    return found  # type: ignore[no-any-return]


def _by_name(name: str, option: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        raise UsageError(
            f"there is no module {name}",
            why=f"it is neither in {os.getcwd()} nor installed",
            hint=f"give the file: {option} path/to/file.py:FUNCTION",
            id="model-function",
        ) from None


def _from_file(path: str, option: str) -> ModuleType:
    if not os.path.isfile(path):
        raise UsageError(
            f"there is no file {path}",
            why=f"{option} names it",
            hint="check the path; it is relative to the working directory",
            id="model-function",
        )
    # What lies beside the file can be imported from it, as when Python runs it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends in .py"
    assert spec.loader is not None, "the name ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def function_failed(spec: str, error: Exception, option: str = "--model") -> ConversionError:
    """The error of a person's own code that raised something: what, and in which line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error)[:_SAID]
    return ConversionError(
        f"{option} {spec} failed",
        why=f"{type(error).__name__}: {said} ({os.path.basename(where.filename)}:{where.lineno})",
        hint="run it in Python first",
        id="model-function-failed",
    )
