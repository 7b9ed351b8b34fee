"""`load`: which variables names mean, the files it writes, what it prints."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    IncompleteError,
    NotFoundError,
    RefusedError,
    UnsafeError,
    UnsupportedError,
    UsageError,
)
from ckpttool.ops import value_text
from ckpttool.ops.load import RANGES_KEPT, load
from ckpttool.ops.preview import preview
from ckpttool.ops.save_values import SaveFormat, file_format, save, save_to
from ckpttool.ops.summary import summarise
from ckpttool.sources import v2
from ckpttool.storage import open_directory
from tests.support.command import RunCli
from tests.support.faults import Faults, faulty
from tests.support.handmade import EntryFields, masked_crc, string_payload, write_bundle
from tests.support.terminal import run_in_terminal

NUMBERS: dict[str, tuple[int, np.ndarray]] = {
    "big": (1, np.arange(30_000, dtype="<f4").reshape(100, 30, 10) / 7),
    "bool": (10, np.array([True, False])),
    "complex": (8, np.array([[1 + 2j, np.nan - 0j], [-0.5j, complex(np.inf, 1)]], "<c8")),
    "emb": (1, np.linspace(-1, 1, 60, dtype="<f4").reshape(20, 3)),
    "emb[0]": (1, np.array([42], "<f4")),
    "empty": (1, np.zeros((0, 3), "<f4")),
    "f16": (19, np.array([0.1, -2, 65504], "<f2")),
    "f64": (2, np.array([0.1, 1e300, np.nan, -np.inf])),
    "half_brain": (14, np.array([0.1, -3], ml_dtypes.bfloat16)),
    "i4": (29, np.array([-8, 7, -1], ml_dtypes.int4)),
    "i64": (9, np.array([[2**63 - 1, -(2**63)]])),
    "q": (13, np.array([1, -7], "<i4")),
    "step": (9, np.array(1000)),
    "u8": (4, np.array([0, 255], np.uint8)),
}
WORDS: dict[str, tuple[tuple[int, ...], list[bytes]]] = {
    "bytes": ((2,), [b"\xff\xfe", b"x"]),
    "nul": ((1,), [b"ends\0"]),
    "words": ((2, 2), [b"a", b"", 'grüß, "dich"'.encode(), b"two\nlines\tand\x1b[31m"]),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Variables of many kinds in two shards."""
    shards = [bytearray(), bytearray()]
    entries: dict[bytes, EntryFields | bytes] = {}

    def add(name: str, data: bytes, fields: EntryFields) -> None:
        shard = len(entries) % 2
        place: EntryFields = {"shard": shard, "offset": len(shards[shard]), "size": len(data)}
        entries[name.encode()] = {**fields, **place}
        shards[shard] += data

    for name, (dtype, array) in NUMBERS.items():
        add(name, array.tobytes(), {"dtype": dtype, "shape": array.shape})
    for name, (shape, strings) in WORDS.items():
        payload, crc = string_payload(strings)
        add(name, payload, {"dtype": 7, "shape": shape, "crc": crc})
    add("opaque", b"12345", {"dtype": 21, "shape": ()})
    folder = tmp_path_factory.mktemp("values")
    return str(write_bundle(folder, "model", entries, list(map(bytes, shards))))


def saved(
    checkpoint: str, names: Sequence[str], path: Path, *, cast: str | None = None, **given: Any
) -> Path:
    with load(checkpoint, names, cast=cast) as loaded:
        result = save(loaded, str(path), file_format(str(path), given.pop("format", None)), **given)
    assert result.nbytes == path.stat().st_size
    assert [entry.name for entry in path.parent.iterdir() if "ckpttool" in entry.name] == []
    return path


# Names --------------------------------------------------------------------------------


def picked(checkpoint: str, *names: str) -> list[str]:
    with load(checkpoint, names) as loaded:
        return [f"{item.name} {list(item.shape)}" for item in loaded.items]


