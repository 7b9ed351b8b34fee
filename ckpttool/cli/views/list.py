"""How ``list`` looks: a line a variable; the same columns for people and in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.model import Kind, Variable, VariableSlice, shape_text
from ckpttool.ops.list import Listing, Look
from ckpttool.policy.words import plural

__all__ = ["ListView"]

_COLUMNS = (
    Column("name"),
    Column("dtype", drop=3),
    Column("shape"),
    Column("bytes", "right", drop=4),
    Column("shard", "right", drop=1),
    Column("kind", drop=2),
)
#: Shards of one variable that are spelled out.
_SHARDS = 8


class ListView(View):
    """A listing that is still to be read: each mode takes what it needs of it."""

    command = "list"
    record_type = "variable"

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    @property
    def warnings(self) -> Sequence[str]:
        return self._listing.warnings()

    def plain(self) -> Iterator[str | bytes]:
        for piece in self._listing.lines(Look(escape, _middle, _end)):
            if isinstance(piece, str | bytes):
                yield piece
            else:
                yield from tab_lines(map(_cells, piece))

    def names(self) -> Iterator[str | bytes]:
        for piece in self._listing.lines(Look(escape, lambda _: "", lambda _: "\n")):
            if isinstance(piece, str | bytes):
                yield piece
            else:
                yield from tab_lines((variable.name,) for variable in piece)

    def human(self, screen: Screen) -> Iterator[object]:
        yield from screen.table(_COLUMNS, map(_human_cells, self._listing.variables()))
        total = self._listing
        yield screen.style(_totals(total), "dim") + "\n"

    def data(self) -> Mapping[str, object]:
        return {
            "source": self._listing.source,
            "variables": map(_data, self._listing.variables()),
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        return map(_data, self._listing.variables())

    def summary(self) -> Mapping[str, object]:
        total = self._listing
        return {
            "source": total.source,
            "variables": total.count,
            "parameters": total.parameters,
            "bytes": total.nbytes,
        }


def _totals(total: Listing) -> str:
    variables = f"{total.count:,} {plural(total.count, 'variable')}"
    parameters = f"{total.parameters:,} {plural(total.parameters, 'parameter')}"
    return f"{variables}, {parameters}, {bytes_text(total.nbytes)}"


def _cells(variable: Variable) -> tuple[str, ...]:
    return (
        variable.name,
        variable.dtype,
        shape_text(variable.shape),
        str(variable.nbytes),
        _shards(variable),
        variable.kind,
    )


def _middle(variable: Variable) -> str:
    """The columns between the name and the kind, with the tabs around them."""
    return "\t".join(("", *_cells(variable)[1:-1], ""))


def _end(kind: Kind) -> str:
    return f"{kind}\n"


def _human_cells(variable: Variable) -> tuple[str, ...]:
    shards = _shards(variable)
    if variable.slices:
        shards += f" ({len(variable.slices)} slices)"
    return (
        variable.name,
        variable.dtype,
        shape_text(variable.shape),
        bytes_text(variable.nbytes),
        shards,
        variable.kind,
    )


def _shards(variable: Variable) -> str:
    """The shard that holds it; of a partitioned variable all of them; ``-`` for none."""
    if variable.shard is not None:
        return str(variable.shard)
    shards = sorted({part.shard for part in variable.slices or () if part.shard is not None})
    if len(shards) > _SHARDS:
        return f"{shards[0]}-{shards[-1]}"
    return ",".join(map(str, shards)) or "-"


def _data(variable: Variable) -> dict[str, object]:
    key = variable.key
    data: dict[str, object] = {
        "name": variable.name,
        "key": key,
        "dtype": variable.dtype,
        "shape": variable.shape,
        "bytes": variable.nbytes,
        "shard": variable.shard,
        "offset": variable.offset,
        "kind": variable.kind,
        "slices": None if variable.slices is None else list(map(_slice, variable.slices)),
    }
    if not key.isascii() and _is_lossy(key):
        from base64 import b64encode

        data["key_base64"] = b64encode(key.encode("utf-8", "surrogateescape")).decode()
    return data


def _is_lossy(key: str) -> bool:
    """Whether a key has bytes that are not UTF-8, which JSON cannot say."""
    return any("\udc80" <= char <= "\udcff" for char in key)


def _slice(part: VariableSlice) -> dict[str, object]:
    return {"start": part.start, "extent": part.extent, "shard": part.shard}
