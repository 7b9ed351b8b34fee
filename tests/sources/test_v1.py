"""V1 checkpoints as sources: one file, several, some of them missing, crafted ones."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from ckpttool.errors import CkpttoolError
from ckpttool.formats.wire import encode_field
from ckpttool.limits import Limits
from ckpttool.model import Oddity
from ckpttool.ops.inspect import inspect
from ckpttool.ops.latest import latest
from ckpttool.ops.list import list_variables
from ckpttool.ops.state import state
from ckpttool.ops.state_fix import apply_fix, plan_fix
from ckpttool.ops.verify import verify
from ckpttool.sources.address import resolve
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from ckpttool.sources.v1 import V1Source
from tests.support.v1_files import FULL, entry, meta, number, packed, v1_file

SHARDED = "model.ckpt-30-?????-of-00002"
SECOND = "model.ckpt-30-00001-of-00002"


@pytest.fixture
def sharded(fixtures_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixtures_dir / "v1-sharded", tmp_path / "run"))


def read(source: V1Source, name: str) -> np.ndarray:
    variable = source.find(name)
    assert variable.shape is not None
    return source.read(variable, Selection.whole(variable.shape))


def opened(path: Path | str, limits: Limits | None = None) -> V1Source:
    source = open_source(str(path), limits)
    assert isinstance(source, V1Source)
    return source


def failure(act: Callable[[], object]) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        act()
    return caught.value


# One checkpoint -----------------------------------------------------------------------


def test_variables_of_a_checkpoint(fixtures_dir: Path) -> None:
    with opened(fixtures_dir / "v1" / "model.ckpt-2") as source:
        found = {variable.name: variable for variable in source.variables()}
        assert {name: variable.kind for name, variable in found.items()} == {
            "embedding": "model",
            "embedding/Momentum": "optimizer",
            "global_step": "step",
            "layer/weights": "model",
            "layer/weights/Momentum": "optimizer",
        }
        table = found["embedding"]
        assert table.slices is not None
        assert [(part.start, part.extent, part.shard) for part in table.slices] == [
            ((0, 0), (4, 3), 0),
            ((4, 0), (3, 3), 0),
            ((7, 0), (3, 3), 0),
        ]
        assert (table.shard, table.offset, table.nbytes) == (None, None, 120)
        whole = found["layer/weights"]
        assert (whole.shard, whole.offset, whole.nbytes, whole.slices) == (0, None, 96, None)
        assert (source.step, source.stored_step, source.number) == (2, 2, 2)


def test_strings_have_the_size_of_their_bytes(fixtures_dir: Path) -> None:
    with opened(fixtures_dir / "v1-dtypes" / "all") as source:
        assert source.find("array/string").nbytes == len(b"a" + "grüß".encode()) + 200
        assert source.find("sliced/string").nbytes == 6
        assert source.find("empty/string").nbytes == 0


def test_from_python(fixtures_dir: Path) -> None:
    with ckpttool.open(fixtures_dir / "v1") as checkpoint:
        rows = checkpoint.read("embedding", (slice(3, 5), 1))
        assert rows.shape == (2,)
        assert checkpoint["global_step"].shape == ()


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("v1", "model.ckpt-2"),
        ("v1/checkpoint", "model.ckpt-2"),
        ("v1/@2", "model.ckpt-2"),
        ("v1/@latest", "model.ckpt-2"),
        ("v1/model.ckpt-2.meta", "model.ckpt-2"),
        ("v1-sharded", SHARDED),
        ("v1-sharded/@30", SHARDED),
        ("v1-sharded/@latest", SHARDED),
        ("v1-sharded/model.ckpt-30", SHARDED),
        ("v1-sharded/model.ckpt-30.meta", SHARDED),
        (f"v1-sharded/{SECOND}", SHARDED),
        (f"v1-sharded/{SHARDED}", SHARDED),
        ("v1-dtypes", "all"),
    ],
)
def test_addresses(fixtures_dir: Path, address: str, prefix: str) -> None:
    assert resolve(str(fixtures_dir / address)).prefix == prefix
    with opened(fixtures_dir / address) as source:
        assert source.location == f"{fixtures_dir / address.split('/', maxsplit=1)[0]}/{prefix}"


def test_a_run(fixtures_dir: Path) -> None:
    run = str(fixtures_dir / "v1-sharded")
    found = latest(run)
    assert (found.prefix, found.step, found.number) == (f"{run}/{SHARDED}", 30, 30)
    assert state(run).problems == ()
    report = inspect(run)
    assert report.kind == "run"
    assert report.run is not None
    (checkpoint,) = report.run.checkpoints
    files = [path for path in (fixtures_dir / "v1-sharded").iterdir() if path.name != "checkpoint"]
    assert checkpoint.nbytes == sum(path.stat().st_size for path in files)
    assert (checkpoint.prefix, checkpoint.step) == (f"{run}/{SHARDED}", 30)
    assert checkpoint.whole
    assert checkpoint.listed
    assert checkpoint.latest
    assert report.checkpoint is not None
    assert (report.checkpoint.kind, report.checkpoint.style) == ("tf-v1", "name")
    assert report.checkpoint.time is not None
    assert report.checkpoint.graph is not None


def test_the_newest_of_two_versions(fixtures_dir: Path, sharded: Path) -> None:
    (sharded / "checkpoint").unlink()
    for path in (fixtures_dir / "two-shards").iterdir():
        if path.name != "checkpoint":
            shutil.copy(path, sharded)
    assert resolve(str(sharded)).prefix == "model.ckpt-42"
    assert latest(str(sharded)).step == 42
    for path in sharded.glob("model.ckpt-42*"):
        path.rename(sharded / path.name.replace("42", "7"))
    assert resolve(str(sharded)).prefix == SHARDED
    assert latest(str(sharded)).number == 30
    error = failure(lambda: resolve(str(sharded / "@31")))
    assert error.hint == "the nearest are @30, @7"


def test_a_state_file_is_rebuilt_from_v1_checkpoints(sharded: Path) -> None:
    (sharded / "checkpoint").unlink()
    apply_fix(plan_fix(str(sharded)), min_age=0)
    assert resolve(str(sharded)).via == "state"
    assert latest(str(sharded)).prefix == f"{sharded}/{SHARDED}"
    (sharded / "checkpoint").unlink()
    (sharded / SECOND).unlink()
    assert failure(lambda: plan_fix(str(sharded))).id == "no-whole-checkpoint"


def test_a_step_that_is_only_inside(fixtures_dir: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures_dir / "v1" / "model.ckpt-2", tmp_path / "final")
    shutil.copy(fixtures_dir / "v1" / "model.ckpt-2.meta", tmp_path / "final.meta")
    assert resolve(str(tmp_path / "@2")).prefix == "final"
    with opened(tmp_path / "@2") as source:
        assert (source.step, source.number) == (2, None)


# Several files ------------------------------------------------------------------------


def test_a_missing_file(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    with opened(sharded) as source:
        assert [variable.name for variable in source.variables()] == [
            "first/kernel",
            "global_step",
        ]
        (note,) = [note for note in source.notes if isinstance(note, Oddity)]
        assert f"{sharded}/{SECOND} is missing" in note
        there, missing = source.shards()
        assert (there.present, missing.present) == (True, False)
        assert (missing.path, missing.nbytes) == (f"{sharded}/{SECOND}", None)
    with list_variables(str(sharded)) as listing:
        assert len(list(listing.variables())) == 2
    result = verify(str(sharded))
    assert [finding.id for finding in result.findings] == ["shard-missing"]
    assert not result.healthy
    assert failure(lambda: resolve(str(sharded / "@latest"))).id == "latest-incomplete"
    assert failure(lambda: latest(str(sharded))).id == "no-whole-checkpoint"
    (sharded / "model.ckpt-30-00000-of-00002").unlink()
    assert failure(lambda: opened(sharded / SHARDED)).exit_code == 10


def test_claimed_files_that_are_missing_are_counted_to_a_hundred(tmp_path: Path) -> None:
    v1_file([], [], tmp_path / "m-00007-of-99999999")
    with opened(tmp_path / "m") as source:
        assert len(source.shards()) == 101
        assert list(source.variables()) == []


def test_the_newest_of_two_numbers_of_files(sharded: Path) -> None:
    v1_file([], [], sharded / "model.ckpt-30-00000-of-00001")
    os.utime(sharded / "model.ckpt-30-00000-of-00001", (1, 1))
    assert resolve(str(sharded / "model.ckpt-30")).prefix == SHARDED
    os.utime(sharded / "model.ckpt-30-00000-of-00001")
    assert resolve(str(sharded / "model.ckpt-30")).prefix == "model.ckpt-30-?????-of-00001"


def test_slices_in_several_files(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    for shard, rows in enumerate(((0, 1), (1, 3))):
        spec = [rows, (0, 3)]
        data = encode_field(5, values[rows[0] : sum(rows)].tobytes())
        metas = [meta(b"v", 1, (4, 3), [spec])]
        v1_file(metas, [entry(b"v", spec, data)], tmp_path / f"m-0000{shard}-of-00002")
    with opened(tmp_path / "m") as source:
        variable = source.find("v")
        assert variable.slices is not None
        assert [part.shard for part in variable.slices] == [0, 1]
        assert (read(source, "v") == values).all()
        for index in ((slice(None, None, -1), 1), (slice(0, 3, 2),), (3, 2)):
            selection = Selection.of((4, 3), index)
            assert (source.read(variable, selection) == values[index]).all()
    (tmp_path / "m-00001-of-00002").unlink()
    with opened(tmp_path / "m") as source:
        assert failure(lambda: read(source, "v")).id == "slice-gap"
        selection = Selection.of((4, 3), (0,))
        assert (source.read(source.find("v"), selection) == values[0]).all()


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    v1_file([meta(b"v", 1, (4,), [[(0, 2)]])], [], tmp_path / "m-00000-of-00002")
    v1_file([meta(b"v", 1, (5,), [[(2, 2)]])], [], tmp_path / "m-00001-of-00002")
    error = failure(lambda: opened(tmp_path / "m"))
    assert (error.id, error.exit_code) == ("metadata-malformed", 20)
    assert "[4] in one" in error.why


def test_slices_of_all_files_are_bounded_together(tmp_path: Path) -> None:
    for shard in range(2):
        metas = [meta(b"%d" % shard, 1, (4,), [[FULL]] * 3)]
        v1_file(metas, [], tmp_path / f"m-0000{shard}-of-00002")
    error = failure(lambda: opened(tmp_path / "m", Limits(index_slices=5)))
    assert error.id == "limit-index-slices"


def test_a_link_in_the_place_of_a_file(sharded: Path) -> None:
    (sharded / SECOND).rename(sharded / "elsewhere")
    (sharded / SECOND).symlink_to(sharded / "elsewhere")
    error = failure(lambda: opened(sharded))
    assert (error.id, error.exit_code) == ("unsafe-link", 22)


# Large values -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Floats that lie in the file as they are, and integers that have to be decoded."""
    path = tmp_path_factory.mktemp("large") / "m"
    floats = random.Random(1).randbytes(16 * 2**20)
    integers = packed(10, range(-300_000, 300_000))
    v1_file(
        [
            meta(b"floats", 1, (4096, 1024), [[FULL, FULL]]),
            meta(b"integers", 9, (600, 1000), [[FULL, FULL]]),
        ],
        [
            entry(b"floats", [FULL, FULL], encode_field(5, floats)),
            entry(b"integers", [FULL, FULL], integers),
        ],
        path,
    )
    return path


