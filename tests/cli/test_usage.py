"""The command line itself: what is refused, what is suggested, what is not imported."""

from __future__ import annotations

import importlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ckpttool.cli.app import ALIASES, COMMANDS, SECTIONS, root
from ckpttool.cli.options import Options
from ckpttool.cli.output import Output, Settings
from ckpttool.version import __version__
from tests.support.command import clean_environment


def command_of(name: str) -> click.Command:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return command


def test_version(run_cli) -> None:
    result = run_cli(["--version"])
    assert (result.returncode, result.stdout) == (0, f"ckpttool {__version__}\n")


def test_help_lists_every_command_and_alias(run_cli) -> None:
    result = run_cli(["--help"])
    assert result.returncode == 0
    shown = [line.split("  ")[1] for line in result.stdout.splitlines() if line.startswith("  ")]
    for name in COMMANDS:
        alias = next((alias for alias, of in ALIASES.items() if of == name), None)
        assert shown.count(f"{name}, {alias}" if alias else name) == 1
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)


def test_no_command_shows_the_help_on_stderr(run_cli) -> None:
    result = run_cli([])
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == run_cli(["--help"]).stdout


@pytest.mark.parametrize("args", [["--help"], ["--version"], []])
def test_the_front_page_imports_no_command(args) -> None:
    code = (
        "import sys; from ckpttool.cli.main import main; main(sys.argv[1:]);"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=True,
    )
    loaded = set(result.stderr.splitlines())
    assert "ckpttool.cli.app" in loaded
    assert {name for name in loaded if name.startswith("ckpttool.cli.commands.")} == set()
    assert loaded & {"rich", "json", "tempfile", "importlib.metadata", "ckpttool.storage"} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_the_table_says(name) -> None:
    command = command_of(name)
    assert command.name == name
    assert (command.help or "").partition("\n")[0] == COMMANDS[name]
    assert command.callback is not None


def test_every_module_of_commands_is_in_the_table() -> None:
    folder = Path(importlib.import_module("ckpttool.cli.commands").__path__[0])
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py")}
    assert modules - {"--init--"} == set(COMMANDS)


def test_aliases_are_the_commands() -> None:
    for alias, name in ALIASES.items():
        assert command_of(alias) is command_of(name)


def options_of(name: str) -> list[click.Option]:
    return [param for param in command_of(name).params if isinstance(param, click.Option)]


#: Options whose words depend on the command: what is written, and what is asked.
OWN_WORDS = {
    *("-o", "--output", "--check", "--cast", "--graph", "--no-check", "-q", "--quiet"),
    *("--like", "--map"),  # a layout or a graph to take over; names that are read or written
}


def test_options_mean_the_same_everywhere() -> None:
    """Two commands that have an option say the same of it, in letters and in words."""
    meanings: dict[str, dict[str, list[str]]] = {}
    for name in COMMANDS:
        for option in options_of(name):
            says = f"{'/'.join(option.opts)}: {option.help}"
            for spelling in option.opts:
                meanings.setdefault(spelling, {}).setdefault(says, []).append(name)
    different = {spelling: says for spelling, says in meanings.items() if len(says) > 1}
    assert {spelling: different[spelling] for spelling in different.keys() - OWN_WORDS} == {}
    assert different.keys() >= OWN_WORDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_can_be_typed(name, run_cli) -> None:
    """They are shown one a line, and their command lines make sense."""
    command = command_of(name)
    assert isinstance(command, Options)
    assert command.examples
    shown = run_cli([name, "--help"]).stdout
    parsed = 0
    for example in command.examples:
        assert f"\n  {example}\n" in shown
        program, *words = shlex.split(example, comments=True)
        if program == "ckpttool":
            parsed += 1
            assert words[0] == name
            command.make_context(name, words[1:], obj=Output(Settings()))
    assert parsed or name == "completion"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options_and_explains_all(name) -> None:
    spellings = {spelling for option in options_of(name) for spelling in option.opts}
    assert {"--color", "--no-input", "--verbose", "-v"} <= spellings
    for option in options_of(name):
        assert option.help, option.opts
        assert option.help.rstrip("]")[-1] in ".]:" or option.help.endswith("]"), option.help


@pytest.mark.parametrize(
    ("typed", "meant"), [("lst", "list"), ("inpsect", "inspect"), ("lode", "load"), ("gte", "get")]
)
def test_a_misspelt_command_is_recognised(typed, meant, run_cli) -> None:
    result = run_cli([typed])
    assert result.returncode == 2
    assert f"did you mean: ckpttool {meant}" in result.stderr
    assert result.stderr.endswith("[no-such-command]\n")


