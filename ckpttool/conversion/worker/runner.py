"""``Runner``: a result opened in its own runtime, to be run for the check.

One module a target, ``run_X.py``, with ``open_result(path) -> Runner``. It raises
``ConverterMissingError`` where the runtime is not installed and ``UnsupportedError`` where
the runtime cannot run this result: then the check says that it was not made. Whatever else
it raises is a failed check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ckpttool.conversion.ports import Signature

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Runner"]


class Runner(Protocol):
    """A result that can be run."""

    @property
    def runtime(self) -> str:
        """The distribution (or program) that runs it: ``onnxruntime``, ``node``."""
        ...

    def signatures(self) -> Sequence[Signature]:
        """What it takes and gives, as it says itself; one that has no name is called ``""``."""
        ...

    def run(self, signature: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it once.

        Args:
            signature: its name, as ``signatures`` gives it.
            feeds: every input by the name that the result has for it. Of the port's dtype
                where that is a number of the same kind (int64 for an int32 port comes as
                int32); a quantised integer port gets real numbers, which the runner
                quantises by the port's scale and zero point. Strings are objects (bytes).

        Returns:
            Every output by the result's own name, quantised ones de-quantised.
        """
        ...