def test_rows_of_a_large_variable_are_read_alone(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(large) as source:
        taken = 0
        file = source.opened()[0]
        pread = type(file).pread

        def counted(self: object, offset: int, size: int) -> bytes:
            nonlocal taken
            taken += size
            return pread(self, offset, size)  # type: ignore[arg-type]

        monkeypatch.setattr(type(file), "pread", counted)
        variable = source.find("floats")
        rows = source.read(variable, Selection.of((4096, 1024), (slice(5, 7),)))
        assert taken < 5 * 2**20
        monkeypatch.undo()
        everything = read(source, "floats")
        assert everything.dtype == np.float32
        assert rows.tobytes() == everything[5:7].tobytes()


def test_a_large_variable_can_be_mapped(large: Path) -> None:
    with opened(large) as source:
        extent = source.extent(source.find("floats"))
        assert extent is not None
        assert extent.nbytes == 16 * 2**20
        assert extent.file.pread(extent.offset, extent.nbytes) == read(source, "floats").tobytes()
        assert source.extent(source.find("integers")) is None


def test_integers_are_decoded_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ckpttool.formats.v1_values import V1Elements

    decodings = 0
    decoded = V1Elements.decoded

    def counted(self: V1Elements) -> bytes:
        nonlocal decodings
        decodings += 1
        return decoded(self)

    monkeypatch.setattr(V1Elements, "decoded", counted)
    with opened(large) as source:
        variable = source.find("integers")
        expected = np.arange(-300_000, 300_000).reshape(600, 1000)
        assert (read(source, "integers") == expected).all()
        for index in ((slice(None), 7), (slice(0, 600, 7),)):
            found = source.read(variable, Selection.of((600, 1000), index))
            assert (found == expected[index]).all()
    assert decodings == 1


def test_what_is_decoded_is_bounded(large: Path) -> None:
    with opened(large, Limits(v1_decoded_bytes=2**22)) as source:
        assert failure(lambda: read(source, "integers")).id == "limit-v1-decoded-bytes"
        assert read(source, "floats").shape == (4096, 1024)


def test_damage_in_a_large_value(large: Path, tmp_path: Path) -> None:
    data = bytearray(large.read_bytes())
    data[9 * 2**20] ^= 1
    (tmp_path / "m").write_bytes(data)
    with opened(tmp_path / "m") as source:
        assert failure(lambda: read(source, "floats")).id == "block-checksum"
        variable = source.find("floats")
        selection = Selection.whole((4096, 1024))
        assert len(b"".join(source.chunks(variable, selection, check=False))) == 16 * 2**20
        assert read(source, "integers").shape == (600, 1000)
    result = verify(str(tmp_path / "m"))
    assert {(finding.id, finding.object) for finding in result.findings} == {
        ("block-checksum", f"{tmp_path}/m"),
        ("block-checksum", "floats"),
    }
    assert (result.checked.variables, result.healthy) == (1, False)


# Crafted ones -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metas", "entries", "id"),
    [
        ([meta(b"v", 1, (4,), [[(2, 4)]])], [], "slice-shape"),
        ([meta(b"v", 1, (4,), [[]])], [], "slice-shape"),
        ([meta(b"v", 1, (4,), [[FULL]] * 2)], [], "slice-overlap"),
        ([meta(b"v", 1, (4,), [[FULL]])], [], "slice-missing"),
        ([meta(b"v", 1, (4,), [[(0, 2)], [(3, 1)]])], [], "slice-gap"),
        (
            [meta(b"v", 1, (4,), [[FULL]])],
            [entry(b"v", [FULL], encode_field(5, bytes(12)))],
            "size-mismatch",
        ),
        ([meta(b"v", 3, (2**50,), [[FULL]])], [entry(b"v", [FULL], b"")], "size-mismatch"),
        ([meta(b"v", 7, (2**50,), [[FULL]])], [entry(b"v", [FULL], b"")], "size-mismatch"),
        ([meta(b"v", 99, (4,), [[FULL]])], [], "dtype-unsupported"),
        ([meta(b"v", 14, (4,), [[FULL]])], [entry(b"v", [FULL], b"")], "dtype-unsupported"),
    ],
)
def test_what_cannot_be_read_can_be_listed(
    tmp_path: Path, metas: list[bytes], entries: list[tuple[bytes, bytes]], id: str
) -> None:
    good = encode_field(5, struct.pack("<f", 1.5))
    metas = [*metas, meta(b"good", 1, (), [[]])]
    v1_file(metas, [*entries, entry(b"good", [], good)], tmp_path / "m")
    with opened(tmp_path / "m") as source:
        bad, fine = sorted(source.variables(), key=lambda variable: variable.name == "good")
        assert read(source, "good") == 1.5

        def values() -> object:
            selection = Selection.whole(bad.shape or ())
            if bad.dtype == "string":
                return source.strings(bad, selection)
            return list(source.chunks(bad, selection))

        error = failure(values)
        assert error.id == id
        assert "v" in error.what
        assert fine.name == "good"
    result = verify(str(tmp_path / "m"))
    assert not result.healthy
    assert result.checked.variables == 1


