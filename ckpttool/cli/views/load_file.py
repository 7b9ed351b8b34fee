"""How ``load`` looks when it prints no values: what was saved, or would be read.

Apart from ``views/load.py``, so that saving a few rows does not import what printing needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.model import shape_text
from ckpttool.ops.load import RANGES_KEPT, Loaded, Picked, Plan
from ckpttool.ops.save_values import Saved
from ckpttool.policy.words import count

if TYPE_CHECKING:
    from ckpttool.cli.jsontext import Written

__all__ = ["PlanView", "SavedView", "heading"]


class SavedView(View):
    """What was written to a file."""

    command = "load"

    def __init__(self, loaded: Loaded, saved: Saved) -> None:
        self._loaded = loaded
        self._saved = saved

    def data(self) -> Mapping[str, object]:
        saved = self._saved
        return {
            "source": self._loaded.source.location,
            "variables": _variables(self._loaded),
            "output": {"path": saved.path, "format": saved.format, "bytes": saved.nbytes},
            "reads": None,
        }

    def plain(self) -> Iterator[str]:
        for item in self._loaded.items:
            row = (item.name, item.dtype, shape_text(item.shape), self._saved.path)
            yield from tab_lines([row])

    def human(self, screen: Screen) -> Iterator[str]:
        if len(self._loaded.items) == 1:
            yield heading(screen, self._loaded.items[0])
        else:
            columns = [
                Column("variable", style="bold"),
                Column("dtype", drop=2),
                Column("shape"),
                Column("bytes", "right", drop=1),
            ]
            yield from screen.table(columns, map(_saved_row, self._loaded.items))
        saved = self._saved
        yield screen.text(f"saved as {escape(saved.path)} ({bytes_text(saved.nbytes)})")


class PlanView(View):
    """What would be read, with ``--dry-run``."""

    command = "load"

    def __init__(self, loaded: Loaded, plans: Sequence[Plan]) -> None:
        self._loaded = loaded
        self._plans = plans

    def data(self) -> Mapping[str, object]:
        return {
            "source": self._loaded.source.location,
            "variables": _variables(self._loaded),
            "output": None,
            "reads": [
                {
                    "name": plan.item.name,
                    "count": plan.reads,
                    "bytes": plan.nbytes,
                    "ranges": [
                        {"path": part.path, "offset": part.offset, "bytes": part.nbytes}
                        for part in plan.ranges
                    ],
                }
                for plan in self._plans
            ],
        }

    def plain(self) -> Iterator[str]:
        yield from tab_lines(self._rows())

    def human(self, screen: Screen) -> Iterator[object]:
        columns = [
            Column("variable", style="cyan"),
            Column("dtype", drop=1),
            Column("shape", drop=2),
            Column("file"),
            Column("offset", "right"),
            Column("bytes", "right"),
        ]
        # Their directory is that of the checkpoint, which is known.
        rows = (
            (*head, path.rpartition("/")[2], offset, nbytes)
            for *head, path, offset, nbytes in self._rows()
        )
        yield from screen.table(columns, rows)
        for plan in self._plans:
            ranges = len(plan.ranges)
            more = f", the first {ranges} shown" if ranges == RANGES_KEPT else ""
            size = bytes_text(plan.nbytes)
            reads = count(plan.reads, "read")
            yield screen.text(f"{escape(plan.item.name)}: {size} in {reads}{more}")

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for plan in self._plans:
            item = plan.item
            head = (item.name, item.dtype, shape_text(item.shape))
            for part in plan.ranges:
                yield (*head, part.path, str(part.offset), str(part.nbytes))


def _variables(loaded: Loaded) -> Written:
    """The chosen variables without their values."""
    from ckpttool.cli.jsontext import Written
    from ckpttool.ops.value_json import array_pieces

    return Written(array_pieces(loaded, values=False))


def heading(screen: Screen, item: Picked) -> str:
    """The line above a variable: name, dtype, shape, size."""
    size = f"  {bytes_text(item.nbytes)}" if item.nbytes is not None else ""
    name = screen.style(escape(item.name), "bold")
    return screen.text(f"{name}  {item.dtype}  {shape_text(item.shape)}{size}")


def _saved_row(item: Picked) -> tuple[str, ...]:
    size = "" if item.nbytes is None else bytes_text(item.nbytes)
    return item.name, item.dtype, shape_text(item.shape), size
