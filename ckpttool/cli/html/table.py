"""The table of variables: every figure, a small histogram, and what sorts and filters it."""

from __future__ import annotations

from collections.abc import Iterator

from ckpttool.cli.html.markup import exact, histogram, number, text
from ckpttool.cli.screen import bytes_text
from ckpttool.model import KINDS, shape_text
from ckpttool.ops.report import Report, ReportRow

__all__ = ["variables_table"]

#: Title, and whether the column holds numbers.
_COLUMNS = (
    ("name", False),
    ("kind", False),
    ("dtype", False),
    ("shape", False),
    ("parameters", True),
    ("size", True),
    ("values", False),
    ("min", True),
    ("max", True),
    ("mean", True),
    ("std", True),
    ("norm", True),
    ("zeros", True),
    ("bad", True),
)


def variables_table(report: Report) -> Iterator[str]:
    """The section with the table; without variables, nothing."""
    if not report.rows:
        return
    yield '<section id="variables">\n<h2>Variables</h2>\n'
    if report.left_out:
        yield (
            f"<p>The largest of {len(report.rows) + report.left_out:,}, and those with NaN, Inf "
            f"or an error; {report.left_out:,} smaller ones are not shown.</p>\n"
        )
    yield from _controls(report)
    yield '<div class="scroll">\n<table class="variables">\n<thead><tr>'
    for title, numeric in _COLUMNS:
        # The script puts buttons into the titles: without it they would do nothing.
        align = ' class="n"' if numeric else ""
        yield f'<th scope="col"{align}>{title}</th>'
    yield "</tr></thead>\n<tbody>\n"
    for row in report.rows:
        yield _row(row)
    yield "</tbody>\n</table>\n</div>\n</section>\n"


def _controls(report: Report) -> Iterator[str]:
    """What filters; the script shows it."""
    kinds = {row.variable.kind for row in report.rows}
    yield (
        '<div class="controls" hidden>\n<input type="search" placeholder="Filter by name, dtype '
        'or shape" aria-label="Filter the variables">\n'
    )
    for kind in KINDS:
        if kind in kinds and len(kinds) > 1:
            yield (
                f'<button type="button" class="{kind}" data-kind="{kind}" aria-pressed="false">'
                f"{kind}</button>\n"
            )
    if report.bad:
        yield '<button type="button" data-bad aria-pressed="false">NaN or Inf</button>\n'
    yield '<output aria-live="polite"></output>\n</div>\n'


def _row(row: ReportRow) -> str:
    variable, figures = row.variable, row.figures
    head = (
        f'<th scope="row" class="name">{text(variable.name)}</th>'
        f'<td><span class="kind {variable.kind}">{variable.kind}</span></td>'
        f"<td>{text(variable.dtype)}</td><td>{shape_text(variable.shape)}</td>"
    )
    sizes = (
        f'<td class="n">{exact(variable.parameters, number(variable.parameters))}</td>'
        f'<td class="n">{exact(variable.nbytes, bytes_text(variable.nbytes))}</td>'
    )
    if figures is None:
        why = f'<span class="badge error">error</span> {text(row.error)}' if row.error else ""
        return f'<tr data-kind="{variable.kind}">{head}{sizes}<td colspan="8">{why}</td></tr>\n'
    cells = "".join(
        f'<td class="n">{exact(value, number(value))}</td>'
        for value in (
            *(figures.minimum, figures.maximum, figures.mean, figures.std, figures.norm),
            figures.zeros,
        )
    )
    words = [f"{n:,} {word}" for n, word in ((figures.nan, "NaN"), (figures.inf, "Inf")) if n]
    bad = f'<td class="n bad">{exact(figures.nan + figures.inf, ", ".join(words))}</td>'
    mark = " data-bad" if figures.bad else ""
    return (
        f'<tr data-kind="{variable.kind}"{mark}>{head}{sizes}'
        f"<td>{histogram(figures.histogram)}</td>{cells}{bad}</tr>\n"
    )
