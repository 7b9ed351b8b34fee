from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ckpttool.errors import CorruptError, LimitError, UnsafeError
from ckpttool.limits import Limits
from ckpttool.sources.run import Run, ShardFile, read_run, read_state_file
from ckpttool.sources.state_paths import Located, Lost
from ckpttool.storage import FileStat, open_directory
from ckpttool.storage.local import LocalDirectory
from tests.support.saved import save, write_state


def look(path: Path | str, state_name: str = "checkpoint", limits: Limits | None = None) -> Run:
    with open_directory(str(path)) as directory:
        return read_run(directory, limits or Limits(), state_name)


def leftovers(run: Run) -> dict[str, str]:
    return {item.name: item.why for item in run.leftovers}


def test_the_facts_of_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, "model.ckpt-10", shards=2, when=1000)
    (tmp_path / "model.ckpt-10.meta").write_bytes(b"graph")
    os.utime(tmp_path / "model.ckpt-10.meta", (1005, 1005))
    write_state(tmp_path, "model.ckpt-10", times=[999.5])
    (found,) = look(tmp_path).checkpoints
    index = (tmp_path / "model.ckpt-10.index").stat().st_size
    assert (found.prefix, found.series, found.number) == ("model.ckpt-10", "model.ckpt", 10)
    assert (found.mtime_ns, found.changed_ns) == (1000 * 10**9, 1005 * 10**9)
    assert found.shards == (ShardFile(0, 2, 8), ShardFile(1, 2, 8))
    assert found.nbytes == index + 16 + 5
    assert (found.listed, found.timestamp, found.latest) == (0, 999.5, True)
    assert found.files == [
        "model.ckpt-10.index",
        "model.ckpt-10.data-00000-of-00002",
        "model.ckpt-10.data-00001-of-00002",
        "model.ckpt-10.meta",
    ]


def test_oldest_first_by_number_not_by_letter(tmp_path: Path) -> None:
    for prefix, when in [("ckpt-10", 1), ("ckpt-9", 2), ("ckpt-100", 0), ("best", 9), ("last", 8)]:
        save(tmp_path, prefix, when=when)
    assert [item.prefix for item in look(tmp_path).checkpoints] == [
        "last",
        "best",
        "ckpt-9",
        "ckpt-10",
        "ckpt-100",
    ]


def test_prefixes_of_prefixes_are_apart(tmp_path: Path) -> None:
    for prefix in ["ckpt-1", "ckpt-10", "ckpt-1-best", "ckpt-1.data"]:
        save(tmp_path, prefix)
    assert {item.prefix: len(item.files) for item in look(tmp_path).checkpoints} == {
        "ckpt-1": 2,
        "ckpt-10": 2,
        "ckpt-1-best": 2,
        "ckpt-1.data": 2,
    }


def test_stale_shards_of_another_count_are_listed(tmp_path: Path) -> None:
    save(tmp_path, "m", shards=2)
    (tmp_path / "m.data-00003-of-00004").write_bytes(b"old")
    (found,) = look(tmp_path).checkpoints
    assert found.shards[-1] == ShardFile(3, 4, 3)


def test_what_saves_left(tmp_path: Path) -> None:
    save(tmp_path, "ckpt-1", when=1000)
    (tmp_path / "ckpt-1_temp").mkdir()
    (tmp_path / "ckpt-3_temp_08f0a1").mkdir()
    (tmp_path / "variables_temp").mkdir()
    (tmp_path / "assets").mkdir()
    for name in [
        "ckpt-1.data-00000-of-00001.tempstate5599",
        "ckpt-1.index.tempstate18446744073709551615",
        "checkpoint.tmp0123456789abcdef0123456789abcdef",
        ".0011.ckpttool-tmp",
        "ckpt-2.data-00000-of-00002",
        "old.meta",
        "._ckpt-1.index",
        "events.out.tfevents.1",
        "notes.tmp",
    ]:
        (tmp_path / name).write_bytes(b"x")
    run = look(tmp_path)
    why = leftovers(run)
    assert set(why) == {
        "ckpt-1_temp",
        "ckpt-3_temp_08f0a1",
        "variables_temp",
        "ckpt-1.data-00000-of-00001.tempstate5599",
        "ckpt-1.index.tempstate18446744073709551615",
        "checkpoint.tmp0123456789abcdef0123456789abcdef",
        ".0011.ckpttool-tmp",
        "ckpt-2.data-00000-of-00002",
        "old.meta",
        "._ckpt-1.index",
    }
    assert "before its parts were merged" in why["ckpt-3_temp_08f0a1"]
    assert "while it wrote this file" in why["ckpt-1.index.tempstate18446744073709551615"]
    assert "without an index" in why["ckpt-2.data-00000-of-00002"]
    assert "checkpoint is gone" in why["old.meta"]
    prefixes = {item.name: item.prefix for item in run.leftovers}
    assert prefixes["ckpt-1_temp"] == prefixes["ckpt-1.index.tempstate18446744073709551615"]
    assert prefixes["ckpt-3_temp_08f0a1"] == "ckpt-3"
    assert prefixes["checkpoint.tmp0123456789abcdef0123456789abcdef"] == ""
    # A save of ckpt-1 is under way: that counts as a change of ckpt-1.
    assert run.checkpoints[0].changed_ns > 1000 * 10**9


