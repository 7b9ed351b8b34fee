"""What may not be read: a shard, an index, a directory; as a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ROOT, clean_environment
from tests.support.handmade import EntryFields, write_bundle

EIGHT = bytes(range(8))
_NOBODY = 65534

#: Imports all that a command needs while it may still read the interpreter's own files,
#: then becomes nobody and runs the command line.
_AS_NOBODY = """
import os, sys
from ckpttool.cli.main import main
for command in sys.argv[1].split():
    sys.stdout = sys.stderr = open(os.devnull, "w")
    main([command, sys.argv[2], *(["v0"] if command == "load" else [])])
sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
os.setgroups([])
os.setgid({nobody})
os.setuid({nobody})
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that any user may enter, unlike those that pytest makes."""
    path = Path(tempfile.mkdtemp(prefix="ckpttool-access-"))
    path.chmod(0o755)
    yield path
    for directory in [path, *(entry for entry in path.iterdir() if entry.is_dir())]:
        directory.chmod(0o755)
    shutil.rmtree(path)


def write(folder: Path) -> Path:
    """A checkpoint of two shards, readable by all; gives its prefix."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    entries: dict[bytes, EntryFields | bytes] = {
        b"v%d" % shard: {"shape": (2,), "shard": shard, "size": 8} for shard in range(2)
    }
    prefix = write_bundle(folder, "m", entries, [EIGHT, EIGHT])
    for path in folder.iterdir():
        path.chmod(0o644)
    return prefix


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command line without root's right to read everything."""
    if os.geteuid() != 0:
        command = [sys.executable, "-m", "ckpttool", *argv]
    else:
        warm = write(folder / "warm")
        code = _AS_NOBODY.format(nobody=_NOBODY)
        command = [sys.executable, "-c", code, "verify load latest list", str(warm), *argv]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd="/",
        env=clean_environment({"PYTHONPATH": str(ROOT)}),
        check=False,
    )
    if "Operation not permitted" in done.stderr and "setgroups" in done.stderr:
        pytest.skip("root here may not become another user")
    return done


def test_a_shard_that_may_not_be_read_is_not_checked_and_the_rest_is(folder: Path) -> None:
    prefix = write(folder / "run")
    Path(f"{prefix}.data-00001-of-00002").chmod(0)
    done = run(folder, "verify", str(prefix))
    assert done.returncode == 3, done
    assert "not all checked\tdeep\t1\t8" in done.stdout
    assert "warning\tpermission" in done.stdout
    assert "Permission denied" in done.stdout
    assert run(folder, "load", str(prefix), "v0").returncode == 0
    done = run(folder, "load", str(prefix), "v1")
    assert done.returncode == 42
    assert "v1" in done.stderr
    assert "m.data-00001-of-00002" in done.stderr
    done = run(folder, "load", str(prefix), "v1", "v0")
    assert done.returncode == 3, "what can be read is printed, whatever comes before it"
    assert done.stdout.startswith("# v0\tfloat32\t[2]\n")
    assert "v1" not in done.stdout
    assert "the values of v1 cannot be read" in done.stderr
    assert "Permission denied" in done.stderr


def test_damage_elsewhere_counts_for_more(folder: Path) -> None:
    prefix = write(folder / "run")
    Path(f"{prefix}.data-00001-of-00002").chmod(0)
    Path(f"{prefix}.data-00000-of-00002").write_bytes(b"damaged!")
    assert run(folder, "verify", str(prefix)).returncode == 1


@pytest.mark.parametrize("what", ["index", "directory"])
def test_an_index_or_a_directory_that_may_not_be_read(folder: Path, what: str) -> None:
    prefix = write(folder / "run")
    Path(f"{prefix}.index" if what == "index" else folder / "run").chmod(0)
    done = run(folder, "verify", str(prefix))
    assert done.returncode == 42, done
    assert len(done.stderr.splitlines()) == 3
    assert "[permission]" in done.stderr


def test_that_there_is_no_checkpoint_and_that_nobody_may_look_are_two_things(
    folder: Path,
) -> None:
    prefix = write(folder / "run")
    index = Path(f"{prefix}.index")
    state = folder / "run" / "checkpoint"
    for argv in (["latest", str(folder / "run")], ["list", f"{folder}/run/@latest"]):
        for named in (False, True):
            state.write_text('model_checkpoint_path: "m"\n')
            if not named:
                state.unlink()
            index.chmod(0)
            done = run(folder, *argv)
            assert done.returncode == 42, (argv, done)
            assert done.stderr.startswith(f"error: cannot open {index}\n  why: Permission denied\n")
            index.chmod(0o644)
            assert run(folder, *argv).returncode == 0
    state.unlink()
    index.write_bytes(b"")
    assert run(folder, "latest", str(folder / "run")).returncode == 10


def test_a_directory_that_may_not_be_written_to_is_no_matter(folder: Path) -> None:
    prefix = write(folder / "run")
    (folder / "run").chmod(0o555)
    for argv in (["verify", str(prefix)], ["load", str(prefix), "v0"]):
        assert run(folder, *argv).returncode == 0


def test_a_state_file_that_names_the_home_of_another_user_is_one_of_a_moved_run(
    folder: Path,
) -> None:
    """D10: trained as root, in a container perhaps, and copied for somebody else."""
    prefix = write(folder / "run")
    write(folder / "home")
    (folder / "home").chmod(0o700)
    state = folder / "run" / "checkpoint"
    for stored in ("m", "gone"):
        state.write_text(f'model_checkpoint_path: "{folder}/home/inside/{stored}"\n')
        done = run(folder, "list", str(folder / "run"))
        assert done.returncode == 0, done.stderr
        assert "v0" in done.stdout
    state.write_text(f'model_checkpoint_path: "{folder}/home/inside/m"\n')
    assert run(folder, "latest", str(folder / "run")).stdout.strip() == str(prefix)
