"""``verify`` of what is no V2 checkpoint: every byte read, every checksum a format has."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import ckpttool
from ckpttool.errors import CkpttoolError, ForeignFormatError
from ckpttool.ops.verify import verify, verify_all
from ckpttool.sources.registry import open_source
from tests.sources.test_conformance import CASES, Case
from tests.support.command import RunCli

SOURCES = [case for case in CASES if case.kind not in {"tf-v2", "savedmodel"}]


@pytest.mark.parametrize("case", SOURCES, ids=lambda case: case.address)
def test_a_sound_one(fixtures_dir: Path, case: Case) -> None:
    """P5: healthy only where every claimed byte was read and matched something."""
    address = str(fixtures_dir / case.address)
    found = verify(address)
    assert not found.damaged, found.findings
    with open_source(address) as source:
        variables = list(source.variables())
        summed = [one for one in variables if source.checksummed(one)]
    skipped = sum(one.variables for one in found.not_checked)
    assert found.checked.variables + skipped == len(variables)
    assert found.healthy is (not found.not_checked)
    assert found.checked.variables <= len(summed)
    quick = verify(address, level="quick")
    assert quick.healthy
    assert quick.checked.nbytes == 0
    assert sum(one.variables for one in quick.not_checked) == len(variables)


def test_formats_that_have_checksums_can_be_healthy(fixtures_dir: Path) -> None:
    for address in ("v1", "v1-sharded", "v1-dtypes", "arrays/model-7.npz"):
        assert verify(str(fixtures_dir / address)).healthy, address
    for name in ("keras2.keras", "keras3.keras"):
        assert verify(str(fixtures_dir / "keras-files" / name)).healthy, name


@pytest.mark.parametrize(
    "address", ["arrays/model.safetensors", "arrays/embedding.npy", "keras-files/keras3.h5"]
)
def test_a_format_without_checksums_says_so(
    fixtures_dir: Path, run_cli: RunCli, address: str
) -> None:
    """P5: what cannot be compared is said, with how much it is, and is no exit 0."""
    done = run_cli(["verify", address, "--json"], cwd=fixtures_dir)
    assert done.returncode == 3
    data = json.loads(done.stdout)["data"]
    assert data["healthy"] is False
    assert data["findings"] == []
    (skipped,) = data["not_checked"]
    assert "no checksum" in skipped["why"]
    assert skipped["variables"] > 0
    assert skipped["bytes"] > 0
    assert data["checked"] == {"variables": 0, "bytes": 0}
    assert run_cli(["verify", address, "--quick"], cwd=fixtures_dir).returncode == 0


@pytest.mark.parametrize(
    "address", ["arrays/model-7.npz", "keras-files/keras3.keras", "v1/model.ckpt-2"]
)
def test_any_flipped_bit_of_a_variable_is_found(
    fixtures_dir: Path, tmp_path: Path, address: str
) -> None:
    """The first and the last byte of what lies plainly in the file; of V1, blocks anywhere."""
    copy = tmp_path / Path(address).name
    shutil.copy(fixtures_dir / address, copy)
    sound = copy.read_bytes()
    places: list[int] = []
    with open_source(str(copy)) as source:
        if source.kind == "tf-v1":
            places += range(0, len(sound) // 2, 7)
        for one in source.variables():
            extent = source.extent(one)
            if extent is not None and extent.nbytes:
                places += [extent.offset, extent.offset + extent.nbytes - 1]
    assert places
    for place in places[:: max(1, len(places) // 12)]:
        damaged = bytearray(sound)
        damaged[place] ^= 0x10
        copy.write_bytes(damaged)
        with suppress(ForeignFormatError):  # what says that it is a V1 checkpoint is gone
            found = verify(str(copy))
            assert found.damaged, place
            assert found.findings[0].severity == "error"


@pytest.mark.parametrize("case", SOURCES, ids=lambda case: case.address)
def test_a_truncated_file_is_never_called_sound(
    fixtures_dir: Path, tmp_path: Path, case: Case
) -> None:
    """Cut at any of some places: damaged, or an error; never healthy."""
    original = fixtures_dir / case.address
    if original.is_dir():
        pytest.skip("one file is cut; this source is a directory")
    copy = tmp_path / original.name
    data = original.read_bytes()
    results = []
    for part in (0, 1, 5, 8, 9):
        copy.write_bytes(data[: len(data) * part // 10])
        with suppress(CkpttoolError):  # no such file, or none that is ours
            results.append(verify(str(copy)))
    for found in results:
        # What a graph file holds before the cut may be a whole graph by itself.
        assert not found.healthy or not found.checked.variables


def test_damage_names_the_variable_and_keeps_nothing_else_back(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    copy = tmp_path / "m.npz"
    shutil.copy(fixtures_dir / "arrays" / "model-7.npz", copy)
    with ckpttool.open(copy) as opened, open_source(str(copy)) as source:
        name = next(one for one in opened if opened[one].nbytes and source.extent(opened[one]))
        extent = source.extent(opened[name])
    assert extent is not None
    data = bytearray(copy.read_bytes())
    data[extent.offset] ^= 1
    copy.write_bytes(data)
    done = run_cli(["verify", copy, fixtures_dir / "v1", "--json"])
    assert done.returncode == 1
    report = json.loads(done.stdout)["data"]
    (finding,) = report["findings"]
    assert (finding["id"], finding["object"]) == ("zip-checksum", name)
    assert report["sources"][1]["healthy"] is True
    assert report["sources"][0]["checked"]["variables"] > 1


def test_a_missing_file_of_a_sharded_v1_is_damage(fixtures_dir: Path, tmp_path: Path) -> None:
    for path in (fixtures_dir / "v1-sharded").iterdir():
        if not path.name.endswith("00001-of-00002"):
            shutil.copy(path, tmp_path)
    found = verify(str(tmp_path))
    assert found.damaged
    assert "shard-missing" in {one.id for one in found.findings}
    assert found.checked.variables > 0


def test_a_graph_without_values_is_not_damaged(fixtures_dir: Path) -> None:
    found = verify(str(fixtures_dir / "graphs" / "training.meta"))
    assert not found.damaged
    assert not found.healthy
    (skipped,) = found.not_checked
    assert skipped.variables == 12
    assert "holds no values" in skipped.why


def test_several_kinds_at_once(fixtures_dir: Path) -> None:
    addresses = [str(fixtures_dir / one) for one in ("mlp-v1", "v1", "arrays/model-7.npz")]
    results = verify_all([*addresses, str(fixtures_dir / "README.md")])
    assert [getattr(one, "healthy", None) for one in results] == [True, True, True, None]


def test_progress_reaches_the_end(fixtures_dir: Path) -> None:
    seen: list[tuple[int, int]] = []
    verify(
        str(fixtures_dir / "keras-files" / "keras3.keras"),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1][0] == seen[-1][1] > 0


def test_every_file_of_the_corpus_is_judged(corpus: Path) -> None:
    """Real files of other kinds: sound, or with what is known to be wrong about them."""
    tried = 0
    for pattern in ("*.h5", "*.keras", "*.safetensors", "*.npz"):
        for path in sorted(corpus.rglob(pattern)):
            if path.stat().st_size > 50_000_000:
                continue
            found = verify(str(path))
            assert not found.damaged, (path, found.findings)
            tried += 1
    assert tried >= 3