def test_everything_else_is_told_on_request(tmp_path: Path) -> None:
    save(tmp_path, "ckpt-1")
    write_state(tmp_path, "ckpt-1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "ckpt-2_temp").mkdir()
    (tmp_path / "log.txt").write_text("x")
    others: list[FileStat] = []
    with open_directory(str(tmp_path)) as directory:
        read_run(directory, Limits(), others=others)
    assert sorted(item.name for item in others) == ["checkpoint", "log.txt", "sub"]


def test_nothing_but_plain_files_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "other", "real")
    run_dir = tmp_path / "run"
    save(run_dir, "ckpt-1", shards=2)
    shard = run_dir / "ckpt-1.data-00001-of-00002"
    shard.unlink()
    shard.symlink_to(tmp_path / "other" / "real.data-00000-of-00001")
    (run_dir / "ckpt-2.index").symlink_to("ckpt-2.index")  # a loop
    os.mkfifo(run_dir / "ckpt-3.index")
    (run_dir / "ckpt-4.index").mkdir()
    run = look(run_dir)
    assert [item.prefix for item in run.checkpoints] == ["ckpt-1"]
    assert run.checkpoints[0].shards == (ShardFile(0, 2, 8),)
    why = leftovers(run)
    assert "symbolic link" in why["ckpt-1.data-00001-of-00002"]
    assert "symbolic link" in why["ckpt-2.index"]
    assert "pipe, socket or device" in why["ckpt-3.index"]
    assert "directory" in why["ckpt-4.index"]


def test_names_are_literal(tmp_path: Path) -> None:
    names = ["[ab]-1", "a*?{}-2", "-rf-3", "sp ace-4", "caf\udce9-5", "new\nline-6", "\x1b[31m-7"]
    names.append("é" * 100 + "-8")
    for name in names:
        save(tmp_path, name)
    assert [item.prefix for item in look(tmp_path).checkpoints] == names


def test_v1_checkpoints_are_named_not_taken_for_leftovers(tmp_path: Path) -> None:
    for name in ["old-1", "old-1.meta", "shd-00000-of-00002", "shd-00001-of-00002", "shd.meta"]:
        (tmp_path / name).write_bytes(b"x")
    run = look(tmp_path)
    assert run.v1 == ("old-1", "shd-?????-of-00002")
    assert not run.leftovers


def test_a_limit_on_entries(tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / str(number)).touch()
    with pytest.raises(LimitError) as caught:
        look(tmp_path, limits=Limits(directory_entries=10))
    assert caught.value.id == "limit-directory"


def test_many_files_in_linear_time(tmp_path: Path) -> None:
    for number in range(10_000):
        for suffix in (".index", ".data-00000-of-00001", ".meta"):
            (tmp_path / f"ckpt-{number}{suffix}").touch()
    write_state(tmp_path, "ckpt-9999", [f"ckpt-{number}" for number in range(10_000)])
    start = time.process_time()
    run = look(tmp_path)
    assert time.process_time() - start < 10  # measured: 0.4 s
    assert len(run.checkpoints) == 10_000
    assert run.checkpoints[-1].latest
    assert [item.listed for item in run.checkpoints] == list(range(10_000))


@pytest.mark.parametrize("name", ["gone-{}", "gone-{}-?????-of-00002", "/gone/{}-?????-of-00002"])
def test_a_state_file_of_many_paths_lists_its_directory_once(tmp_path: Path, name: str) -> None:
    write_state(tmp_path, "gone", [name.format(number) for number in range(100)])
    scans = 0

    class Counting(LocalDirectory):
        def scan(self):
            nonlocal scans
            scans += 1
            return super().scan()

    with open_directory(str(tmp_path)) as opened:
        directory = Counting(str(tmp_path), os.dup(opened.descriptor))
    run = read_run(directory, Limits())
    directory.close()
    assert all(isinstance(item.found, Lost) for item in run.listed)
    assert scans <= 2  # of its files, and at most once more for those of V1