def test_names_choose_variables_and_parts(checkpoint: str) -> None:
    assert picked(checkpoint, "step", "emb[2:4, 1]") == ["step []", "emb[2:4, 1] [2]"]
    assert picked(checkpoint, "emb[-1]") == ["emb[-1] [3]"]


def test_a_name_that_exists_wins_over_an_index(checkpoint: str) -> None:
    assert picked(checkpoint, "emb[0]", "emb[1]") == ["emb[0] [1]", "emb[1] [3]"]
    assert picked(checkpoint, "emb[0][0]") == ["emb[0][0] []"]


def test_patterns_choose_several(checkpoint: str) -> None:
    assert picked(checkpoint, "emb*") == ["emb [20, 3]", "emb[0] [1]"]
    assert picked(checkpoint, "i?[0]") == ["i4[0] []"]
    assert picked(checkpoint, "[fi]6*") == ["f64 [4]", "i64 [1, 2]"]


def test_a_pattern_leaves_the_object_graph_out(fixtures_dir: Path) -> None:
    names = picked(str(fixtures_dir / "keras3"), "*")
    assert len(names) == 24
    assert not any("_CHECKPOINTABLE" in name for name in names)


def test_all_that_is_missing_is_named_at_once(checkpoint: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        load(checkpoint, ["stepp", "step", "embb[0]", "none*"])
    error = caught.value
    assert error.what.startswith("3 of the variables are not in")
    assert error.why == "there is no stepp, no embb, no none*"
    assert error.hint.startswith("did you mean: step; did you mean: emb")
    with pytest.raises(NotFoundError, match="there is no variable stepp in"):
        load(checkpoint, ["stepp"])


def test_an_index_that_does_not_fit_is_refused_before_anything_is_read(checkpoint: str) -> None:
    with pytest.raises(UsageError, match="out of bounds"):
        load(checkpoint, ["emb[20]"])
    with pytest.raises(UsageError, match="neither an integer nor a slice"):
        load(checkpoint, ["emb[a]"])


# Files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, (_, array) in NUMBERS.items() if array.dtype.kind in "biufc"]
)
def test_npy_is_exact_and_numpys_own(checkpoint: str, tmp_path: Path, name: str) -> None:
    array = NUMBERS[name][1]
    path = saved(checkpoint, [name], tmp_path / "x.npy")
    loaded = np.load(path, allow_pickle=False)
    assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
    assert loaded.tobytes() == array.tobytes()
    theirs = io.BytesIO()
    np.save(theirs, array)
    assert path.read_bytes() == theirs.getvalue()


def test_npy_of_a_part(checkpoint: str, tmp_path: Path) -> None:
    big = NUMBERS["big"][1]
    path = saved(checkpoint, ["big[::-9, 2:, -1]"], tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(path), big[::-9, 2:, -1])


def test_npy_of_strings(checkpoint: str, tmp_path: Path) -> None:
    array = np.load(saved(checkpoint, ["words"], tmp_path / "w.npy"), allow_pickle=False)
    assert array.dtype.kind == "S"
    assert array.ravel().tolist() == WORDS["words"][1]
    part = np.load(saved(checkpoint, ["words[1, ::-1]"], tmp_path / "p.npy"))
    assert part.tolist() == WORDS["words"][1][:1:-1]
    with pytest.raises(UnsupportedError, match=r"cannot be saved as \.npy") as caught:
        saved(checkpoint, ["nul"], tmp_path / "n.npy")
    assert caught.value.id == "dtype-not-representable"
    assert sorted(os.listdir(tmp_path)) == ["p.npy", "w.npy"]


def test_npz_holds_many(checkpoint: str, tmp_path: Path) -> None:
    names = ["emb", "step", "words", "emb[0]", "empty"]
    archive = np.load(saved(checkpoint, names, tmp_path / "x.npz"), allow_pickle=False)
    assert archive.files == names
    for name in names:
        expected = (
            NUMBERS[name][1].tolist()
            if name in NUMBERS
            else [WORDS[name][1][:2], WORDS[name][1][2:]]
        )
        assert archive[name].tolist() == expected
    twice = np.load(saved(checkpoint, ["emb[1]", "emb[2]", "step"], tmp_path / "y.npz"))
    assert twice.files == ["emb[1]", "emb[2]", "step"]
    again = saved(checkpoint, names, tmp_path / "z.npz").read_bytes()
    assert again == (tmp_path / "x.npz").read_bytes(), "the same values give the same file"


