"""One result in every mode: what goes to stdout, what to stderr, and the exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping

import pytest

from ckpttool.cli.output import Output, Settings
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.table import MEASURED
from ckpttool.cli.view import View
from ckpttool.errors import CancelledError, CorruptError


class Rows(View):
    """A result of many rows; its warnings are known only after the last one."""

    command = "rows"
    record_type = "row"

    def __init__(self, count: int, breaks_at: int = -1, code: int = 0) -> None:
        self.count = count
        self.breaks_at = breaks_at
        self.code = code
        self.seen = 0

    @property
    def exit_code(self) -> int:
        return self.code

    @property
    def warnings(self) -> list[str]:
        return [f"saw {self.seen} rows\n"]

    def rows(self) -> Iterator[tuple[str, str]]:
        for number in range(self.count):
            if number == self.breaks_at:
                raise CorruptError("row is broken")
            self.seen += 1
            yield f"name{number}\x1b[0m", str(number)

    def data(self) -> Mapping[str, object]:
        return {"rows": ({"name": name, "value": value} for name, value in self.rows())}

    def plain(self) -> Iterator[str]:
        return tab_lines(self.rows())

    def human(self, screen: Screen) -> Iterator[object]:
        return screen.table([Column("name"), Column("value", "right")], self.rows())

    def names(self) -> Iterator[str]:
        return (f"{number}\n" for number in range(self.count))

    def records(self) -> Iterator[Mapping[str, object]]:
        return ({"name": name} for name, _ in self.rows())

    def summary(self) -> Mapping[str, object]:
        return {"count": self.seen}


def show(view: View, capsys, **settings) -> tuple[int, str, str]:
    out = Output(Settings(**settings))
    code = out.show(view)
    out.flush()
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_plain_is_tab_separated_and_escaped(capsys) -> None:
    code, out, err = show(Rows(2), capsys)
    assert (code, out) == (0, "name0\\x1b[0m\t0\nname1\\x1b[0m\t1\n")
    assert err == "warning: saw 2 rows\\n\n"


def test_quiet_is_names(capsys) -> None:
    assert show(Rows(2), capsys, quiet=True)[1] == "0\n1\n"


def test_json_is_one_document_with_warnings_known_last(capsys) -> None:
    code, out, err = show(Rows(2, code=1), capsys, json=True)
    assert code == 1
    assert err == ""
    assert json.loads(out) == {
        "schema": "ckpttool.rows/1",
        "ok": False,
        "data": {
            "rows": [
                {"name": "name0\x1b[0m", "value": "0"},
                {"name": "name1\x1b[0m", "value": "1"},
            ]
        },
        "warnings": ["saw 2 rows\n"],
    }
    assert out.count("\n") == 1


def test_json_that_breaks_off_leaves_nothing_on_stdout(capsys) -> None:
    with pytest.raises(CorruptError):
        show(Rows(5000, breaks_at=4000), capsys, json=True)
    assert capsys.readouterr().out == ""


def test_plain_lines_before_an_error_stay(capsys) -> None:
    out = Output(Settings())
    with pytest.raises(CorruptError):
        out.show(Rows(5000, breaks_at=4001))
    out.flush()
    assert len(capsys.readouterr().out.splitlines()) == 4001


def test_ndjson_ends_with_a_summary(capsys) -> None:
    _, out, err = show(Rows(3), capsys, ndjson=True)
    *records, summary = map(json.loads, out.splitlines())
    assert [record["type"] for record in records] == ["row"] * 3
    assert summary == {
        "type": "summary",
        "schema": "ckpttool.rows/1",
        "ok": True,
        "count": 3,
        "warnings": ["saw 3 rows\n"],
    }
    assert err == ""


def test_records_before_an_error_stay(capsys) -> None:
    out = Output(Settings(ndjson=True))
    with pytest.raises(CorruptError):
        out.show(Rows(5000, breaks_at=4001))
    out.flush()
    assert len(capsys.readouterr().out.splitlines()) == 4001


def test_warnings_of_the_command_come_before_those_of_the_view(capsys) -> None:
    out = Output(Settings(json=True))
    out.warn("first")
    out.note("only for people")
    out.show(Rows(0))
    out.flush()
    captured = capsys.readouterr()
    assert json.loads(captured.out)["warnings"] == ["first", "saw 0 rows\n"]
    assert captured.err == ""


def test_notes_are_escaped_and_silent_with_quiet(capsys) -> None:
    Output(Settings()).note("took\x07 it")
    assert capsys.readouterr().err == "took\\x07 it\n"
    Output(Settings(quiet=True)).note("took it")
    assert capsys.readouterr().err == ""


def test_details_need_verbose(capsys) -> None:
    Output(Settings()).detail("inner")
    Output(Settings(verbose=1)).detail("inner")
    assert capsys.readouterr().err == "inner\n"


def test_an_error_is_three_lines_and_an_id(capsys) -> None:
    error = CorruptError("bad\nname", why="2 of 3", hint="ckpttool verify x", id="row-broken")
    Output(Settings()).fail(error)
    assert capsys.readouterr().err == (
        "error: bad\\nname\n  why: 2 of 3\n  next: ckpttool verify x  [row-broken]\n"
    )


def test_an_error_without_a_hint_names_its_explanation(capsys) -> None:
    Output(Settings()).fail(CorruptError("bad"))
    assert capsys.readouterr().err == "error: bad\n  next: ckpttool explain corrupt  [corrupt]\n"


def test_a_short_table_and_a_long_one_look_the_same(capsys) -> None:
    _, short, _ = show(Rows(MEASURED), capsys, color="always")
    _, long, _ = show(Rows(MEASURED + 1), capsys, color="always")
    assert "\x1b[1mname" in short
    assert "\x1b[1mname" in long
    for table, count in ((short, MEASURED), (long, MEASURED + 1)):
        lines = table.splitlines()
        assert len(lines) == count + 1
        assert lines[1].split() == ["name0\\x1b[0m", "0"]
        assert lines[-1].split()[-1] == str(count - 1)
        assert all(line == line.rstrip() for line in lines)


def test_a_streamed_table_is_not_held() -> None:
    rows = ((f"name{number}", "1") for number in range(10**9))
    table = Screen(80, color=False, unicode=True).table([Column("name"), Column("n")], rows)
    assert next(table) == "name     n\n"
    assert str(next(table)).startswith("name0    1\n")


def test_asking_needs_a_terminal(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    for settings, why in ((Settings(), "terminal"), (Settings(no_input=True), "--no-input")):
        with pytest.raises(CancelledError) as caught:
            Output(settings).confirm("delete?")
        assert caught.value.exit_code == 4
        assert caught.value.id == "no-terminal"
        assert why in caught.value.why


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**40, "1.0 TiB"),
        (2**52, "4096.0 TiB"),
    ],
)
def test_bytes_text(count: int, text: str) -> None:
    assert bytes_text(count) == text
