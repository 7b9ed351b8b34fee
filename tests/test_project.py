"""Rules that the repository as a whole keeps."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from ckpttool import errors
from ckpttool.ops.explain import EXIT_CODES
from ckpttool.version import __version__
from tests.support import json_docs
from tests.support.command import ROOT

#: The house rule is "near 400"; a module that grows past it is usually two. A file of tests
#: may be longer: they are read one at a time.
MAX_LINES = 450
MAX_LINES_OF_TESTS = 800

#: Paths of one machine, and words of drafts: they do not belong in what others read.
FORBIDDEN = re.compile(
    b"|".join(re.escape(bytes(place)) + rb"/" for place in (ROOT, Path.home()))
    + rb"|file:///\w|(?i:\bTODO\b|\bFIXME\b|\bXXX\b)"
    + rb"|(?i:extra-index-url|find-links|index-url)"
)


def tracked() -> list[Path]:
    """The files of the repository; skips outside a clone (an unpacked archive)."""
    result = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if result.returncode:
        pytest.skip("not a git clone")
    files = [ROOT / name for name in result.stdout.decode().split("\0") if name]
    return [path for path in files if path.is_file()]


def test_no_file_names_a_machine_or_leaves_a_draft() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()!r}"
        for path in tracked()
        if path != Path(__file__)
        for match in FORBIDDEN.finditer(path.read_bytes())
    ]
    assert found == []


def test_modules_are_small() -> None:
    too_long = {}
    for path in tracked():
        lines = len(path.read_bytes().splitlines()) if path.suffix == ".py" else 0
        if lines > (MAX_LINES_OF_TESTS if ROOT / "tests" in path.parents else MAX_LINES):
            too_long[str(path.relative_to(ROOT))] = lines
    assert too_long == {}


def test_every_module_says_what_it_is() -> None:
    for path in (ROOT / "ckpttool").rglob("*.py"):
        source = path.read_text("utf-8")
        if source.strip():
            assert ast.get_docstring(ast.parse(source)), path


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_constraints_are_names_and_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+( ; .+)?", pin) for pin in pins)
    assert pins == sorted(pins, key=lambda pin: pin.partition("==")[0])


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[<>=!~ ;\[]", want)[0].replace("_", "-").lower() for want in wanted}
    pinned = {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert names <= pinned


# Error ids ---------------------------------------------------------------------------

EXPLANATIONS = ROOT / "ckpttool" / "explanations"


def id_literals() -> dict[str, list[str]]:
    """Every error or finding id that the code spells out, and where.

    An id is an `id=` argument or the default of one, a `default_id`, or the first
    argument of `Finding(…)`.
    """
    found: dict[str, list[str]] = {}

    def note(node: ast.AST | None, path: Path) -> None:
        if isinstance(node, ast.IfExp):
            note(node.body, path)
            note(node.orelse, path)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            found.setdefault(node.value, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")

    for path in (ROOT / "ckpttool").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.arguments):
                pairs = [
                    *zip(node.args[::-1], node.defaults[::-1], strict=False),
                    *zip(node.kwonlyargs, node.kw_defaults, strict=True),
                ]
                for argument, default in pairs:
                    if argument.arg == "id":
                        note(default, path)
            elif isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "id":
                        note(keyword.value, path)
                if isinstance(node.func, ast.Name) and node.func.id == "Finding" and node.args:
                    note(node.args[0], path)
            elif (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == "default_id"
            ) or (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id == "default_id"
            ):
                note(node.value, path)
    return found


def explained() -> set[str]:
    return {path.stem for path in EXPLANATIONS.glob("*.md")}


def test_every_id_in_the_code_is_explained() -> None:
    missing = {name: where for name, where in id_literals().items() if name not in explained()}
    assert missing == {}


def test_every_explanation_is_of_an_id_that_the_code_uses() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "ckpttool").rglob("*.py"))
    assert {name for name in explained() if f'"{name}"' not in source} == set()


@pytest.mark.parametrize("path", sorted(EXPLANATIONS.glob("*.md")), ids=lambda path: path.stem)
def test_an_explanation_has_a_title_and_some_text(path: Path) -> None:
    title, _, text = path.read_text("utf-8").partition("\n")
    assert title.startswith("# ")
    assert len(text.split()) >= 20
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)


# Documents ---------------------------------------------------------------------------


def test_the_page_of_exit_codes_has_every_code() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text("utf-8")
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert listed == sorted(EXIT_CODES)


def test_every_error_class_has_an_exit_code_that_means_something() -> None:
    classes = [errors.CkpttoolError]
    for kind in classes:
        classes.extend(kind.__subclasses__())
        assert kind.exit_code in EXIT_CODES, kind


def test_the_page_of_json_says_what_the_schemas_say() -> None:
    assert json_docs.PATH.read_text("utf-8") == json_docs.text(), (
        "run: python -m tests.support.json_docs"
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_demo_shows_what_people_see_in_a_log_too() -> None:
    make = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands = re.findall(r"ckpttool (?:inspect|list) .*", make.stdout)
    assert commands
    assert all(command.endswith("--color always") for command in commands)
