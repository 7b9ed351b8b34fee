"""A write that was killed goes on where it was: what is finished is not written again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.ops.average import average
from ckpttool.ops.copy import copy_checkpoint
from ckpttool.ops.edit.run import Edit, edit
from ckpttool.ops.merge import merge
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options, RewriteResult
from ckpttool.ops.verify import verify
from ckpttool.storage.fileset import NEW_PREFIX
from tests.support.handmade import masked_crc, write_bundle
from tests.support.killing import killed_at_every_change, killed_before

#: Floats of one variable; data files of one or two of them are large enough to be kept.
COUNT = 2**20 + 3
LARGE = 4 * COUNT

Work = Callable[[str, str, Options], RewriteResult]
WORK: dict[str, Work] = {
    "cp": copy_checkpoint,
    "repartition": lambda one, to, how: repartition([one], to, Repartition(shards=3), how),
    "slice": lambda one, to, how: repartition(
        [one], to, Repartition(shards=2, slices=("v0=axis0:2",)), how
    ),
    "merge-slices": lambda one, to, how: repartition(
        [one], to, Repartition(shards=2, merge_slices=("v*",)), how
    ),
    "edit": lambda one, to, how: edit(one, to, Edit(renames=("s/v/w/",)), how),
    "merge": lambda one, to, how: merge([one, one], to, "first", (), how),
}


def write(folder: Path, shards: int = 2) -> str:
    folder.mkdir()
    values = [bytes([number + 1]) * LARGE for number in range(3)]
    entries = {}
    data = [b""] * shards
    for number, value in enumerate(values):
        shard = number % shards
        entries[f"v{number}".encode()] = {
            "shape": (COUNT,),
            "shard": shard,
            "offset": len(data[shard]),
            "size": LARGE,
            "crc": masked_crc(value),
        }
        data[shard] += value
    return str(write_bundle(folder, "m", entries, data))  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def left_over(folder: Path) -> list[Path]:
    """The large files that are finished and have no name yet."""
    return [
        path
        for path in folder.iterdir()
        if path.name.startswith(NEW_PREFIX)
        and not path.name.endswith("~")
        and path.stat().st_size >= LARGE
    ]


def finished(folder: Path) -> int:
    """Their bytes."""
    return sum(path.stat().st_size for path in left_over(folder))


class Written:
    """Counts the bytes that are written by this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nbytes = 0
        for name in ("write", "copy_file_range"):
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(*args: object) -> int:
            done = real(*args)
            self.nbytes += done
            return done

        return call


@pytest.mark.parametrize(
    ("command", "check"), [*((command, False) for command in WORK), ("repartition", True)]
)
def test_killed_at_every_moment_what_was_finished_is_kept(tmp_path, command, check):
    source = write(tmp_path / "in")
    out, wanted = tmp_path / "out", tmp_path / "wanted"
    wanted.mkdir()
    options = Options(check=check)
    total = WORK[command](source, str(wanted / "m"), options).nbytes

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def work() -> RewriteResult:
        return WORK[command](source, str(out / "m"), options)

    kept = set()
    for _ in killed_at_every_change(prepare, work):
        if any(name.endswith(("-commit", ".index")) for name in os.listdir(out)):
            break  # from here on the journal is carried out
        done = finished(out)
        with pytest.MonkeyPatch.context() as patch:
            written = Written(patch)
            result = work()
        assert files(out).items() >= files(wanted).items()
        assert written.nbytes < total - done + 10_000
        assert any("need not be written again" in text for text in result.warnings) == bool(done)
        kept.add(done)
    assert kept >= {0, total}
    assert len(kept) > 2


@pytest.fixture
def half_done(tmp_path) -> tuple[str, Path, Work]:
    """A copy into ``out`` that was killed with one of its two data files finished."""
    source = write(tmp_path / "in")
    out = tmp_path / "out"
    work = WORK["repartition"]
    for number in range(100):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        assert not killed_before(lambda: work(source, str(out / "m"), Options()), number)
        if finished(out):
            return source, out, work
    raise AssertionError("no data file was ever finished")


def test_another_source_of_the_same_size_is_copied_anew(half_done, tmp_path):
    source, out, work = half_done
    shutil.rmtree(tmp_path / "in")
    source = write(tmp_path / "in")
    result = work(source, str(out / "m"), Options(verify=True))
    assert not any("again" in text for text in result.warnings)
    assert {name for name in os.listdir(out) if name.startswith(NEW_PREFIX)} == set()


def test_a_finished_file_that_was_cut_off_is_written_anew(half_done):
    source, out, work = half_done
    (left,) = left_over(out)
    os.truncate(left, LARGE - 1)
    assert verify(work(source, str(out / "m"), Options()).destination).healthy


def test_a_link_in_its_place_is_not_followed(half_done, tmp_path):
    source, out, work = half_done
    (left,) = left_over(out)
    left.rename(tmp_path / "elsewhere")
    left.symlink_to(tmp_path / "elsewhere")
    work(source, str(out / "m"), Options())
    assert not any(path.is_symlink() for path in out.iterdir())
    assert verify(str(out / "m")).healthy


def test_another_command_there_removes_what_it_cannot_use(half_done):
    source, out, _ = half_done
    WORK["cp"](source, str(out / "other"), Options())
    assert finished(out) == 0
    assert {name for name in os.listdir(out) if name.startswith(".")} <= {".ckpttool-lock"}


IN_THREADS: dict[str, Work] = {
    **WORK,
    "average": lambda one, to, how: average([one, one], to, (0.25, 0.75), how),
    "cast": lambda one, to, how: edit(one, to, Edit(cast="bfloat16"), how),
}


@pytest.mark.parametrize("command", IN_THREADS)
def test_threads_write_the_same(tmp_path, command):
    source = write(tmp_path / "in", shards=3)
    made = []
    for jobs in (1, 3):
        out = tmp_path / str(jobs)
        out.mkdir()
        seen: list[tuple[int, int]] = []
        given = Options(jobs=jobs, check=True, progress=lambda *one, to=seen: to.append(one))
        result = IN_THREADS[command](source, str(out / "m"), given)
        made.append((files(out), [(shard.nbytes, shard.variables) for shard in result.shards]))
        assert max(seen) == seen[-1] == (seen[-1][1],) * 2
    assert made[0] == made[1]


def test_a_thread_that_fails_stops_the_others_and_leaves_nothing(tmp_path):
    source = write(tmp_path / "in", shards=3)
    with open(f"{source}.data-00001-of-00003", "r+b") as file:
        file.write(b"x")
    (tmp_path / "out").mkdir()
    with pytest.raises(CkpttoolError) as caught:
        WORK["repartition"](source, str(tmp_path / "out" / "m"), Options(jobs=3, check=True))
    assert caught.value.id == "checksum-mismatch"
    assert files(tmp_path / "out") == {}
