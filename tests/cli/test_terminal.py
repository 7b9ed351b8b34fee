"""On a terminal: people's form, colours when wanted, any width, any locale (F10, F24)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.handmade import EntryFields, write_bundle
from tests.support.stand_in import stand_in
from tests.support.terminal import run_in_terminal

ESCAPE = "\x1b["
HOSTILE = "a\x1b[31mred\x1b[0m\nnext\u202eline\x9b"


def test_a_terminal_gets_the_form_for_people() -> None:
    run = run_in_terminal(["explain"])
    assert run.returncode == 0
    assert f"{ESCAPE}1m" in run.output
    assert "\t" not in run.output


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["explain"], {"NO_COLOR": "1"}),
        (["explain"], {"TERM": "dumb"}),
        (["explain", "--color", "never"], {}),
        (["--color", "never", "explain"], {}),
    ],
)
def test_colours_can_be_declined(args, env) -> None:
    run = run_in_terminal(args, env=env)
    assert run.returncode == 0
    assert ESCAPE not in run.output
    assert "\t" not in run.output, "it is still the form for people"


@pytest.mark.parametrize("args", [["--color", "never", "--jsn"], ["--jsn", "--color=never"]])
def test_a_usage_error_has_no_colours_either(args) -> None:
    assert ESCAPE in run_in_terminal(["--jsn"]).output
    run = run_in_terminal(args)
    assert run.returncode == 2
    assert ESCAPE not in run.output


def test_an_empty_no_color_does_not_count() -> None:
    assert ESCAPE in run_in_terminal(["explain"], env={"NO_COLOR": ""}).output


def test_color_always_beats_no_color_and_a_pipe(run_cli) -> None:
    result = run_cli(["explain", "--color", "always"])
    assert ESCAPE in result.stdout
    assert "\t" not in result.stdout
    assert ESCAPE in run_cli(["explain", "nonsense", "--color", "always"]).stderr


@pytest.mark.parametrize("columns", [200, 40, 10, 1])
@pytest.mark.parametrize("args", [["explain"], ["explain", "internal"], ["doctor"], ["--help"]])
def test_any_width(args, columns) -> None:
    run = run_in_terminal(args, columns=columns)
    assert run.returncode == 0
    assert run.output.strip()


def test_a_narrow_table_wraps_into_the_width() -> None:
    run = run_in_terminal(["explain"], columns=60, env={"NO_COLOR": "1"})
    assert max(map(len, run.lines)) <= 60


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "args",
    [
        ["list", "mlp-v1"],
        ["list", "keras3"],
        ["list", "partitioned"],
        ["inspect", "mlp-v1"],
        ["inspect", "mlp-v1", "--tree"],
        ["inspect", "keras3", "--tree"],
        ["inspect", "damaged/missing-shard"],
        ["load", "mlp-v1", "hidden/weights"],
        ["load", "mlp-v1", "hiden/weights"],
        ["verify", "damaged/flipped-bit"],
        ["verify", "damaged/missing-shard"],
        ["verify", "damaged/truncated-index"],
        ["state", "keras3"],
        ["latest", "keras3"],
        ["prune", "keras3", "--max-to-keep", "1", "-n"],
        ["repartition", "two-shards", "copy", "--shards", "2", "-n"],
    ],
    ids=" ".join,
)
def test_a_narrow_terminal_breaks_no_word(args, columns, fixtures_dir) -> None:
    run = run_in_terminal(args, columns=columns, env={"NO_COLOR": "1"}, cwd=fixtures_dir)
    too_long = [line for line in run.lines if len(line) > columns]
    commands = [line for line in too_long if line.startswith("  next: ckpttool ")]
    assert too_long == commands, "a command stays one line, to be copied"
    assert not re.search(r"\w…\w", run.output), "no name is cut: other columns go"


def test_a_plan_of_reads_is_cut_where_nothing_can_go(fixtures_dir) -> None:
    args = ["load", "mlp-v1", "hidden/weights/Adam", "--dry-run"]
    run = run_in_terminal(args, columns=60, env={"NO_COLOR": "1"}, cwd=fixtures_dir)
    assert run.lines[-3].split()[0] == "hidden/weights/Adam"
    assert run.lines[-2] == "(no room for dtype, shape, whole names)"
    assert max(map(len, run.lines)) <= 60


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_names_are_readable_on_a_narrow_terminal(columns, fixtures_dir, run_cli) -> None:
    for source in ("mlp-v1", "keras3", "partitioned"):
        names = run_cli(["list", source, "-q"], cwd=fixtures_dir).stdout.splitlines()
        run = run_in_terminal(["list", source], columns=columns, cwd=fixtures_dir)
        rows = run.lines[-len(names) - 2 :] if "no room" in run.output else run.lines
        assert {row.split()[0] for row in rows if row.split()} >= set(names)


def test_columns_in_the_environment_count_without_a_terminal(run_cli) -> None:
    result = run_cli(["explain", "--color", "always"], env={"COLUMNS": "50"})
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    assert max(map(len, plain.splitlines())) <= 50


def test_a_state_file_without_times_has_no_column_for_them(tmp_path) -> None:
    write_bundle(tmp_path, "m-1", {b"w": {"shape": (2,), "size": 8}}, [bytes(8)])
    state = tmp_path / "checkpoint"
    state.write_text('model_checkpoint_path: "m-1"\nall_model_checkpoint_paths: "m-1"\n')
    run = run_in_terminal(["state", str(tmp_path)], env={"NO_COLOR": "1"}, columns=200)
    assert run.lines[1:3] == ["checkpoint", "m-1         latest"]


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("env", [ASCII, {"PYTHONIOENCODING": "ascii"}], ids=["locale C", "ascii"])
def test_an_ascii_terminal_shows_escapes(env) -> None:
    body = r"""
        out.settings.color = "always"
        for piece in out.screen.table([Column("n\xe4me")], [("gr\xf6\xdfe",), ("\udcff",)]):
            out.write(piece)
        raise CorruptError("gr\xf6\xdfe")
    """
    argv = stand_in("from ckpttool.cli.screen import Column\n" + body.replace("\n        ", "\n"))
    run = run_in_terminal([], argv=argv, env=env)
    assert run.returncode == 20
    assert r"gr\xf6\xdfe" in run.output
    assert r"\xff" in run.output
    assert run.output.isascii()


@pytest.mark.parametrize("env", [ASCII, {"LC_ALL": "en_US.ISO-8859-1"}, {"HOME": None}])
@pytest.mark.parametrize("args", [["explain"], ["doctor"], ["explain", "internal"], ["--help"]])
def test_any_locale_and_no_home(args, env) -> None:
    run = run_in_terminal(args, env=env)
    assert run.returncode == 0
    assert "Traceback" not in run.output


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory) -> Path:
    """A run whose directory, prefix and variable have a name that could take a terminal over."""
    folder: Path = tmp_path_factory.mktemp("hostile") / HOSTILE
    folder.mkdir()
    fields: EntryFields = {"shape": (2,), "size": 8}
    prefix = f"{HOSTILE}-7"
    write_bundle(folder, prefix, {HOSTILE.encode(): fields}, [bytes(8)])
    quoted = "".join(f"\\{byte:03o}" for byte in prefix.encode())
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{quoted}"\n')
    return folder


@pytest.mark.parametrize(
    "args",
    [
        ["inspect"],
        ["inspect", "--tree"],
        ["list"],
        ["list", "-q"],
        ["load", HOSTILE],
        ["load", "nothing"],
        ["verify"],
        ["state"],
        ["latest"],
        ["latest", "-q"],
        ["rm", "-n"],
        ["prune", "--max-to-keep", "1", "-n"],
        ["cp", "copy", "-n"],
    ],
    ids=lambda args: " ".join(args).replace(HOSTILE, "NAME"),
)
def test_names_from_files_do_nothing_to_a_terminal(args, hostile_run) -> None:
    command, *rest = args
    args = [command, str(hostile_run), *rest]
    run = run_in_terminal(args, env={"NO_COLOR": "1"}, columns=300, cwd=hostile_run)
    assert run.returncode in {0, 2, 10}
    assert "red" in run.output
    text = run.output.replace("\r\n", "\n")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), text
    assert "\nnext" not in text


def test_what_a_person_typed_comes_back_escaped(run_cli) -> None:
    result = run_cli(["explain", HOSTILE])
    assert result.returncode == 10
    assert r"a\x1b[31mred\x1b[0m\nnext\u202eline\u009b" in result.stderr
    assert ESCAPE not in result.stderr
    assert len(result.stderr.splitlines()) == 3


def test_an_argument_that_is_not_utf8(run_cli) -> None:
    result = run_cli(["explain", b"caf\xe9"])
    assert result.returncode == 10
    assert r"caf\xe9" in result.stderr
    result = run_cli(["explain", b"caf\xe9", "--json"])
    assert "caf\\ufffd" in result.stderr


def test_an_unknown_command_with_terminal_sequences(run_cli) -> None:
    result = run_cli([HOSTILE])
    assert result.returncode == 2
    assert ESCAPE not in result.stderr


def test_an_unknown_option_with_terminal_sequences(run_cli) -> None:
    result = run_cli(["explain", f"--{HOSTILE}"])
    assert result.returncode == 2
    assert ESCAPE not in result.stderr


def test_a_question_is_asked_on_stderr_and_answered() -> None:
    body = 'out.confirm("delete 3 files?"); return 0'
    yes = run_in_terminal([], argv=stand_in(body), keys="y\n")
    assert yes.returncode == 0
    assert "delete 3 files? [y/N]" in yes.output
    interrupted = run_in_terminal([], argv=stand_in(body), slowly=[("", 1.0), ("\x03", 0.5)])
    assert interrupted.returncode == 130
    no = run_in_terminal([], argv=stand_in(body), keys="\n")
    assert no.returncode == 4
    assert "[cancelled]" in no.output


def test_a_table_needs_no_rich(fixtures_dir) -> None:
    body = (
        "import sys\n"
        "from ckpttool.cli.main import main\n"
        "code = main(['list', 'mlp-v1', '--color', 'always'])\n"
        "print('rich' in sys.modules)\n"
        "sys.exit(code)\n"
    )
    run = run_in_terminal([], argv=[sys.executable, "-c", body], cwd=fixtures_dir)
    assert run.returncode == 0
    assert run.lines[-1] == "False", "it takes longer to import than the listing"