# The state file -----------------------------------------------------------------------


def test_no_state_file(tmp_path: Path) -> None:
    run = look(tmp_path)
    assert (run.state_file, run.listed, run.latest) == (None, (), None)


def test_a_state_file_of_another_name(tmp_path: Path) -> None:
    save(tmp_path, "ckpt-1")
    write_state(tmp_path, "ckpt-1", name="best_checkpoint")
    run = look(tmp_path, "best_checkpoint")
    assert run.state_file is not None
    assert run.state_file.path == str(tmp_path / "best_checkpoint")
    assert run.latest is not None
    assert run.latest.found == Located(str(tmp_path), "ckpt-1", "v2", "stored", own=True)


def test_more_paths_than_times(tmp_path: Path) -> None:
    write_state(tmp_path, "ckpt-2", ["ckpt-1", "ckpt-2"], [5.0])
    assert [item.timestamp for item in look(tmp_path).listed] == [5.0, None]


def test_what_is_wrong_with_a_state_file_is_part_of_the_answer(tmp_path: Path) -> None:
    save(tmp_path, "ckpt-1")
    state = tmp_path / "checkpoint"
    state.write_bytes(b"\0\0\0")
    error = look(tmp_path).state_file
    assert error is not None
    assert isinstance(error.error, CorruptError)
    state.unlink()
    state.symlink_to("/etc/hostname")
    linked = look(tmp_path).state_file
    assert linked is not None
    assert isinstance(linked.error, UnsafeError)
    state.unlink()
    os.mkfifo(state)
    pipe = look(tmp_path).state_file
    assert pipe is not None
    assert isinstance(pipe.error, UnsafeError)
    state.unlink()
    state.mkdir()
    assert look(tmp_path).state_file is None


def test_a_state_file_that_may_not_be_read(tmp_path: Path, monkeypatch) -> None:
    save(tmp_path, "ckpt-1")
    write_state(tmp_path, "ckpt-1")
    real_open = os.open

    def denied(path, *args, **kwargs):
        if path == "checkpoint":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", denied)
    with open_directory(str(tmp_path)) as directory:
        found = read_state_file(directory, Limits())
    assert found is not None
    assert found.error is not None
    assert found.error.exit_code == 42


def test_a_directory_that_vanishes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save(folder, "ckpt-1")
    with open_directory(str(folder)) as directory:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        run = read_run(directory, Limits())
    assert run.checkpoints == ()


# Paths in the state file --------------------------------------------------------------


def find(run_dir: Path, stored: str) -> Located | Lost:
    write_state(run_dir, stored.replace("\\", "\\\\").replace("\n", "\\n").replace("\0", "\\000"))
    latest = look(run_dir).latest
    assert latest is not None
    assert latest.stored == stored
    return latest.found


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with ckpt-1, beside it another with ckpt-1 and ckpt-2; the first one's parent."""
    save(tmp_path / "run", "ckpt-1")
    save(tmp_path / "other", "ckpt-1")
    save(tmp_path / "other", "ckpt-2")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("stored", "how"),
    [
        ("ckpt-1", "stored"),
        ("./ckpt-1", "stored"),
        ("../run/ckpt-1", "stored"),
        ("{here}/run/ckpt-1", "stored"),
        ("run/ckpt-1", "cwd"),  # stored as seen from where training ran
        ("saved/run/ckpt-1", "moved"),
        ("/gone/ckpt-1", "moved"),
        ("{here}/other/ckpt-1", "moved"),  # a copy: its own files, not the original's
        ("../other/ckpt-1", "moved"),
        ("C:\\models\\run\\ckpt-1", "moved"),
        ("C:/models\\ckpt-1", "moved"),
        ("\\\\server\\share\\ckpt-1", "moved"),
    ],
)
def test_paths_that_lead_to_the_own_directory(places: Path, stored: str, how: str) -> None:
    found = find(places / "run", stored.format(here=places))
    assert isinstance(found, Located)
    assert (found.directory, found.prefix, found.own) == (str(places / "run"), "ckpt-1", True)
    assert found.how == how
    assert bool(found.note(stored)) == (how != "stored")