def test_npz_member_names_are_safe(tmp_path: Path) -> None:
    for key in (b"../../evil", b"/etc/passwd", b"a\\b", b"bad\xff", b"line\nbreak"):
        prefix = write_bundle(tmp_path, "m", {key: {"shape": (1,), "size": 4}}, [b"abcd"])
        name = key.decode("utf-8", "surrogateescape")
        with pytest.raises(UnsafeError) as caught:
            saved(str(prefix), [name], tmp_path / "x.npz")
        assert caught.value.id == "unsafe-member"
        saved(str(prefix), [name], tmp_path / "one.npy", overwrite=True)


def test_npz_members_are_named_once(checkpoint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        saved(checkpoint, ["emb", "emb"], tmp_path / "x.npz")
    assert caught.value.id == "output-twice"


@pytest.mark.parametrize("name", ["emb", "f64", "i64", "complex", "bool", "step", "f16"])
def test_csv_reads_back_exactly(checkpoint: str, tmp_path: Path, name: str) -> None:
    array = NUMBERS[name][1]
    path = saved(checkpoint, [name], tmp_path / "x.csv")
    cells = list(csv.reader(io.StringIO(path.read_text())))
    assert len(cells) == (array.shape[0] if array.ndim else 1)
    if array.dtype == bool:
        assert cells == [["True"], ["False"]]
        return
    flat = [complex(cell) if array.dtype.kind == "c" else cell for row in cells for cell in row]
    back = np.array(flat, array.dtype if array.dtype.kind != "c" else complex)
    np.testing.assert_array_equal(back.astype(array.dtype), array.ravel())


def test_csv_of_strings_and_of_too_many_dimensions(checkpoint: str, tmp_path: Path) -> None:
    path = saved(checkpoint, ["words"], tmp_path / "x.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [[word.decode() for word in WORDS["words"][1][i : i + 2]] for i in (0, 2)]
    assert saved(checkpoint, ["bytes"], tmp_path / "b.csv").read_bytes() == b"\xff\xfe\nx\n"
    with pytest.raises(UnsupportedError, match="3 dimensions"):
        saved(checkpoint, ["big"], tmp_path / "y.csv")
    saved(checkpoint, ["big[0]"], tmp_path / "y.csv")


def document(checkpoint: str, tmp_path: Path, *names: str) -> list[dict[str, Any]]:
    path = saved(checkpoint, names, tmp_path / f"{len(list(tmp_path.iterdir()))}.json")
    found: list[dict[str, Any]] = json.loads(path.read_text())["variables"]
    return found


def test_json_is_exact(checkpoint: str, tmp_path: Path) -> None:
    names = ["emb", "i64", "bool", "u8", "i4", "f16", "half_brain", "step", "q"]
    for found in document(checkpoint, tmp_path, *names):
        array = NUMBERS[found["name"]][1]
        assert found["shape"] == list(array.shape)
        back = np.array(found["values"]).astype(array.dtype)
        np.testing.assert_array_equal(back.astype("f8"), array.astype("f8"))
    (big,) = document(checkpoint, tmp_path, "big[3:5]")
    np.testing.assert_array_equal(np.array(big["values"], "<f4"), NUMBERS["big"][1][3:5])
    assert big["index"] == "[3:5]"
    assert [empty["values"] for empty in document(checkpoint, tmp_path, "empty")] == [[]]


def test_json_has_null_for_what_it_cannot_say_and_counts_it(
    checkpoint: str, tmp_path: Path
) -> None:
    f64, complex_, emb = document(checkpoint, tmp_path, "f64", "complex", "emb[0][0]")
    assert f64["values"] == [0.1, 1e300, None, None]
    assert (f64["nan"], f64["inf"]) == (1, 1)
    assert complex_["values"][0] == [[1.0, 2.0], [None, 0.0]]
    assert complex_["values"][1] == [[-0.0, -0.5], [None, 1.0]]
    assert (complex_["nan"], complex_["inf"]) == (1, 1)
    assert (emb["values"], emb["nan"], emb["inf"]) == (42.0, 0, 0)


def test_json_of_strings(checkpoint: str, tmp_path: Path) -> None:
    words, data = document(checkpoint, tmp_path, "words", "bytes")
    assert words["encoding"] == "utf-8"
    assert words["values"][1][1] == "two\nlines\tand\x1b[31m"
    assert (data["encoding"], data["values"]) == ("base64", ["//4=", "eA=="])


def test_raw_is_the_bytes(checkpoint: str, tmp_path: Path) -> None:
    path = saved(checkpoint, ["emb[1:3]"], tmp_path / "x.bin", format="raw")
    assert path.read_bytes() == NUMBERS["emb"][1][1:3].tobytes()
    with pytest.raises(UnsupportedError, match="no fixed size"):
        saved(checkpoint, ["words"], tmp_path / "y.raw")


@pytest.mark.parametrize("format", ["npy", "npz"])
def test_types_that_numpy_does_not_have_want_a_cast(
    checkpoint: str, tmp_path: Path, format: str
) -> None:
    path = tmp_path / f"x.{format}"
    with pytest.raises(UnsupportedError, match="half_brain") as caught:
        saved(checkpoint, ["half_brain"], path)
    assert caught.value.id == "dtype-not-representable"
    assert "--cast auto" in caught.value.hint
    with pytest.raises(UnsupportedError) as caught:
        saved(checkpoint, ["i4"], path)
    assert "--cast auto" in caught.value.hint
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "cast", "dtype"),
    [
        ("half_brain", "float32", "<f4"),
        ("f16", "float32", "<f4"),
        ("emb", "float64", "<f8"),
        ("i4", "int8", "|i1"),
        ("q", "int64", "<i8"),
        ("i4", "float32", "<f4"),
        ("half_brain", "auto", "<f4"),
        ("i4", "auto", "|i1"),
        ("i64", "auto", "<i8"),
        ("bool", "auto", "|b1"),
    ],
)
def test_casts_are_exact(checkpoint: str, tmp_path: Path, name: str, cast: str, dtype: str) -> None:
    array = np.load(saved(checkpoint, [name], tmp_path / "x.npy", cast=cast))
    assert array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(array.astype("f8"), NUMBERS[name][1].astype("f8"))


