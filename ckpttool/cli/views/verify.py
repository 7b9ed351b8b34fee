"""How ``verify`` looks: a verdict a checkpoint, then what was found."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.cli.views.findings import ALIKE, NOT_CHECKED, caller, finding_lines, label_width
from ckpttool.model import Finding
from ckpttool.ops.verification.report import NO_CHECKSUMS
from ckpttool.ops.verify import NotChecked, Unjudged, VerifyResult
from ckpttool.policy.words import count

__all__ = ["VerifyView"]


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
                (
                    result.location,
                    finding.severity,
                    finding.id,
                    _called(result, finding.object),
                    finding.message,
                )
                for finding in result.findings
            )
            yield from tab_lines(
                (result.location, "not-checked", "", _called(result, skipped.object), _why(skipped))
                for skipped in result.not_checked
            )

    def human(self, screen: Screen) -> Iterator[str]:
        for result in self._judged:
            verdict = _verdict(result)
            style = {"healthy": "bold green", "damaged": "bold red"}.get(verdict, "bold yellow")
            yield screen.text(
                f"{escape(result.location)}: {screen.style(verdict, style)}  "
                f"{screen.style(_measure(result), 'dim')}"
            )
            called = caller(result.names, result.location)
            skipped = [NOT_CHECKED] if result.not_checked else []
            width = label_width(result.findings, *skipped)
            yield from finding_lines(result.findings, screen, called=called, indent=2, width=width)
            yield from _not_checked_lines(result.not_checked, screen, called, width)
        if any(result.findings for result in self._judged):
            hint = "ckpttool explain ID says more about what is in brackets"
            yield screen.text(screen.style(hint, "dim"), hang=0)

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


def _called(result: VerifyResult, object: str) -> str:
    """What the object of a finding is called."""
    return result.names.get(object, object)


def _verdict(result: VerifyResult) -> str:
    if result.damaged:
        return "damaged"
    if result.healthy:
        return "healthy"
    return "no damage found" if _only_read(result) else "not all checked"


def _only_read(result: VerifyResult) -> bool:
    """Whether all of it was read, and only has no checksums to be compared with."""
    return all(skipped.why == NO_CHECKSUMS for skipped in result.not_checked)


def _measure(result: VerifyResult) -> str:
    unsummed = [skipped for skipped in result.not_checked if skipped.why == NO_CHECKSUMS]
    variables = result.checked.variables + sum(skipped.variables for skipped in unsummed)
    nbytes = result.checked.nbytes + sum(skipped.nbytes for skipped in unsummed)
    if result.level == "quick":
        return f"quick, {count(variables, 'variable')}"
    return f"{count(variables, 'variable')}, {bytes_text(nbytes)} read"


def _not_checked_lines(
    not_checked: Sequence[NotChecked], screen: Screen, called: Callable[[str], str], width: int
) -> Iterator[str]:
    """The first few things of each reason; a thousand variables have one in common."""
    by_reason: dict[str, list[NotChecked]] = {}
    for skipped in not_checked:
        by_reason.setdefault(skipped.why, []).append(skipped)
    label = screen.style(f"{NOT_CHECKED:<{width}}", "yellow")
    for alike in by_reason.values():
        shown = alike if len(alike) == ALIKE + 1 else alike[:ALIKE]
        for skipped in shown:
            line = f"  {label}  {escape(called(skipped.object))}: {escape(_why(skipped))}"
            yield screen.text(line, hang=width + 4)
        if more := len(alike) - len(shown):
            yield screen.style(f"  {'':{width}}  and {more} more (--json has all)", "dim") + "\n"


def _why(skipped: NotChecked) -> str:
    amounts = []
    if skipped.variables:
        amounts.append(count(skipped.variables, "variable"))
    if skipped.nbytes:
        amounts.append(bytes_text(skipped.nbytes))
    return skipped.why + (f" ({', '.join(amounts)})" if amounts else "")


def _finding(result: VerifyResult, finding: Finding) -> dict[str, object]:
    found: dict[str, object] = {
        "id": finding.id,
        "severity": finding.severity,
        "object": finding.object,
        "name": _called(result, finding.object),
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
        "name": _called(result, skipped.object),
        "why": skipped.why,
        "variables": skipped.variables,
        "bytes": skipped.nbytes,
        "source": result.address,
    }
