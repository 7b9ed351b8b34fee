from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ckpttool.errors import (
    CkpttoolError,
    ForeignFormatError,
    IncompleteError,
    NotFoundError,
    PermissionDeniedError,
    UnsafeError,
    UsageError,
)
from ckpttool.limits import Limits
from ckpttool.sources.address import RunAddress, require_run, resolve, run_of
from tests.support.saved import save, write_state

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 369690\n"


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of four checkpoints, whose state file calls the third the latest."""
    folder = tmp_path / "run"
    for number in (1, 9, 1000, 2000):
        save(folder, f"model.ckpt-{number}", shards=2, step=number)
    (folder / "model.ckpt-1000.meta").write_bytes(b"graph")
    write_state(folder, "model.ckpt-1000", ["model.ckpt-9", "model.ckpt-1000"])
    monkeypatch.chdir(tmp_path)
    return folder


def failure(address: str) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        resolve(address, Limits())
    return caught.value


# One checkpoint -----------------------------------------------------------------------


def test_a_prefix(run_dir: Path) -> None:
    found = resolve("run/model.ckpt-1000")
    assert (found.kind, found.directory, found.prefix) == ("checkpoint", "run", "model.ckpt-1000")
    assert (found.location, found.via, found.notes) == ("run/model.ckpt-1000", "prefix", ())


@pytest.mark.parametrize(
    ("suffix", "what"),
    [
        (".index", "the index"),
        (".meta", "the graph"),
        (".data-00000-of-00002", "a data file"),
        (".data-00001-of-00002", "a data file"),
    ],
)
def test_any_of_its_files(run_dir: Path, suffix: str, what: str) -> None:
    found = resolve(f"run/model.ckpt-1000{suffix}")
    assert (found.location, found.via) == ("run/model.ckpt-1000", "part")
    assert found.notes == (
        f"run/model.ckpt-1000{suffix} is {what} of run/model.ckpt-1000, which is read",
    )


def test_from_inside_the_directory(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_dir)
    assert resolve("model.ckpt-9").location == "model.ckpt-9"
    assert resolve("./model.ckpt-9").location == "model.ckpt-9"
    assert resolve("../run/model.ckpt-9").location == "../run/model.ckpt-9"
    assert resolve(".").location == "model.ckpt-1000"
    assert resolve("@2000").location == "model.ckpt-2000"


def test_an_absolute_path(run_dir: Path) -> None:
    assert resolve(str(run_dir / "model.ckpt-9")).location == str(run_dir / "model.ckpt-9")


@pytest.mark.parametrize("name", ["[a]*?{1,2}+-1", "sp ace-1", "né-1", "caf\udce9-1", "a\nb-1"])
@pytest.mark.parametrize(
    "folder", ["run[lr=1]", "st*r", "a?b", "{x}", "sp ace", "\udcff", "new\nl"]
)
def test_names_are_literal(tmp_path: Path, folder: str, name: str) -> None:
    save(tmp_path / folder, name)
    save(tmp_path / "star", "decoy-1")
    write_state(tmp_path / folder, name.replace("\n", "\\n"))
    prefix = str(tmp_path / folder / name)
    assert resolve(prefix).location == prefix
    assert resolve(f"{prefix}.index").location == prefix
    assert resolve(str(tmp_path / folder)).location == prefix
    assert resolve(str(tmp_path / folder / "@1")).location == prefix


@pytest.mark.parametrize("name", ["@1000", "@latest", "w[0]", "a@b", "[0:10]"])
def test_what_exists_wins_over_what_it_could_mean(run_dir: Path, name: str) -> None:
    save(run_dir, name)
    found = resolve(f"run/{name}")
    assert (found.prefix, found.via) == (name, "prefix")


def test_a_prefix_that_ends_like_a_file(tmp_path: Path) -> None:
    save(tmp_path, "a.index")
    assert resolve(str(tmp_path / "a.index")).prefix == "a.index"
    assert resolve(str(tmp_path / "a.index.index")).prefix == "a.index"
    save(tmp_path, "a")  # now a.index is a file, too
    assert resolve(str(tmp_path / "a.index")).prefix == "a"


def test_a_file_or_directory_beside_the_index_of_its_name(tmp_path: Path) -> None:
    save(tmp_path, "model")
    (tmp_path / "model").write_bytes(b"PK\x03\x04")
    assert resolve(str(tmp_path / "model")).kind == "checkpoint"
    (tmp_path / "model").unlink()
    (tmp_path / "model").mkdir()
    assert resolve(str(tmp_path / "model")).kind == "checkpoint"
    save(tmp_path / "model", "ckpt-1")  # as TensorFlow: a directory of checkpoints comes first
    assert resolve(str(tmp_path / "model")).location == str(tmp_path / "model" / "ckpt-1")


def test_a_prefix_called_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, "checkpoint")
    assert resolve(str(tmp_path / "checkpoint")).kind == "checkpoint"
    write_state(tmp_path, "checkpoint")
    for address in (tmp_path, tmp_path / "checkpoint", tmp_path / "checkpoint.index"):
        assert resolve(str(address)).location == str(tmp_path / "checkpoint")


# Runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["run", "run/", "run//", "run/checkpoint", "run/."])
def test_a_run_is_its_latest(run_dir: Path, address: str) -> None:
    found = resolve(address)
    assert (found.kind, found.prefix, found.via) == ("run", "model.ckpt-1000", "state")
    assert "is the latest by the state file" in found.notes[0]


def test_a_state_file_of_any_name(run_dir: Path) -> None:
    write_state(run_dir, "model.ckpt-9", name="best_checkpoint")
    assert resolve("run/best_checkpoint").prefix == "model.ckpt-9"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "run has no state file"),
        (b"", "names no checkpoint"),
        (b"\0" * 50, "line 1"),
        (b"garbage", "line 1"),
        (b'all_model_checkpoint_paths: "model.ckpt-9"', "names no checkpoint"),
        (b'model_checkpoint_path: "model.ckpt-77"', "model.ckpt-77 the latest, which is not there"),
        (b'model_checkpoint_path: "."', "a directory, not a checkpoint"),
        (b'model_checkpoint_path: "checkpoint"', "the state file itself"),
        (b'model_checkpoint_path: "/gone/x"', "not there"),
    ],
)
def test_without_a_usable_state_file_the_newest(
    run_dir: Path, text: bytes | None, why: str
) -> None:
    state = run_dir / "checkpoint"
    state.unlink() if text is None else state.write_bytes(text)
    found = resolve("run")
    assert (found.kind, found.prefix, found.via) == ("run", "model.ckpt-2000", "scan")
    assert why in found.notes[0]
    assert "run/model.ckpt-2000 is the newest, by the number in its name" in found.notes[0]
    if text is not None:
        assert resolve("run/checkpoint").prefix == "model.ckpt-2000"


def test_a_state_file_that_is_a_link_is_not_followed(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "checkpoint").rename(tmp_path / "elsewhere")
    (run_dir / "checkpoint").symlink_to(tmp_path / "elsewhere")
    assert resolve("run").via == "scan"


def test_a_foreign_file_called_checkpoint_is_named(run_dir: Path) -> None:
    (run_dir / "checkpoint").write_bytes(POINTER)
    assert failure("run/checkpoint").id == "git-lfs-pointer"
    assert resolve("run").prefix == "model.ckpt-2000"


def test_a_moved_run(run_dir: Path, tmp_path: Path) -> None:
    write_state(run_dir, "/home/me/run/model.ckpt-9")
    found = resolve("run")
    assert found.location == "run/model.ckpt-9"
    assert "/home/me/run/model.ckpt-9, which was found by its name" in found.notes[1]


def test_a_run_in_another_directory_is_said(run_dir: Path, tmp_path: Path) -> None:
    write_state(tmp_path / "other", "../run/model.ckpt-9")
    found = resolve("other")
    assert found.location == "other/../run/model.ckpt-9"
    assert "is in another directory" in found.notes[1]


def test_a_partial_latest_is_read_and_a_strict_one_is_not(run_dir: Path) -> None:
    (run_dir / "model.ckpt-1000.data-00001-of-00002").unlink()
    assert resolve("run").prefix == "model.ckpt-1000"
    error = failure("run/@latest")
    assert isinstance(error, IncompleteError)
    assert (error.id, error.exit_code) == ("latest-incomplete", 20)
    assert "model.ckpt-1000.data-00001-of-00002 is missing" in error.why
    assert error.hint == "the newest whole one is run/model.ckpt-9"


# @ ------------------------------------------------------------------------------------


def test_steps(run_dir: Path) -> None:
    found = resolve("run/@1000")
    assert (found.kind, found.prefix, found.via) == ("checkpoint", "model.ckpt-1000", "step")
    assert resolve("run/@0009").prefix == "model.ckpt-9"


def test_a_step_inside(run_dir: Path) -> None:
    save(run_dir, "best", step=777)
    found = resolve("run/@777")
    assert found.prefix == "best"
    assert "by the step inside it" in found.notes[0]
    save(run_dir, "other-777", step=1)
    assert resolve("run/@777").prefix == "other-777"  # the number in the name comes first


def test_a_step_that_is_not_there(run_dir: Path) -> None:
    error = failure("run/@1100")
    assert (error.id, error.exit_code) == ("step-not-found", 10)
    assert error.hint == "the nearest are @1000, @2000, @9"


@pytest.mark.parametrize("which", ["", "best", "-1", "1e3", "٣", "1" * 30, "?"])
def test_what_may_not_follow_an_at(run_dir: Path, which: str) -> None:
    error = failure(f"run/@{which}")
    assert (error.id, error.exit_code) == ("step-not-found", 10)
    assert "a step or the word latest" in error.why


def test_a_step_that_fits_several(run_dir: Path) -> None:
    save(run_dir, "best-1000")
    error = failure("run/@1000")
    assert isinstance(error, UsageError)
    assert error.id == "step-ambiguous"
    assert "best-1000" in error.why
    assert "model.ckpt-1000" in error.why


def test_latest(run_dir: Path) -> None:
    found = resolve("run/@latest")
    assert (found.kind, found.prefix, found.via) == ("checkpoint", "model.ckpt-1000", "state")


def test_latest_that_is_gone(run_dir: Path) -> None:
    write_state(run_dir, "model.ckpt-77")
    error = failure("run/@latest")
    assert error.id == "latest-incomplete"
    assert "not there" in error.why
    assert error.hint == "the newest whole one is run/model.ckpt-2000"


def test_latest_without_state_file_is_the_newest_whole(run_dir: Path) -> None:
    (run_dir / "checkpoint").unlink()
    (run_dir / "model.ckpt-2000.data-00000-of-00002").unlink()
    found = resolve("run/@latest")
    assert (found.prefix, found.via) == ("model.ckpt-1000", "scan")
    assert "newest whole" in found.notes[0]


def test_latest_when_none_is_whole(tmp_path: Path) -> None:
    save(tmp_path, "ckpt-1")
    write_state(tmp_path, "ckpt-1")
    (tmp_path / "ckpt-1.data-00000-of-00001").unlink()
    error = failure(str(tmp_path / "@latest"))
    assert error.id == "latest-incomplete"
    assert "no checkpoint in" in error.hint


# SavedModels --------------------------------------------------------------------------


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(tmp_path / "export" / "variables", "variables")
    (tmp_path / "export" / "saved_model.pb").write_bytes(b"\x08\x01\x12\x02\x0a\x00")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "export"


@pytest.mark.parametrize(
    "address", ["export", "export/", "export/saved_model.pb", "export/variables"]
)
def test_a_saved_model(export: Path, address: str) -> None:
    found = resolve(address)
    assert (found.kind, found.location) == ("savedmodel", "export/variables/variables")


def test_the_checkpoint_in_a_saved_model(export: Path) -> None:
    assert resolve("export/variables/variables").kind == "checkpoint"
    (export / "saved_model.pb").unlink()
    assert resolve("export/variables").kind == "run"


def test_a_saved_model_as_text(export: Path) -> None:
    (export / "saved_model.pb").rename(export / "saved_model.pbtxt")
    assert resolve("export").kind == "savedmodel"
    assert resolve("export/saved_model.pbtxt").kind == "savedmodel"


def test_a_saved_model_without_variables(export: Path) -> None:
    shutil.rmtree(export / "variables")
    found = resolve("export")
    assert (found.kind, found.location) == ("graph", "export/saved_model.pb")
    assert ["no directory variables" in note for note in found.notes] == [True]


def test_a_saved_model_that_was_copied_in_part(export: Path) -> None:
    (export / "variables" / "variables.index").unlink()
    assert failure("export").id == "index-missing"
    for path in (export / "variables").iterdir():
        path.unlink()
    assert failure("export").exit_code == 10


def test_linked_variables_are_not_followed(export: Path, tmp_path: Path) -> None:
    (export / "variables").rename(tmp_path / "elsewhere")
    (export / "variables").symlink_to(tmp_path / "elsewhere")
    assert isinstance(failure("export"), UnsafeError)


# What leads nowhere -------------------------------------------------------------------


def test_nothing_given() -> None:
    error = failure("")
    assert isinstance(error, UsageError)
    assert error.id == "empty-address"


def test_no_such_prefix_says_what_was_looked_for_and_what_is_near(run_dir: Path) -> None:
    error = failure("run/model.ckpt-100")
    assert isinstance(error, NotFoundError)
    for name in ("model.ckpt-100.index", "model.ckpt-100.data-*-of-*", "model.ckpt-100.meta"):
        assert name in error.why
    assert error.hint.startswith("did you mean run/model.ckpt-1000 or ")


def test_nothing_near(run_dir: Path) -> None:
    assert failure("run/zzz").hint == (
        "the checkpoints there are model.ckpt-1, model.ckpt-1000, model.ckpt-2000 and 1 more"
    )
    (run_dir / "empty").mkdir()
    assert failure("run/empty/zzz").hint == "there is no checkpoint in run/empty"


def test_a_shard_that_is_not_there(run_dir: Path) -> None:
    error = failure("run/model.ckpt-1000.data-00000-of-00009")
    assert error.why == "looked for model.ckpt-1000.data-00000-of-00009 in run"
    assert "did you mean run/model.ckpt-1000" in error.hint


def test_no_such_directory(run_dir: Path) -> None:
    error = failure("rum/sub/model.ckpt-1")
    assert error.why == "there is no directory rum"
    assert error.hint == "did you mean run?"
    assert failure("run/x/").why == "there is no directory run/x"
    assert failure("run/checkpoint/model").why == "run/checkpoint is no directory"
    assert failure("run/checkpoint/").why == "run/checkpoint is no directory"
    assert failure("/no/such/place").why == "there is no directory /no"


def test_a_name_that_is_too_long_or_no_name(run_dir: Path) -> None:
    assert failure("run/" + "x" * 300).exit_code == 10
    assert failure("x/" * 3000).exit_code == 10
    assert failure("run/a\0b").exit_code == 10


def test_links_that_lead_nowhere(run_dir: Path) -> None:
    (run_dir / "broken").symlink_to("gone")
    (run_dir / "loop").symlink_to("loop")
    for name in ("broken", "loop"):
        assert "symbolic link that leads nowhere" in failure(f"run/{name}").why


def test_linked_files_are_refused(run_dir: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", "real")
    (run_dir / "linked.index").symlink_to(tmp_path / "other" / "real.index")
    for address in ("run/linked", "run/linked.index"):
        error = failure(address)
        assert isinstance(error, UnsafeError)
        assert "cp -rL" in error.hint


def test_a_linked_directory_that_a_person_names_is_followed(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to("run")
    assert resolve("current").location == "current/model.ckpt-1000"


def test_pipes_never_hang(run_dir: Path) -> None:
    os.mkfifo(run_dir / "pipe.index")
    os.mkfifo(run_dir / "pipe2")
    for address in ("run/pipe", "run/pipe.index", "run/pipe2", "/dev/null"):
        assert isinstance(failure(address), UnsafeError)


def test_parts_without_an_index(run_dir: Path) -> None:
    (run_dir / "model.ckpt-9.index").unlink()
    for address in ("run/model.ckpt-9", "run/model.ckpt-9.data-00001-of-00002"):
        error = failure(address)
        assert (error.id, error.exit_code) == ("index-missing", 20)
        assert "model.ckpt-9.index is not there" in error.why
        assert "model.ckpt-9.data-00000-of-00002" in error.why


def test_only_data_files(tmp_path: Path) -> None:
    for number in (9, 10):
        (tmp_path / f"ckpt-{number}.data-00000-of-00001").write_bytes(b"x")
    error = failure(str(tmp_path))
    assert error.id == "index-missing"
    assert error.what.startswith(str(tmp_path / "ckpt-10"))


def test_only_a_graph(tmp_path: Path) -> None:
    (tmp_path / "m.meta").write_bytes(b"graph")
    assert failure(str(tmp_path / "m")).id == "index-missing"
    assert failure(str(tmp_path / "m.meta")).id == "index-missing"


def test_an_empty_directory(tmp_path: Path) -> None:
    error = failure(str(tmp_path))
    assert (error.id, error.why) == ("no-checkpoint", "the directory is empty")


def test_checkpoints_one_directory_down(run_dir: Path, export: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    error = failure(str(tmp_path))
    assert error.id == "no-checkpoint"
    assert error.hint == (
        f"did you mean {tmp_path / 'export'} (a SavedModel) or {tmp_path / 'run'} (a run)?"
    )


@pytest.mark.parametrize(
    ("folder", "named"),
    [
        ("arrays", "model.safetensors (a safetensors file)"),
        ("models", "dense.onnx (an ONNX model)"),
        ("graphs", "frozen.pb (a GraphDef)"),
    ],
)
def test_a_directory_of_files_that_are_sources(fixtures_dir: Path, folder: str, named: str) -> None:
    """They are not called foreign: each can be given by its own name."""
    error = failure(str(fixtures_dir / folder))
    assert (error.id, error.exit_code) == ("no-checkpoint", 10)
    assert f"{fixtures_dir / folder / named}" in error.hint


def test_a_foreign_file_beside_one_that_is_a_source(fixtures_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x08" + bytes(40))
    assert failure(str(tmp_path)).id == "foreign-format"
    shutil.copy(fixtures_dir / "models" / "dense.onnx", tmp_path / "b.onnx")
    assert f"{tmp_path / 'b.onnx'} (an ONNX model)" in failure(str(tmp_path)).hint


def test_an_index_with_another_name(run_dir: Path) -> None:
    (run_dir / "model.ckpt-9.index").rename(run_dir / "model.ckpt-9.index.bak")
    error = failure("run/model.ckpt-9.index.bak")
    assert (error.id, error.exit_code) == ("index-misnamed", 12)


def test_urls() -> None:
    for address in ("gs://bucket/run", "s3://b/x.index", "https://example.com/model.ckpt"):
        error = failure(address)
        assert (error.id, error.exit_code) == ("remote-address", 12)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_without_permission(run_dir: Path) -> None:
    try:
        run_dir.chmod(0o500)
        assert resolve("run/model.ckpt-9").prefix == "model.ckpt-9"
        for mode in (0o100, 0):
            run_dir.chmod(mode)
            for address in ("run", "run/model.ckpt-9", "run/@9"):
                assert isinstance(failure(address), PermissionDeniedError)
    finally:
        run_dir.chmod(0o700)


def test_a_directory_that_cannot_be_listed(run_dir: Path, monkeypatch) -> None:
    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    assert resolve("run/model.ckpt-9").prefix == "model.ckpt-9"
    error = failure("run/model.ckpt-77")
    assert isinstance(error, NotFoundError)
    assert "cannot be listed: Permission denied" in error.why


# What is not ours ---------------------------------------------------------------------


def test_foreign_files_are_named(run_dir: Path) -> None:
    for name, data, words in [
        ("model.ckpt", b"PK\x03\x04" + b"\0" * 22 + b"\x10\0\0\0archive/data.pkl", "PyTorch"),
        ("page", b"<!DOCTYPE html>", "HTML"),
        ("empty", b"", "empty"),
        ("zeros", b"\0" * 1000, "zero bytes"),
        ("words.txt", b"hello", "text file"),
        ("random", b"\x93\x01\x02" * 100, "no kind that is known"),
    ]:
        (run_dir / name).write_bytes(data)
        error = failure(f"run/{name}")
        assert isinstance(error, ForeignFormatError)
        assert error.what.startswith(f"run/{name} is ")
        assert words in error.what


def test_an_index_that_is_something_else(run_dir: Path) -> None:
    (run_dir / "x.index").write_bytes(b"<!DOCTYPE html><html>")
    for address in ("run/x", "run/x.index"):
        assert "HTML" in failure(address).what


@pytest.mark.parametrize("data", [b"", b"\0" * 99, b"damaged", b"\x93" * 99])
def test_a_damaged_index_is_still_an_index(run_dir: Path, data: bytes) -> None:
    (run_dir / "model.ckpt-9.index").write_bytes(data)
    assert resolve("run/model.ckpt-9").prefix == "model.ckpt-9"  # opening it says what is wrong


def test_a_data_file_alone_that_is_something_else(run_dir: Path) -> None:
    (run_dir / "x.data-00000-of-00001").write_bytes(POINTER)
    assert failure("run/x.data-00000-of-00001").id == "git-lfs-pointer"


def test_a_directory_with_something_else(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    error = failure(str(tmp_path))
    assert isinstance(error, ForeignFormatError)
    assert error.what == f"no checkpoint in {tmp_path}"
    assert "pytorch_model.bin is a Python pickle" in error.why


def test_a_directory_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "_METADATA").write_text("{}")
    assert failure(str(tmp_path)).what == f"{tmp_path} is an Orbax checkpoint (JAX)"


# Runs by their address ----------------------------------------------------------------


def test_run_of(run_dir: Path, export: Path) -> None:
    write_state(run_dir, "model.ckpt-9", name="best")
    assert run_of("run") == run_of("run/checkpoint") == RunAddress("run")
    assert run_of("run/best") == RunAddress("run", "best")
    for address in ("run/model.ckpt-9", "run/model.ckpt-9.index", "run/@9", "export", "gone"):
        assert run_of(address) is None


def test_require_run(run_dir: Path, export: Path) -> None:
    assert require_run("run/") == RunAddress("run")
    for address, why in [
        ("export", "SavedModel"),
        ("run/model.ckpt-9", "one checkpoint"),
        ("run/model.ckpt-9.index", "one file"),
    ]:
        with pytest.raises(NotFoundError) as caught:
            require_run(address)
        assert caught.value.id == "not-a-run"
        assert why in caught.value.why
    with pytest.raises(NotFoundError, match="there is no directory rum"):
        require_run("rum")
    with pytest.raises(UsageError):
        require_run("")


# The corpus ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "kind", "prefix"),
    [
        ("v1-acrobot-adam", "run", "model.ckpt"),
        ("v1-acrobot-adam/checkpoint", "run", "model.ckpt"),
        ("v1-acrobot-adam/@latest", "tf-v1", "model.ckpt"),
        ("v1-acrobot-adam/model.ckpt", "tf-v1", "model.ckpt"),
        ("v1-acrobot-adam/model.ckpt.meta", "tf-v1", "model.ckpt"),
        ("v1-badhalfplustwo-abspath", "run", "export"),
        ("v1-badhalfplustwo-abspath/export", "tf-v1", "export"),
        ("v1-deepq-dotdot-path", "run", "karpathy_game.ckpt"),
        ("v1-deepq-dotdot-path/karpathy_game.ckpt", "tf-v1", "karpathy_game.ckpt"),
        ("v1-halfplustwo-sharded", "run", "export-?????-of-00001"),
        ("v1-halfplustwo-sharded/export", "tf-v1", "export-?????-of-00001"),
        ("v1-halfplustwo-sharded/export.meta", "tf-v1", "export-?????-of-00001"),
        ("v1-halfplustwo-sharded/export-00000-of-00001", "tf-v1", "export-?????-of-00001"),
        ("v1-halfplustwo-sharded/export-?????-of-00001", "tf-v1", "export-?????-of-00001"),
        ("mixed-v1-v2-tdgammon/checkpoint-447880", "tf-v1", "checkpoint-447880"),
        ("mixed-v1-v2-tdgammon/checkpoint-447880.meta", "tf-v1", "checkpoint-447880"),
        ("mixed-v1-v2-tdgammon/@447880", "tf-v1", "checkpoint-447880"),
    ],
)
def test_v1_in_the_corpus(corpus: Path, address: str, kind: str, prefix: str) -> None:
    found = resolve(str(corpus / address))
    assert (found.kind, found.prefix) == (kind, prefix)
    assert found.version == "v1"


@pytest.mark.parametrize(
    ("address", "kind", "location"),
    [
        ("mixed-v1-v2-tdgammon", "run", "checkpoint-462746"),
        ("mixed-v1-v2-tdgammon/@462746", "checkpoint", "checkpoint-462746"),
        ("obj-manager-timestamps/ckpt_nstep", "run", "ckpt-6"),
        ("obj-manager-timestamps/ckpt_nstep/@3", "checkpoint", "ckpt-3"),
        ("obj-a2c-2shard-unlisted/@1", "checkpoint", "ckpt-1"),
        ("obj-trained-weights-1to10/saved_models", "run", "trained_weights_10"),
        ("obj-trained-weights-1to10/saved_models/@9", "checkpoint", "trained_weights_9"),
        ("obj-iris-2shard/@3840", "checkpoint", "model.ckpt"),
        ("v2-widedeep-5steps/@13752", "checkpoint", "model.ckpt-13752"),
        ("bad-missing-shard-sudoku/model", "savedmodel", "variables"),
        (
            "sm-halfplustwo-tf2/saved_model_half_plus_two_tf2_cpu/00000123",
            "savedmodel",
            "variables",
        ),
    ],
)
def test_addresses_in_the_corpus(corpus: Path, address: str, kind: str, location: str) -> None:
    found = resolve(str(corpus / address))
    assert (found.kind, found.prefix) == (kind, location)


def test_every_prefix_of_the_corpus_resolves_in_every_form(corpus: Path) -> None:
    count = 0
    for index in sorted(corpus.rglob("*.index")):
        if index.parent.name == "bad-lfs-pointers":
            continue
        prefix = str(index)[: -len(".index")]
        parts = [str(index)]
        parts += [str(p) for p in index.parent.iterdir() if str(p).startswith(f"{prefix}.data-")]
        for address in (prefix, *parts):
            found = resolve(address)
            if os.path.basename(prefix) != "checkpoint":
                assert found.location == prefix
            count += 1
    assert count > 100
