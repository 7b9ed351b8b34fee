"""What the sources have in common that are one file (or one description) of arrays.

Opens, publishes what the format's reader found, and looks for the step among it. Knows no
format.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError
from ckpttool.model import Variable
from ckpttool.sources.filenames import file_number
from ckpttool.sources.listed import ListedSource
from ckpttool.sources.selection import Selection
from ckpttool.sources.step import step_among

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.base import SourceKind
    from ckpttool.storage.base import Directory

__all__ = ["ArrayFileSource"]


class ArrayFileSource(ListedSource):
    """An open file of arrays; a subclass says which, by `_load`.

    Args:
        directory: where its files lie; the source closes it.
        resolved: what the address came to.
        limits: bounds on what its files may claim.
        kind: what `inspect` calls it.

    Raises:
        CkpttoolError: what `_load` does.
    """

    def __init__(
        self, directory: Directory, resolved: Resolved, limits: Limits, kind: SourceKind
    ) -> None:
        super().__init__(directory, resolved, limits, kind=kind)
        try:
            self.publish(self._load(resolved.prefix))
            self.number = file_number(os.path.splitext(resolved.prefix)[0])
            step = step_among(self._variables, self._scalar)
            self.step = self.number if step is None else step
        except CkpttoolError:
            self.close()
            raise

    @abstractmethod
    def _load(self, name: str) -> Iterable[Variable]:
        """Open the file of this name, read what is in it, and give its variables."""

    def _scalar(self, variable: Variable) -> bytes:
        return b"".join(self.chunks(variable, Selection.whole(())))
