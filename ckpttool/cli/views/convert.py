"""How ``convert`` looks: what was made and what it computes, the check; and ``--list``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.targets import Requirement
from ckpttool.errors import ResultDiffersError
from ckpttool.ops.convert import ConvertResult, Offer

__all__ = ["ConvertView", "OffersView"]

#: Figures that are shown, and what they are called in a table.
_SHOWN = {
    "nrmse": "NRMSE",
    "cosine": "cosine",
    "max_rel": "max error/max",
    "argmax": "same argmax",
    "equal": "equal",
}
_COLORS = {"passed": "green", "failed": "bold red", "not_run": "yellow"}


class ConvertView(View):
    """What was made, or would be.

    In a pipe: lines ``input SIGNATURE NAME DTYPE[SHAPE]``, ``output …``, ``file PATH BYTES``,
    ``report PATH``, ``metric SIGNATURE OUTPUT FIGURE VALUE`` and ``check STATE HOW WHY``.
    """

    command = "convert"

    def __init__(self, result: ConvertResult) -> None:
        self._result = result

    @property
    def exit_code(self) -> int:
        return ResultDiffersError.exit_code if self._result.check.state == "failed" else 0

    @property
    def warnings(self) -> Sequence[str]:
        result = self._result
        said = list(result.warnings)
        if result.check.state == "not_run" and result.outputs:
            said.append(f"the result is not proven: {result.check.why}")
        if result.check.state == "failed":
            said.append(f"{result.destination} differs from {result.source}: {result.check.why}")
        return said

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "source": result.source,
            "destination": result.destination,
            "target": result.target,
            "graph": result.graph or None,
            "outputs": [{"path": one.path, "bytes": one.nbytes} for one in result.outputs],
            "signatures": [_signature(one) for one in result.signatures],
            "check": {
                "state": result.check.state,
                "how": result.check.how,
                "why": result.check.why,
                "metrics": dict(result.check.metrics),
            },
            "report": result.report,
            "applied": result.applied,
            "warnings": list(result.warnings),
        }

    def plain(self) -> Iterator[str]:
        result = self._result
        yield from tab_lines(
            (role, one.name, port.name, port.text.removeprefix(f"{port.name}:"))
            for one in result.signatures
            for role, ports in (("input", one.inputs), ("output", one.outputs))
            for port in ports
        )
        yield from tab_lines(("file", one.path, str(one.nbytes)) for one in result.outputs)
        if result.report is not None:
            yield from tab_lines([("report", result.report)])
        check = result.check
        yield from tab_lines(
            ("metric", signature, output, name, f"{value:.3g}")
            for signature, output, figures in _figures(check.metrics)
            for name in _SHOWN
            if (value := figures.get(name)) is not None
        )
        yield from tab_lines([("check", check.state, check.how, check.why)])

    def human(self, screen: Screen) -> Iterator[object]:
        result = self._result
        rows = [
            (one.name if first else "", role, port.text)
            for one in result.signatures
            for at, (role, ports) in enumerate((("in", one.inputs), ("out", one.outputs)))
            for first, port in _marked(ports, at)
        ]
        if rows:
            columns = [Column("signature"), Column(""), Column("name:dtype[shape]")]
            yield from screen.table(columns, rows)
            yield "\n"
        if result.outputs:
            columns = [Column("file"), Column("bytes", align="right")]
            yield from screen.table(
                columns, ((one.path, bytes_text(one.nbytes)) for one in result.outputs)
            )
            yield "\n"
        measured = list(_figures(result.check.metrics))
        if measured:
            shown = [
                name
                for name in _SHOWN
                if any(_telling(name, figures) for _, _, figures in measured)
            ]
            columns = [Column("checked"), *(Column(_SHOWN[one], align="right") for one in shown)]
            lines = [
                (
                    f"{signature} {output}",
                    *(_number(figures[one]) if _telling(one, figures) else "" for one in shown),
                )
                for signature, output, figures in measured
            ]
            yield from screen.table(columns, lines)
            yield "\n"
        done = "wrote" if result.applied else "looked at" if result.outputs else "would write"
        total = (
            f", {bytes_text(sum(one.nbytes for one in result.outputs))}" if result.outputs else ""
        )
        said = f"{done} {escape(result.destination)} ({result.target}){total}"
        yield screen.text(screen.style(said, "bold"))
        if result.outputs:
            state = screen.style(result.check.state.replace("_", " "), _COLORS[result.check.state])
            yield f"check: {state}\n"
        if result.report is not None:
            yield screen.text(f"report: {escape(result.report)}")


class OffersView(View):
    """``--list``: in a pipe lines ``ROLE NAME yes|no CHECKED NEEDS``, versions after names."""

    command = "convert"

    def __init__(self, found: Sequence[Offer]) -> None:
        self._offers = found

    def data(self) -> Mapping[str, object]:
        return {
            f"{role}s": [_offer(one) for one in self._offers if one.role == role]
            for role in ("source", "target")
        }

    def plain(self) -> Iterator[str]:
        yield from tab_lines(
            (
                one.role,
                one.name,
                "yes" if one.works else "no",
                _checks(one),
                _versions(one.needs),
            )
            for one in self._offers
        )

    def human(self, screen: Screen) -> Iterator[object]:
        for role, title in (("source", "graph from"), ("target", "--to")):
            columns = [
                Column(title),
                Column("what", prose=True),
                Column("works"),
                *([Column("check")] if role == "target" else []),
                Column("needs", drop=1, style="dim"),
            ]
            rows = [
                (
                    one.name,
                    f"{one.title}: {one.holds}" if one.holds else one.title,
                    "yes" if one.works else "no",
                    *([_checks(one)] if role == "target" else []),
                    _versions(one.needs),
                )
                for one in self._offers
                if one.role == role
            ]
            yield from screen.table(columns, rows)
            yield "\n"


def _figures(metrics: Mapping[str, object]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Signature, output and its figures, of every output."""
    for signature, outputs in metrics.items():
        if isinstance(outputs, Mapping):
            for output, figures in outputs.items():
                yield signature, output, figures


