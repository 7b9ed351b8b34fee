"""Names that mean something to a shell, a glob or a terminal: taken literally, shown escaped."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from pathlib import Path

import pytest

from tests.faults.confined import Outcome, run_confined
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, write_bundle

EIGHT = bytes(range(8))
DRAWS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

NAMES = [
    b"run_[lr=1]",
    b"st*r?",
    b"{a,b}~$HOME`id`",
    b"-rf",
    b"--help",
    b" spaces  and\ttabs ",
    b"new\nline",
    b"\xff\xfe not utf8",
    b"\x1b[2J\x1b]0;owned\x07",
    "\u202egpj.exe".encode(),
    b"@12",
    b"emb[0:10]",
    b"a" * 200,
    "\u00fcml\u00e4ut \u65e5\u672c".encode(),
    b"c%s%n{0}",
    b"back\\slash",
]


def good(folder: bytes, name: bytes, variable: bytes = b"v") -> bytes:
    """Write a checkpoint into a new directory; gives its prefix."""
    os.mkdir(folder)
    fields: EntryFields = {"shape": (2,), "size": 8}
    write_bundle(os.fsdecode(folder), os.fsdecode(name), {variable: fields}, [EIGHT])
    return os.path.join(folder, name)


Runs = dict[tuple[bytes, str], Outcome]


def draws(text: str) -> bool:
    """Whether a text has anything but what tables and lines are made of."""
    return bool(DRAWS.search(text.replace("\t", " ").replace("\n", " ")))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Every command on checkpoints whose prefix and directory have these names."""
    root = os.fsencode(tmp_path_factory.mktemp("places"))
    # What a pattern would match instead, or a careless split would find.
    for bait in (b"run_l", b"star", b"a", b"b", b"emb"):
        os.mkdir(os.path.join(root, bait))
    lines: dict[tuple[bytes, str], list[str]] = {}
    for name in NAMES:
        folder = os.path.join(root, b"in" + name)
        prefix = os.fsdecode(good(folder, name))
        for what, argv in {
            "prefix": ["verify", prefix],
            "index": ["verify", f"{prefix}.index"],
            "shard": ["verify", f"{prefix}.data-00000-of-00001"],
            "json": ["verify", "--json", prefix],
            "run": ["verify", os.fsdecode(folder)],
            "list": ["list", os.fsdecode(folder)],
            "load": ["load", os.fsdecode(folder), "v"],
            "inspect": ["inspect", os.fsdecode(folder)],
        }.items():
            lines[name, what] = argv
    return dict(zip(lines, run_confined(lines.values()), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_as_a_prefix_and_as_a_directory(places: Runs, name: bytes) -> None:
    for (of, what), outcome in places.items():
        if of == name:
            assert outcome.code == 0, (what, outcome.stderr)
            assert not draws(outcome.stdout + outcome.stderr), what
    for what in ("prefix", "index", "shard", "run"):
        assert places[name, what].stdout.count("\n") == 1
    assert json.loads(places[name, "json"].stdout)["data"]["healthy"]


@pytest.mark.parametrize("name", [b"-rf", b"--help", b"@12", b"\xff\xfe", b"st*r?"])
def test_as_a_relative_path_of_the_real_process(
    tmp_path: Path, run_cli: RunCli, name: bytes
) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"run")
    good(folder, name)
    done = run_cli(["verify", "--json", "--", name], cwd=os.fsdecode(folder))
    assert done.returncode == 0, done.stderr
    (source,) = json.loads(done.stdout)["data"]["sources"]
    assert source["healthy"]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """`verify` of a damaged variable of each of the names, in several forms."""
    lines: dict[tuple[bytes, str], list[str]] = {}
    for number, name in enumerate(NAMES):
        folder = os.path.join(os.fsencode(tmp_path_factory.mktemp("damaged")), b"%d" % number)
        prefix = good(folder, b"m", name)
        with open(prefix + b".data-00000-of-00001", "wb") as file:
            file.write(b"damaged!")
        for what, options in {
            "plain": [],
            "human": ["--color", "always"],
            "records": ["--ndjson"],
        }.items():
            lines[name, what] = ["verify", os.fsdecode(prefix), *options]
    return dict(zip(lines, run_confined(lines.values()), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_as_the_name_of_a_damaged_variable(damaged: Runs, name: bytes) -> None:
    for what in ("plain", "human", "records"):
        outcome = damaged[name, what]
        assert (outcome.code, outcome.stderr) == (1, "")
    for what in ("plain", "records"):
        assert damaged[name, what].stdout.count("\n") == 2
    # People's text may wrap, with an indent; a name starts no line of its own.
    head, *lines, last = damaged[name, "human"].stdout.splitlines()
    assert "damaged" in head
    assert "ckpttool explain" in last
    assert lines
    assert all(line.startswith("  ") for line in lines)
    assert not draws(re.sub("\x1b\\[[0-9;]*m", "", damaged[name, "human"].stdout))
    assert not draws(damaged[name, "plain"].stdout)
    finding = json.loads(damaged[name, "records"].stdout.splitlines()[0])
    exact = finding.get("object_base64")
    assert (b64decode(exact) if exact else finding["object"].encode()) == name


def test_a_name_as_long_as_a_file_system_allows(tmp_path: Path, run_cli: RunCli) -> None:
    longest = b"n" * (255 - len(b".data-00000-of-00001"))
    prefix = good(os.path.join(os.fsencode(tmp_path), b"run"), longest)
    assert run_cli(["verify", prefix]).returncode == 0
    done = run_cli(["verify", prefix + b"n" * 100])
    assert done.returncode == 10
    assert len(done.stderr.splitlines()) == 3
