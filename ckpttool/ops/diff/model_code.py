"""Which code builds the model of ``diff --model``, and what its child may take. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from ckpttool.errors import UsageError

__all__ = ["ModelCode", "model_code"]


class _Details(TypedDict, total=False):
    arguments: tuple[str, ...]
    root: str | None
    inputs: tuple[str, ...]
    seconds: float | None
    memory: int | None
    log: str | None
    said: Callable[[str], None] | None


@dataclass(frozen=True, slots=True)
class ModelCode:
    """The code that builds a model, and the child that runs it; words as ``convert`` takes.

    Attributes:
        function: ``module:function`` or ``file.py:function``.
        arguments: ``name=value``, of that function.
        root: the attribute under which the checkpoint has the model; None: found.
        inputs: what the model is called with, where it does not say it.
        seconds: time for the child; None: as the limits say.
        memory: bytes for the child; None: as the limits say.
        log: where its output is kept; None: only on failure.
        said: told the last lines of the output when the child fails.
    """

    function: str
    arguments: tuple[str, ...] = ()
    root: str | None = None
    inputs: tuple[str, ...] = ()
    seconds: float | None = None
    memory: int | None = None
    log: str | None = None
    said: Callable[[str], None] | None = None


#: Detail → the option that gives it.
_OPTIONS = {
    "arguments": "--model-arg",
    "root": "--root",
    "inputs": "--input",
    "seconds": "--timeout",
    "memory": "--memory",
    "log": "--log",
}


def model_code(function: str | None, **details: Unpack[_Details]) -> ModelCode | None:
    """The code that options name; None where there is none.

    Raises:
        UsageError: id ``options-contradict``: a detail without a function.
    """
    if function is not None:
        return ModelCode(function, **details)
    for name, value in details.items():
        if name in _OPTIONS and value not in {None, ()}:
            raise UsageError(
                f"{_OPTIONS[name]} means nothing without --model",
                why="it is about the code that builds a model, and the process that runs it",
                hint="ckpttool diff --help",
                id="options-contradict",
            )
    return None
