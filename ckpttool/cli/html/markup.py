"""Text as HTML that can do no harm, and the small drawings of a report.

Everything that comes out of a file goes through `text`: first what cannot be seen is made
visible, as on a terminal, then the characters that HTML gives a meaning are escaped. Style
attributes are not used, for the page's policy forbids them: drawings are SVG, whose
geometry is in attributes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as html_escape

from ckpttool.cli.escape import clip, escape
from ckpttool.ops.figures.model import Histogram, Number

__all__ = ["exact", "histogram", "number", "share_bar", "text"]

_WIDTH, _HEIGHT = 80, 20


def text(value: str) -> str:
    """Text from a file, for an element or for an attribute in double quotes."""
    return html_escape(escape(clip(value)))


def number(value: Number | None) -> str:
    """A number for people: four digits, and whole numbers whole while they are short."""
    if value is None:
        return "–"
    if (isinstance(value, int) and abs(value) < 10**12) or 10**3 <= abs(value) < 10**7:
        shown = f"{value:,.0f}"
    else:
        shown = f"{value:.4g}"
    return shown.replace("-", "\N{MINUS SIGN}")


def exact(value: Number | None, shown: str) -> str:
    """A number as it is shown, with its exact value for the script that sorts."""
    return f'<data value="{"" if value is None else repr(value)}">{shown}</data>'


def histogram(found: Histogram | None) -> str:
    """A histogram as bars of equal width, which say in words what they show.

    Nothing where there is but one bin, for that shows nothing.
    """
    if found is None or len(found.counts) == 1:
        return ""
    bars = _bars(found.counts)
    low, high = number(found.edges[0]), number(found.edges[-1])
    label = f"{sum(found.counts):,} values from {low} to {high}"
    return (
        f'<svg class="histogram" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none" role="img" '
        f'aria-label="{label}"><path d="{bars}"/></svg>'
    )


def _bars(counts: Sequence[int]) -> str:
    most = max(counts) or 1
    step = min(_WIDTH / len(counts), _WIDTH / 4)
    path = []
    for place, count in enumerate(counts):
        if count:
            height = max(1.0, round(count / most * _HEIGHT, 1))
            path.append(f"M{place * step:g} {_HEIGHT}v-{height:g}h{step - 0.5:g}v{height:g}z")
    return "".join(path)


def share_bar(share: float, css_class: str = "") -> str:
    """A share of a whole as a horizontal bar."""
    return (
        f'<svg class="share {css_class}" viewBox="0 0 100 8" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect class="rest" width="100" height="8"/>'
        f'<rect class="part" width="{share * 100:.1f}" height="8"/></svg>'
    )