@pytest.mark.parametrize(
    ("name", "cast"),
    [
        ("f64", "float32"),
        ("f64", "int32"),
        ("i64", "float32"),
        ("i64", "float64"),
        ("bool", "float32"),
        ("words", "float32"),
    ],
)
def test_a_cast_that_is_not_exact_is_refused(checkpoint: str, name: str, cast: str) -> None:
    with pytest.raises(UsageError, match=f"every value of {name} ") as caught:
        load(checkpoint, [name], cast=cast)
    assert caught.value.id == "cast-not-exact"


def test_the_format_is_what_the_name_says(tmp_path: Path) -> None:
    assert file_format("a/B.NPY", None) == "npy"
    assert file_format("x.bin", "raw") == "raw"
    for path in ("-", "x", "x.bin", "npy", "a.npy/x"):
        with pytest.raises(UsageError) as caught:
            file_format(path, None)
        assert caught.value.id == "output-format"


def test_one_variable_for_formats_of_one(checkpoint: str, tmp_path: Path) -> None:
    for suffix in ("npy", "csv", "raw"):
        with pytest.raises(UsageError, match="holds one variable") as caught:
            saved(checkpoint, ["emb", "step"], tmp_path / f"x.{suffix}")
        assert caught.value.id == "output-single"


def test_an_existing_file_is_kept_unless_told(checkpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"precious")
    with pytest.raises(RefusedError) as caught:
        saved(checkpoint, ["step"], path)
    assert (caught.value.exit_code, caught.value.id) == (31, "exists")
    assert path.read_bytes() == b"precious"
    assert np.load(saved(checkpoint, ["step"], path, overwrite=True)) == 1000


