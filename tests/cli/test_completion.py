"""Completion as the shells ask for it, and in the shells themselves where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckpttool.cli.app import COMMANDS
from tests.support.command import clean_environment
from tests.support.handmade import write_bundle
from tests.support.terminal import run_in_terminal

SHELLS = ["bash", "zsh", "fish"]


#: A variable's name with much that shells take for something else.
ODD_NAME = "layer/a (b) $c:0"
CHECKPOINT_FILES = [
    f"run/model.ckpt-{step}.{ending}"
    for step in (100, 1000, 90)
    for ending in ("data-00000-of-00001", "index", "meta")
]


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """A run with three checkpoints (as names: no content is needed), and other things."""
    run = tmp_path / "run"
    (run / "sub").mkdir(parents=True)
    for step in (90, 100, 1000):
        (run / f"model.ckpt-{step}.index").touch()
        (run / f"model.ckpt-{step}.meta").touch()
        (run / f"model.ckpt-{step}.data-00000-of-00001").touch()
    (run / "checkpoint").touch()
    (tmp_path / "with space").mkdir()
    (tmp_path / "with space" / "ckpt-1.index").touch()
    return tmp_path


def ask(line: str, cwd: Path, shell: str = "bash", **changes: str) -> list[str]:
    """The candidates for a line with the cursor at its end."""
    return ask_kind(line, cwd, shell, **changes)[1]


def ask_kind(line: str, cwd: Path, shell: str, **changes: str) -> tuple[str, list[str]]:
    """What bash is told of the candidates (``paths`` or ``words``), and they."""
    env = {"_CKPTTOOL_COMPLETE": shell, "COMP_LINE": line, "COMP_POINT": str(len(line.encode()))}
    words = [] if shell == "bash" else line.split(" ")[1:]
    result = subprocess.run(
        [sys.executable, "-m", "ckpttool", *words],
        cwd=cwd,
        env=clean_environment({**env, **changes}),
        capture_output=True,
        check=True,
    )
    lines = os.fsdecode(result.stdout).splitlines()
    return (lines[0], lines[1:]) if shell == "bash" and lines else ("", lines)


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("ckpttool ", list(COMMANDS)),
        ("ckpttool l", ["list", "load", "latest"]),
        ("ckpttool list --nd", ["--ndjson"]),
        ("ckpttool list --color a", ["auto", "always"]),
        ("ckpttool completion ", SHELLS),
        ("ckpttool list r", ["run"]),
        ("ckpttool ls r", ["run"]),
        (
            "ckpttool list run/",
            ["run/model.ckpt-100", "run/model.ckpt-1000", "run/model.ckpt-90", "run/sub"],
        ),
        (
            "ckpttool list run/model.ckpt-1000.",
            [
                "run/model.ckpt-1000.data-00000-of-00001",
                "run/model.ckpt-1000.index",
                "run/model.ckpt-1000.meta",
            ],
        ),
        ("ckpttool list run/chec", ["run/checkpoint"]),
        ("ckpttool list run/@", ["run/@latest", "run/@90", "run/@100", "run/@1000"]),
        ("ckpttool list run/@1", ["run/@100", "run/@1000"]),
        ("ckpttool verify run/model.ckpt-90 run/model.ckpt-1000", ["run/model.ckpt-1000"]),
        ("X=1 ckpttool list run/s", ["run/sub"]),
        ("ckpttool list 'with sp", ["with space"]),
        ("ckpttool list with\\ space/", ["with space/ckpt-1"]),
        ("ckpttool load run/model.ckpt-90 x -o wi", ["with space"]),
        ("ckpttool load run/model.ckpt-90 x -o run/m", CHECKPOINT_FILES),
        ("ckpttool load run/model.ckpt-90 x --output=run/chec", ["--output=run/checkpoint"]),
        ("ckpttool prune run --apply run/chec", ["run/checkpoint"]),
        ("ckpttool prune run --plan run/chec", ["run/checkpoint"]),
        ("ckpttool repartition a b --apply run/chec", ["run/checkpoint"]),
        ("ckpttool average a b -o run/s", ["run/sub"]),
        ("ckpttool edit a b --map run/chec", ["run/checkpoint"]),
        ("ckpttool edit a b --like run/model.ckpt-9", ["run/model.ckpt-90"]),
        ("ckpttool state run --set-latest run/model.ckpt-9", ["run/model.ckpt-90"]),
        ("ckpttool explain shard-em", ["shard-empty"]),
        ("ckpttool explain 14", ["141", "143"]),
        ("ckpttool list nowhere/", []),
        ("ckpttool list 'run\" ", []),
        ("", []),
    ],
)
def test_candidates(line, candidates, run_directory) -> None:
    assert ask(line, run_directory) == candidates


def test_v1_checkpoints_are_known_by_their_graphs(fixtures_dir) -> None:
    assert ask("ckpttool list v1/m", fixtures_dir) == ["v1/model.ckpt-2"]
    assert ask("ckpttool list v1-sharded/m", fixtures_dir) == ["v1-sharded/model.ckpt-30"]
    assert ask("ckpttool list v1-sharded/@", fixtures_dir) == [
        "v1-sharded/@latest",
        "v1-sharded/@30",
    ]
    assert ask("ckpttool load v1 emb", fixtures_dir) == ["embedding", "embedding/Momentum"]


@pytest.mark.parametrize(
    ("line", "word", "candidates"),
    [
        ("ckpttool list run/@9", "@9", ["@90"]),
        ("ckpttool list run/@", "@", ["@latest", "@90", "@100", "@1000"]),
        ("ckpttool list 'run/@9", "run/@9", ["run/@90"]),
        ("ckpttool list with\\ sp", "with\\ sp", ["with space"]),
        ("ckpttool list --color=al", "al", ["always"]),
        ("ckpttool list --color=al", "--color=al", ["--color=always"]),
    ],
)
def test_bash_gets_what_readline_replaces(line, word, candidates, run_directory) -> None:
    assert ask(line, run_directory, COMP_WORD=word) == candidates


def test_zsh_and_fish_get_a_description_behind_a_tab(run_directory) -> None:
    for shell in ("zsh", "fish"):
        assert ask("ckpttool insp", run_directory, shell) == [f"inspect\t{COMMANDS['inspect']}"]
        assert ask("ckpttool list run/@9", run_directory, shell) == ["run/@90"]
        assert ask("ckpttool list --color=al", run_directory, shell) == ["--color=always"]


def test_variable_names_follow_the_source(fixtures_dir) -> None:
    names = ask("ckpttool load mlp-v1 hid", fixtures_dir)
    assert "hidden/weights" in names
    assert all(name.startswith("hid") for name in names)
    assert ask("ckpttool get mlp-v1 zzz", fixtures_dir) == []
    assert ask("ckpttool load missing zzz", fixtures_dir) == []


def test_variable_names_are_those_that_were_asked_for(fixtures_dir) -> None:
    assert "regressor/hidden/kernel" in ask("ckpttool load keras3 reg", fixtures_dir)
    assert ask("ckpttool load keras3 --names path reg", fixtures_dir) == []
    assert ask("ckpttool load keras3 --names path model/_f", fixtures_dir) != []
    line = "ckpttool diff mlp-v1 two-shards --include hidden/w"
    assert "hidden/weights" in ask(line, fixtures_dir)


def test_variables_of_a_run_are_those_of_its_latest(fixtures_dir) -> None:
    assert "hidden/weights" in ask("ckpttool stats mlp-v1 hid", fixtures_dir)
    assert "regressor/hidden/kernel" in ask("ckpttool stats 'keras3/@*' reg", fixtures_dir)


def test_patterns_of_variables_follow_the_source(fixtures_dir) -> None:
    for option in ("--include", "--exclude"):
        line = f"ckpttool list mlp-v1 {option} hidden/w"
        assert "hidden/weights" in ask(line, fixtures_dir)
    assert "hidden/weights" in ask("ckpttool edit mlp-v1 x --drop hidden/w", fixtures_dir)


def test_bash_is_told_what_is_a_path(fixtures_dir) -> None:
    assert ask_kind("ckpttool load ml", fixtures_dir, "bash") == ("paths", ["mlp-v1"])
    assert ask_kind("ckpttool load mlp-v1 hidden/weights/", fixtures_dir, "bash") == (
        "words",
        ["hidden/weights/Adam", "hidden/weights/Adam_1"],
    )
    assert ask_kind("ckpttool compl", fixtures_dir, "bash") == ("words", ["completion"])
    assert ask_kind("ckpttool nothing", fixtures_dir, "bash") == ("", [])


@pytest.mark.parametrize(
    ("typed", "word", "candidate"),
    [
        ("a", "a", r"a\ \(b\)\ \$c\'d:0"),
        ("'a", "a", r"a (b) $c'\''d:0"),
        ('"a', "a", r"a (b) \$c'd:0"),
    ],
    ids=["bare", "single", "double"],
)
def test_variables_are_quoted_for_bash(typed, word, candidate, tmp_path) -> None:
    write_bundle(tmp_path, "m", {b"a (b) $c'd:0": {"shape": (2,), "size": 8}}, [bytes(8)])
    assert ask(f"ckpttool load m {typed}", tmp_path, COMP_WORD=word) == [candidate]


def test_a_name_that_is_not_utf8_stays_exact(tmp_path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/b\xfdd")
    os.mkdir(folder)
    for shell in SHELLS:
        (name,) = ask("ckpttool list b", tmp_path, shell)
        assert os.fsencode(name).rstrip(b"/") == b"b\xfdd"


def test_a_link_to_a_directory_keeps_its_slash(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert ask("ckpttool list l", tmp_path) == ["link/"]


def test_a_candidate_with_a_line_break_is_left_out(tmp_path) -> None:
    (tmp_path / "two\nlines.index").touch()
    (tmp_path / "two.index").touch()
    assert ask("ckpttool list tw", tmp_path) == ["two"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_parses(shell, run_cli, tmp_path) -> None:
    script = run_cli(["completion", shell])
    assert script.returncode == 0
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    result = subprocess.run([program, "-n"], input=script.stdout, text=True, capture_output=True)
    assert (result.returncode, result.stderr) == (0, "")


def in_shell(shell: str, lines: list[str], cwd: Path, tmp_path: Path) -> list[str]:
    """What an interactive shell makes of lines, each with TAB at its end: the arguments."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    folder = tmp_path / "bin"
    folder.mkdir()
    wrapper = folder / "ckpttool"
    wrapper.write_text(
        "#!/bin/sh\n"
        'if [ -n "$_CKPTTOOL_COMPLETE" ] || [ "$1" = completion ]; then\n'
        f'  exec "{sys.executable}" -m ckpttool "$@"\n'
        "fi\n"
        f"{{ printf '<%s>' \"$@\"; echo; }} >> '{tmp_path}/arrived'\n"
    )
    wrapper.chmod(0o755)
    options = {
        "bash": ["--norc", "--noprofile", "-i"],
        "zsh": ["-f", "-i"],
        "fish": ["--no-config", "-i"],
    }[shell]
    load = {
        "bash": "source <(ckpttool completion bash)\n",
        "zsh": "autoload -U compinit; compinit -D; source <(ckpttool completion zsh)\n",
        "fish": "ckpttool completion fish | source\n",
    }[shell]
    env: dict[str, str | None] = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    keys = [(load, 2.5)]
    for line in lines:
        keys += [(f"{line}\t", 2.0), ("\n", 0.3)]
    keys.append(("exit\n", 0.0))
    run_in_terminal(options, argv=[program], cwd=cwd, env=env, slowly=keys, timeout=30)
    arrived = tmp_path / "arrived"
    return arrived.read_text().splitlines() if arrived.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell(shell, run_directory, tmp_path_factory) -> None:
    write_bundle(run_directory, "m", {ODD_NAME.encode(): {"shape": (2,), "size": 8}}, [bytes(8)])
    arrivals = {
        "ckpttool insp": "<inspect>",
        "ckpttool list run/@9": "<list><run/@90>",
        "ckpttool list wit": "<list><with space/>",
        "ckpttool load m lay": f"<load><m><{ODD_NAME}>",
        "ckpttool load m 'lay": f"<load><m><{ODD_NAME}>",
        "ckpttool load m x -o run/su": "<load><m><x><-o><run/sub/>",
    }
    arrived = in_shell(shell, list(arrivals), run_directory, tmp_path_factory.mktemp("shell"))
    assert arrived == list(arrivals.values())
