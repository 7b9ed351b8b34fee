"""Checkpoints that are replaced, forbidden, or odd in some other way: what a breaker found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpttool
from ckpttool.cli.failure import as_error
from ckpttool.cli.main import main
from ckpttool.cli.views.list import ListView
from ckpttool.cli.views.load import ValuesView
from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    NotFoundError,
    UsageError,
)
from ckpttool.ops.list import list_variables
from ckpttool.ops.load import load
from ckpttool.sources import registry
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.registry import open_source
from tests.support.handmade import EntryFields, build_table, entry, header, masked_crc, write_bundle

BIG = 2**19


def save(folder: Path, value: int) -> str:
    """Replace a checkpoint of two shards, all of whose elements are one number."""
    small = np.full(10, value, "<f4").tobytes()
    big = np.full(BIG, value, "<f4").tobytes()
    entries: dict[bytes, EntryFields | bytes] = {
        b"a": {"shape": (10,), "size": 40, "crc": masked_crc(small)},
        b"b": {"shape": (10,), "size": 40, "crc": masked_crc(small), "shard": 1},
        b"big": {"shape": (BIG,), "offset": 40, "size": 4 * BIG, "crc": masked_crc(big)},
    }
    fresh = folder / "fresh"
    fresh.mkdir(parents=True)
    write_bundle(fresh, "m", entries, [small + big, small])
    for file in sorted(fresh.iterdir()):  # the index last, as TensorFlow does
        file.replace(folder / file.name)
    fresh.rmdir()
    return str(folder / "m")


# One Checkpoint is one checkpoint -----------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("a",), ("b",)),
        (("a", "0:3"), ("a", "3:6")),
        (("a", "0:3"), ("big",)),
        (("big",), ("big",)),
        (("big",), ("a", "0:3")),
        (("a",), ("b", "0:3")),
    ],
)
def test_values_of_two_checkpoints_are_never_mixed(
    tmp_path: Path, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    with ckpttool.open(save(tmp_path, 1)) as checkpoint:
        before = checkpoint.read(*first)
        save(tmp_path, 2)
        for _ in range(2):
            with pytest.raises(ChangedError) as caught:
                checkpoint.read(*then)
            assert caught.value.exit_code == 30
            assert "handed out before" in caught.value.why
            assert "ckpttool.open" in caught.value.hint
        assert set(before.ravel()) == {1}, "an array that was read stays as it was"
    with ckpttool.open(str(tmp_path / "m")) as checkpoint:
        assert set(checkpoint.read(*then).ravel()) == {2}


@pytest.mark.parametrize("give", [lambda c: c["b"], list, len, lambda c: "a" in c])
def test_what_was_said_of_a_checkpoint_is_not_read_from_the_next(tmp_path: Path, give: Any) -> None:
    with ckpttool.open(save(tmp_path, 1)) as checkpoint:
        give(checkpoint)
        save(tmp_path, 2)
        with pytest.raises(ChangedError):
            checkpoint.read("b", "0:3")


def test_a_variable_belongs_to_the_checkpoint_that_gave_it(tmp_path: Path) -> None:
    prefix = save(tmp_path, 1)
    with ckpttool.open(prefix) as other:
        variable = other["b"]
    with ckpttool.open(prefix) as checkpoint:
        save(tmp_path, 2)
        with pytest.raises(ChangedError):
            checkpoint.read(variable)


@pytest.mark.parametrize("what", [("a",), ("a", "0:3"), ("big",)])
def test_before_anything_was_read_the_new_checkpoint_is(tmp_path: Path, what: Any) -> None:
    with ckpttool.open(save(tmp_path, 1)) as checkpoint:
        repr(checkpoint)
        save(tmp_path, 2)
        assert set(checkpoint.read(*what).ravel()) == {2}
        assert set(checkpoint.read("b").ravel()) == {2}
        save(tmp_path, 3)
        assert checkpoint.read("b")[0] == 2, "the open file and index still agree"
        with pytest.raises(ChangedError):
            checkpoint.read("b", "0:3")


def test_a_shard_that_was_closed_for_others_has_to_be_the_same(tmp_path: Path) -> None:
    """Only some files are held open; what was read of the others counts all the same."""
    count = 40

    def write(value: int, index: bool) -> None:
        data = bytes([value]) * 8
        entries: dict[bytes, EntryFields | bytes] = {
            b"v%02d" % shard: {"shape": (2,), "size": 8, "shard": shard} for shard in range(count)
        }
        (tmp_path / "fresh").mkdir()
        write_bundle(tmp_path / "fresh", "m", entries, [data] * count)
        for file in sorted((tmp_path / "fresh").iterdir()):
            if index or file.suffix != ".index":
                file.replace(tmp_path / file.name)
            else:
                file.unlink()
        (tmp_path / "fresh").rmdir()

    write(1, index=True)
    with ckpttool.open(str(tmp_path / "m")) as checkpoint:
        checkpoint.read("v00")
        for shard in range(1, count):
            checkpoint.read(f"v{shard:02d}")
        kept = [tmp_path / f"m.data-{shard:05d}-of-{count:05d}" for shard in range(count)]
        before = {path: path.stat() for path in kept[5:]}
        aside = tmp_path / "aside"
        aside.mkdir()
        for path in before:
            path.rename(aside / path.name)
        write(2, index=False)
        for path in before:
            (aside / path.name).replace(path)
        with pytest.raises(ChangedError):
            checkpoint.read("v00")


# A checkpoint that is gone, and comes back --------------------------------------------


def test_after_a_failure_to_open_it_anew_it_is_what_it_was(tmp_path: Path) -> None:
    prefix = save(tmp_path, 1)
    index, aside = tmp_path / "m.index", tmp_path / "aside"
    with ckpttool.open(prefix) as checkpoint:
        index.rename(aside)
        for _ in range(2):
            with pytest.raises(CkpttoolError) as caught:
                checkpoint.read("a", "0:2")
            assert caught.value.exit_code in {10, 20}
            assert "m.index" in f"{caught.value.what} {caught.value.why}"
        # Descriptors that were free by mistake would be taken by these.
        others = [(tmp_path / f"other{number}").open("wb") for number in range(4)]
        aside.rename(index)
        assert checkpoint.read("a", "0:2").tolist() == [1, 1]
        assert checkpoint.read("big", copy=True)[0] == 1
        assert (list(checkpoint), len(checkpoint)) == (["a", "b", "big"], 3)
        index.unlink()
        with pytest.raises(ChangedError):
            checkpoint.read("b", "0:2")
        assert len(checkpoint) == 3, "the index is open, and what it says is still so"
        for file in others:
            file.close()
    with pytest.raises(UsageError, match="is closed"):
        checkpoint.read("a")


# What Python gives --------------------------------------------------------------------


def test_an_address_is_any_kind_of_path(fixtures_dir: Path) -> None:
    path = fixtures_dir / "two-shards"
    for address in (path, bytes(path), str(path)):
        with ckpttool.open(address) as checkpoint:
            assert (len(checkpoint), checkpoint.address) == (4, str(path))
        assert ckpttool.verify(address).healthy
        assert ckpttool.plan_prune(address, max_to_keep=1).directory == str(path)
    with pytest.raises(TypeError):
        ckpttool.open(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [5, None, b"a", 1.5, ("a",), object()])
def test_what_is_no_name_is_no_key(fixtures_dir: Path, name: Any) -> None:
    with ckpttool.open(fixtures_dir / "two-shards") as checkpoint:
        with pytest.raises(KeyError):
            checkpoint[name]
        with pytest.raises(NotFoundError, match="there is no variable"):
            checkpoint.read(name)
        assert checkpoint.get(name) is None
        assert checkpoint.get(name, 7) == 7
        assert name not in checkpoint


@pytest.mark.parametrize(
    "index",
    [slice(None, 1.5), slice("a"), slice(True), slice(0, [1]), 1.5, b"0", None, True, {}, [0]],
)
def test_what_is_no_index_is_said_to_be_none(fixtures_dir: Path, index: Any) -> None:
    with ckpttool.open(fixtures_dir / "partitioned") as checkpoint:
        for chosen in (index, (0, index)):
            with pytest.raises(UsageError) as caught:
                checkpoint.read("embedding/table", chosen)
            assert caught.value.id == "bad-index"


# A working directory that was removed ---------------------------------------------------


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("command", ["list", "inspect", "verify", "load", "latest", "state"])
def test_an_address_in_a_directory_that_was_removed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in (".", "x", "x/y"):
        assert main([command, address, *(["v"] if command == "load" else [])]) == 10
        out, err = capsys.readouterr()
        assert out == ""
        first, why, *_ = err.splitlines()
        assert address in first
        assert "refused" not in first
        assert why.startswith("  why: ")


@pytest.mark.usefixtures("nowhere")
def test_what_needs_the_name_of_a_directory_that_was_removed() -> None:
    try:
        os.getcwd()
    except OSError as caught:
        error = as_error(caught)
    assert (error.exit_code, error.id) == (10, "working-directory")
    assert "working directory" in error.what


def test_another_file_that_is_not_there_is_no_matter_of_the_working_directory() -> None:
    error = as_error(FileNotFoundError(2, "No such file or directory"))
    assert error.id == "not-found"


# A checkpoint that is being rewritten in place ----------------------------------------


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """``meanwhile(f)``: f runs when ckpttool waits for a moment; gives the list of waits."""

    def prepare(happens: Callable[[], object] = lambda: None) -> list[float]:
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            happens()

        monkeypatch.setattr(time, "sleep", sleep)
        return waits

    return prepare


def test_an_index_that_is_empty_for_a_moment_is_looked_at_again(
    tmp_path: Path, meanwhile: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """D15: TensorFlow opens the index for writing, and it has no byte yet."""
    prefix = save(tmp_path, 1)
    index = tmp_path / "m.index"
    whole = index.read_bytes()
    for command in (["list"], ["load", "a"], ["verify"], ["inspect"]):
        index.write_bytes(b"")
        waits = meanwhile(lambda: index.write_bytes(whole))
        assert main([command[0], prefix, *command[1:]]) == 0, command
        assert len(waits) == 1
        capsys.readouterr()


def test_an_index_that_stays_empty_is_damaged(tmp_path: Path, meanwhile: Any) -> None:
    prefix = save(tmp_path, 1)
    index = tmp_path / "m.index"
    index.write_bytes(b"")
    waits = meanwhile()
    for _ in range(2):
        with pytest.raises(CorruptError) as caught:
            open_source(prefix)
        assert caught.value.id == "table-empty"
    assert len(waits) == 2
    os.utime(index, (1, 1))
    waits = meanwhile()
    with pytest.raises(CorruptError):
        open_source(prefix)
    assert waits == [], "damage of long standing is told at once"


def test_an_index_that_is_written_again_and_again_has_changed(
    tmp_path: Path, meanwhile: Any
) -> None:
    prefix = save(tmp_path, 1)
    (tmp_path / "m.index").write_bytes(b"")

    def append() -> None:
        with (tmp_path / "m.index").open("ab") as file:
            file.write(b"x")

    waits = meanwhile(append)
    with pytest.raises(ChangedError) as caught:
        open_source(prefix)
    assert (caught.value.exit_code, len(waits)) == (30, 2)


@pytest.mark.parametrize("index", ["", "[0:3]"])
def test_data_that_is_newer_than_its_index_for_a_moment_is_read_again(
    tmp_path: Path, meanwhile: Any, index: str
) -> None:
    """The data files are renamed first, and the index of the save before is still there."""
    prefix = save(tmp_path, 1)
    (tmp_path / "next").mkdir()
    save(tmp_path / "next", 2)
    for file in sorted((tmp_path / "next").glob("*.data-*")):
        file.replace(tmp_path / file.name)
    new_index = (tmp_path / "next" / "m.index").read_bytes()
    waits = meanwhile(lambda: (tmp_path / "m.index").write_bytes(new_index))
    with load(prefix, ["a"]) as loaded:
        assert b"".join(loaded.chunks(0)) == np.full(10, 2, "<f4").tobytes()
    with ckpttool.open(prefix) as checkpoint:
        assert set(checkpoint.read(f"b{index}")) == {2}
    assert len(waits) == 1


def test_an_index_that_is_rewritten_while_it_is_read_has_changed(tmp_path: Path) -> None:
    items = [(b"v%06d" % number, entry(size=4)) for number in range(5000)]
    whole = build_table([(b"", header()), *items], block_size=4096)
    prefix, index = tmp_path / "m", tmp_path / "m.index"

    def damage() -> None:
        index.write_bytes(bytes(len(whole) + 1))

    for read in (
        lambda source: source.lookup("v004999"),
        lambda source: list(source.variables()),
        lambda source: source.shards(),
    ):
        index.write_bytes(whole)
        with open_source(str(prefix)) as source:
            damage()
            with pytest.raises(ChangedError) as caught:
                read(source)
            assert caught.value.exit_code == 30
    index.write_bytes(whole)
    with list_variables(str(prefix)) as listing:
        damage()
        with pytest.raises(ChangedError):
            list(ListView(listing).plain())


def test_a_checkpoint_that_goes_when_it_was_just_chosen_is_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager saves the next one, and removes the one that was the latest."""
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "m"\n')
    save(tmp_path, 1)

    def resolve_then_replace(*args: Any) -> Resolved:
        found = resolve(*args)
        for file in [*tmp_path.glob("m.*")]:
            file.rename(file.with_name(file.name.replace("m.", "n.", 1)))
        (tmp_path / "checkpoint").write_text('model_checkpoint_path: "n"\n')
        return found

    monkeypatch.setattr(registry, "resolve", resolve_then_replace)
    with open_source(str(tmp_path)) as source:
        assert source.location == str(tmp_path / "n")
    with pytest.raises(NotFoundError):
        open_source(str(tmp_path / "none"))


