"""``stats``: which variables, in which order, along a run; and how it looks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.cli.bars import bars, line
from ckpttool.cli.screen import Screen
from ckpttool.cli.views.stats import StatsView
from ckpttool.errors import CkpttoolError, CorruptError, NotFoundError, UnsupportedError
from ckpttool.ops.stats import SORTS, Row, SortKey, stats
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, string_payload, write_bundle

WIDE = Screen(200, color=False, unicode=True)
RANDOM = np.random.default_rng(3)
DTYPES = {"float32": 1, "float64": 2, "int64": 9}


def save(directory: Path, prefix: str, arrays: Mapping[str, np.ndarray]) -> str:
    """A checkpoint of these arrays, in one data file."""
    directory.mkdir(exist_ok=True, parents=True)
    entries: dict[bytes, EntryFields | bytes] = {}
    data = b""
    for name, array in arrays.items():
        entries[name.encode()] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": array.shape,
            "offset": len(data),
            "size": array.nbytes,
        }
        data += array.tobytes()
    return str(write_bundle(directory, prefix, entries, [data]))


def rows(address: str | Path, *names: str, **options: Any) -> list[Row]:
    with stats(str(address), names, **options) as found:
        return list(found.rows())


def human(address: str | Path, *names: str, screen: Screen = WIDE, **options: Any) -> str:
    with stats(str(address), names, **options) as found:
        return "".join(map(str, StatsView(found, check=False).human(screen)))


# One source -----------------------------------------------------------------------------


def test_every_variable_of_a_checkpoint(fixtures_dir: Path) -> None:
    found = rows(fixtures_dir / "mlp-v1")
    with open_source(str(fixtures_dir / "mlp-v1")) as source:
        assert [row.name for row in found] == [variable.name for variable in source.variables()]
        for row in found:
            variable = row.item.variable
            array = source.read(variable, Selection.whole(variable.shape or ()))
            assert row.figures.minimum == array.min()
            assert row.figures.mean == pytest.approx(array.mean(dtype="f8"))
            assert row.figures.norm == pytest.approx(np.linalg.norm(array.astype("f8").ravel()))
            assert row.member is None


def test_of_a_partitioned_variable_all_parts(fixtures_dir: Path) -> None:
    for row in rows(fixtures_dir / "partitioned"):
        assert row.figures.count == row.item.variable.parameters


def test_names_choose_as_those_of_load(fixtures_dir: Path) -> None:
    run = fixtures_dir / "mlp-v1"
    found = rows(run, "hidden/weights[0:2]", "logits/*", kinds=["model"])
    assert [row.name for row in found] == ["hidden/weights[0:2]", "logits/biases", "logits/weights"]
    assert found[0].figures.count == 32
    with pytest.raises(NotFoundError, match="hidden/weight"):
        rows(run, "hidden/weight")


def test_filters_and_names_of_three_kinds(fixtures_dir: Path) -> None:
    run = fixtures_dir / "keras3"
    (row,) = rows(run, include=["*/hidden/kernel"], kinds=["model"])
    assert row.name == "regressor/hidden/kernel"
    (by_key,) = rows(run, include=[row.item.variable.key], naming="key")
    assert by_key.name == row.item.variable.key
    assert by_key.figures == row.figures
    (by_path,) = rows(run, row.name, naming="path")
    assert by_path.name not in {row.name, by_key.name}


@pytest.mark.parametrize("sort", SORTS)
def test_orders(fixtures_dir: Path, sort: SortKey) -> None:
    found = rows(fixtures_dir / "dtypes/all", sort=sort)
    assert len(found) == 27
    of = {
        "name": lambda row: row.name,
        "bytes": lambda row: -row.item.variable.nbytes,
        "params": lambda row: -row.figures.count,
        "bad": lambda row: -(row.figures.nan + row.figures.inf),
        "zeros": lambda row: -row.figures.zeros,
        "min": lambda row: -row.figures.minimum,
        "max": lambda row: -row.figures.maximum,
        "mean": lambda row: -row.figures.mean,
        "std": lambda row: -row.figures.std,
        "norm": lambda row: -row.figures.norm,
    }[sort]
    having = [row for row in found if row.figures.norm is not None and row.figures.mean is not None]
    keys = [of(row) for row in having]
    assert keys == sorted(keys)


def test_what_holds_no_numbers_is_left_out_and_named(tmp_path: Path, fixtures_dir: Path) -> None:
    with stats(str(fixtures_dir / "dtypes/all")) as found:
        assert not any("string" in row.name for row in found.rows())
        assert [item.dtype for item in found.skipped] == ["string"] * 3
    with pytest.raises(UnsupportedError) as caught:
        rows(fixtures_dir / "dtypes/all", "scalar/string")
    assert caught.value.id == "dtype-unsupported"
    payload, crc = string_payload([b"a"])
    entry: EntryFields = {"dtype": 7, "shape": (1,), "size": len(payload), "crc": crc}
    prefix = write_bundle(tmp_path, "s", {b"words": entry}, [payload])
    with stats(str(prefix)) as found:
        view = StatsView(found, check=True)
        assert "".join(map(str, view.plain())) == ""
        assert view.exit_code == 0
        assert view.warnings == [f"no variable that holds numbers is chosen of {prefix}"]


def test_what_is_damaged_does_not_keep_the_others_back(fixtures_dir: Path) -> None:
    with stats(str(fixtures_dir / "damaged/flipped-bit")) as found:
        names = [row.name for row in found.rows()]
        assert "tower/kernel" not in names
        assert len(names) == 3
        (failed,) = found.failed
        assert failed.name == "tower/kernel"
        assert failed.error is not None
        assert failed.error.id == "checksum-mismatch"
        assert StatsView(found, check=False).exit_code == 3
    with pytest.raises(CorruptError):
        rows(fixtures_dir / "damaged/flipped-bit", "tower/kernel")


def test_progress_comes_to_all_bytes(fixtures_dir: Path) -> None:
    seen: list[tuple[int, int]] = []
    for address in ("two-shards", "keras3/@*"):
        seen.clear()
        rows(fixtures_dir / address, progress=lambda *done: seen.append(done))
        assert seen[-1][0] == seen[-1][1] > 0
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


# A run ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four checkpoints; `b` comes late, and `a` breaks in the third."""
    directory = tmp_path_factory.mktemp("series") / "run"
    base = RANDOM.normal(0, 1, 500).astype("f4")
    for step in (100, 200, 300, 1000):
        a = base * step
        if step >= 300:
            a[:3] = np.nan
            a[3] = np.inf
        arrays = {"a": a, "global_step": np.array(step, "i8")}
        if step >= 200:
            arrays["b"] = base
        save(directory, f"ckpt-{step}", arrays)
    return directory