@pytest.mark.parametrize("word", ["version", "help"])
def test_an_option_is_no_command(word, run_cli) -> None:
    assert f"did you mean: ckpttool --{word}  [" in run_cli([word]).stderr


def test_json_before_the_command(run_cli) -> None:
    result = run_cli(["--json", "list", "x"])
    assert result.returncode == 2
    error = json.loads(result.stderr)
    assert error["hint"] == "put it after the command: ckpttool list --json ..."


def test_a_path_is_no_command(run_cli) -> None:
    result = run_cli(["run/model.ckpt-1000"])
    assert result.returncode == 2
    assert "there is no command 'run/model.ckpt-1000'" in result.stderr
    assert "did you mean: ckpttool inspect run/model.ckpt-1000  [" in result.stderr
    assert "did you mean: ckpttool inspect 'a b/c'" in run_cli(["a b/c"]).stderr
    assert "next: ckpttool --help  [" in run_cli(["zzz"]).stderr


@pytest.mark.parametrize(
    ("args", "what", "hint"),
    [
        (["explain", "--jsn"], "no such option '--jsn'", "did you mean: --json"),
        (["list", "x", "--includ", "y"], "'--includ'", "did you mean: --include"),
        (["list", "x", "--bogus"], "no such option '--bogus'", "ckpttool list --help"),
        (["explain", "a", "b"], "unexpected extra argument (b)", "ckpttool explain --help"),
        (["completion"], "Choose from: bash, zsh, fish", "ckpttool completion --help"),
        (["completion", "tcsh"], "'bash', 'zsh', 'fish'", "ckpttool completion --help"),
        (["explain", "--color", "blue"], "'auto', 'always', 'never'", "ckpttool explain --help"),
        (["--frobnicate"], "no such option '--frobnicate'", "ckpttool --help"),
        (["--bogus"], "no such option '--bogus'", "ckpttool --help"),
        (["--versoin"], "no such option '--versoin'", "did you mean: --version"),
        (["-q", "list", "x"], "'-q'", "put it after the command: ckpttool list -q ..."),
        (
            ["--cast", "float32", "load"],
            "'--cast'",
            "put it after the command: ckpttool load --cast ...",
        ),
        (["--cast", "list"], "no such option '--cast'", "ckpttool --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_usage_error_is_three_lines_and_2(args, what, hint, run_cli) -> None:
    result = run_cli(args)
    assert (result.returncode, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("error: ")
    assert what in lines[0]
    assert lines[2] == f"  next: {hint}  [usage]"


@pytest.mark.parametrize(
    "args",
    [
        ["explain", "--json", "--jsn"],
        ["explain", "--jsn", "--json"],
        ["explain", "--json", "a", "b"],
        ["explain", "--json", "-q"],
        ["nonsense", "--json"],
        ["--json"],
        ["nonsense", "--ndjson"],
    ],
    ids=" ".join,
)
def test_with_json_a_usage_error_is_one_object(args, run_cli) -> None:
    result = run_cli(args)
    assert (result.returncode, result.stdout) == (2, "")
    assert json.loads(result.stderr)["code"] == 2


def test_json_behind_two_dashes_is_an_argument(run_cli) -> None:
    result = run_cli(["explain", "--", "--json"])
    assert result.returncode == 10
    assert result.stderr.startswith("error: there is no explanation of '--json'")


@pytest.mark.parametrize(
    "args", [["-v", "-v", "explain", "nonsense"], ["explain", "nonsense", "-vv"]], ids=" ".join
)
def test_verbose_counts_before_and_after_the_command(args, run_cli) -> None:
    result = run_cli(args)
    assert result.returncode == 10
    assert "Traceback" in result.stderr


def test_verbose_once_before_and_once_after(run_cli) -> None:
    assert "Traceback" in run_cli(["-v", "explain", "nonsense", "-v"]).stderr
    assert "Traceback" not in run_cli(["-v", "explain", "nonsense"]).stderr


def test_verbose_is_a_member_of_an_error_object(run_cli) -> None:
    report = json.loads(run_cli(["explain", "nonsense", "--json", "-vv"]).stderr)
    assert report["traceback"].startswith("Traceback")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(name, run_cli) -> None:
    result = run_cli([name, "-h"])
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: ckpttool {name} ")
    assert max(map(len, result.stdout.splitlines())) <= 100
