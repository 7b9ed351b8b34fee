"""How ``verify`` looks: a verdict a checkpoint, then what was found."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.model import Finding
from ckpttool.ops.verify import NotChecked, Unjudged, VerifyResult

__all__ = ["VerifyView"]

#: Findings of one checkpoint that are printed on a terminal; all are in the other forms.
_SHOWN = 40
_COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}


class VerifyView(View):
    """The results of one address or several."""

    command = "verify"
    record_type = "finding"

    def __init__(self, results: Sequence[VerifyResult | Unjudged]) -> None:
        self._results = results

    @property
    def exit_code(self) -> int:
        """1: damaged; else that of an address that could not be judged; 3: not all checked."""
        if any(result.damaged for result in self._judged):
            return 1
        for result in self._results:
            if isinstance(result, Unjudged):
                return result.error.exit_code
        return 0 if self._healthy else 3

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            f"{result.address} could not be checked: {result.error} [{result.error.id}]"
            for result in self._results
            if isinstance(result, Unjudged)
        )

    def data(self) -> Mapping[str, object]:
        return {
            **self._totals(),
            "findings": [
                _finding(result, finding) for result in self._judged for finding in result.findings
            ],
            "not_checked": [
                _not_checked(result, skipped)
                for result in self._judged
                for skipped in result.not_checked
            ],
            "sources": self._sources(),
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        for result in self._judged:
            for finding in result.findings:
                yield _finding(result, finding)

    def summary(self) -> Mapping[str, object]:
        data = dict(self.data())
        del data["findings"]
        return data

    def plain(self) -> Iterator[str]:
        for result in self._judged:
            checked = result.checked
            verdict = (result.location, _verdict(result), result.level)
            yield from tab_lines([(*verdict, str(checked.variables), str(checked.nbytes))])
            yield from tab_lines(
                (result.location, finding.severity, finding.id, finding.object, finding.message)
                for finding in result.findings
            )
            yield from tab_lines(
                (result.location, "not-checked", "", skipped.object, _why(skipped))
                for skipped in result.not_checked
            )

    def human(self, screen: Screen) -> Iterator[str]:
        for result in self._judged:
            verdict = _verdict(result)
            style = {"healthy": "bold green", "damaged": "bold red"}.get(verdict, "bold yellow")
            yield (
                f"{escape(result.location)}: {screen.style(verdict, style)}  "
                f"{screen.style(_measure(result), 'dim')}\n"
            )
            for finding in result.findings[:_SHOWN]:
                label = screen.style(f"{finding.severity:<8}", _COLORS[finding.severity])
                yield (
                    f"  {label} {escape(finding.object)}: {escape(finding.message)}  "
                    f"{screen.style(f'[{finding.id}]', 'dim')}\n"
                )
            more = len(result.findings) - _SHOWN
            if more > 0:
                yield f"  {more} more findings: see them with --json, or in a pipe\n"
            for skipped in result.not_checked[:_SHOWN]:
                label = screen.style("not checked", "yellow")
                yield f"  {label} {escape(skipped.object)}: {escape(_why(skipped))}\n"

    @property
    def _judged(self) -> list[VerifyResult]:
        return [result for result in self._results if isinstance(result, VerifyResult)]

    @property
    def _healthy(self) -> bool:
        return all(isinstance(result, VerifyResult) and result.healthy for result in self._results)

    def _totals(self) -> dict[str, object]:
        judged = self._judged
        return {
            "healthy": self._healthy,
            "level": judged[0].level,
            "checked": {
                "variables": sum(result.checked.variables for result in judged),
                "bytes": sum(result.checked.nbytes for result in judged),
            },
        }

    def _sources(self) -> list[Mapping[str, object]]:
        return [
            {
                "source": result.address,
                "location": None,
                "healthy": None,
                "checked": None,
                "error": result.error.as_dict(),
            }
            if isinstance(result, Unjudged)
            else {
                "source": result.address,
                "location": result.location,
                "healthy": result.healthy,
                "checked": {
                    "variables": result.checked.variables,
                    "bytes": result.checked.nbytes,
                },
                "error": None,
            }
            for result in self._results
        ]


def _verdict(result: VerifyResult) -> str:
    if result.damaged:
        return "damaged"
    return "healthy" if result.healthy else "not all checked"


def _measure(result: VerifyResult) -> str:
    checked = result.checked
    if result.level == "quick":
        return f"quick, {checked.variables} variables"
    return f"{checked.variables} variables, {bytes_text(checked.nbytes)} read"


def _why(skipped: NotChecked) -> str:
    amounts = []
    if skipped.variables:
        amounts.append(f"{skipped.variables} variable{'s' if skipped.variables > 1 else ''}")
    if skipped.nbytes:
        amounts.append(bytes_text(skipped.nbytes))
    return skipped.why + (f" ({', '.join(amounts)})" if amounts else "")


def _finding(result: VerifyResult, finding: Finding) -> dict[str, object]:
    found: dict[str, object] = {
        "id": finding.id,
        "severity": finding.severity,
        "object": finding.object,
        "message": finding.message,
        "source": result.address,
    }
    if not finding.object.isascii():
        exact = finding.object.encode("utf-8", "surrogateescape")
        if exact.decode("utf-8", "replace") != finding.object:
            found["object_base64"] = b64encode(exact).decode()
    return found


def _not_checked(result: VerifyResult, skipped: NotChecked) -> dict[str, object]:
    return {
        "object": skipped.object,
        "why": skipped.why,
        "variables": skipped.variables,
        "bytes": skipped.nbytes,
        "source": result.address,
    }