# Some of several variables cannot be read ----------------------------------------------


@pytest.mark.parametrize("mode", [[], ["--color", "always"], ["--color", "always", "--full"]])
def test_what_can_be_read_of_several_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: list[str]
) -> None:
    prefix = save(tmp_path, 7)
    Path(f"{prefix}.data-00001-of-00002").unlink()
    assert main(["load", prefix, "b", "a[0:2]", "b[0:1]", "a[4:5]", *mode]) == 3
    out, err = capsys.readouterr()
    if not mode:
        assert out == "# a[0:2]\tfloat32\t[2]\n7.0\n7.0\n# a[4:5]\tfloat32\t[1]\n7.0\n"
    assert ["a[0:2]" in out, "a[4:5]" in out, "b[0:1]" in out] == [True, True, False]
    first, second = err.splitlines()
    assert "the values of b cannot be read: they lie in shard 1 of 2" in first
    assert second == first


def test_of_one_or_none_that_can_be_read_the_error_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = save(tmp_path, 7)
    Path(f"{prefix}.data-00001-of-00002").unlink()
    for names in (["b"], ["b", "b[0:2]"]):
        assert main(["load", prefix, *names]) == 20
        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith("[shard-missing]\n")


def test_a_file_and_a_json_document_are_whole_or_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = save(tmp_path, 7)
    Path(f"{prefix}.data-00001-of-00002").unlink()
    assert main(["load", prefix, "a", "b", "--json"]) == 20
    assert capsys.readouterr().out == ""
    assert main(["load", prefix, "a", "b", "-o", str(tmp_path / "x.npz")]) == 20
    assert not (tmp_path / "x.npz").exists()


