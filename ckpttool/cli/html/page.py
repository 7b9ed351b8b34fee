"""The report as one HTML page that needs nothing from elsewhere.

Its policy (a Content-Security-Policy in the page) allows the style sheet and the script
that are in it, by their hashes, and nothing else: no address is ever asked for anything,
and script that somebody smuggled into a name would not run. Without script everything is
there but sorting and filtering.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice

from ckpttool.cli.html.markup import share_bar, text
from ckpttool.cli.html.table import variables_table
from ckpttool.cli.html.treemap import tile_of, treemap
from ckpttool.cli.screen import bytes_text
from ckpttool.cli.views.findings import caller
from ckpttool.cli.views.graph import signature_rows, writer_text
from ckpttool.cli.views.inspect_human import described
from ckpttool.cli.words import when
from ckpttool.model import KINDS, Shard
from ckpttool.ops.census import Census, Total
from ckpttool.ops.graph_report import MetaReport
from ckpttool.ops.inspect import InspectResult
from ckpttool.ops.report import Report
from ckpttool.ops.run_report import RunReport
from ckpttool.policy.words import count
from ckpttool.version import __version__

__all__ = ["page"]

#: Lines of each sort; what is left out is counted, and there with `inspect --json`.
_PROBLEMS = 300
_CHECKPOINTS = 300
_SHARDS = 100
_TENSORS = 200
#: Variables with NaN or Inf that are named above the table.
_NAMED = 5

_HOME = os.path.dirname(__file__)


def page(report: Report) -> Iterator[str]:
    """The page, in pieces."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    inspected = report.inspected
    checkpoint = inspected.checkpoint
    title = text(_title(inspected))
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="ckpttool {__version__}">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
    )
    yield from _heading(report, title)
    yield from _problems(report)
    if checkpoint is not None:
        yield from _map(checkpoint.census)
        yield from _totals(checkpoint.census)
        yield from _shards(checkpoint.shards)
        if checkpoint.graph is not None:
            yield from _signatures(checkpoint.graph.metas)
    if inspected.run is not None:
        yield from _run(inspected.run)
    if checkpoint is not None:
        yield from variables_table(report)
    yield (
        f"</main>\n<footer>ckpttool {__version__} · figures are of the finite values, and "
        "histograms say how often which values occur</footer>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _title(inspected: InspectResult) -> str:
    """What the page is about, in a word: the checkpoint's name, else that of the address."""
    checkpoint = inspected.checkpoint
    own = checkpoint is not None and checkpoint.kind != "savedmodel"
    path = checkpoint.prefix if checkpoint is not None and own else inspected.address
    return os.path.basename(path.rstrip("/")) or path


def _asset(name: str) -> str:
    with open(os.path.join(_HOME, name), encoding="utf-8") as file:
        return file.read()


def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


# The beginning ----------------------------------------------------------------------------


def _heading(report: Report, title: str) -> Iterator[str]:
    inspected = report.inspected
    checkpoint = inspected.checkpoint
    what = described(checkpoint) if checkpoint else "run"
    where = checkpoint.prefix if checkpoint else inspected.address
    yield (
        f'<header>\n<p class="what">{text(what)}</p>\n<h1>{title}</h1>\n'
        f'<p class="path">{text(where)}</p>\n<dl class="facts">\n'
    )
    for label, value in _facts(report):
        yield f"<div><dt>{label}</dt><dd>{text(value)}</dd></div>\n"
    yield "</dl>\n</header>\n"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    inspected = report.inspected
    checkpoint = inspected.checkpoint
    if inspected.step is not None:
        yield "step", f"{inspected.step:,}"
    if checkpoint is not None:
        total = checkpoint.census.total
        yield "variables", f"{total.variables:,}"
        yield "parameters", f"{total.parameters:,}"
        yield "size", bytes_text(total.nbytes)
        if checkpoint.time is not None:
            yield "written", when(checkpoint.time)
        writer = checkpoint.graph.writer if checkpoint.graph else None
        if writer is not None and (name := writer_text(writer)):
            yield "by", name
    if inspected.run is not None:
        yield "checkpoints", f"{len(inspected.run.checkpoints):,}"


def _problems(report: Report) -> Iterator[str]:
    """What `inspect` finds, and what the values say."""
    found = list(report.inspected.problems)
    serious = report.bad or report.failed or any(one.severity != "note" for one in found)
    yield '<section id="problems">\n<h2>Problems</h2>\n'
    if not serious:
        measured = any(row.figures is not None for row in report.rows)
        extra = "; every number is finite" if measured else ""
        yield f'<p class="good">✓ nothing wrong at a glance{extra}</p>\n'
    yield '<ul class="findings">\n' if found or serious else ""
    if report.failed:
        many = count(report.failed, "variable")
        yield _problem("error", f"{many} cannot be read: see the table", "")
    if report.bad:
        bad = [row for row in report.rows if row.figures is not None and row.figures.bad]
        names = [f'<b class="name">{text(row.variable.name)}</b>' for row in bad[:_NAMED]]
        more = f" and {report.bad - len(names):,} more" if report.bad > len(names) else ""
        yield _problem("error", f"NaN or Inf in {', '.join(names)}{more}", "")
    checkpoint = report.inspected.checkpoint
    called = caller(checkpoint.names, checkpoint.prefix) if checkpoint else str
    for one in found[:_PROBLEMS]:
        message = f'<b class="name">{text(called(one.object))}</b> {text(one.message)}'
        yield _problem(one.severity, message, one.id)
    if (hidden := len(found) - _PROBLEMS) > 0:
        yield _problem("note", f"and {hidden:,} more", "")
    yield "</ul>\n" if found or serious else ""
    yield "</section>\n"


def _problem(severity: str, message: str, id: str) -> str:
    shown = f" <code>{text(id)}</code>" if id else ""
    return (
        f'<li><span class="badge {severity}">{severity}</span> <span>{message}{shown}</span></li>\n'
    )


# What is in it ----------------------------------------------------------------------------


def _map(census: Census) -> Iterator[str]:
    if census.scopes is None or not census.total.parameters:
        return
    root = tile_of(census.scopes)
    yield '<section id="map">\n<h2>Parameters by scope</h2>\n<ul class="legend">\n'
    for kind in KINDS:
        if kind in census.by_kind and census.by_kind[kind].parameters:
            yield f'<li class="{kind}">{kind}</li>\n'
    yield "</ul>\n"
    yield from treemap(root, 1120, 470, "wide")
    yield from treemap(root, 400, 520, "tall")
    yield "</section>\n"


def _totals(census: Census) -> Iterator[str]:
    yield '<section id="totals" class="columns">\n'
    for title, totals in (("kind", census.by_kind), ("dtype", census.by_dtype)):
        yield from _total_table(title, totals)
    yield "</section>\n"


def _total_table(title: str, totals: Mapping[str, Total]) -> Iterator[str]:
    whole = sum(total.nbytes for total in totals.values()) or 1
    yield (
        f'<div>\n<h2>By {title}</h2>\n<table class="totals">\n<thead><tr><th>{title}</th>'
        '<th class="n">variables</th><th class="n">parameters</th><th class="n">size</th>'
        '<th class="n">share</th><th></th></tr></thead>\n<tbody>\n'
    )
    for name, total in totals.items():
        share = total.nbytes / whole
        kind = name if name in KINDS else ""
        yield (
            f'<tr><th scope="row">{text(name)}</th><td class="n">{total.variables:,}</td>'
            f'<td class="n">{total.parameters:,}</td>'
            f'<td class="n">{bytes_text(total.nbytes)}</td><td class="n">{share:.1%}</td>'
            f"<td>{share_bar(share, kind)}</td></tr>\n"
        )
    yield "</tbody>\n</table>\n</div>\n"


def _shards(shards: Sequence[Shard]) -> Iterator[str]:
    if not shards:
        return
    yield (
        '<section id="files">\n<h2>Data files</h2>\n<div class="scroll">\n<table>\n<thead><tr>'
        '<th>file</th><th class="n">size</th><th class="n">needed</th></tr></thead>\n'
        "<tbody>\n"
    )
    for shard in shards[:_SHARDS]:
        size = "–" if shard.nbytes is None else bytes_text(shard.nbytes)
        state = "" if shard.present else '<span class="badge error">missing</span>'
        if shard.nbytes is not None and shard.nbytes < shard.expected:
            state = '<span class="badge error">too short</span>'
        yield (
            f'<tr><td><span class="name">{text(os.path.basename(shard.path))}</span> {state}</td>'
            f'<td class="n">{size}</td><td class="n">{bytes_text(shard.expected)}</td></tr>\n'
        )
    yield "</tbody>\n</table>\n</div>\n"
    if (more := len(shards) - _SHARDS) > 0:
        yield f"<p>and {more:,} more</p>\n"
    yield "</section>\n"


def _signatures(metas: Sequence[MetaReport]) -> Iterator[str]:
    """What can be asked of a SavedModel: the tensors of its signatures."""
    rows = list(islice(signature_rows(metas), _TENSORS))
    if not rows:
        return
    yield (
        '<section id="signatures">\n<h2>Signatures</h2>\n<div class="scroll">\n<table>\n<thead>'
        "<tr><th>signature</th><th></th><th>name</th><th>dtype</th><th>shape</th><th>tensor</th>"
        "</tr></thead>\n<tbody>\n"
    )
    for _, signature, side, *cells in rows:
        names = "".join(f"<td>{text(cell)}</td>" for cell in cells)
        yield f'<tr><td class="name">{text(signature)}</td><td>{side}</td>{names}</tr>\n'
    yield "</tbody>\n</table>\n</div>\n</section>\n"


def _run(run: RunReport) -> Iterator[str]:
    yield (
        '<section id="run">\n<h2>Checkpoints of the run</h2>\n<div class="scroll">\n<table>\n'
        '<thead><tr><th>checkpoint</th><th class="n">step</th><th>saved</th>'
        '<th class="n">size</th></tr></thead>\n<tbody>\n'
    )
    hidden = max(len(run.checkpoints) - _CHECKPOINTS, 0)
    for item in run.checkpoints[hidden:]:
        marks = ['<span class="badge good">latest</span>'] if item.latest else []
        if run.state_file and not (item.listed or item.latest):
            marks.append('<span class="badge note">not listed</span>')
        if item.flaw:
            marks.append(f'<span class="badge error">not whole</span> {text(item.flaw)}')
        step = "–" if item.step is None else f"{item.step:,}"
        name = item.prefix.removeprefix(run.path).lstrip("/")
        yield (
            f'<tr><td><span class="name">{text(name)}</span> {" ".join(marks)}</td>'
            f'<td class="n">{step}</td><td>{text(when(item.time))}</td>'
            f'<td class="n">{bytes_text(item.nbytes)}</td></tr>\n'
        )
    yield "</tbody>\n</table>\n</div>\n"
    if hidden:
        yield f"<p>{hidden:,} older ones are not shown</p>\n"
    yield from _leftovers(run)
    yield "</section>\n"


def _leftovers(run: RunReport) -> Iterator[str]:
    if not run.leftovers:
        return
    many = count(len(run.leftovers), "file")
    yield f"<details>\n<summary>{many} left behind by saves</summary>\n<ul>\n"
    for path, why in run.leftovers[:_PROBLEMS]:
        yield f'<li><b class="name">{text(os.path.basename(path))}</b> {text(why)}</li>\n'
    yield "</ul>\n</details>\n"