def test_a_variable_along_a_run(run: Path) -> None:
    with stats(f"{run}/@*", ["a"]) as found:
        got = list(found.rows())
        assert [row.member.step for row in got if row.member] == [100, 200, 300, 1000]
        assert got[1].figures.norm == pytest.approx(2 * (got[0].figures.norm or 0))
        first = found.first_bad["a"]
        assert (first.member.step, first.nan, first.inf) == (300, 3, 1)
        assert found.source is None


def test_one_that_comes_late_is_left_out_before(run: Path) -> None:
    with stats(f"{run}/@*", ["b"]) as found:
        assert [row.member.step for row in found.rows() if row.member] == [200, 300, 1000]
        assert [member.step for member, _ in found.absent] == [100]
        assert found.first_bad == {}
    with pytest.raises(NotFoundError):
        rows(f"{run}/@*", "nothing")


def test_a_checkpoint_that_cannot_be_read_is_passed_over(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "ckpt-200.data-00000-of-00001").unlink()
    with open(copy / "ckpt-1000.data-00000-of-00001", "r+b") as file:
        file.write(b"\xff\xff")
    with stats(f"{copy}/@*", ["a"]) as found:
        assert [row.member.step for row in found.rows() if row.member] == [100, 300]
        assert [failed.error.id for failed in found.failed if failed.error] == ["checksum-mismatch"]
        (note,) = found.notes
        assert "ckpt-200 is passed over" in note


def test_a_run_for_people(run: Path) -> None:
    shown = human(f"{run}/@*", "a").splitlines()
    assert shown[0] == f"a  float32 [500]  along {run} (4 checkpoints)"
    assert [words[0] for text in shown[3:7] if (words := text.split())] == [
        *("100", "200", "300", "1000"),
    ]
    assert any("norm" in text and "▁" in text and "→" in text for text in shown[7:])
    assert shown[-1] == f"a: first in step 300, {run}/ckpt-300 (3 NaN, 1 Inf)"
    several = human(f"{run}/@*")
    assert several.startswith(f"3 variables along {run} (4 checkpoints)\n")
    ascii_only = human(f"{run}/@*", "a", screen=Screen(80, color=False, unicode=False))
    assert ascii_only.isascii()