def test_values_of_two_checkpoints_are_not_printed_one_after_the_other(
    tmp_path: Path,
) -> None:
    prefix = save(tmp_path, 1)
    with load(prefix, ["a", "b"]) as loaded:
        pieces = ValuesView(loaded, full=False).plain()
        assert next(pieces).startswith("# a\t")
        save(tmp_path, 2)
        with pytest.raises(ChangedError):
            list(pieces)


def test_what_could_not_be_opened_anew_stays_open(tmp_path: Path) -> None:
    with load(save(tmp_path, 1), ["a[0:2]"]) as loaded:
        (tmp_path / "m.index").rename(tmp_path / "aside")
        with pytest.raises(CkpttoolError):
            list(loaded.chunks(0))
        assert loaded.source.lookup("a") is not None


# Trifles ------------------------------------------------------------------------------


def test_a_path_that_is_no_text_is_spelled_in_one_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1)
    stored = "\\377\\000x\\n"
    state = f'model_checkpoint_path: "m"\nall_model_checkpoint_paths: "{stored}"\n'
    (tmp_path / "checkpoint").write_text(state)
    assert main(["state", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("\\xff\\x00x\\n\t")
    assert "'\\xff\\x00x\\n' is a path with a NUL byte" in err
    assert "udcff" not in err


def test_doctor_says_what_a_limit_should_look_like(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CKPTTOOL_LIMITS", "foo")
    assert main(["doctor"]) == 1
    out, _ = capsys.readouterr()
    (line,) = (line for line in out.splitlines() if line.startswith("check\tCKPTTOOL_LIMITS\t"))
    assert line.startswith(
        "check\tCKPTTOOL_LIMITS\tfailed\tCKPTTOOL_LIMITS cannot be used: 'foo': "
    )
    assert "write NAME=SIZE" in line
