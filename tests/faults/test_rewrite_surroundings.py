"""Odd names, links, rights, signals and a source that changes, for the commands that write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpttool.errors import ChangedError, CkpttoolError
from ckpttool.ops.average import average
from ckpttool.ops.copy import copy_checkpoint, move_checkpoint
from ckpttool.ops.merge import merge
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.salvage import salvage
from ckpttool.ops.verify import verify
from ckpttool.storage.lock import LOCK_NAME
from tests.faults.test_names import NAMES
from tests.support.command import ROOT, clean_environment
from tests.support.handmade import masked_crc, write_bundle

EIGHT = bytes(range(8))

#: Every command that writes, from one prefix to another.
WORK: dict[str, Callable[[str, str, Options], object]] = {
    "cp": copy_checkpoint,
    "salvage": salvage,
    "repartition": lambda one, to, how: repartition([one], to, Repartition(shards=2), how),
    "merge": lambda one, to, how: merge([one, one], to, "first", (), how),
    "average": lambda one, to, how: average([one, one], to, None, how),
    "mv": move_checkpoint,
}


def write(where: Path, prefix: str, shards: int = 2) -> str:
    """A checkpoint with one float variable in every data file."""
    where.mkdir(exist_ok=True)
    entries = {
        f"v{n}".encode(): {"shape": (2,), "size": 8, "shard": n, "crc": masked_crc(EIGHT)}
        for n in range(shards)
    }
    write_bundle(where, prefix, entries, [EIGHT] * shards)  # type: ignore[arg-type]
    return str(where / prefix)


def files(where: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in where.iterdir() if path.is_file()}


def visible(where: Path) -> set[str]:
    return {name for name in os.listdir(where) if name != LOCK_NAME}


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_are_taken_literally(tmp_path, monkeypatch, name):
    """FAULTS 10: from such a name to such a name, in a directory of such a name."""
    text = os.fsdecode(name)
    inside = tmp_path / text[:100]
    write(inside, text)
    monkeypatch.chdir(inside)
    for number, (command, work) in enumerate(WORK.items()):
        to = os.path.join(".", f"{text[:190]}{number}")
        work(os.path.join(".", text), to, Options(verify=True))
        assert os.path.exists(f"{to}.index"), command


@pytest.mark.parametrize("command", WORK)
def test_neighbours_are_left_alone(tmp_path, command):
    """FAULTS 11: what starts like ckpt-1 is not ckpt-1's, also where it is overwritten."""
    source = write(tmp_path / "in", "model", 1)
    out = tmp_path / "out"
    neighbours = ("ckpt-10", "ckpt-1-best", "ckpt-1.data", "ckpt-1.index", "xckpt-1")
    for prefix in neighbours:
        write(out, prefix, 3)
    before = files(out)
    write(out, "ckpt-1", 3)
    before |= {"ckpt-1.index": b""}  # also the index of the prefix ckpt-1
    WORK[command](source, str(out / "ckpt-1"), Options(overwrite=True))
    after = files(out)
    assert {name: data for name, data in after.items() if name in before} | {
        "ckpt-1.index": b""
    } == before
    own = {name for name in after.keys() - before.keys() if name != LOCK_NAME}
    count = 2 if command in {"repartition", "merge"} else 1
    assert own <= {f"ckpt-1.data-0000{n}-of-0000{count}" for n in range(count)}
    assert verify(str(out / "ckpt-1")).healthy


@pytest.mark.parametrize("command", WORK)
def test_a_source_of_links_is_refused(tmp_path, command):
    """FAULTS 12: a data file that leads elsewhere, and one that would never end."""
    for kind in ("link", "fifo"):
        source = write(tmp_path / kind, "m")
        shard = Path(f"{source}.data-00001-of-00002")
        if kind == "link":
            shard.rename(tmp_path / "elsewhere")
            shard.symlink_to(tmp_path / "elsewhere")
        else:
            shard.unlink()
            os.mkfifo(shard)
        (tmp_path / "out").mkdir(exist_ok=True)
        if command == "salvage":
            assert salvage(source, str(tmp_path / "out" / "s"), Options()).lost
            shutil.rmtree(tmp_path / "out")
            continue
        with pytest.raises(CkpttoolError) as caught:
            WORK[command](source, str(tmp_path / "out" / "m"), Options())
        assert caught.value.exit_code in {20, 22}
        assert visible(tmp_path / "out") == set()


