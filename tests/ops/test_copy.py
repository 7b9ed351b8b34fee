"""``cp``, ``mv`` and ``cp --salvage``: a whole checkpoint as one thing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, CorruptError, IncompleteError, RefusedError
from ckpttool.ops.copy import copy_checkpoint, move_checkpoint
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.salvage import salvage
from ckpttool.ops.verify import verify


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def renamed(contents: dict[str, bytes], prefix: str, new: str) -> dict[str, bytes]:
    return {
        name.replace(prefix, new, 1): data
        for name, data in contents.items()
        if name.startswith(f"{prefix}.")
    }


def test_a_copy_is_the_same_to_the_byte_with_its_graph(fixtures_dir, tmp_path):
    result = copy_checkpoint(str(fixtures_dir / "mlp-v1"), str(tmp_path / "new"), Options())
    original = renamed(files(fixtures_dir / "mlp-v1"), "model.ckpt-1000", "new")
    assert files(tmp_path) == original
    assert "new.meta" in original
    assert result.variables == 17
    assert any("latest" in note for note in result.notes)


def test_into_a_directory_the_name_stays(fixtures_dir, tmp_path):
    copy_checkpoint(str(fixtures_dir / "keras3" / "@3"), str(tmp_path), Options())
    assert sorted(files(tmp_path)) == ["ckpt-3.data-00000-of-00001", "ckpt-3.index"]


def test_every_readable_checkpoint_is_copied_whole(corpus, tmp_path):
    copied = 0
    for number, index in enumerate(sorted(corpus.rglob("*.index"))):
        prefix = str(index).removesuffix(".index")
        to = tmp_path / f"c{number}"
        try:
            copy_checkpoint(prefix, str(to), Options())
        except CkpttoolError:
            broken = "damaged" in prefix or "bad-" in prefix
            assert broken, prefix
            assert not list(tmp_path.glob(f"c{number}.*"))
            continue
        copied += 1
        assert (tmp_path / f"c{number}.index").read_bytes() == index.read_bytes()
    assert copied > 45


def test_what_is_not_whole_is_not_copied(fixtures_dir, tmp_path):
    with pytest.raises(IncompleteError) as caught:
        copy_checkpoint(
            str(fixtures_dir / "damaged" / "missing-shard"), str(tmp_path / "new"), Options()
        )
    assert caught.value.id == "shard-missing"
    assert "--salvage" in caught.value.hint
    assert files(tmp_path) == {}


def test_check_refuses_a_damaged_source(fixtures_dir, tmp_path):
    source = str(fixtures_dir / "damaged" / "flipped-bit")
    with pytest.raises(CorruptError) as caught:
        copy_checkpoint(source, str(tmp_path / "new"), Options(check=True))
    assert caught.value.id == "source-damaged"
    copy_checkpoint(source, str(tmp_path / "new"), Options())
    with pytest.raises(CorruptError) as caught:
        copy_checkpoint(source, str(tmp_path / "other"), Options(verify=True))
    assert caught.value.id == "written-wrong"


def test_a_move_copies_no_byte_and_leaves_nothing(fixtures_dir, tmp_path):
    shutil.copytree(fixtures_dir / "mlp-v1", tmp_path / "run")
    (tmp_path / "out").mkdir()
    before = files(tmp_path / "run")
    inode = (tmp_path / "run" / "model.ckpt-1000.data-00000-of-00001").stat().st_ino
    move_checkpoint(
        str(tmp_path / "run" / "model.ckpt-1000"), str(tmp_path / "out" / "b"), Options()
    )
    assert files(tmp_path / "out") == renamed(before, "model.ckpt-1000", "b")
    assert (tmp_path / "out" / "b.data-00000-of-00001").stat().st_ino == inode
    assert sorted(files(tmp_path / "run")) == ["checkpoint"]


def test_renaming_in_its_directory(fixtures_dir, tmp_path):
    shutil.copytree(fixtures_dir / "two-shards", tmp_path / "run")
    (index,) = (tmp_path / "run").glob("*.index")
    old = index.name.removesuffix(".index")
    before = files(tmp_path / "run")
    move_checkpoint(str(tmp_path / "run" / old), str(tmp_path / "run" / "best"), Options())
    after = files(tmp_path / "run")
    assert {name: data for name, data in after.items() if name != "checkpoint"} == renamed(
        before, old, "best"
    )
    with pytest.raises(RefusedError) as caught:
        move_checkpoint(
            str(tmp_path / "run" / "best"), str(tmp_path / "run" / "best"), Options(overwrite=True)
        )
    assert caught.value.id == "same-place"
    assert files(tmp_path / "run") == after


def test_the_variables_of_a_saved_model_are_copied_and_not_moved(fixtures_dir, tmp_path):
    model = str(fixtures_dir / "savedmodel")
    with pytest.raises(RefusedError) as caught:
        move_checkpoint(model, str(tmp_path / "v"), Options())
    assert caught.value.id == "move-saved-model"
    copy_checkpoint(model, str(tmp_path / "v"), Options())
    assert verify(str(tmp_path / "v")).healthy


def test_overwriting_removes_what_is_of_no_more_use(fixtures_dir, tmp_path):
    copy_checkpoint(str(fixtures_dir / "mlp-v1"), str(tmp_path / "m"), Options())
    (tmp_path / "m.data-00002-of-00007").write_bytes(b"stale")
    (tmp_path / "mine.index.txt").write_bytes(b"not a checkpoint's")
    result = copy_checkpoint(
        str(fixtures_dir / "two-shards"), str(tmp_path / "m"), Options(overwrite=True)
    )
    assert sorted(files(tmp_path)) == [
        "m.data-00000-of-00002",
        "m.data-00001-of-00002",
        "m.index",
        "mine.index.txt",
    ]
    assert result.applied


def test_salvage_takes_what_is_intact_and_lists_the_rest(fixtures_dir, tmp_path):
    done = salvage(
        str(fixtures_dir / "damaged" / "flipped-bit"), str(tmp_path / "s"), Options(verify=True)
    )
    assert [one.object for one in done.lost] == ["tower/kernel"]
    assert "checksum" in done.lost[0].why
    assert done.result.variables == 3
    assert verify(str(tmp_path / "s")).healthy


def test_what_is_lost_is_not_called_changed(run_cli, corpus, tmp_path):
    damaged = corpus / "derived-damaged-iris" / "bitflip-data"
    done = run_cli(["cp", damaged, tmp_path / "d", "--salvage", "--color", "always"])
    assert done.returncode == 3
    assert "1 lost" in " ".join(done.stdout.split())
    assert "changed" not in done.stdout


def test_salvage_of_a_checkpoint_whose_shard_is_gone(fixtures_dir, corpus, tmp_path):
    done = salvage(str(fixtures_dir / "damaged" / "missing-shard"), str(tmp_path / "s"), Options())
    assert done.lost
    assert done.result.variables
    assert verify(str(tmp_path / "s")).healthy
    model = salvage(
        str(corpus / "bad-missing-shard-sudoku" / "model"), str(tmp_path / "m"), Options()
    )
    assert len(model.lost) == 131
    assert model.result.variables == 1


def test_a_partitioned_variable_with_a_damaged_part_is_lost_whole(fixtures_dir, tmp_path):
    shutil.copytree(fixtures_dir / "partitioned", tmp_path / "p")
    (data,) = (tmp_path / "p").glob("*.data-*")
    whole = salvage(str(tmp_path / "p"), str(tmp_path / "all"), Options())
    assert not whole.lost
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    done = salvage(str(tmp_path / "p"), str(tmp_path / "s"), Options())
    assert len(done.lost) == 1
    assert verify(str(tmp_path / "s")).healthy


def test_where_nothing_is_intact_nothing_is_written(fixtures_dir, tmp_path):
    for path in (fixtures_dir / "two-shards").glob("*.index"):
        shutil.copy(path, tmp_path)
        with pytest.raises(CorruptError) as caught:
            salvage(str(tmp_path / path.name), str(tmp_path / "s"), Options())
    assert caught.value.id == "nothing-intact"
    assert not list(tmp_path.glob("s.*"))


def test_the_commands(run_cli, fixtures_dir, tmp_path):
    done = run_cli(["cp", fixtures_dir / "mlp-v1", tmp_path / "a", "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["destination"] == str(tmp_path / "a")
    done = run_cli(["mv", tmp_path / "a", tmp_path / "b"])
    assert done.returncode == 0, done.stderr
    damaged = fixtures_dir / "damaged" / "flipped-bit"
    done = run_cli(["cp", damaged, tmp_path / "c", "--salvage", "--json"])
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert not document["ok"]
    assert [one["object"] for one in document["data"]["lost"]] == ["tower/kernel"]
    done = run_cli(["cp", fixtures_dir / "mlp-v1", tmp_path / "nowhere" / "x"])
    assert done.returncode == 10
    assert "mkdir -p" in done.stderr


def test_a_move_says_that_the_state_file_names_the_old_place(run_cli, fixtures_dir, tmp_path):
    shutil.copytree(fixtures_dir / "mlp-v1", tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint").read_bytes()
    source = tmp_path / "run" / "model.ckpt-1000"
    planned = run_cli(["mv", source, tmp_path / "best", "-n"])
    assert "--fix" not in planned.stderr
    done = run_cli(["mv", source, tmp_path / "best"])
    assert done.returncode == 0, done.stderr
    assert f"ckpttool state {tmp_path / 'run'} --fix" in done.stderr
    assert (tmp_path / "run" / "checkpoint").read_bytes() == before
    again = run_cli(["mv", tmp_path / "best", tmp_path / "run" / "best"])
    assert "--fix" not in again.stderr  # no state file names that one
