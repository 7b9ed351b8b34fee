"""The error of every reader of graphs: a file, or a part of it, that is no such message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckpttool.errors import CorruptError

__all__ = ["graph_malformed", "naming_graph"]


def graph_malformed(path: str, why: str) -> CorruptError:
    """The error of a file that holds no such graph."""
    return CorruptError(
        f"{path} cannot be read as a graph",
        why=why,
        hint="take the file from another copy",
        id="graph-malformed",
    )


@contextmanager
def naming_graph(path: str, part: str = "") -> Iterator[None]:
    """Turn what the wire reader found wrong into the error that names the file.

    Args:
        path: the file.
        part: what was read, before the reason; may be empty.
    """
    try:
        yield
    except CorruptError as error:
        if error.id != "message-malformed":
            raise
        raise graph_malformed(path, f"{part}: {error.why}" if part else error.why) from None
