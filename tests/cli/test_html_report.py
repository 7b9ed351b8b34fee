"""``inspect --html``: one page that needs nothing from elsewhere, whatever a name says."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ckpttool.cli.html.page as page_module
from ckpttool.cli.html.markup import histogram, number, text
from ckpttool.cli.html.page import page
from ckpttool.cli.html.treemap import Box, squarified, tile_of, treemap
from ckpttool.errors import CkpttoolError, RefusedError, UsageError
from ckpttool.ops import report as report_module
from ckpttool.ops.figures.model import Histogram
from ckpttool.ops.report import make_report
from ckpttool.ops.scopes import ScopeTree
from tests.support.browser import dom, screenshot
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, write_bundle

#: Names that would do harm where they are taken for markup, and one that shows other text
#: than is there.
EVIL = [
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "</style><img src=x onerror=\"document.title='owned'\">",
    "'\"><svg onload=document.title='owned'>/kernel",
    "scope/&lt;b&gt;/\u202egnp.exe",
    "-->\r\n<!--]]>",
    "{{7*7}}${7*7}",
]


def html_of(address: str | Path) -> str:
    return "".join(page(make_report(str(address))))


def write(directory: Path, arrays: dict[str, np.ndarray]) -> Path:
    entries: dict[bytes, EntryFields | bytes] = {}
    data = b""
    for name, array in arrays.items():
        key = name.encode("utf-8", "surrogateescape")
        entries[key] = {"dtype": 1, "shape": array.shape, "offset": len(data), "size": array.nbytes}
        data += array.astype("<f4").tobytes()
    directory.mkdir(exist_ok=True)
    return write_bundle(directory, "model.ckpt-7", entries, [data])


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of names like these, in a directory like these, with a NaN."""
    directory = tmp_path_factory.mktemp("evil") / "<b>run"
    arrays: dict[str, np.ndarray] = {name: np.ones((3, 4), "f4") for name in EVIL}
    arrays["not utf-8 \udcff"] = np.ones(3, "f4")
    arrays["broken/kernel"] = np.array([1, np.nan, np.inf], "f4")
    return write(directory, arrays)


