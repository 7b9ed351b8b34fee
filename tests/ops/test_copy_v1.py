"""``cp`` and ``mv`` of V1 checkpoints: one file or several, with their graph."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.formats.wire import encode_field
from ckpttool.ops.copy import copy_checkpoint, move_checkpoint
from ckpttool.ops.rewrite.run import Options
from ckpttool.ops.salvage import salvage
from ckpttool.ops.verify import verify
from ckpttool.sources.registry import open_source
from ckpttool.storage.fileset import COMMIT_JOURNAL, NEW_PREFIX
from tests.support.v1_files import FULL, entry, meta, v1_file


def files(folder: Path, prefix: str = "") -> dict[str, bytes]:
    found = (path for path in folder.iterdir() if path.name.startswith(prefix))
    return {path.name: path.read_bytes() for path in found if path.is_file()}


def renamed(contents: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    return {name.replace(old, new, 1): data for name, data in contents.items()}


def failure(act: Callable[[], object]) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        act()
    return caught.value


@pytest.fixture(params=["v1", "v1-sharded"])
def run(request: pytest.FixtureRequest, fixtures_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixtures_dir / request.param, tmp_path / "run"))


def prefix_in(run: Path) -> str:
    (graph,) = run.glob("*.meta")
    return graph.name.removesuffix(".meta")


def test_a_copy_is_the_same_to_the_byte(run: Path, tmp_path: Path) -> None:
    prefix = prefix_in(run)
    result = copy_checkpoint(str(run), str(tmp_path / "new"), Options(check=True, verify=True))
    original = files(run, prefix)
    assert files(tmp_path) == renamed(original, prefix, "new")
    assert result.variables == (5 if len(original) == 2 else 3)
    assert result.nbytes == sum(len(data) for name, data in original.items() if "meta" not in name)
    assert verify(str(tmp_path / "new")).healthy


def test_into_a_directory_the_name_stays(run: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    copy_checkpoint(str(run), str(tmp_path / "to"), Options())
    assert files(tmp_path / "to") == files(run, prefix_in(run))


def test_a_move_leaves_nothing(run: Path, tmp_path: Path) -> None:
    prefix = prefix_in(run)
    original = files(run, prefix)
    move_checkpoint(str(run / f"{prefix}.meta"), str(tmp_path / "new"), Options())
    assert files(tmp_path) == renamed(original, prefix, "new")
    assert list(files(run)) == ["checkpoint"]


def test_a_dry_run_writes_nothing(run: Path, tmp_path: Path) -> None:
    result = copy_checkpoint(str(run), str(tmp_path / "new"), Options(dry_run=True))
    assert not result.applied
    assert files(tmp_path) == {}


def test_an_existing_destination_is_refused_or_replaced(run: Path, tmp_path: Path) -> None:
    prefix = prefix_in(run)
    new = tmp_path / "new"
    copy_checkpoint(str(run), str(new), Options())
    before = files(tmp_path)
    error = failure(lambda: copy_checkpoint(str(run), str(new), Options()))
    assert (error.id, error.exit_code) == ("exists", 31)
    stale = next(iter(sorted(name for name in before if "meta" not in name)))
    shutil.copy(tmp_path / stale, tmp_path / "new-00003-of-00009")
    (tmp_path / "new.index").write_bytes(b"of an old one")
    copy_checkpoint(str(run), str(new), Options(overwrite=True))
    assert files(tmp_path) == renamed(files(run, prefix), prefix, "new")


def test_a_file_that_is_no_checkpoint_is_never_replaced(run: Path, tmp_path: Path) -> None:
    name = "new" if (run / prefix_in(run)).exists() else "new-00001-of-00002"
    (tmp_path / name).write_text("notes")
    for overwrite in (False, True):
        options = Options(overwrite=overwrite)
        error = failure(partial(copy_checkpoint, str(run), str(tmp_path / "new"), options))
        assert error.id == "exists"
    assert files(tmp_path) == {name: b"notes"}


def test_a_missing_file_is_not_left_out(fixtures_dir: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(fixtures_dir / "v1-sharded", tmp_path / "run"))
    (run / "model.ckpt-30-00000-of-00002").unlink()
    error = failure(lambda: copy_checkpoint(str(run), str(tmp_path / "new"), Options()))
    assert (error.id, error.exit_code) == ("shard-missing", 20)
    assert files(tmp_path) == {}


def test_a_damaged_one_is_copied_as_it_is_unless_it_is_checked(run: Path, tmp_path: Path) -> None:
    path = min(one for one in run.glob(f"{prefix_in(run)}*") if one.suffix != ".meta")
    data = bytearray(path.read_bytes())
    data[-100] ^= 1  # in the block of the index of the table
    path.write_bytes(data)
    error = failure(lambda: copy_checkpoint(str(run), str(tmp_path / "a"), Options(check=True)))
    assert error.exit_code == 20
    assert files(tmp_path) == {}


def test_onto_itself(run: Path) -> None:
    prefix = prefix_in(run)
    error = failure(lambda: copy_checkpoint(str(run), str(run / prefix), Options(overwrite=True)))
    assert (error.id, error.exit_code) == ("same-place", 31)


def test_a_killed_copy_is_finished(run: Path, tmp_path: Path) -> None:
    """A journal that a killed run left, before it gave the files their names."""
    prefix = prefix_in(run)
    folder = tmp_path / "to"
    folder.mkdir()
    moves = []
    for number, name in enumerate(sorted(files(run, prefix), reverse=True)):
        temporary = f"{NEW_PREFIX}x-{number}"
        shutil.copy(run / name, folder / temporary)
        moves.append(f'["{temporary}", "{name}"]')
    journal = f'{{"schema": "ckpttool.commit/1", "move": [{", ".join(moves)}], '
    (folder / COMMIT_JOURNAL).write_text(journal + '"replace": [], "remove": []}')
    result = copy_checkpoint(str(run), str(folder / "other"), Options())
    assert any("has been finished" in warning for warning in result.warnings)
    assert files(folder, prefix) == files(run, prefix)


def test_a_journal_cannot_take_another_file(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    (folder / f"{NEW_PREFIX}x").write_text("nothing")
    (folder / COMMIT_JOURNAL).write_text(
        '{"schema": "ckpttool.commit/1", "replace": ["thesis.tex"], "remove": [], '
        f'"move": [["{NEW_PREFIX}x", "thesis.tex"]]}}'
    )
    error = failure(lambda: copy_checkpoint(str(run), str(folder / "new"), Options()))
    assert error.id == "commit-journal"
    assert (folder / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("name", ["arrays/model-7.npz", "keras-files/keras3.keras"])
def test_what_is_one_file_is_left_to_the_system(
    fixtures_dir: Path, tmp_path: Path, name: str
) -> None:
    error = failure(lambda: copy_checkpoint(str(fixtures_dir / name), str(tmp_path), Options()))
    assert (error.id, error.exit_code) == ("not-a-checkpoint", 12)


def test_what_is_intact_is_salvaged(fixtures_dir: Path, tmp_path: Path) -> None:
    """Of V1 as of V2: the rest is listed, and what is copied is a V2 checkpoint."""
    run = Path(shutil.copytree(fixtures_dir / "v1-sharded", tmp_path / "run"))
    (run / "model.ckpt-30-00001-of-00002").unlink()
    found = salvage(str(run), str(tmp_path / "new"), Options(verify=True))
    assert [one.object for one in found.lost] == [f"{run}/model.ckpt-30-?????-of-00002"]
    with open_source(str(tmp_path / "new")) as source:
        assert [one.key for one in source.variables()] == ["first/kernel", "global_step"]
    good = encode_field(5, struct.pack("<2f", 1, 2))
    metas = [meta(name, 1, (2,), [[FULL]]) for name in (b"good", b"lost")]
    v1_file(metas, [entry(b"good", [FULL], good)], tmp_path / "part")
    found = salvage(str(tmp_path / "part"), str(tmp_path / "other"), Options(verify=True))
    assert [one.object for one in found.lost] == ["lost"]
    assert found.result.variables == 1
    v1_file(metas, [], tmp_path / "none")
    error = failure(lambda: salvage(str(tmp_path / "none"), str(tmp_path / "x"), Options()))
    assert error.id == "nothing-intact"
