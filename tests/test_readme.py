"""The examples of the README and of docs/ do what they say.

After a change of output: CKPTTOOL_UPDATE_EXAMPLES=1 pytest tests/test_readme.py writes
what is printed into the files; read the difference before it is committed.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
from pathlib import Path

import pytest

from ckpttool.cli.app import ALIASES, COMMANDS
from tests.support import console
from tests.support.command import ROOT

README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]

#: When the fixtures seem to have been saved: what a clone says depends on when it was made.
SAVED = 1796054824.0

#: What only shows how to install, or would take minutes.
NOT_RUN = re.compile(r"^(pip|make|git|python3?|cd|\.venv/bin/pip|curl) ")


def runnable(path: Path) -> list[console.Block]:
    """The blocks whose commands are all ckpttool's or the shell's own."""
    return [
        block
        for block in console.blocks(path.read_text("utf-8"))
        if not any(NOT_RUN.match(command) for command in block.commands)
    ]


EXAMPLES = [(path, block) for path in DOCUMENTS for block in runnable(path)]


@pytest.fixture
def workplace(tmp_path: Path, fixtures_dir: Path) -> Path:
    """A folder that looks like a clone: it has a copy of fixtures/, written at one time."""
    folder = tmp_path / "ckpttool"
    shutil.copytree(fixtures_dir, folder / "fixtures")
    for path in folder.rglob("*"):
        os.utime(path, (SAVED, SAVED))
    return folder


@pytest.mark.skipif(shutil.which("bash") is None, reason="the examples are typed into bash")
@pytest.mark.parametrize(
    ("path", "block"),
    EXAMPLES,
    ids=[f"{path.name}-{block.line}" for path, block in EXAMPLES],
)
def test_console_example(path: Path, block: console.Block, workplace: Path) -> None:
    printed = console.run_block(block, workplace)
    if os.environ.get("CKPTTOOL_UPDATE_EXAMPLES"):
        text = path.read_text("utf-8")
        # Earlier blocks may have grown: find this one again by its commands.
        (now,) = [b for b in console.blocks(text) if b.commands == block.commands]
        path.write_text(console.with_outputs(text, {now.line: printed}), "utf-8")
        return
    assert len(printed) == len(block.commands)
    for command, expected, output in zip(block.commands, block.outputs, printed, strict=True):
        assert console.matches(expected, output), f"$ {command}\n{output}"


@pytest.mark.parametrize("path", [README, ROOT / "docs" / "python.md"], ids=lambda path: path.name)
def test_python_examples(path: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text("utf-8")
    examples = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert examples
    pytest.importorskip("numpy")
    monkeypatch.chdir(workplace)
    parsed = doctest.DocTestParser().get_doctest("\n".join(examples), {}, path.name, str(path), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(parsed, out=report.append)
    assert runner.failures == 0, "".join(report)


def test_the_readme_names_every_command() -> None:
    table = README.read_text("utf-8").partition("## Commands")[2].partition("\n## ")[0]
    named = {word for code in re.findall(r"`([^`]+)`", table) for word in code.split()}
    assert {*COMMANDS, *ALIASES} - named == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    missing = [
        target
        for target in targets
        if "://" not in target
        and not target.startswith("#")
        and not (path.parent / target.partition("#")[0]).exists()
    ]
    assert missing == []


def test_dots_stand_for_lines() -> None:
    assert console.matches("a\n…\nd\n", "a\nb\nc\nd\n")
    assert console.matches("a\n...\n", "a\n")
    assert not console.matches("a\n…\nd\n", "a\nb\n")
    assert not console.matches("a.c\n", "abc\n")


def test_a_block_is_typed_into_one_shell(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (block,) = console.blocks("x\n```console\n$ X=5; false\n$ echo $? $X\n1 5\n```\n")
    assert console.run_block(block, folder) == ["", "1 5\n"]