class Parsed(HTMLParser):
    """What is in a page: elements with their attributes, and the text inside some."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in {"script", "style", "title"}:
            self.inside.setdefault(tag, []).append("")
        if tag == "th" and ("class", "name") in attrs:
            self.cells.append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in self._open[-1:]:
            if tag in self.inside:
                self.inside[tag][-1] += data
            if tag == "th" and self.cells:
                self.cells[-1] += data

    def attributes(self) -> Iterator[tuple[str, str]]:
        for _, attrs in self.elements:
            for name, value in attrs.items():
                yield name, value or ""


# Structure and escaping -------------------------------------------------------------------


def test_a_page_says_what_is_in_it(fixtures_dir: Path) -> None:
    parsed = Parsed(html_of(fixtures_dir / "mlp-v1"))
    tags = [tag for tag, _ in parsed.elements]
    assert len(parsed.cells) == 17
    assert "hidden/weights/Adam" in parsed.cells
    assert tags.count("h1") == 1
    assert tags.count("input") == 1
    sections = [attrs.get("id") for tag, attrs in parsed.elements if tag == "section"]
    assert sections == ["problems", "map", "totals", "files", "run", "variables"]
    labels = [value for name, value in parsed.attributes() if name == "aria-label"]
    assert sum("values from" in label for label in labels) == 14  # all but the scalars
    assert parsed.inside["title"][0] == "model.ckpt-1000"


@pytest.mark.parametrize("address", ["mlp-v1", "keras3", "damaged/missing-shard", "savedmodel"])
def test_nothing_comes_from_elsewhere(fixtures_dir: Path, address: str) -> None:
    document = html_of(fixtures_dir / address)
    parsed = Parsed(document)
    names = {name for name, _ in parsed.attributes()}
    assert not names & {"src", "href", "action", "style", "srcset", "xlink:href", "data"}
    assert not any(name.startswith("on") for name in names)
    assert "url(" not in document
    assert "@import" not in document
    assert not {tag for tag, _ in parsed.elements} & {"link", "img", "iframe", "base", "object"}


def test_the_policy_allows_this_style_and_this_script_and_nothing_else(evil: Path) -> None:
    parsed = Parsed(html_of(evil))
    (policy,) = [
        attrs["content"] or ""
        for tag, attrs in parsed.elements
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    (style,), (script,) = parsed.inside["style"], parsed.inside["script"]
    hashes = [
        f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
        for content in (style, script)
    ]
    assert policy == (
        f"default-src 'none'; style-src {hashes[0]}; script-src {hashes[1]}; "
        "base-uri 'none'; form-action 'none'"
    )


def test_a_variable_named_script_is_text(evil: Path) -> None:
    document = html_of(evil)
    parsed = Parsed(document)
    tags = [tag for tag, _ in parsed.elements]
    assert tags.count("script") == tags.count("style") == 1
    assert "img" not in tags
    assert set(EVIL[:4]) <= set(parsed.cells)
    assert "scope/&lt;b&gt;/\\u202egnp.exe" in parsed.cells
    assert "-->\\r\\n<!--]]>" in parsed.cells
    assert "not utf-8 \\xff" in parsed.cells
    assert "\u202e" not in document
    document.encode()  # no lone surrogate is left
    quick = Parsed("".join(treemap_of(EVIL)))
    assert not {tag for tag, _ in quick.elements} - {"svg", "title", "rect", "text"}


def treemap_of(names: list[str]) -> Iterator[str]:
    from ckpttool.model import Variable

    tree = ScopeTree()
    for name in names:
        variable = Variable(name, name, "float32", (100,), 400, 0, 0, "model")
        tree.add(variable, 100)
    return treemap(tile_of(tree.root()), 1000, 400, "wide")


@given(st.text())
def test_any_text_stays_text(value: str) -> None:
    shown = text(value)
    shown.encode()
    assert not set(shown) & set("<>\"'")
    assert re.sub(r"&(amp|lt|gt|quot|#x27);", "", shown).count("&") == 0
    assert all(char.isprintable() for char in shown)


def test_what_is_wrong_is_said(evil: Path, fixtures_dir: Path) -> None:
    document = html_of(evil)
    assert 'NaN or Inf in <b class="name">broken/kernel</b>' in document
    assert document.count("<tr data-kind") == len(EVIL) + 2
    assert document.count("data-bad>") == 1
    assert "NaN or Inf</button>" in document
    missing = html_of(fixtures_dir / "damaged/missing-shard")
    assert "shard-missing" in missing
    assert "cannot be read: see the table" in missing
    damaged = html_of(fixtures_dir / "damaged/flipped-bit")
    assert "1 variable cannot be read" in damaged
    assert "checksum" in damaged
    assert "nothing wrong" not in damaged
    assert "nothing wrong at a glance; every number is finite" in html_of(fixtures_dir / "mlp-v1")


def test_a_run_whose_checkpoint_cannot_be_read(fixtures_dir: Path, tmp_path: Path) -> None:
    run = shutil.copytree(fixtures_dir / "keras3", tmp_path / "run")
    for path in run.glob("ckpt-4.index"):
        path.write_bytes(b"nonsense" * 20)
    document = html_of(run)
    assert "Checkpoints of the run" in document
    assert "Variables" not in Parsed(document).inside["title"]
    assert 'class="badge error"' in document


def test_what_a_model_can_be_asked(fixtures_dir: Path) -> None:
    document = html_of(fixtures_dir / "savedmodel")
    assert title_of(document) == "savedmodel"
    assert '<td class="name">serving_default</td><td>input</td>' in document
    assert "TensorFlow 2." in document


def test_a_graph_has_no_values_and_no_faults(fixtures_dir: Path) -> None:
    document = html_of(fixtures_dir / "graphs/training.meta")
    assert 'class="badge error"' not in document
    assert "every number is finite" not in document
    assert "model/kernel" in document


def test_of_very_many_variables_the_largest_have_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "ROWS", 50)
    arrays = {f"a/{n:04d}": np.full(n + 1, 1, "f4") for n in range(300)}
    arrays["a/0003"][0] = np.nan
    made = make_report(str(write(tmp_path / "run", arrays)))
    assert len(made.rows) == 51
    assert made.left_out == 249
    assert {row.variable.name for row in made.rows} == {
        "a/0003",
        *(f"a/{n:04d}" for n in range(250, 300)),
    }
    document = "".join(page(made))
    assert "249 smaller ones are not shown" in document


def test_every_corpus_run(corpus: Path) -> None:
    made = 0
    for directory in sorted(corpus.iterdir()):
        if directory.is_dir():
            try:
                document = html_of(directory)
            except CkpttoolError:
                continue
            assert Parsed(document).inside["title"][0]
            made += 1
    assert made >= 8


# Drawings ---------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=60),
    st.floats(1, 2000),
    st.floats(1, 2000),
)
def test_tiles_have_their_areas_and_do_not_overlap(
    sizes: list[int], width: float, height: float
) -> None:
    sizes.sort(reverse=True)
    boxes = squarified(sizes, Box(0, 0, width, height))
    assert len(boxes) == len(sizes)
    whole, total = width * height, sum(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        assert box.area == pytest.approx(size / total * whole, rel=1e-3, abs=1e-6 * whole)
        assert -1e-6 * width <= box.x <= box.x + box.width <= width * (1 + 1e-6)
        assert -1e-6 * height <= box.y <= box.y + box.height <= height * (1 + 1e-6)
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            along = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert max(across, 0) * max(along, 0) <= 1e-5 * whole


def test_squares_where_squares_can_be() -> None:
    boxes = squarified([1, 1, 1, 1], Box(0, 0, 100, 100))
    assert {(box.width, box.height) for box in boxes} == {(50, 50)}


def test_a_map_of_many_variables_is_some_hundred_rectangles() -> None:
    names = [f"scope_{n // 1000}/block_{n // 50}/kernel_{n}" for n in range(20_000)]
    drawn = "".join(treemap_of(names))
    assert 100 < drawn.count("<rect") < 1500
    drawn = "".join(treemap_of(["large", *(f"flat/kernel_{n}" for n in range(20_000))]))
    assert drawn.count("<rect") < 10
    assert "20000 more in flat" in drawn


def test_numbers_and_bars() -> None:
    minus = "\N{MINUS SIGN}"
    assert [number(value) for value in (None, -3, 1234567, 0.00012345, 120000.0, -1e9)] == [
        *("–", f"{minus}3", "1,234,567", "0.0001234", "120,000", f"{minus}1e+09"),
    ]
    drawn = histogram(Histogram((-1.0, 0.0, 1.0), (3, 0)))
    assert f'aria-label="3 values from {minus}1 to 1"' in drawn
    assert drawn.count("M") == 1
    assert histogram(None) == histogram(Histogram((1.0, 1.0), (7,))) == ""


def colours(dark: bool) -> dict[str, str]:
    css = Path(page_module.__file__).with_name("report.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    light = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[0]))
    return light | dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[1])) if dark else light


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(dark: bool) -> None:
    of = colours(dark)
    pairs = [(ink, ground) for ink in ("ink", "soft", "accent") for ground in ("ground", "card")]
    pairs += [("good", "good-ground"), ("error", "error-ground"), ("warning", "warning-ground")]
    pairs += [("ink", "note-ground"), ("good", "card"), ("error", "card"), ("ink", "hover")]
    pairs += [("tile-ink", kind) for kind in ("model", "optimizer", "ema", "step", "other")]
    assert {pair: contrast(of[pair[0]], of[pair[1]]) for pair in pairs} == {
        pair: pytest.approx(13, abs=8.5) for pair in pairs
    }  # 4.5 at least: WCAG AA
    assert contrast(of["bar"], of["card"]) > 3


# In a browser -----------------------------------------------------------------------------

#: Uses the page as a person does, and writes what came of it into the title.
DRIVER = """
const shown = () => [...document.querySelectorAll("table.variables tbody tr")]
  .filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