# The command ----------------------------------------------------------------------------


def test_check_ends_with_1_where_something_is_not_finite(run_cli: RunCli, run: Path) -> None:
    assert run_cli(["stats", f"{run}/@100", "--check"]).returncode == 0
    assert run_cli(["stats", f"{run}/@300", "b", "--check"]).returncode == 0
    assert run_cli(["stats", f"{run}/@300", "--check"]).returncode == 1
    assert run_cli(["stats", f"{run}/@300"]).returncode == 0
    result = run_cli(["stats", f"{run}/@*", "--check", "--json"])
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert document["ok"] is False
    (first,) = document["data"]["first_bad"]
    assert (first["name"], first["checkpoint"]["step"]) == ("a", 300)


def test_in_a_pipe_a_line_a_variable_with_every_digit(run_cli: RunCli, run: Path) -> None:
    result = run_cli(["stats", f"{run}/@200", "b"])
    name, dtype, shape, values, low, high, mean, std, norm, *counts = result.stdout[:-1].split("\t")
    assert (name, dtype, shape, values) == ("b", "float32", "[500]", "500")
    (row,) = rows(f"{run}/@200", "b")
    figures = row.figures
    assert [float(text) for text in (low, high, mean, std, norm)] == [
        *(figures.minimum, figures.maximum, figures.mean, figures.std, figures.norm),
    ]
    assert counts == ["0", "0", "0"]
    lines = run_cli(["stats", f"{run}/@*", "a"]).stdout.splitlines()
    assert lines[0].split("\t")[:3] == [f"{run}/ckpt-100", "100", "a"]


def test_one_variable_in_full(run: Path) -> None:
    shown = human(f"{run}/@100", "a")
    assert "values  500" in shown
    assert shown.count("█") > 20
    everything = human(f"{run}/@100")
    assert "no NaN, no Inf" in everything
    narrow = human(f"{run}/@300", screen=Screen(60, color=False, unicode=False))
    assert "3 NaN, 1 Inf" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_a_name_is_escaped(tmp_path: Path) -> None:
    prefix = save(tmp_path, "x", {"evil\x1b[31m": np.zeros(3, "f4"), "b": np.ones(2, "f4")})
    assert "\x1b" not in human(prefix)
    assert "\x1b" not in human(prefix, "evil\x1b[31m")


def test_memory_does_not_grow_with_a_variable(run_cli: RunCli, tmp_path: Path) -> None:
    size = 2**30
    entry: EntryFields = {"dtype": 1, "shape": (size // 4,), "size": size, "crc": None}
    prefix = write_bundle(tmp_path, "big", {b"w": entry}, [b""])
    with open(f"{prefix}.data-00000-of-00001", "r+b") as file:
        file.truncate(size)
    result = run_cli(["stats", str(prefix)], memory_mb=600, env={"OPENBLAS_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\t")[3] == str(size // 4)
    assert result.stdout.split("\t")[9] == str(size // 4)


def test_every_corpus_checkpoint(corpus: Path) -> None:
    seen = 0
    for index in sorted(corpus.glob("*/**/*.index"))[:40]:
        prefix = str(index)[: -len(".index")]
        try:
            found = rows(prefix)
        except CkpttoolError:
            continue
        for row in found:
            histogram = row.figures.histogram
            if histogram is not None:
                figures = row.figures
                assert sum(histogram.counts) == figures.count - figures.nan - figures.inf
            seen += 1
    assert seen > 100


# Bars -----------------------------------------------------------------------------------


def test_bars() -> None:
    assert bars([0, 1, 4, 8, 1000], unicode=True) == " ▁▁▁█"
    assert bars([0, 500, 1000], unicode=True) == " ▄█"
    assert bars([0, 0], unicode=True) == "  "
    assert bars([], unicode=False) == ""
    assert bars([0, 1, 9], unicode=False) == " .@"
    assert line([1.0, None, float("nan"), 2.0], unicode=True) == "▁??█"
    assert line([3.0, 3.0], unicode=False) == "++"
    assert line([-1.7e308, 1.7e308], unicode=True) == "▁█"
    assert line([], unicode=True) == ""
