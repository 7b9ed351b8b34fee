"""Files of weights and checkpoints of any source, read by the libraries of their formats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.conversion.request import CheckSettings, Choice, Request, Settings
from ckpttool.errors import (
    CorruptError,
    NotFoundError,
    RefusedError,
    ResultDiffersError,
    UnsupportedError,
    UsageError,
)
from ckpttool.ops.convert import ConvertResult, convert
from ckpttool.ops.same_bytes import same_pieces
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, write_bundle

#: TensorFlow 1 with Adam: ``hidden/weights``, ``hidden/weights/Adam``, …
MLP = "mlp-v1"
ENDINGS = ("npz", "safetensors", "h5")


def converted(
    source: Path, to: Path, target: str = "", *, choice: Choice | None = None, **settings: Any
) -> ConvertResult:
    request = Request(
        str(source), str(to), target, choice=choice or Choice(), settings=Settings(**settings)
    )
    return convert(request)


def values_of(source: Path, naming: Any = "full") -> dict[str, np.ndarray]:
    """Every numeric variable as our reader gives it."""
    with open_source(str(source)) as opened:
        return {
            opened.name_of(one, naming): opened.read(one, Selection.whole(one.shape or ()))
            for one in opened.variables()
            if one.dtype != "string"
        }


def arrays_in(path: Path) -> dict[str, np.ndarray]:
    """What the library of a format reads."""
    if path.suffix == ".npz":
        with np.load(path) as data:
            return dict(data)
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return dict(load_file(path))
    import h5py

    found: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            spelled = item.attrs.get("name", name)
            found[spelled.decode() if isinstance(spelled, bytes) else spelled] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def require_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].shape == value.shape, name
        assert found[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("ending", ENDINGS)
def test_d16_names_of_adam_and_all_values(fixtures_dir: Path, tmp_path: Path, ending: str) -> None:
    """D16: in HDF5 ``weights`` is a dataset, and ``weights/Adam`` would need it as a group."""
    result = converted(fixtures_dir / MLP, tmp_path / f"m.{ending}")
    assert (result.check.state, result.check.how) == ("passed", "bytes")
    assert result.applied
    assert result.report is None
    assert [one.path for one in result.outputs] == [str(tmp_path / f"m.{ending}")]
    expected = values_of(fixtures_dir / MLP)
    assert "hidden/weights/Adam" in expected
    require_equal(arrays_in(tmp_path / f"m.{ending}"), expected)
    require_equal(values_of(tmp_path / f"m.{ending}"), expected)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("source", ["keras3", "partitioned", "two-shards", "v1-sharded"])
def test_every_kind_of_source(fixtures_dir: Path, tmp_path: Path, source: str, ending: str) -> None:
    choice = Choice(exclude=("vocabulary*", "*words*"))
    converted(fixtures_dir / source, tmp_path / f"m.{ending}", choice=choice)
    require_equal(arrays_in(tmp_path / f"m.{ending}"), values_of(fixtures_dir / source))


def test_step_and_kind_of_reader_go_with_it(fixtures_dir: Path, tmp_path: Path) -> None:
    import h5py
    from safetensors import safe_open

    for ending in ENDINGS:
        converted(fixtures_dir / MLP, tmp_path / f"m.{ending}")
    with safe_open(tmp_path / "m.safetensors", "np") as file:
        assert file.metadata() == {"format": "tf", "step": "1000"}
    with h5py.File(tmp_path / "m.h5") as file:
        assert dict(file.attrs) == {"step": "1000"}


def test_only_the_weights_of_the_model(fixtures_dir: Path, tmp_path: Path) -> None:
    choice = Choice(kinds=("model",), include=("hidden/*",))
    converted(fixtures_dir / MLP, tmp_path / "m.npz", choice=choice)
    assert arrays_in(tmp_path / "m.npz").keys() == {"hidden/weights", "hidden/biases"}
    with pytest.raises(NotFoundError) as nothing:
        converted(fixtures_dir / MLP, tmp_path / "n.npz", choice=Choice(include=("nothing",)))
    assert nothing.value.id == "nothing-chosen"
    assert [path.name for path in tmp_path.iterdir()] == ["m.npz"]


@pytest.mark.parametrize("naming", ["key", "path"])
def test_other_names(fixtures_dir: Path, tmp_path: Path, naming: Any) -> None:
    source = fixtures_dir / "keras3"
    converted(source, tmp_path / "m.safetensors", choice=Choice(names=naming))
    require_equal(arrays_in(tmp_path / "m.safetensors"), values_of(source, naming))


#: What the fixture has beside what NumPy knows.
NO_NUMBERS = Choice(exclude=("*string*", "*variant*", "*resource*", "*half*"))


def dtypes_in(source: Path) -> dict[str, str]:
    with open_source(str(source)) as opened:
        return {one.name: one.dtype for one in opened.variables()}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_dtype_that_the_format_has_not_is_an_error_first(
    fixtures_dir: Path, tmp_path: Path, ending: str
) -> None:
    """CONVERT 10: elsewhere npz and h5 lose bfloat16, float8 and int4 without a word."""
    with pytest.raises(UnsupportedError) as refused:
        converted(fixtures_dir / "dtypes" / "all", tmp_path / f"m.{ending}", choice=NO_NUMBERS)
    assert refused.value.id == "dtype-not-representable"
    assert "--dtypes raw" in refused.value.hint or "--exclude" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_all_that_is_to_be_left_out_is_named_at_once(fixtures_dir: Path, tmp_path: Path) -> None:
    source, to = fixtures_dir / "dtypes" / "all", tmp_path / "m.safetensors"
    with pytest.raises(UnsupportedError) as refused:
        converted(source, to, dtypes="cast")
    names = ("array/complex128", "array/string", "empty/string", "scalar/string")
    for name in names:
        assert f"--exclude {name}" in refused.value.hint
    converted(source, to, dtypes="cast", choice=Choice(exclude=names))


@pytest.mark.parametrize("ending", ENDINGS)
def test_cast_widens_exactly_and_only_what_has_to_be(
    fixtures_dir: Path, tmp_path: Path, ending: str
) -> None:
    source = fixtures_dir / "dtypes" / "all"
    dtypes = dtypes_in(source)
    choice = Choice(
        exclude=tuple(n for n, d in dtypes.items() if d in {"string", "variant", "complex128"})
    )
    result = converted(source, tmp_path / f"m.{ending}", choice=choice, dtypes="cast")
    assert result.check.state == "passed"
    stored = values_of(tmp_path / f"m.{ending}")
    known = values_of(source)
    for name, value in stored.items():
        assert np.array_equal(
            value.astype("f8" if value.dtype.kind != "c" else "c16"),
            known[name].astype("f8" if value.dtype.kind != "c" else "c16"),
            equal_nan=True,
        ), name
    narrow = [name for name, dtype in dtypes.items() if dtype == "bfloat16"]
    assert narrow
    for name in narrow:
        assert dtypes_in(tmp_path / f"m.{ending}")[name] == (
            "bfloat16" if ending == "safetensors" else "float32"
        )
    assert any("widened" in one for one in result.warnings)


@pytest.mark.parametrize("ending", ENDINGS)
def test_raw_keeps_the_bytes_and_says_what_they_are(
    fixtures_dir: Path, tmp_path: Path, ending: str
) -> None:
    source = fixtures_dir / "dtypes" / "all"
    dtypes = dtypes_in(source)
    choice = Choice(exclude=tuple(n for n, d in dtypes.items() if d in {"string", "variant"}))
    converted(source, tmp_path / f"m.{ending}", choice=choice, dtypes="raw")
    if ending == "npz":
        with np.load(tmp_path / "m.npz") as data:
            raw = json.loads(bytes(data["raw_dtypes"]))
    elif ending == "h5":
        import h5py

        with h5py.File(tmp_path / "m.h5") as file:
            raw = json.loads(file.attrs["raw_dtypes"])
    else:
        from safetensors import safe_open

        with safe_open(tmp_path / "m.safetensors", "np") as file:
            raw = json.loads(file.metadata()["raw_dtypes"])
    assert raw
    assert all(dtypes[name] == dtype for name, dtype in raw.items())
    found = values_of(tmp_path / f"m.{ending}")
    for name, value in values_of(source).items():
        if name in raw:
            assert found[name].dtype == np.uint8
            assert found[name].shape == (*value.shape, value.dtype.itemsize)
        assert found[name].tobytes() == value.tobytes(), name


def test_strings(fixtures_dir: Path, tmp_path: Path) -> None:
    source = fixtures_dir / "dtypes" / "all"
    names = tuple(name for name, dtype in dtypes_in(source).items() if dtype == "string")
    assert names
    with pytest.raises(UnsupportedError, match="string"):
        converted(source, tmp_path / "m.safetensors", choice=Choice(include=names), dtypes="cast")
    # A file of nothing but what HDF5 can hold: strings without zero bytes.
    written = tmp_path / "words.npz"
    np.savez(written, words=np.array([b"one", b"", b"three"]))
    converted(written, tmp_path / "words.h5")
    converted(tmp_path / "words.h5", tmp_path / "again.npz")
    assert arrays_in(tmp_path / "again.npz")["words"].tolist() == [b"one", b"", b"three"]


def test_what_is_there_is_replaced_only_when_asked(fixtures_dir: Path, tmp_path: Path) -> None:
    to = tmp_path / "m.npz"
    converted(fixtures_dir / MLP, to)
    before = to.read_bytes()
    with pytest.raises(RefusedError) as refused:
        converted(fixtures_dir / "keras3", to)
    assert refused.value.id == "exists"
    assert to.read_bytes() == before
    convert(Request(str(fixtures_dir / "keras3"), str(to), "npz", overwrite=True))
    require_equal(arrays_in(to), values_of(fixtures_dir / "keras3"))


@pytest.mark.parametrize(
    ("number", "said"), [(1, "1 opaque variable was"), (2, "2 opaque variables were")]
)
def test_what_only_tensorflow_reads_is_compared_by_checksums(
    tmp_path: Path, number: int, said: str
) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"v%d" % at: {"dtype": 21, "shape": (0,), "size": 0} for at in range(number)
    }
    source = write_bundle(tmp_path, "model", entries, [b""])
    result = convert(Request(str(source), str(tmp_path / "out"), "checkpoint"))
    assert result.check.notes == (f"{said} compared by checksums only",)


def test_damage_is_an_error_and_nothing_is_written(fixtures_dir: Path, tmp_path: Path) -> None:
    for target in ("safetensors", "npz", "h5", "checkpoint"):
        with pytest.raises(CorruptError) as error:
            converted(
                fixtures_dir / "damaged" / "flipped-bit",
                tmp_path / "m",
                target,
                choice=Choice() if target == "checkpoint" else Choice(exclude=("vocabulary*",)),
            )
        assert error.value.id == "checksum-mismatch"
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"graph": "graph.pbtxt"},
        {"model": "build.py:build"},
        {"signatures": ("serve",)},
        {"check": CheckSettings(tolerance=0.1)},
        {"check": CheckSettings(only=True)},
        {"check": CheckSettings(execute=True)},
        {"maps": ("map.csv",)},
    ],
)
def test_options_of_graphs(fixtures_dir: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    to = tmp_path / "m.npz"
    if "check" in change and change["check"].only:
        to.write_bytes(b"something")
    with pytest.raises(UsageError) as refused:
        convert(Request(str(fixtures_dir / MLP), str(to), "npz", **change))
    assert refused.value.id == "target-setting"


def test_variables_are_chosen_for_files_of_weights_only(fixtures_dir: Path, tmp_path: Path) -> None:
    for target in ("savedmodel", "tflite", "checkpoint"):
        with pytest.raises(UsageError) as refused:
            converted(
                fixtures_dir / MLP, tmp_path / "m", target, choice=Choice(include=("hidden/*",))
            )
        assert refused.value.id == "target-setting"


def test_a_plan(fixtures_dir: Path, tmp_path: Path) -> None:
    for target in ("safetensors", "checkpoint"):
        request = Request(str(fixtures_dir / MLP), str(tmp_path / "m"), target)
        result = convert(request, dry_run=True)
        assert not result.applied
        assert result.outputs == ()
    assert list(tmp_path.iterdir()) == []


def test_a_report_where_it_is_asked_for(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    for target, to in (("safetensors", "m.st"), ("npz", "m.npz"), ("checkpoint", "out")):
        args = ["convert", str(fixtures_dir / MLP), to, "--to", target, "--report", "r.json"]
        result = run_cli([*args, "--json"], cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        data = json.loads(result.stdout)["data"]
        assert data["check"] == {"state": "passed", "how": "bytes", "why": "", "metrics": {}}
        report = json.loads((tmp_path / "r.json").read_text())
        assert [one["path"] for one in report["result"]["files"]] == [
            one["path"] for one in data["outputs"]
        ]
        assert all((tmp_path / one["path"]).is_file() for one in data["outputs"])


def test_the_light_way_needs_neither_tensorflow_nor_numpy(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    for target in ("safetensors", "npz", "checkpoint"):
        args = ["convert", str(fixtures_dir / MLP), str(tmp_path / target), "--to", target]
        result = run_cli(args, env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert result.returncode == 0, result.stderr
        imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
        assert "ckpttool.ops.convert" in imported
        assert not imported & {"tensorflow", "numpy"}


def test_streams_are_compared_wherever_they_are_cut() -> None:
    assert same_pieces([b"ab", b"", b"cde"], [b"a", b"bcd", b"e"])
    assert same_pieces([], [b""])
    assert not same_pieces([b"ab", b"c"], [b"ab", b"d"])
    assert not same_pieces([b"abc"], [b"ab"])
    assert not same_pieces([b"ab"], [b"ab", b"c"])
    assert not same_pieces([], [b"x"])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose variables are large enough to be copied by the kernel."""
    tf = pytest.importorskip("tensorflow")
    prefix = tmp_path_factory.mktemp("large") / "model.ckpt-7"
    generator = np.random.default_rng(5)
    arrays = {
        "kernel": generator.random((300, 701), dtype=np.float32),
        "odd": generator.integers(-100, 100, 100_001, dtype=np.int8),
        "small": np.arange(5, dtype=np.int64),
        "wide": generator.random(40_000),
    }
    names = sorted(arrays)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[arrays[name] for name in names],
    )
    return prefix