const title = (name) => [...document.querySelectorAll("table.variables thead button")]
  .find((button) => button.textContent === name);
const search = document.querySelector("input");
const type = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
const found = {all: shown()};
title("parameters").click(); found.largest = shown();
title("parameters").click(); found.smallest = shown();
title("parameters").click(); found.again = shown();
title("name").click(); found.byName = shown();
title("norm").click(); found.byNorm = shown();
type("WEIGHTS 16,10"); found.typed = shown(); type("");
document.querySelector("button[data-kind=ema]").click(); found.ema = shown();
found.output = document.querySelector("output").textContent;
found.ground = getComputedStyle(document.body).backgroundColor;
found.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.title = JSON.stringify(found);
"""


def driven(document: str, path: Path) -> Path:
    """The page with a driver that its policy allows."""
    digest = b64encode(sha256(DRIVER.encode()).digest()).decode()
    document = document.replace("script-src ", f"script-src 'sha256-{digest}' ")
    path.write_text(document.replace("</body>", f"<script>{DRIVER}</script></body>"), "utf-8")
    return path


def title_of(document: str) -> str:
    return Parsed(document).inside["title"][0]


def test_sorting_and_filtering(fixtures_dir: Path, tmp_path: Path) -> None:
    address = fixtures_dir / "mlp-v1"
    page_path = driven(html_of(address), tmp_path / "report.html")
    found = json.loads(title_of(dom(page_path)))
    report = make_report(str(address))
    names = [row.variable.name for row in report.rows]
    assert found["all"] == found["again"] == names
    parameters = {row.variable.name: row.variable.parameters for row in report.rows}
    norms = {row.variable.name: row.figures.norm or 0 for row in report.rows if row.figures}
    assert [parameters[name] for name in found["largest"]] == sorted(
        parameters.values(), reverse=True
    )
    assert [parameters[name] for name in found["smallest"]] == sorted(parameters.values())
    assert [norms[name] for name in found["byNorm"]] == sorted(norms.values(), reverse=True)
    assert sorted(found["byName"]) == sorted(names)
    assert found["typed"] == [name for name in found["byNorm"] if name.startswith("logits/weights")]
    assert all(name.endswith("ExponentialMovingAverage") for name in found["ema"])
    assert found["output"] == "2 of 17 variables"
    assert found["ground"] == "rgb(246, 247, 249)"


@pytest.mark.parametrize("width", [390, 800])
def test_on_a_phone_and_in_the_dark(fixtures_dir: Path, tmp_path: Path, width: int) -> None:
    page_path = driven(html_of(fixtures_dir / "mlp-v1"), tmp_path / "report.html")
    found = json.loads(title_of(dom(page_path, width=width, dark=True)))
    assert found["ground"] == "rgb(17, 22, 28)"
    assert found["overflow"] == 0


def test_without_script_everything_but_sorting_is_there(fixtures_dir: Path, tmp_path: Path) -> None:
    document = html_of(fixtures_dir / "mlp-v1")
    forbidden = re.sub(r"script-src '[^']+'", "script-src 'none'", document)
    off_path, on_path = tmp_path / "off.html", tmp_path / "on.html"
    off_path.write_text(forbidden, "utf-8")
    on_path.write_text(document, "utf-8")
    off, on = Parsed(dom(off_path)), Parsed(dom(on_path))
    assert off.cells == on.cells
    controls = [attrs for tag, attrs in off.elements if attrs.get("class") == "controls"]
    assert "hidden" in controls[0]
    controls = [attrs for tag, attrs in on.elements if attrs.get("class") == "controls"]
    assert "hidden" not in controls[0]


def test_script_in_a_name_or_smuggled_in_does_not_run(evil: Path, tmp_path: Path) -> None:
    document = html_of(evil)
    path = tmp_path / "report.html"
    path.write_text(document, "utf-8")
    assert title_of(dom(path)) == "model.ckpt-7"
    smuggled = (
        "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    )
    path.write_text(document.replace("</main>", f"{smuggled}</main>"), "utf-8")
    assert title_of(dom(path)) == "model.ckpt-7"
    path.write_text("<title>page</title>" + smuggled, "utf-8")
    assert title_of(dom(path)) == "owned"  # this is what would have happened


def test_pictures(fixtures_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html_of(fixtures_dir / "keras3"), "utf-8")
    pictures = {
        (width, dark): screenshot(path, tmp_path / f"{width}-{dark}.png", width=width, dark=dark)
        for width, dark in ((1280, False), (1280, True), (390, False))
    }
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
    assert len(set(pictures.values())) == 3


# The command ------------------------------------------------------------------------------


def test_the_page_is_written_whole_or_not_at_all(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    result = run_cli(["inspect", fixtures_dir / "mlp-v1", "--html", report])
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"report\t{report}\t{report.stat().st_size}\n"
    assert report.read_text("utf-8") == html_of(fixtures_dir / "mlp-v1")
    before = report.read_bytes()
    again = run_cli(["inspect", fixtures_dir / "keras3", "--html", report])
    assert again.returncode == RefusedError.exit_code
    assert report.read_bytes() == before
    missing = run_cli(["inspect", tmp_path / "missing", "--html", report, "--overwrite"])
    assert missing.returncode == 10
    assert report.read_bytes() == before
    assert (
        run_cli(["inspect", fixtures_dir / "keras3", "--html", report, "--overwrite"]).returncode
        == 0
    )
    assert report.read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    document = run_cli(
        ["inspect", fixtures_dir / "keras3", "--html", report, "--overwrite", "--json"]
    )
    data = json.loads(document.stdout)["data"]
    assert data["report"] == {"path": str(report), "bytes": report.stat().st_size}
    assert "tree" not in data


@pytest.mark.parametrize("args", [["--html", "x.html", "--tree"], ["--overwrite"]])
def test_options_that_would_do_nothing(
    run_cli: RunCli, fixtures_dir: Path, args: list[str]
) -> None:
    result = run_cli(["inspect", "mlp-v1", *args], cwd=fixtures_dir)
    assert result.returncode == UsageError.exit_code
    assert not (fixtures_dir / "x.html").exists()
