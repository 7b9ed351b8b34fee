"""Findings for people: the first few of each id, aligned, and where to read more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Screen
from ckpttool.model import Finding

__all__ = ["ALIKE", "NOT_CHECKED", "caller", "finding_lines", "label_width"]

#: Findings of one id that are spelled out; one more is, where only one would be left.
ALIKE = 3
NOT_CHECKED = "not checked"
_COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}
#: What stands for the findings that were only counted (`ops.verification.report`).
_COUNTED = "…"


def finding_lines(
    findings: Sequence[Finding],
    screen: Screen,
    *,
    called: Callable[[str], str],
    indent: int = 0,
    width: int | None = None,
) -> Iterator[str]:
    """The lines of findings, which come sorted by severity.

    Args:
        findings: all that there are; what is not shown is counted.
        screen: where to.
        called: what an object is called (`caller`).
        indent: columns before each line.
        width: columns of the severities; None: as many as these need.
    """
    width = label_width(findings) if width is None else width
    margin = " " * indent
    by_id: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        by_id.setdefault((finding.severity, finding.id), []).append(finding)
    for (severity, id), alike in by_id.items():
        counted = [finding for finding in alike if finding.object == _COUNTED]
        spelled = [finding for finding in alike if finding.object != _COUNTED]
        tag = screen.style(f"[{id}]", "dim")
        shown = spelled if len(spelled) == ALIKE + 1 else spelled[:ALIKE]
        for finding in shown:
            name = escape(called(finding.object))
            label = screen.style(f"{severity:<{width}}", _COLORS[severity])
            yield screen.text(
                f"{margin}{label}  {name}: {escape(finding.message)}  {tag}",
                hang=indent + width + 2,
            )
        more = len(spelled) - len(shown)
        if more or counted:
            text = " and ".join([f"{more} more", *(finding.message for finding in counted)])
            line = f"{margin}{'':{width}}  and {text} (--json has all)"
            yield screen.style(f"{line}  [{id}]", "dim") + "\n"


def caller(names: Mapping[str, str], location: str) -> Callable[[str], str]:
    """What objects of findings are called for people.

    Args:
        names: object → what ``list`` calls it, where that is something else.
        location: the checkpoint, which stands above the findings: its files need no path.
    """
    folder = location[: location.rfind("/") + 1]

    def called(object: str) -> str:
        return names.get(object) or object.removeprefix(folder) or object

    return called


def label_width(findings: Sequence[Finding], *others: str) -> int:
    """Columns of the longest severity, and of other words that stand below them."""
    return max(map(len, [*others, *{finding.severity for finding in findings}]), default=0)