def _telling(name: str, figures: Mapping[str, Any]) -> bool:
    """Whether a person is to be shown a figure.

    Floats of a right result are hardly ever equal to the last bit: their share would alarm.
    """
    if name == "equal" and ("float" in figures["dtype"] or "complex" in figures["dtype"]):
        return False
    return figures.get(name) is not None


def _number(value: float) -> str:
    return f"{value:.3g}"


def _marked(ports: Sequence[Port], at: int) -> Iterator[tuple[bool, Port]]:
    """Each port, and whether it is the first of its signature."""
    for number, port in enumerate(ports):
        yield at == 0 and number == 0, port


def _signature(signature: Signature) -> dict[str, object]:
    return {
        "name": signature.name,
        "inputs": list(map(_port, signature.inputs)),
        "outputs": list(map(_port, signature.outputs)),
    }


def _port(port: Port) -> dict[str, object]:
    return {"name": port.name, "dtype": port.dtype or None, "shape": port.shape}


def _offer(offer: Offer) -> dict[str, object]:
    return {
        "name": offer.name,
        "title": offer.title,
        "holds": offer.holds,
        "works": offer.works,
        "checked": offer.checked if offer.role == "target" else None,
        "needs": list(map(_requirement, offer.needs)),
        "runs": list(map(_requirement, offer.runs)),
    }


def _requirement(requirement: Requirement) -> dict[str, object]:
    return {"name": requirement.name, "version": requirement.version}


def _checks(offer: Offer) -> str:
    if offer.role == "source" or not offer.runs:
        return "-"
    return "yes" if offer.checked else "no"


def _versions(needs: Sequence[Requirement]) -> str:
    said = (f"{one.name} {one.version or '(not installed)'}" for one in needs)
    return ", ".join(said) or "nothing"
