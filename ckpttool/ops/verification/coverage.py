"""How much was checked: variables whose every byte was compared, and those bytes.

A partitioned variable counts as one, and only when all of its parts were compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckpttool.ops.verification.contents import Contents
from ckpttool.ops.verification.extents import Extents

__all__ = ["Coverage"]


class Coverage:
    """Starts from everything that an index lists, and takes off what is lost.

    Attributes:
        nbytes: bytes compared so far.
        variables: variables that are listed and not lost.
    """

    def __init__(self, contents: Contents, incomplete: set[bytes]) -> None:
        """``incomplete``: keys of partitioned variables of which parts are missing."""
        self._owners = {
            part.ordinal: part.owner for part in contents.parts.values() if part.owner is not None
        }
        self._lost_owners = set(incomplete)
        self._lost = contents.nowhere
        self._listed = contents.entries - len(self._owners)
        self.nbytes = 0

    @property
    def listed(self) -> int:
        """Variables that the index lists."""
        return self._listed

    @property
    def variables(self) -> int:
        """Variables of which nothing is lost."""
        return self._listed - self._lost - len(self._lost_owners)

    def lose(self, extents: Extents, positions: Iterable[int]) -> None:
        """Take off the variables that lie, or have a part, at some positions."""
        for position in positions:
            owner = self._owners.get(extents.ordinals[position])
            if owner is None:
                self._lost += 1
            else:
                self._lost_owners.add(owner)
