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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ckpttool.conversion.specs import NamedValue
from ckpttool.conversion.worker.own_code import FAILURES, function_failed, print_own
from ckpttool.errors import UsageError

__all__ = ["build_model", "load_function", "require_callable", "same_directory"]


def build_model(spec: str, arguments: Sequence[NamedValue]) -> Any:  # noqa: ANN401
    """Call the function, and give what it returns.

    Raises:
        UsageError: id ``model-function``: there is no such function, or not with these
            arguments.
        ConversionError: id ``model-function-failed``: it raised something.
    """
    function = load_function(spec)
    given = dict(arguments)
    require_callable(function, spec, given)
    try:
        with same_directory():
            model = function(**given)
    except FAILURES as error:
        print_own(error)
        raise function_failed(spec, error) from error
    if model is None:
        raise UsageError(
            f"--model {spec} returns nothing",
            why="it has to return the model",
            hint="end it with: return model",
            id="model-function",
        )
    return model


def require_callable(
    function: Callable[..., Any],
    spec: str,
    given: Mapping[str, object],
    option: str = "--model",
    hint: str = "give its arguments with --model-arg NAME=VALUE",
) -> None:
    """Check that a function can be called with these arguments.

    Raises:
        UsageError: id ``model-function``.
    """
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise UsageError(
            f"{option} {spec} cannot be called with {', '.join(given) or 'no arguments'}",
            why=str(error),
            hint=hint,
            id="model-function",
        ) from None
    except ValueError:
        pass  # a built-in that does not tell its arguments


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
    except FAILURES as error:
        print_own(error)
        raise function_failed(spec, error, option) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = [one for one, value in vars(module).items() if callable(value) and one[0] != "_"]
        from ckpttool.sources.nearest import nearest

        near = nearest(name, known)
        raise UsageError(
            f"there is no function {name} in {where}"
            if found is None
            else f"{name} in {where} is no function, but of the type {type(found).__name__}",
            why=f"it has the functions {', '.join(known[:10])}" if known else "it has no function",
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