def checked(source: Path, to: Path, *, run: bool = True, **choice: Any) -> ConvertResult:
    return convert(
        Request(str(source), str(to), "", choice=Choice(**choice), check=CheckSettings(run=run))
    )


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize("ending", ENDINGS)
def test_large_variables(large: Path, tmp_path: Path, ending: str, run: bool) -> None:
    result = checked(large, tmp_path / f"m.{ending}", run=run)
    assert result.check.state == ("passed" if run else "not_run")
    require_equal(arrays_in(tmp_path / f"m.{ending}"), values_of(large))
    require_equal(values_of(tmp_path / f"m.{ending}"), values_of(large))


def test_data_of_a_large_file_begins_at_a_page(large: Path, tmp_path: Path) -> None:
    for include, alignment in (((), 4096), (("small",), 8)):
        to = tmp_path / f"{alignment}.safetensors"
        checked(large, to, include=include)
        length = int.from_bytes(to.read_bytes()[:8], "little")
        assert (8 + length) % alignment == 0
        assert length < alignment or alignment == 8


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize("ending", ENDINGS)
def test_damage_of_what_is_copied_unread(
    large: Path, tmp_path: Path, ending: str, run: bool
) -> None:
    shutil.copytree(large.parent, tmp_path / "damaged")
    shard = tmp_path / "damaged" / f"{large.name}.data-00000-of-00001"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    with pytest.raises(CorruptError) as error:
        checked(tmp_path / "damaged" / large.name, tmp_path / f"m.{ending}", run=run)
    assert error.value.id == "checksum-mismatch"
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


