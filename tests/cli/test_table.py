"""Tables at any width: what goes first, what is cut last, and that lines stay aligned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ckpttool.cli.fitting import columns_of
from ckpttool.cli.screen import Column, Screen
from ckpttool.cli.table import MEASURED

COLUMNS = [
    Column("name"),
    Column("dtype", drop=2),
    Column("shape"),
    Column("bytes", "right", drop=3),
    Column("kind", drop=1),
]
ROWS = [
    ("dense/kernel/Adam_1", "float32", "[8,4]", "128 B", "optimizer"),
    ("step", "int64", "[]", "8 B", "step"),
]


def lines(width: int, rows: Sequence[Sequence[str]] = ROWS, **screen: bool) -> list[str]:
    table = Screen(width, color=False, unicode=screen.get("unicode", True)).table(COLUMNS, rows)
    return "".join(table).splitlines()


def test_all_columns_where_there_is_room() -> None:
    assert lines(53) == [
        "name                 dtype    shape  bytes  kind",
        "dense/kernel/Adam_1  float32  [8,4]  128 B  optimizer",
        "step                 int64    []       8 B  step",
    ]


def test_columns_go_in_their_order_and_are_named() -> None:
    assert lines(52)[0] == "name                 dtype    shape  bytes"
    assert lines(52)[-1] == "(no room for kind)"
    assert lines(41)[0] == "name                 shape  bytes"
    assert lines(41)[-1] == "(no room for dtype, kind)"
    assert lines(32)[0] == "name                 shape"


def test_names_are_cut_last() -> None:
    assert lines(26)[1] == "dense/kernel/Adam_1  [8,4]"
    assert lines(25)[1] == "dense/ke…el/Adam_1  [8,4]"
    assert lines(25)[-2:] == ["(no room for dtype,", "bytes, kind, whole names)"]
    assert lines(25, unicode=False)[1] == "dense/k...l/Adam_1  [8,4]"


def test_columns_do_not_go_for_a_name_that_fits_nowhere() -> None:
    table = lines(60, [(f"a/{'x' * 70}/b", *ROWS[0][1:]), *ROWS])
    assert table[0].split() == ["name", "dtype", "shape", "bytes"]
    assert table[1] == f"a/{'x' * 16}…{'x' * 16}/b  float32  [8,4]  128 B"


def test_columns_go_while_that_makes_more_names_whole() -> None:
    longest = (f"a/{'x' * 70}/b", *ROWS[0][1:])
    wide = ("dense/hidden_layer/kernel/momentum", *ROWS[0][1:])
    assert lines(60, [longest, wide, wide])[0].split() == ["name", "dtype", "shape", "bytes"]
    assert lines(50, [longest, wide, wide])[0].split() == ["name", "shape", "bytes"]
    assert lines(50, [longest, wide, wide])[2].startswith(wide[0])


@pytest.mark.parametrize("width", range(20, 70))
@pytest.mark.parametrize("count", [1, MEASURED + 100])
def test_no_line_is_longer_than_the_screen(width: int, count: int) -> None:
    rows = [(f"層/{'重み' * (number % 9)}/kernel", *ROWS[0][1:]) for number in range(count)]
    assert max(map(columns_of, lines(width, rows))) <= width


@pytest.mark.parametrize("count", [MEASURED - 1, MEASURED + 700])
def test_wide_characters_are_aligned(count: int) -> None:
    names = ["層/重み", "dense/kernel", "größe", "e\u0301"]
    rows = [(names[number % 4], *ROWS[0][1:]) for number in range(count)]
    starts = {
        columns_of(line[: line.index("float32")]) for line in lines(80, rows)[1:] if "float" in line
    }
    assert starts == {14}


def test_a_longer_name_in_a_later_row_uses_the_room_there_is() -> None:
    early = [ROWS[0]] * (MEASURED + 50)
    for late, shown in (
        ("dense/kernel/Adam_1_of_all", "dense/kernel/Adam_1_of_all"),
        ("dense/kernel/Adam_1_that_is_much_longer", "dense/kernel…s_much_longer"),
    ):
        table = lines(60, [*early, (late, *ROWS[0][1:]), ROWS[1]])
        assert table[-2] == f"{shown}  float32  [8,4]  128 B  optimizer"
        assert table[1].startswith("dense/kernel/Adam_1  float32")
        assert table[-1].startswith("step                 int64")


def test_prose_is_wrapped_before_names_are_cut() -> None:
    columns = [Column("variable"), Column("why", prose=True)]
    rows = [("dense/kernel", "it is smaller than any data file may become")]
    table = Screen(40, color=False, unicode=True).table(columns, rows)
    assert "".join(table) == (
        "variable      why\n"
        "dense/kernel  it is smaller than any\n"
        "              data file may become\n"
    )


def test_styles_do_not_change_the_layout() -> None:
    columns = [Column("name", style="cyan"), Column("bytes", "right", style="dim")]
    rows = [("a", "1 B"), ("bcd", ""), ("", "22 B")]
    table = "".join(Screen(40, color=True, unicode=True).table(columns, rows))
    assert table == (
        "\x1b[1mname\x1b[0m  \x1b[1mbytes\x1b[0m\n"
        "\x1b[36ma\x1b[0m       \x1b[2m1 B\x1b[0m\n"
        "\x1b[36mbcd\x1b[0m\n"
        "       \x1b[2m22 B\x1b[0m\n"
    )


def test_an_empty_table_has_its_titles() -> None:
    assert lines(60, []) == ["name  dtype  shape  bytes  kind"]