@pytest.mark.parametrize("command", WORK)
def test_a_destination_of_links_is_replaced_and_not_followed(tmp_path, command):
    """FAULTS 12: --overwrite puts files in the place of links; what they lead to stays."""
    source = write(tmp_path / "in", "m", 1)
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("m.index", "m.data-00000-of-00001", "m.data-00000-of-00002"):
        (out / name).symlink_to(precious)
    with pytest.raises(CkpttoolError) as caught:
        WORK[command](source, str(out / "m"), Options())
    assert caught.value.exit_code == 31
    WORK[command](source, str(out / "m"), Options(overwrite=True, verify=True))
    assert precious.read_bytes() == b"precious"
    assert not any(path.is_symlink() for path in out.iterdir())


#: Plans once, which imports all that it takes, then becomes nobody and does it.
_AS_NOBODY = """
import os, sys
from ckpttool.cli.main import main
sys.stdout = open(os.devnull, "w")
assert main([*sys.argv[1:], "-n"]) == 0
sys.stdout = sys.__stdout__
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["cp", "mv", "repartition", "average", "merge"])
def test_a_directory_that_may_not_be_written(command):
    """FAULTS 18: as nobody; the error says which directory, and nothing is left."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own ones nobody may enter
        folder = Path(name)
        source = write(folder / "in", "m")
        second = write(folder / "in2", "n")
        out = folder / "out"
        out.mkdir()
        out.chmod(0o555)
        folder.chmod(0o755)
        arguments = [command, source, f"{out}/m"]
        if command in {"average", "merge"}:
            arguments = [command, source, second, "-o", f"{out}/m"]
            arguments += ["--on-conflict", "first"] if command == "merge" else []
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, *arguments],
            capture_output=True,
            text=True,
            cwd="/",
            env=clean_environment({"PYTHONPATH": str(ROOT)}),
            check=False,
        )
        if "Operation not permitted" in done.stderr and "setgroups" in done.stderr:
            pytest.skip("root here may not become another user")
        assert done.returncode == 42, done.stderr
        assert str(out) in done.stderr
        assert os.listdir(out) == []
        out.chmod(0o755)
        assert verify(source).healthy


_SLOW = """
import os, sys, time
from ckpttool.cli.main import main
real = os.fsync
def slow(descriptor):
    real(descriptor)
    time.sleep(10)  # the signal ends it
os.fsync = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["cp", "repartition", "merge"])
def test_a_signal_in_the_middle_leaves_nothing(tmp_path, command, number, code):
    """FAULTS 19."""
    source = write(tmp_path / "in", "m", 3)
    other = write(tmp_path / "other", "n", 1)
    before = files(tmp_path / "in")
    out = tmp_path / "out"
    out.mkdir()
    arguments = {
        "cp": ["cp", source, f"{out}/m"],
        "repartition": ["repartition", source, f"{out}/m", "--shards", "2"],
        "merge": ["merge", source, other, "-o", f"{out}/m", "--on-conflict", "first"],
    }[command]
    child = subprocess.Popen(
        [sys.executable, "-c", _SLOW, *arguments],
        env=clean_environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    end = time.monotonic() + 60
    while not any(name.startswith(".ckpttool-new-") for name in os.listdir(out)):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == code, said
    assert visible(out) == set()
    assert files(tmp_path / "in") == before


@pytest.mark.parametrize("which", [".index", ".data-00001-of-00002"])
@pytest.mark.parametrize("command", WORK)
def test_a_source_that_is_replaced_meanwhile_is_noticed(tmp_path, monkeypatch, command, which):
    """FAULTS 7: by another file of the same name and size, after it was opened."""
    source = write(tmp_path / "in", "m")
    out = tmp_path / "out"
    out.mkdir()
    real = os.fsync
    pending = [f"{source}{which}"]

    def replaced(descriptor: int) -> None:
        real(descriptor)
        if pending:
            path = pending.pop()
            shutil.copy(path, tmp_path / "new")
            os.replace(tmp_path / "new", path)

    monkeypatch.setattr(os, "fsync", replaced)
    with pytest.raises(ChangedError) as caught:
        WORK[command](source, str(out / "m"), Options())
    assert not pending
    assert caught.value.exit_code == 30
    assert f"{source}{which}" in caught.value.what
    assert visible(out) == set()
    WORK[command](source, str(out / "m"), Options(verify=True))