def test_a_directory_and_a_device_are_no_output(checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    for path in (f"{tmp_path}/folder.npy", "/dev/null", f"{tmp_path}/"):
        with (
            load(checkpoint, ["step"]) as loaded,
            pytest.raises(UsageError) as caught,
        ):
            save(loaded, path, "npy", overwrite=True)
        assert caught.value.id == "output-not-a-file"
    with load(checkpoint, ["step"]) as loaded, pytest.raises(NotFoundError):
        save(loaded, str(tmp_path / "none" / "x.npy"), "npy")


# Failures -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["eio", "short"])
@pytest.mark.parametrize("format", ["npz", "json"])
def test_no_read_that_fails_leaves_a_file(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, format: SaveFormat
) -> None:
    """The n-th read fails, for every n."""
    path = str(tmp_path / f"x.{format}")
    names = ["emb", "step", "words", "big[5:40:9]"]

    def attempt(faults: Faults) -> None:
        monkeypatch.setattr(v2, "open_directory", lambda path: faulty(open_directory(path), faults))
        with load(checkpoint, names) as loaded:
            save(loaded, path, format)

    counting = Faults()
    attempt(counting)
    os.unlink(path)
    values = 0
    for number, (read, _, _) in enumerate(counting.reads, 1):
        with pytest.raises(CkpttoolError) as caught:
            attempt(Faults(number, how))
        assert os.listdir(tmp_path) == []
        error = caught.value
        assert error.exit_code == (40 if how == "eio" else 20)
        assert read in f"{error.what} {error.why}"
        if ".data-" in read:
            assert re.search(r"values of (emb|step|words|big) ", error.what)
            values += 1
    assert values >= len(names)


def test_a_full_disk_leaves_no_file(checkpoint: str, tmp_path: Path) -> None:
    with load(checkpoint, ["big"]) as loaded:
        given = 0

        def write(data: bytes) -> None:
            nonlocal given
            given += len(data)
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            save_to(loaded, write, "npy")
    assert given == 128


def test_a_checkpoint_that_is_replaced_is_read_again(checkpoint: str, tmp_path: Path) -> None:
    """D15: a trainer overwrites the checkpoint between our look at the index and the values."""
    prefix = write_one(tmp_path, [1.0, 2.0])
    with load(prefix, ["w"]) as loaded:
        write_one(tmp_path, [3.0, 4.0])
        assert list(loaded.chunks(0)) == [np.array([3, 4], "<f4").tobytes()]
    with load(prefix, ["w"]) as loaded:
        write_one(tmp_path, [5.0, 6.0])
        save(loaded, str(tmp_path / "w.npy"), "npy")
    assert np.load(tmp_path / "w.npy").tolist() == [5.0, 6.0]


def test_it_is_read_again_only_once_and_never_halfway(tmp_path: Path) -> None:
    prefix = write_one(tmp_path, [1.0, 2.0])
    with load(prefix, ["w", "w[0:1]"]) as loaded:
        assert list(loaded.chunks(0))
        write_one(tmp_path, [3.0, 4.0])
        with pytest.raises(ChangedError):
            list(loaded.chunks(1))
    with load(prefix, ["w"]) as loaded:
        write_one(tmp_path, [7.0, 8.0, 9.0])
        with pytest.raises(ChangedError):
            list(loaded.chunks(0))


def write_one(directory: Path, values: list[float]) -> str:
    """Write a checkpoint of one variable over the one before, each file replaced."""
    data = np.array(values, "<f4").tobytes()
    fresh = directory / "fresh"
    fresh.mkdir()
    entry: EntryFields = {"shape": (len(values),), "size": len(data), "crc": masked_crc(data)}
    write_bundle(fresh, "m", {b"w": entry}, [data])
    for file in fresh.iterdir():
        file.replace(directory / file.name)
    fresh.rmdir()
    return str(directory / "m")


# What it would read -------------------------------------------------------------------


def test_plans_name_the_ranges(checkpoint: str) -> None:
    with load(checkpoint, ["emb[2:4]", "big[:, 0, 0]", "words"]) as loaded:
        emb, big, words = loaded.plans()
    assert (emb.reads, emb.nbytes, len(emb.ranges)) == (1, 24, 1)
    assert emb.ranges[0].path.endswith(".data-00001-of-00002")
    assert (big.reads, big.nbytes) == (1, 29_701 * 4), "near elements are read together"
    assert words.nbytes == len(string_payload(WORDS["words"][1])[0])


def test_plans_of_scattered_elements_stay_short(tmp_path: Path) -> None:
    rows, width = 500, 40_000
    data = bytes(rows * width)
    entry: EntryFields = {"dtype": 4, "shape": (rows, width), "size": len(data)}
    prefix = write_bundle(tmp_path, "s", {b"w": entry}, [data])
    with load(str(prefix), ["w[:, 7]"]) as loaded:
        (plan,) = loaded.plans()
    assert (plan.reads, plan.nbytes, len(plan.ranges)) == (rows, rows, RANGES_KEPT)


def test_a_plan_ends_where_the_file_does(tmp_path: Path) -> None:
    entry: EntryFields = {"dtype": 4, "shape": (2**60,), "size": 2**60}
    prefix = write_bundle(tmp_path, "s", {b"w": entry}, [b"abcd"])
    with load(str(prefix), ["w", "w[1:3]"]) as loaded:
        with pytest.raises(IncompleteError) as caught:
            loaded.plans()
        assert caught.value.id == "shard-short"


# Previews and summaries ---------------------------------------------------------------


def test_a_preview_keeps_the_corners(checkpoint: str) -> None:
    with load(checkpoint, ["big", "emb", "step"]) as loaded:
        big, emb, step = (preview(loaded, number) for number in range(3))
    array = NUMBERS["big"][1]
    assert isinstance(big, list)
    assert len(big) == 7
    assert big[3] is ...
    first = big[0]
    assert isinstance(first, list)
    row = first[-1]
    assert isinstance(row, list)
    assert row[3] is ...
    assert np.array(row[-1]).astype("<f4") == array[0, -1, -1]
    assert np.array(emb, "<f4").tolist() == NUMBERS["emb"][1].tolist(), "small ones are whole"
    assert step == 1000


def test_what_has_no_elements_is_empty_whatever_its_shape(tmp_path: Path, run_cli: RunCli) -> None:
    entry: EntryFields = {"shape": (2**60, 0), "size": 0}
    prefix = str(write_bundle(tmp_path, "s", {b"w": entry}, [b""]))
    with load(prefix, ["w"]) as loaded:
        assert preview(loaded, 0) == []
    for more, expected in (([], ""), (["-o", "-", "--format", "csv"], "")):
        assert run_cli(["load", prefix, "w", *more]).stdout == expected
    document = json.loads(run_cli(["load", prefix, "w", "--json"]).stdout)
    assert document["data"]["variables"][0]["values"] == []


def test_a_preview_of_many_dimensions_stays_small(tmp_path: Path) -> None:
    shape = (4,) * 10
    entry: EntryFields = {"dtype": 4, "shape": shape, "size": 4**10}
    prefix = write_bundle(tmp_path, "s", {b"w": entry}, [bytes(4**10)])
    with load(str(prefix), ["w"]) as loaded:
        text = str(preview(loaded, 0))
    assert text.count("0") <= 1000
    assert "Ellipsis" in text


def test_summaries(checkpoint: str) -> None:
    names = ["emb", "f64", "i4", "bool", "complex", "words", "empty", "big", "half_brain"]
    with load(checkpoint, names) as loaded:
        found = {name: summarise(loaded, number) for number, name in enumerate(names)}
    assert found["words"] is None
    for name in ("emb", "big", "i4", "half_brain"):
        summary, array = found[name], NUMBERS[name][1].astype("f8")
        assert summary is not None
        assert summary.minimum == array.min()
        assert summary.maximum == array.max()
        assert summary.mean == pytest.approx(array.mean())
        assert summary.std == pytest.approx(array.std())
        assert summary.zeros == (array == 0).sum()
    f64 = found["f64"]
    assert f64 is not None
    assert (f64.minimum, f64.maximum, f64.nan, f64.inf) == (0.1, 1e300, 1, 1)
    empty, bools, pairs = found["empty"], found["bool"], found["complex"]
    assert empty is not None
    assert (empty.count, empty.minimum, empty.mean) == (0, None, None)
    assert bools is not None
    assert (bools.minimum, bools.maximum, bools.zeros) == (0, 1, 1)
    assert pairs is not None
    assert (pairs.minimum, pairs.nan, pairs.inf) == (None, 1, 1)


# The command --------------------------------------------------------------------------


def test_piped_one_variable_is_rows_of_full_precision(run_cli: RunCli, checkpoint: str) -> None:
    result = run_cli(["load", checkpoint, "emb"])
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    np.testing.assert_array_equal(np.array(rows, "<f4"), NUMBERS["emb"][1])
    assert run_cli(["load", checkpoint, "f64"]).stdout == "0.1\n1e+300\nnan\n-inf\n"
    assert run_cli(["get", checkpoint, "step"]).stdout == "1000\n"


def test_piped_several_have_a_line_each_in_front(run_cli: RunCli, checkpoint: str) -> None:
    result = run_cli(["load", checkpoint, "step", "words"])
    assert result.stdout == (
        "# step\tint64\t[]\n1000\n# words\tstring\t[2,2]\na\t\n"
        'grüß, "dich"\ttwo\\nlines\\tand\\x1b[31m\n'
    )


def test_large_values_are_printed_whole_in_a_pipe(run_cli: RunCli, checkpoint: str) -> None:
    result = run_cli(["load", checkpoint, "big"])
    values = np.array(result.stdout.split(), "<f4")
    np.testing.assert_array_equal(values, NUMBERS["big"][1].ravel())


def test_on_a_terminal_they_are_abbreviated_and_it_says_so(checkpoint: str) -> None:
    shown = run_in_terminal(["load", checkpoint, "big"], env={"NO_COLOR": "1"})
    assert shown.returncode == 0
    assert shown.lines[0] == "big  float32  [100,30,10]  117.2 KiB"
    assert shown.lines[1].startswith("min 0  max 4285.57  mean 2142.79  std ")
    assert any("..." in line for line in shown.lines)
    assert shown.lines[-1] == "30000 values; --full prints all, -o FILE saves them"
    full = run_in_terminal(["load", checkpoint, "big", "--full"], env={"NO_COLOR": "1"})
    assert "..." not in full.output
    assert len(full.lines) == 2 + 3000
    assert max(map(len, shown.lines)) <= 80


def test_a_long_string_is_cut_on_a_terminal_and_it_says_so(fixtures_dir: Path) -> None:
    args = ["load", str(fixtures_dir / "keras3"), "_CHECKPOINTABLE_OBJECT_GRAPH"]
    shown = run_in_terminal(args, env={"NO_COLOR": "1"})
    assert "… (3491 bytes)" in shown.output
    assert shown.lines[-1] == "--full prints the strings whole, -o FILE saves them"
    full = run_in_terminal([*args, "--full"], env={"NO_COLOR": "1"})
    assert "…" not in full.output
    assert len(full.output) > 3491


def test_json_fits_its_schema(
    run_cli: RunCli, checkpoint: str, fixtures_dir: Path, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    home = Path(__file__).parents[2] / "ckpttool" / "schemas"
    validator = jsonschema.Draft202012Validator(json.loads((home / "load.json").read_text()))
    names = ["emb", "words", "bytes", "complex", "step", "empty", "emb[0:2, 0]"]
    for more in ([], ["-n"], ["-o", str(tmp_path / "x.npz")]):
        wanted = names[:1] + names[4:6] if more else names
        result = run_cli(["load", checkpoint, *wanted, "--json", *more])
        assert result.returncode == 0, result.stderr
        parsed = json.loads(result.stdout)
        assert (parsed["schema"], parsed["ok"]) == ("ckpttool.load/1", True)
        validator.validate(parsed["data"])
        assert [item["name"] for item in parsed["data"]["variables"]] == [
            re.sub(r"\[.*", "", name) for name in wanted
        ]
        assert (parsed["data"]["reads"] is None) == (more != ["-n"])
    assert (tmp_path / "x.npz").exists()


def test_a_dry_run_reads_and_writes_nothing(
    run_cli: RunCli, checkpoint: str, tmp_path: Path
) -> None:
    result = run_cli(["load", checkpoint, "emb[2:4]", "-n", "-o", str(tmp_path / "x.npy")])
    name, dtype, shape, path, _, nbytes = result.stdout.rstrip("\n").split("\t")
    assert (name, dtype, shape, nbytes) == ("emb[2:4]", "float32", "[2,3]", "24")
    assert path == f"{checkpoint}.data-00001-of-00002"
    assert os.listdir(tmp_path) == []


def test_to_standard_output(run_cli: RunCli, checkpoint: str) -> None:
    assert run_cli(["load", checkpoint, "u8", "-o", "-", "--format", "csv"]).stdout == "0\n255\n"
    result = run_cli(["load", checkpoint, "words", "-o", "-", "--format", "json"])
    assert json.loads(result.stdout)["variables"][0]["values"][0] == ["a", ""]
    assert run_cli(["load", checkpoint, "u8", "-o", "-"]).returncode == 2


def test_damaged_values_only_on_request(run_cli: RunCli, fixtures_dir: Path) -> None:
    damaged = str(fixtures_dir / "damaged" / "flipped-bit")
    result = run_cli(["load", damaged, "tower/kernel"])
    assert result.returncode == 20
    assert result.stdout == ""
    assert "[checksum-mismatch]" in result.stderr
    assert "--no-check" in result.stderr
    result = run_cli(["load", damaged, "tower/kernel", "--no-check"])
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 32


def test_an_opaque_variable_is_refused(run_cli: RunCli, checkpoint: str) -> None:
    result = run_cli(["load", checkpoint, "opaque", "--json"])
    assert result.returncode == 12
    assert json.loads(result.stderr)["id"] == "dtype-unsupported"
    assert result.stdout == ""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_many_floats_are_written_as_few_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Numpy makes the text of many; it is the same, whatever the bits."""
    number, kind = {"float32": (1, "<u4"), "float16": (19, "<u2"), "bfloat16": (14, "<u2")}[dtype]
    rng = np.random.default_rng(5)
    if dtype == "float32":
        near = np.array(
            [1e-4, 0.99e-4, 1.01e-4, 9e5, 1e6, 1e8, 1e16, 1e-38, 0, 1, np.nan, np.inf], "<f4"
        )
        bits = [
            rng.integers(0, 2**32, 40_000, np.uint32),
            rng.integers(0, 2**23, 2_000, np.uint32),  # subnormal
            *(near.view(np.uint32) + np.uint32(step) for step in range(200)),
            *(near.view(np.uint32) - np.uint32(step) for step in range(200)),
            rng.normal(size=20_000).astype("<f4").view(np.uint32),
            (np.arange(20_000) * 4999).astype("<f4").view(np.uint32),
        ]
        data = np.concatenate(bits).astype(kind)
    else:
        data = np.arange(2**16).astype(kind)
    entry: EntryFields = {"dtype": number, "shape": data.shape, "size": data.nbytes}
    prefix = str(write_bundle(tmp_path, "m", {b"w": entry}, [data.tobytes()]))

    def written(suffix: str) -> bytes:
        return saved(prefix, ["w"], tmp_path / f"x.{suffix}", overwrite=True).read_bytes()

    few = written("csv"), written("json")
    monkeypatch.setattr(value_text, "_MANY", 0)
    assert (written("csv"), written("json")) == few
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert (written("csv"), written("json")) == few, "without numpy too"
