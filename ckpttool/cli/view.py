"""``View``: how the result of one command looks in every mode of output.

A view turns a result of ``ops/`` into text and plain data. It reads no file and prints
nothing: ``Output.show`` picks the method for the mode and does the printing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from ckpttool.cli.screen import Screen

__all__ = ["View"]


class View:
    """Subclass and override; what is left out keeps the meaning given here.

    Every method may be a generator, so that a million rows are printed without being
    held. ``exit_code`` and ``warnings`` are read after the rows, when all is known.
    """

    #: The command's name: the schema is ``ckpttool.<command>/1``.
    command: ClassVar[str]
    #: The ``type`` of the records of ``--ndjson``.
    record_type: ClassVar[str] = "record"

    @property
    def exit_code(self) -> int:
        """0, or 1 or 3 where the command has such an answer (not an error)."""
        return 0

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know about the result; on stderr, or a member in JSON."""
        return ()

    def data(self) -> Mapping[str, object]:
        """The ``data`` member of ``--json``; a member that is an iterator is streamed."""
        raise NotImplementedError

    def plain(self) -> Iterable[str | bytes]:
        """Pieces of tab-separated lines, line breaks included (``screen.tab_lines``).

        Bytes go out as they are: never to a terminal.
        """
        raise NotImplementedError

    def human(self, screen: Screen) -> Iterable[object]:
        """What to show on a terminal: ready text with its line breaks, or rich objects.

        Text from files must be escaped (``escape``; ``screen.table`` does it for cells).
        """
        del screen
        return self.plain()

    def names(self) -> Iterable[str | bytes]:
        """Pieces of lines for ``-q``: only names; bytes as in ``plain``."""
        raise NotImplementedError

    def records(self) -> Iterable[Mapping[str, object]]:
        """The records of ``--ndjson``, without their ``type``."""
        raise NotImplementedError

    def summary(self) -> Mapping[str, object]:
        """What the last line of ``--ndjson`` says besides ok and warnings."""
        return {}
