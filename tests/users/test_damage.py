"""What users run into with damaged and half-written checkpoints: D13 to D16."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import ckpttool
from tests.support.command import RunCli

#: What was done to ``obj-iris-2shard`` → the finding that must come first. All are seen
#: without reading data but the one that is a bit of data.
IRIS = {
    "truncated-index": "table-magic",
    "crlf-index": "block-checksum",
    "zero-byte-index": "table-empty",
    "no-index": "index-missing",
    "truncated-data": "shard-short",
    "zero-byte-data": "shard-empty",
    "missing-shard0": "shard-missing",
    "index-only": "shard-missing",
    "bitflip-data": "checksum-mismatch",
}


@pytest.mark.parametrize("level", ["quick", "deep"])
@pytest.mark.parametrize("kind", IRIS)
def test_d13_nine_kinds_of_damage(corpus: Path, kind: str, level: str) -> None:
    result = ckpttool.verify(
        str(corpus / "derived-damaged-iris" / kind / "model.ckpt"),
        level="quick" if level == "quick" else "deep",
    )
    if (kind, level) == ("bitflip-data", "quick"):
        assert result.healthy
        return
    assert not result.healthy
    assert result.findings[0].id == IRIS[kind]
    assert result.findings[0].severity == "error"


def test_d13_all_nine_at_once_end_with_one(corpus: Path, run_cli: RunCli) -> None:
    prefixes = [corpus / "derived-damaged-iris" / kind / "model.ckpt" for kind in IRIS]
    whole = corpus / "obj-iris-2shard" / "model.ckpt"
    done = run_cli(["verify", "--json", whole, *prefixes])
    assert done.returncode == 1
    sources = json.loads(done.stdout)["data"]["sources"]
    assert [source["healthy"] for source in sources] == [True] + [False] * 9


def test_d13_a_shard_missing_names_it_and_says_how_much_is_lost(
    corpus: Path, run_cli: RunCli
) -> None:
    """A SavedModel of which git brought only the small shard."""
    done = run_cli(["verify", corpus / "bad-missing-shard-sudoku" / "model"])
    assert done.returncode == 1
    assert "variables.data-00001-of-00002" in done.stdout
    assert "131" in done.stdout
    # list works all the same, which is how one learns what the missing file holds.
    assert run_cli(["list", corpus / "bad-missing-shard-sudoku" / "model"]).returncode == 0


def test_d13_the_run_s_latest_is_checked_and_latest_names_the_newest_whole_one(
    corpus: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    """Preempted in the middle of a save: the state file points to what is not whole."""
    source = corpus / "obj-iris-2shard"
    for step in (1, 2):
        for path in source.glob("model.ckpt.*"):
            shutil.copy(path, tmp_path / path.name.replace("model.ckpt", f"ckpt-{step}"))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-2"\n')
    (tmp_path / "ckpt-2.data-00001-of-00002").unlink()
    done = run_cli(["verify", tmp_path])
    assert done.returncode == 1
    assert "ckpt-2.data-00001-of-00002" in done.stdout
    assert run_cli(["verify", tmp_path / "@1"]).returncode == 0
    assert run_cli(["latest", "-q", tmp_path]).stdout.strip().endswith("ckpt-1")


def test_d14_leftovers_of_a_killed_save_are_told_and_never_taken_for_checkpoints(
    corpus: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    for path in (corpus / "obj-iris-2shard").glob("model.ckpt.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "model.ckpt.data-00000-of-00001.tempstate5599123").write_bytes(b"half")
    (tmp_path / "model.ckpt_temp").mkdir()
    (tmp_path / "model.ckpt_temp" / "part-00000-of-00002.data-00000-of-00001").write_bytes(b"")
    result = ckpttool.verify(str(tmp_path))
    assert result.healthy
    assert [(found.severity, found.id) for found in result.findings] == [
        ("note", "save-leftover"),
        ("note", "save-leftover"),
    ]
    assert {found.object for found in result.findings} == {
        str(tmp_path / "model.ckpt.data-00000-of-00001.tempstate5599123"),
        str(tmp_path / "model.ckpt_temp"),
    }
    done = run_cli(["inspect", "--json", tmp_path])
    assert done.returncode == 0
    leftovers = json.loads(done.stdout)["data"]["run"]["leftovers"]
    assert len(leftovers) == 2


def test_d15_a_checksum_mismatch_names_variable_shard_and_offset(
    corpus: Path, run_cli: RunCli
) -> None:
    """TensorFlow says "Checksum does not match" without a name; the others stay readable."""
    prefix = corpus / "derived-damaged-iris" / "bitflip-data" / "model.ckpt"
    done = run_cli(["verify", prefix])
    assert done.returncode == 1
    finding = done.stdout.splitlines()[1].split("\t")
    assert finding[2] == "checksum-mismatch"
    variable, message = finding[3:]
    assert "model.ckpt.data-00001-of-00002" in message
    assert "offset 4132" in message
    done = run_cli(["load", prefix, variable])
    assert done.returncode == 20
    assert "data-00001-of-00002" in done.stderr
    others = [
        found.key
        for found in ckpttool.open(str(prefix)).values()
        if variable not in {found.name, found.key} and found.dtype == "float32"
    ]
    assert len(others) > 10
    assert run_cli(["load", prefix, *others, "--json"]).returncode == 0


def test_d05_git_lfs_pointers_say_what_to_fetch(corpus: Path, run_cli: RunCli) -> None:
    prefix = corpus / "bad-lfs-pointers" / "network_01239000"
    done = run_cli(["verify", prefix])
    assert done.returncode == 11
    assert "Git-LFS pointer" in done.stderr
    assert "git" in done.stderr
    assert "lfs pull" in done.stderr


def test_d05_a_pointer_in_the_place_of_one_shard(corpus: Path, tmp_path: Path) -> None:
    for path in (corpus / "obj-iris-2shard").glob("model.ckpt.*"):
        shutil.copy(path, tmp_path)
    pointers = corpus / "bad-lfs-pointers"
    pointer = pointers / "network_01239000.data-00000-of-00001"
    shard = tmp_path / "model.ckpt.data-00001-of-00002"
    shutil.copy(pointer, shard)
    result = ckpttool.verify(str(tmp_path / "model.ckpt"), level="quick")
    assert [(found.id, found.object) for found in result.findings] == [
        ("git-lfs-pointer", str(shard))
    ]
    assert result.not_checked[0].variables == 17


def test_d16_a_saved_model_whose_variables_were_not_copied(
    corpus: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    """TensorFlow takes it for a model without variables and loads it."""
    source = corpus / "sm-a2c-2shard" / "a2c-cartpole"
    model = tmp_path / "model"
    shutil.copytree(source, model)
    assert run_cli(["verify", model]).returncode == 0
    shards = sorted(name for name in os.listdir(model / "variables") if ".data-" in name)
    (model / "variables" / shards[0]).unlink()
    done = run_cli(["verify", model])
    assert done.returncode == 1
    assert shards[0] in done.stdout
    (model / "variables" / "variables.index").unlink()
    done = run_cli(["verify", model])
    assert done.returncode == 1
    assert "index-missing" in done.stdout
    shutil.rmtree(model / "variables")
    done = run_cli(["verify", model])
    assert done.returncode == 1
    assert done.stdout.count("variables-missing") == 6