@pytest.mark.parametrize("name", ["kernel", "odd", "small"])
def test_a_result_that_differs_is_not_put_into_its_place(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A writer with a fault: one bit of one array is not what it is in the checkpoint."""
    from ckpttool.conversion import weights_safetensors
    from ckpttool.formats.safetensors import read_header
    from ckpttool.limits import default_limits
    from ckpttool.storage import NewFile, open_directory

    real = weights_safetensors.write

    def write(arrays: Any, file: NewFile, about: Any) -> None:
        real(arrays, file, about)
        with file.seekable() as stream:
            stream.seek(0)
            (tmp_path / "copy.safetensors").write_bytes(stream.read())
            with open_directory(str(tmp_path)) as directory:
                stored, _ = read_header(directory.open("copy.safetensors"), default_limits())
            at = next(one.offset for one in stored if one.name == name) + 3
            stream.seek(at)
            changed = stream.read(1)[0] ^ 1
            stream.seek(at)
            stream.write(bytes([changed]))

    monkeypatch.setattr(weights_safetensors, "write", write)
    with pytest.raises(ResultDiffersError) as error:
        checked(large, tmp_path / "m.safetensors")
    assert f"{name} has other values" in error.value.why
    assert not (tmp_path / "m.safetensors").exists()


def checkpoint_values(prefix: Path) -> dict[str, np.ndarray]:
    tf = pytest.importorskip("tensorflow")
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_there_and_back_tensorflow_reads_the_same_bits(
    fixtures_dir: Path, tmp_path: Path, ending: str
) -> None:
    converted(fixtures_dir / MLP, tmp_path / f"m.{ending}")
    result = converted(tmp_path / f"m.{ending}", tmp_path / "back", "checkpoint")
    assert (result.check.state, result.check.how) == ("passed", "bytes")
    assert [Path(one.path).name for one in result.outputs] == [
        "back.data-00000-of-00001",
        "back.index",
    ]
    require_equal(
        checkpoint_values(tmp_path / "back"),
        checkpoint_values(fixtures_dir / MLP / "model.ckpt-1000"),
    )


@pytest.mark.parametrize(
    "source",
    ["v1/model.ckpt-2", "v1-sharded", "models/tfjs/model.json", "keras-files/keras3.keras"],
)
def test_a_checkpoint_of_anything(fixtures_dir: Path, tmp_path: Path, source: str) -> None:
    converted(fixtures_dir / source, tmp_path / "made", "checkpoint")
    found = checkpoint_values(tmp_path / "made")
    expected = values_of(fixtures_dir / source)
    require_equal({name: found[name] for name in expected}, expected)


def test_the_graph_goes_with_a_checkpoint_and_an_old_one_goes(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    converted(fixtures_dir / "two-shards", tmp_path / "made", "checkpoint")
    with pytest.raises(RefusedError) as refused:
        converted(fixtures_dir / MLP, tmp_path / "made", "checkpoint")
    assert refused.value.id == "exists"
    request = Request(str(fixtures_dir / MLP), str(tmp_path / "made"), "checkpoint", overwrite=True)
    outputs = [Path(one.path).name for one in convert(request).outputs]
    assert outputs == ["made.data-00000-of-00001", "made.index", "made.meta"]
    assert sorted(path.name for path in tmp_path.iterdir()) == outputs


def test_a_saved_model_is_no_place_for_a_checkpoint(fixtures_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures_dir / "savedmodel", tmp_path / "export")
    with pytest.raises(UsageError) as refused:
        converted(fixtures_dir / MLP, tmp_path / "export", "checkpoint")
    assert refused.value.id == "destination-form"
    assert "--like" in refused.value.hint