def test_paths_that_lead_elsewhere_are_last_and_said(places: Path) -> None:
    for stored in ("../other/ckpt-2", f"{places}/other/ckpt-2"):
        found = find(places / "run", stored)
        assert isinstance(found, Located)
        assert not found.own
        assert "another directory" in found.note(stored)
        assert os.path.samefile(found.directory, places / "other")
    found = find(places / "run", "other/ckpt-2")
    assert isinstance(found, Located)
    assert "from the working directory" in found.note("other/ckpt-2")


def test_a_directory_below_comes_before_the_base_name(places: Path) -> None:
    save(places / "run" / "sub", "ckpt-1")
    found = find(places / "run", "sub/ckpt-1")
    assert isinstance(found, Located)
    assert found.directory == str(places / "run" / "sub")


def test_a_link_that_leads_out_does_not_count_as_below(places: Path) -> None:
    (places / "run" / "sub").symlink_to(places / "other")
    found = find(places / "run", "sub/ckpt-1")
    assert isinstance(found, Located)
    assert found.own


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (".", "a directory"),
        ("..", "a directory"),
        ("sub/", "a directory"),
        ("sub", "a directory"),
        ("{here}/other/", "a directory"),
        ("/", "a directory"),
        ("checkpoint", "itself"),
        ("ckpt\0-1", "NUL"),
    ],
)
def test_paths_that_can_be_no_checkpoint(places: Path, stored: str, why: str) -> None:
    (places / "run" / "sub").mkdir()
    found = find(places / "run", stored.format(here=places))
    assert isinstance(found, Lost)
    assert found.foreign
    assert why in found.why


@pytest.mark.parametrize(
    "stored",
    ["ckpt-9", "../ckpt-9", "/gone/ckpt-9", "x" * 300, "x" * 5000, "new\nline", "a/" * 3000 + "b"],
)
def test_paths_that_lead_nowhere(places: Path, stored: str) -> None:
    found = find(places / "run", stored)
    assert isinstance(found, Lost)
    assert not found.foreign
    assert "not there" in found.why


def test_a_name_from_the_working_directory_is_not_this_run(places: Path, monkeypatch) -> None:
    monkeypatch.chdir(places / "other")
    assert isinstance(find(places / "run", "ckpt-2"), Lost)


def test_an_empty_path(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text('all_model_checkpoint_paths: ""')
    run = look(tmp_path)
    assert run.latest is None
    assert run.listed[0].found == Lost("an empty path", foreign=True)


def test_a_prefix_may_be_called_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, "checkpoint")
    found = find(tmp_path, "checkpoint")
    assert isinstance(found, Located)
    assert found.prefix == "checkpoint"


def test_a_newline_in_a_name(tmp_path: Path) -> None:
    save(tmp_path, "new\nline")
    assert isinstance(find(tmp_path, "new\nline"), Located)


# Real runs ----------------------------------------------------------------------------


def test_a_managed_run(corpus: Path) -> None:
    run = look(corpus / "obj-manager-timestamps" / "ckpt_nstep")
    assert [item.prefix for item in run.checkpoints] == [f"ckpt-{n}" for n in range(1, 7)]
    assert [item.listed for item in run.checkpoints] == list(range(6))
    assert [item.latest for item in run.checkpoints] == [False] * 5 + [True]
    assert run.checkpoints[0].timestamp == 1610001331.9641876
    assert run.state_file is not None
    assert run.state_file.state is not None
    assert run.state_file.state.last_preserved_timestamp == 1609999697.1211636


def test_v1_and_v2_in_one_run(corpus: Path) -> None:
    run = look(corpus / "mixed-v1-v2-tdgammon")
    assert [item.prefix for item in run.checkpoints] == ["checkpoint-462746"]
    assert run.v1 == ("checkpoint-447880",)
    assert not run.leftovers


@pytest.mark.parametrize(
    ("name", "prefix", "how"),
    [
        ("v1-deepq-dotdot-path", "karpathy_game.ckpt", "moved"),
        ("v1-badhalfplustwo-abspath", "export", "moved"),
        ("v1-acrobot-adam", "model.ckpt", "stored"),
    ],
)
def test_v1_paths(corpus: Path, name: str, prefix: str, how: str) -> None:
    run = look(corpus / name)
    assert run.latest is not None
    assert run.latest.found == Located(str(corpus / name), prefix, "v1", how, own=True)  # type: ignore[arg-type]
    assert prefix in run.v1
