"""Names that mean something to a shell, a glob or a terminal: taken literally, shown escaped."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", NAMES)
def test_as_a_prefix_and_as_a_directory(tmp_path: Path, run_cli: RunCli, name: bytes) -> None:
    root = os.fsencode(tmp_path)
    # What a pattern would match instead, or a careless split would find.
    for bait in (b"run_l", b"star", b"a", b"b", b"emb"):
        os.makedirs(os.path.join(root, bait), exist_ok=True)
    prefix = good(os.path.join(root, b"in" + name), name)
    for address in (prefix, prefix + b".index", prefix + b".data-00000-of-00001"):
        done = run_cli(["verify", address])
        assert done.returncode == 0, done.stderr
        assert not DRAWS.search((done.stdout + done.stderr).replace("\t", " ").replace("\n", " "))
        assert done.stdout.count("\n") == 1
    folder = os.path.join(root, b"in" + name)
    assert run_cli(["verify", folder]).returncode == 0
    assert run_cli(["load", folder, "v"]).returncode == 0
    assert run_cli(["list", folder]).returncode == 0
    # As a relative path, where a leading dash would be an option.
    done = run_cli(["verify", "--json", "--", name], cwd=os.fsdecode(folder))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["data"]["healthy"]


@pytest.mark.parametrize("name", NAMES)
def test_as_the_name_of_a_damaged_variable(tmp_path: Path, run_cli: RunCli, name: bytes) -> None:
    prefix = good(os.path.join(os.fsencode(tmp_path), b"run"), b"m", name)
    with open(prefix + b".data-00000-of-00001", "wb") as file:
        file.write(b"damaged!")
    for options in ([], ["--color", "always"], ["--ndjson"]):
        done = run_cli(["verify", prefix, *options])
        assert (done.returncode, done.stderr) == (1, "")
        shown = re.sub("\x1b\\[[0-9;]*m", "", done.stdout) if "--color" in options else done.stdout
        if options != ["--ndjson"]:
            assert not DRAWS.search(shown.replace("\t", " ").replace("\n", " "))
            assert done.stdout.count("\n") == 2
    finding = json.loads(done.stdout.splitlines()[0])
    if "object_base64" not in finding:
        assert finding["object"].encode() == name


def test_a_name_as_long_as_a_file_system_allows(tmp_path: Path, run_cli: RunCli) -> None:
    longest = b"n" * (255 - len(b".data-00000-of-00001"))
    prefix = good(os.path.join(os.fsencode(tmp_path), b"run"), longest)
    assert run_cli(["verify", prefix]).returncode == 0
    done = run_cli(["verify", prefix + b"n" * 100])
    assert done.returncode == 10
    assert len(done.stderr.splitlines()) == 3