def test_a_step_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    metas = [meta(b"global_step", 9, (), [[]]), meta(b"a/step", 9, (), [[]])]
    v1_file(metas, [entry(b"a/step", [], number(10, 7))], tmp_path / "m-3")
    with opened(tmp_path / "m-3") as source:
        assert (source.step, source.stored_step, source.number) == (7, 7, 3)


def damages(data: bytes) -> Iterator[bytes]:
    for size in range(0, len(data), 7):
        yield data[:size]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        yield bytes(damaged)


def test_no_damage_gives_other_values_or_another_kind_of_error(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    """Truncations, and a flipped bit in every byte, of a checkpoint of TensorFlow's."""
    original = fixtures_dir / "v1" / "model.ckpt-2"
    with opened(original) as source:
        expected = {one.name: read(source, one.name).tobytes() for one in source.variables()}
    path = tmp_path / "m"
    for data in damages(original.read_bytes()):
        path.write_bytes(data)
        try:
            with opened(path) as source:
                found = {one.name: read(source, one.name).tobytes() for one in source.variables()}
        except CkpttoolError:
            continue
        assert found == expected


def test_the_same_file_put_in_its_place_while_it_is_read(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m"
    shutil.copy(fixtures_dir / "v1" / "model.ckpt-2", path)
    with opened(path) as source:
        other = tmp_path / "new"
        shutil.copy(path, other)
        other.rename(path)
        error = failure(lambda: read(source, "layer/weights"))
    assert (error.id, error.exit_code) == ("changed", 30)
