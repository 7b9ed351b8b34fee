"""A treemap: nested rectangles whose areas are the sizes of scopes and variables.

Layout and drawing are pure. Rectangles are made as square as can be (Bruls, Huizing and
van Wijk, "Squarified Treemaps", 2000). What would be too small to see is drawn as one with
its neighbours, so that a model of a million variables is some hundred rectangles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.cli.html.markup import text
from ckpttool.ops.scopes import Scope
from ckpttool.policy.words import count, plural

__all__ = ["Box", "Tile", "squarified", "tile_of", "treemap"]

#: The least share of the whole map that is a rectangle of its own.
_LEAST = 1 / 700
_DEPTH = 6
#: A variable that is smaller is one tile with its slots.
_LEAST_SIDE = 12
_HEADER = 17
_PADDING = 3
#: What a character takes, on average, in the font of the labels, and a line.
_CHAR, _LINE = 6.8, 14


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """Its area; nothing where padding has eaten it up."""
        return max(self.width, 0) * max(self.height, 0)


@dataclass(frozen=True, slots=True)
class Tile:
    """A scope or a variable of the map.

    Attributes:
        name: its part of the name.
        path: its whole name.
        size: its area.
        kind: what most of it is for.
        variables: how many there are in it.
        inner: what is in it, the largest first.
        slots: whether it is a variable and what belongs to it, which need no heading.
    """

    name: str
    path: str
    size: int
    kind: str
    variables: int
    inner: tuple[Tile, ...]
    slots: bool = False


def tile_of(scope: Scope, path: str = "") -> Tile:
    """The tiles of a tree of scopes, sized by parameters; recursive, as deep as the tree."""
    inner = [
        tile_of(below, f"{path}/{below.name}" if path else below.name) for below in scope.inner
    ]
    variable = scope.variable
    own = scope.parameters - sum(tile.size for tile in inner)
    if variable is not None and inner:
        inner.append(Tile(scope.name, path, own, variable.kind, 1, ()))
    kinds: dict[str, int] = {}
    for tile in inner:
        kinds[tile.kind] = kinds.get(tile.kind, 0) + tile.size
    kind = max(kinds, key=kinds.__getitem__) if kinds else (variable.kind if variable else "other")
    shown = tuple(sorted((t for t in inner if t.size), key=lambda tile: (-tile.size, tile.path)))
    slots = variable is not None
    return Tile(scope.name, path, scope.parameters, kind, scope.variables, shown, slots)


def squarified(sizes: Sequence[int], box: Box) -> list[Box]:
    """Boxes of areas in proportion to sizes (in falling order, above zero), filling a box."""
    boxes: list[Box] = []
    total = sum(sizes)
    place = 0
    while place < len(sizes):
        if total <= 0 or box.area <= 0:
            boxes += [Box(box.x, box.y, 0, 0)] * (len(sizes) - place)
            break
        scale = box.area / total
        side = min(box.width, box.height)
        end, row = place + 1, sizes[place] * scale
        worst = _worst(row, row, row, side)
        while end < len(sizes):
            added = row + sizes[end] * scale
            ratio = _worst(added, sizes[place] * scale, sizes[end] * scale, side)
            if ratio > worst:
                break
            worst, row, end = ratio, added, end + 1
        found, box = _lay(sizes[place:end], row, scale, box)
        boxes += found
        total -= sum(sizes[place:end])
        place = end
    return boxes


def _worst(row: float, largest: float, least: float, side: float) -> float:
    """How far from a square the worst rectangle of a row along a side is."""
    square = row * row
    return max(side * side * largest / square, square / (side * side * least))


def _lay(sizes: Sequence[int], row: float, scale: float, box: Box) -> tuple[list[Box], Box]:
    """A row along the shorter side of a box, and what is left of the box."""
    boxes = []
    if box.width >= box.height:
        thick, at = row / box.height, box.y
        for size in sizes:
            length = size * scale / thick
            boxes.append(Box(box.x, at, thick, length))
            at += length
        return boxes, Box(box.x + thick, box.y, box.width - thick, box.height)
    thick, at = row / box.width, box.x
    for size in sizes:
        length = size * scale / thick
        boxes.append(Box(at, box.y, length, thick))
        at += length
    return boxes, Box(box.x, box.y + thick, box.width, box.height - thick)


def treemap(root: Tile, width: int, height: int, css_class: str) -> Iterator[str]:
    """The map as SVG; the tiles say in words what they are when they are pointed at."""
    yield (
        f'<svg class="treemap {css_class}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Parameters by scope: {count(root.variables, "variable")}, '
        f'{root.size:,} parameters">'
    )
    yield from _inside(root, Box(0, 0, width, height), root.size, width * height, 0)
    yield "</svg>\n"


def _inside(tile: Tile, box: Box, total: int, area: float, depth: int) -> Iterator[str]:
    """What is in a tile; neighbours too small to be seen are drawn as one."""
    large = [inner for inner in tile.inner if inner.size / tile.size * box.area >= _LEAST * area]
    small = tile.inner[len(large) :]
    sizes = [inner.size for inner in large]
    if small:
        sizes.append(sum(inner.size for inner in small))
    boxes = squarified(sizes, box)
    for inner, place in zip(large, boxes, strict=False):
        yield from _tile(inner, place, total, area, depth)
    if small and boxes[-1].area >= 1:
        rest = Tile(
            f"{len(small)} more",
            f"{len(small)} more in {tile.path}" if tile.path else f"{len(small)} more",
            sizes[-1],
            small[0].kind,
            sum(inner.variables for inner in small),
            (),
        )
        yield from _leaf(rest, boxes[-1], total)


def _tile(tile: Tile, box: Box, total: int, area: float, depth: int) -> Iterator[str]:
    if tile.slots and tile.inner and min(box.width, box.height) > _LEAST_SIDE:
        yield from _inside(tile, box, total, area, depth)
        return
    room = Box(
        box.x + _PADDING,
        box.y + _HEADER,
        box.width - 2 * _PADDING,
        box.height - _HEADER - _PADDING,
    )
    if not tile.inner or depth >= _DEPTH or room.height < _LINE or room.width < 4 * _CHAR:
        yield from _leaf(tile, box, total)
        return
    yield _drawn("scope", tile, box, total, _label(tile.name, box.width - 8), "")
    yield from _inside(tile, room, total, area, depth + 1)


def _leaf(tile: Tile, box: Box, total: int) -> Iterator[str]:
    label = _label(tile.name, box.width - 8) if box.height >= _LINE + 4 else ""
    size = f"{tile.size:,}"
    if not label or box.height < 2 * _LINE + 6 or len(size) * _CHAR > box.width - 8:
        size = ""
    yield _drawn(tile.kind, tile, box, total, label, size)


def _drawn(css_class: str, tile: Tile, box: Box, total: int, label: str, size: str) -> str:
    """A rectangle, with a gap of a unit around it, and its text, which it cuts off."""
    width, height = max(box.width - 1, 0.3), max(box.height - 1, 0.3)
    corner = ' rx="2"' if min(width, height) > 6 else ""
    texts = f'<text x="5" y="13">{label}</text>' if label else ""
    if size:
        texts += f'<text class="size" x="5" y="27">{size}</text>'
    return (
        f'<svg class="{css_class}" x="{box.x + 0.5:.1f}" y="{box.y + 0.5:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}">{_title(tile, total)}'
        f'<rect width="100%" height="100%"{corner}/>{texts}</svg>'
    )


def _title(tile: Tile, total: int) -> str:
    variables = "" if tile.variables == 1 else f", {count(tile.variables, 'variable')}"
    share = tile.size / total
    percent = "&lt;0.1%" if share < 0.001 else f"{share:.1%}"
    name = text(tile.path or tile.name)
    parameters = f"{tile.size:,} {plural(tile.size, 'parameter')}"
    return f"<title>{name}\n{parameters} ({percent}){variables}</title>"


def _label(name: str, room: float) -> str:
    """As much of a name as there is room for; nothing where that would say nothing."""
    fits = int(room / _CHAR)
    if len(name) <= fits:
        return text(name)
    return text(name[: fits - 1]) + "…" if fits >= 4 else ""
