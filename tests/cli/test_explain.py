"""`ckpttool explain`, and what every explanation has to say."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest

import ckpttool.cli.signals
import ckpttool.errors
from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.ops.explain import EXIT_CODES, Explanation, explain
from tests.support.command import ROOT


def error_classes() -> dict[str, type[CkpttoolError]]:
    """Every error class by name."""
    return {
        name: value
        for module in (ckpttool.errors, ckpttool.cli.signals)
        for name, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, CkpttoolError)
    }


def raised_ids() -> Iterator[tuple[str, int, str]]:
    """Every (id, exit code, place) that the code spells out in a call of an error class."""
    classes = error_classes()
    for kind in classes.values():
        yield kind.default_id, kind.exit_code, kind.__name__
    for path in sorted((ROOT / "ckpttool").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            raised = classes.get(node.func.id)
            ids = [keyword.value for keyword in node.keywords if keyword.arg == "id"]
            for leaf in (leaf for value in ids for leaf in ast.walk(value)):
                if raised and isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                    yield leaf.value, raised.exit_code, f"{path.relative_to(ROOT)}:{leaf.lineno}"


def test_an_explanation_names_every_exit_code_that_its_id_comes_with() -> None:
    known = {entry.id: entry.exit_codes for entry in explain().entries}
    wrong = [
        f"{place}: {id} comes with {code}, its explanation says {known[id]}"
        for id, code, place in raised_ids()
        if id in known and code not in known[id]
    ]
    assert wrong == []


def test_the_table_of_exit_codes_is_that_of_the_errors() -> None:
    codes = {kind.exit_code for kind in error_classes().values()}
    assert codes <= set(EXIT_CODES)
    assert set(EXIT_CODES) - codes == {0, 1, 141}


@pytest.mark.parametrize("entry", explain().entries, ids=lambda entry: entry.id)
def test_every_explanation_is_complete(entry: Explanation) -> None:
    title, blank, codes, blank_too = entry.text.split("\n")[:4]
    assert title == f"# {entry.title}"
    assert (blank, blank_too) == ("", "")
    assert codes == "Exit code: " + ", ".join(map(str, entry.exit_codes))
    assert entry.exit_codes
    assert set(entry.exit_codes) <= set(EXIT_CODES)


def test_all_ids_are_listed(run_cli) -> None:
    ids = sorted(path.stem for path in (ROOT / "ckpttool" / "explanations").glob("*.md"))
    assert run_cli(["explain", "-q"]).stdout.splitlines() == ids
    lines = run_cli(["explain"]).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ids


@pytest.mark.parametrize("topic", ["no-explanation", "[no-explanation]", "NO-EXPLANATION"])
def test_one_is_printed_as_it_is(topic, run_cli) -> None:
    text = (ROOT / "ckpttool" / "explanations" / "no-explanation.md").read_text()
    assert run_cli(["explain", topic]).stdout == text


def test_an_exit_code_lists_its_ids() -> None:
    result = explain("130")
    assert result.meaning == EXIT_CODES[130]
    assert [entry.id for entry in result.entries] == ["interrupted"]


def test_an_exit_code_without_ids(run_cli) -> None:
    assert run_cli(["explain", "141"]).stdout == f"141\t{EXIT_CODES[141]}\n"


@pytest.mark.parametrize(
    ("topic", "hint"),
    [("no-explanatoin", "no-explanation"), ("zzz", "lists them all"), ("99", "lists them all")],
)
def test_an_unknown_one_suggests(topic, hint) -> None:
    with pytest.raises(NotFoundError) as caught:
        explain(topic)
    assert caught.value.exit_code == 10
    assert hint in caught.value.hint


@pytest.mark.parametrize("topic", ["../errors", "/etc/passwd", "", "a/b", "\0", "²", "9" * 5000])
def test_a_topic_is_never_a_path(topic) -> None:
    with pytest.raises(NotFoundError):
        explain(topic)
