"""``ps://host:port``: the live parameters of a training, through its gateway, as a source.

All that a source hands out is of one snapshot: the first answer names it, and every later
request asks for that very one. Only the rows that are wanted are sent. What the gateway
says is checked like a file. Knows what the gateway's paths answer (docs/serve-ps.md), and not how
it is reached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats.npy import PREAMBLE_BYTES, header_end, read_header
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.model import KINDS, Shard, Variable
from ckpttool.sources.base import Read
from ckpttool.sources.listed import ListedSource, require_fit
from ckpttool.sources.ps_gateway import Gateway, malformed
from ckpttool.sources.selection import Selection
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved

__all__ = ["PsSource", "open_resolved"]

_PIECE_BYTES = 4 * 2**20
_HEADER_BYTES = 2**16


def open_resolved(resolved: Resolved, limits: Limits) -> PsSource:
    """Ask the gateway that an address names; raises as `PsSource`."""
    return PsSource(resolved, limits)


class PsSource(ListedSource):
    """A snapshot of a training.

    Raises:
        UsageError: id ``gateway-url``.
        UnreachableError: ids ``gateway-unreachable``, ``gateway-failed``.
        PermissionDeniedError: id ``gateway-token``.
        RefusedError: id ``token-in-clear``.
        CorruptError: id ``gateway-answer``. LimitError: id ``limit-gateway``, ``limit-entries``.
    """

    def __init__(self, resolved: Resolved, limits: Limits) -> None:
        self._gateway = Gateway(resolved.address)
        super().__init__(open_directory("."), resolved, limits, kind="ps")
        self._tag: str | None = None
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._gateway.close()
        super().close()

    def shards(self) -> Sequence[Shard]:
        return ()

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        """One read of the gateway: the selected elements."""
        size = variable.nbytes
        if variable.dtype != "string":
            size = selection.size * self._fixed(variable).size
        yield Read(self.location, 0, size)

    def _load(self) -> None:
        with self._gateway.get("/v1/variables") as answer:
            limit = self._limits.gateway_list_bytes
            data = answer.read(limit + 1)
            if len(data) > limit:
                raise LimitError(
                    f"the list of variables of {self.address} is over a limit",
                    why=f"it has more than {limit} bytes",
                    hint="if the gateway is trusted, raise gateway_list_bytes in CKPTTOOL_LIMITS",
                    id="limit-gateway",
                )
            tag = answer.headers.get("ETag", "")
        try:
            said = json.loads(data)
            snapshot, listed = said["snapshot"], said["variables"]
            if len(listed) > self._limits.entries:
                raise LimitError(
                    f"{self.address} has too many variables",
                    why=f"it lists {len(listed)}, and the limit is {self._limits.entries}",
                    hint="if the gateway is trusted, raise entries in CKPTTOOL_LIMITS",
                    id="limit-entries",
                )
            variables = [self._variable(one) for one in listed]
            style, step, number = said["style"], snapshot["step"], snapshot["number"]
            if style not in {"name", "object", None}:
                raise ValueError(f"the style {style!r}")
            if len({one.key for one in variables}) < len(variables):
                raise ValueError("a variable is listed twice")
            self.step = None if step is None else _integer(step)
            self.number = _integer(number)
            if not snapshot["consistent"]:
                self.notes.append(
                    f"snapshot {self.number} is not of one moment: training went on meanwhile"
                )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._odd(f"its list of variables is malformed: {error}"[:300]) from None
        if not tag:
            raise self._odd("its answer names no snapshot")
        self._tag, self.style = tag, style
        self.publish(variables)

    def _variable(self, one: Any) -> Variable:  # noqa: ANN401 - JSON
        shape = tuple(map(_integer, one["shape"]))
        name, key, dtype, kind = one["name"], one["key"], one["dtype"], one["kind"]
        if not all(isinstance(text, str) for text in (name, key, dtype)):
            raise ValueError("a name is no text")
        for text in (name, key, dtype):
            text.encode("utf-8", "surrogateescape")  # half a character is no text either
        if kind not in KINDS or len(shape) > self._limits.rank or any(n < 0 for n in shape):
            raise ValueError(f"the variable {name!r}")
        variable = Variable(name, key, dtype, shape, _integer(one["bytes"]), None, None, kind)
        require_fit(variable)
        return variable

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:  # noqa: ARG002 - TCP has checksums of its own
        size = self._fixed(variable).size
        with self._values(variable, selection) as answer:
            start = _exactly(answer, PREAMBLE_BYTES)
            length = header_end(start)
            if length > _HEADER_BYTES:
                raise self._odd(f"the header of {variable.name} has {length} bytes")
            head = read_header(start + _exactly(answer, length - PREAMBLE_BYTES))
            if head.shape != tuple(axis.length for axis in selection.axes):
                raise self._odd(f"{variable.name} came in the shape {head.shape}"[:300])
            left = selection.size * size
            if head.fortran_order or answer.length not in {None, left}:
                raise self._odd(f"{variable.name} came with {answer.length} bytes of {left}")
            step = _PIECE_BYTES // size * size
            while left:
                piece = _exactly(answer, min(step, left))
                left -= len(piece)
                yield piece

    def _strings(self, variable: Variable, selection: Selection, *, check: bool) -> list[bytes]:  # noqa: ARG002 - as above
        what = f"reading {variable.name}"
        require_bounded(what, selection.size, 0, self._limits)
        strings: list[bytes] = []
        held = 0
        with self._values(variable, selection) as answer:
            for _ in range(selection.size):
                length = int.from_bytes(_exactly(answer, 8), "little")
                held += length
                require_bounded(what, selection.size, held, self._limits)
                strings.append(_exactly(answer, length))
        return strings

    @contextmanager
    def _values(self, variable: Variable, selection: Selection) -> Iterator[HTTPResponse]:
        asked = {"name": variable.key}
        if not selection.is_whole:
            asked["index"] = _index(selection)
        query = urlencode(asked, quote_via=quote, errors="surrogateescape")
        with self._gateway.get(f"/v1/values?{query}", {"If-Match": self._tag or ""}) as answer:
            dtype = answer.headers.get("Ckpttool-Dtype")
            if dtype != variable.dtype:
                raise self._odd(f"{variable.name} came as {dtype}, and was listed as another")
            yield answer

    def _odd(self, why: str) -> CorruptError:
        return malformed(self.address, why)


def _index(selection: Selection) -> str:
    """What stands between the brackets; a dropped axis is a range of one."""
    words = []
    for axis in selection.axes:
        stop = axis.start + axis.length * axis.step
        if not axis.length:
            words.append("0:0")
        else:
            words.append(f"{axis.start}:{stop if stop >= 0 else ''}:{axis.step}")
    return ",".join(words)


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number"[:100])
    return value


def _exactly(answer: HTTPResponse, count: int) -> bytes:
    data = answer.read(count)
    if len(data) < count:
        raise HTTPException(f"the answer ends {count - len(data)} bytes early")
    return data
