"""``list``: what it lists, in every mode, filtered, sorted and named; both ways it goes."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.cli.views.list import ListView
from ckpttool.errors import CkpttoolError, CorruptError, UsageError
from ckpttool.model import Kind
from ckpttool.ops.list import SORTS, Listing, Look, SortKey, list_variables
from ckpttool.ops.wanted import Wanted, wanted
from ckpttool.sources.kinds import SCOPE_OPENINGS, kind_of_ending, kind_of_name
from tests.support.command import RunCli
from tests.support.handmade import EntryFields, header, slice_key, write_bundle


def text(pieces: Iterator[str | bytes]) -> str:
    return "".join(piece if isinstance(piece, str) else piece.decode("ascii") for piece in pieces)


def plain(address: str | Path, **options: Any) -> str:
    with list_variables(str(address), **options) as listing:
        return text(ListView(listing).plain())


def names(address: str | Path, **options: Any) -> list[str]:
    with list_variables(str(address), **options) as listing:
        return [variable.name for variable in listing.variables()]


def warnings(address: str | Path, **options: Any) -> list[str]:
    with list_variables(str(address), **options) as listing:
        text(ListView(listing).plain())
        return listing.warnings()


# What is listed ------------------------------------------------------------------------


def test_a_name_based_checkpoint(fixtures_dir: Path) -> None:
    rows = [line.split("\t") for line in plain(fixtures_dir / "mlp-v1").splitlines()]
    assert len(rows) == 17
    assert rows[2] == ["global_step", "int64", "[]", "8", "0", "step"]
    assert rows[6] == ["hidden/weights", "float32", "[784,16]", "50176", "0", "model"]
    assert rows[7] == ["hidden/weights/Adam", "float32", "[784,16]", "50176", "0", "optimizer"]
    assert rows[-1][0] == "logits/weights/ExponentialMovingAverage"
    assert rows[-1][-1] == "ema"


def test_an_object_based_one_by_its_graph(fixtures_dir: Path) -> None:
    listed = names(fixtures_dir / "keras3")
    assert "regressor/hidden/kernel" in listed
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" in listed
    keys = names(fixtures_dir / "keras3", names="key")
    assert len(keys) == len(listed)
    assert all(key.endswith("VARIABLE_VALUE") for key in keys[1:])
    paths = names(fixtures_dir / "keras3", names="path")
    assert "model/_functional/_operations/1/_kernel" in paths
    assert keys[paths.index("optimizer/_iterations")].startswith("optimizer/_iterations/")


def test_a_partitioned_variable_is_one_line_with_all_its_shards(tmp_path: Path) -> None:
    parts: list[list[tuple[int, int | None]]] = [[(0, 2)], [(2, 2)], [(4, 1)]]
    entries: dict[bytes, EntryFields | bytes] = {b"w": {"shape": (5,), "slices": parts}}
    for shard, part in enumerate(parts[:2]):
        entries[slice_key(b"w", part)] = {"shape": (2,), "size": 8, "shard": shard * 2}
    prefix = write_bundle(tmp_path, "m", entries, [bytes(8), b"", bytes(8)])
    assert plain(prefix) == "w\tfloat32\t[5]\t16\t0,2\tmodel\n"
    assert names(prefix) == ["w"]


def test_a_variable_without_any_part_there_is(tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path, "m", {b"w": {"shape": (5,), "slices": [[(0, 5)]]}}, [b""])
    assert plain(prefix) == "w\tfloat32\t[5]\t0\t-\tmodel\n"
    assert warnings(prefix) == []


def test_many_shards_of_one_variable_are_not_all_spelled_out(tmp_path: Path) -> None:
    parts: list[list[tuple[int, int | None]]] = [[(number, 1)] for number in range(12)]
    entries: dict[bytes, EntryFields | bytes] = {b"w": {"shape": (12,), "slices": parts}}
    for shard, part in enumerate(parts):
        entries[slice_key(b"w", part)] = {"shape": (1,), "size": 4, "shard": shard}
    prefix = write_bundle(tmp_path, "m", entries, [bytes(4)] * 12)
    assert plain(prefix).split("\t")[4] == "0-11"


def test_odd_entries_are_listed_all_the_same(tmp_path: Path) -> None:
    prefix = write_bundle(
        tmp_path,
        "m",
        {
            b"unknown dtype": {"dtype": 77, "shape": (2,), "size": 8},
            b"unknown rank": b"\x08\x01\x12\x02\x18\x01",
            b"wrong size": {"shape": (2,), "size": 3},
        },
        [bytes(8)],
    )
    assert plain(prefix) == (
        "unknown dtype\tdtype_77\t[2]\t8\t0\tmodel\n"
        "unknown rank\tfloat32\tunknown\t0\t0\tmodel\n"
        "wrong size\tfloat32\t[2]\t3\t0\tmodel\n"
    )


ODD_NAMES = {
    b"\x1b[31mred": "\\x1b[31mred",
    b"a\nb": "a\\nb",
    b"tab\tin": "tab\\tin",
    b"\xff/w": "\\xff/w",
    b"\x00": "\\x00",
    "é/ü".encode(): "é/ü",
    "\u202eoff".encode(): "\\u202eoff",
}


def test_names_from_files_are_escaped(tmp_path: Path, run_cli: RunCli) -> None:
    fields: EntryFields = {"shape": (2,), "size": 8}
    prefix = write_bundle(tmp_path, "m", dict.fromkeys(ODD_NAMES, fields), [bytes(8)])
    shown = [ODD_NAMES[key] for key in sorted(ODD_NAMES)]
    for option in ([], ["-q"], ["--color=always"]):
        lines = run_cli(["list", prefix, *option]).stdout.splitlines()
        rows = lines[1:-1] if option == ["--color=always"] else lines
        assert [row.split("\t")[0].split("  ")[0] for row in rows] == shown
    document = json.loads(run_cli(["list", prefix, "--json"]).stdout)
    found = document["data"]["variables"]
    for key, variable in zip(sorted(ODD_NAMES), found, strict=True):
        exact = variable.get("key_base64")
        assert key == (base64.b64decode(exact) if exact else variable["key"].encode())
        assert (exact is not None) == (key == b"\xff/w")


# The quick way and the other -----------------------------------------------------------


def slowly(address: str | Path, **options: Any) -> str:
    """The plain listing by the general way: an expression that all names match."""
    return plain(address, regex="", **options)


@pytest.mark.parametrize("style", ["full", "key", "path"])
@pytest.mark.parametrize(
    "name", ["mlp-v1", "two-shards", "partitioned", "dtypes/all", "keras3", "module/encoder"]
)
def test_fixtures_both_ways(fixtures_dir: Path, name: str, style: str) -> None:
    listed = plain(fixtures_dir / name, names=style)
    assert listed == slowly(fixtures_dir / name, names=style)
    assert listed.count("\n") > 2


def test_the_corpus_both_ways(corpus: Path) -> None:
    seen = 0
    for index in sorted(corpus.rglob("*.index")):
        try:
            expected = slowly(index)
        except CkpttoolError:
            with pytest.raises(CkpttoolError):
                plain(index)
            continue
        assert plain(index) == expected, index
        seen += expected.count("\n")
    assert seen > 1000


PARTS = [
    "w",
    "Adam",
    "Adam_1",
    "training",
    "global_step",
    "step",
    "lr",
    "ema",
    "SGD",
    "iter",
    "x_slot_m",
]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)


@given(st.sets(NAMES, min_size=1, max_size=40), st.sampled_from([1, 3]))
def test_any_names_both_ways(
    tmp_path_factory: pytest.TempPathFactory, chosen: set[str], shards: int
) -> None:
    fields: EntryFields = {"shape": (2,), "size": 8, "shard": shards - 1}
    entries = {name.encode(): fields for name in chosen}
    folder = tmp_path_factory.mktemp("names")
    prefix = write_bundle(folder, "m", entries, [bytes(8)] * shards, block_size=300)
    assert plain(prefix) == slowly(prefix)
    with list_variables(str(prefix)) as listing:
        assert text(ListView(listing).names()).splitlines() == sorted(chosen)


@given(NAMES)
def test_the_kind_by_the_ending(name: str) -> None:
    if name[:4] not in SCOPE_OPENINGS:
        assert kind_of_ending(name[max(name.rfind("/"), 0) :]) == kind_of_name(name)


# Filters, orders, warnings ---------------------------------------------------------------


def test_filters(fixtures_dir: Path) -> None:
    mlp = fixtures_dir / "mlp-v1"
    assert names(mlp, kinds=["step"]) == ["global_step"]
    assert names(mlp, include=["*weights"]) == ["hidden/weights", "logits/weights"]
    assert names(mlp, include=["*weights", "*_power"], exclude=["hidden*", "beta2*"]) == [
        "beta1_power",
        "logits/weights",
    ]
    assert names(mlp, regex="^logits/b.*s$") == ["logits/biases"]
    assert names(mlp, kinds=["ema", "step"], regex="s") == [
        "global_step",
        "logits/biases/ExponentialMovingAverage",
        "logits/weights/ExponentialMovingAverage",
    ]
    assert names(fixtures_dir / "keras3", names="key", include=["optimizer/_iter*"]) == [
        "optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"
    ]


def test_globs_are_literal_but_for_their_few_signs() -> None:
    want = wanted(include=["a.b[0-9]?"])
    assert want("a.b5x", "model")
    assert not want("a_b5x", "model")
    assert not want("A.b5x", "model")
    assert not want("a.b5x/y", "model")
    assert wanted(include=["a*"])("a/b\nc", "model")
    assert wanted() == Wanted()
    assert wanted().everything
    assert not wanted(kinds=["model"]).everything


def test_an_expression_that_is_none() -> None:
    with pytest.raises(UsageError) as caught:
        wanted(regex="a(")
    assert caught.value.id == "bad-regex"


def test_a_filter_that_lets_nothing_pass_is_told(fixtures_dir: Path) -> None:
    found = warnings(fixtures_dir / "mlp-v1", include=["wights"])
    assert len(found) == 1
    assert found[0].startswith("none of the 17 variables of ")


ORDERED = {
    b"b": {"dtype": 2, "shape": (2, 3), "size": 48, "shard": 1},
    b"a/Adam": {"dtype": 1, "shape": (20,), "size": 80, "offset": 48, "shard": 1},
    b"c": {"dtype": 4, "shape": (100,), "size": 100},
    b"global_step": {"dtype": 9, "shape": (), "size": 8, "offset": 128, "shard": 1},
}


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (None, ["a/Adam", "b", "c", "global_step"]),
        ("name", ["a/Adam", "b", "c", "global_step"]),
        ("bytes", ["c", "a/Adam", "b", "global_step"]),
        ("params", ["c", "a/Adam", "b", "global_step"]),
        ("shape", ["global_step", "b", "a/Adam", "c"]),
        ("dtype", ["a/Adam", "b", "global_step", "c"]),
        ("kind", ["b", "c", "a/Adam", "global_step"]),
        ("shard", ["c", "a/Adam", "b", "global_step"]),
    ],
)
def test_orders(tmp_path: Path, sort: SortKey | None, order: list[str]) -> None:
    entries: dict[bytes, EntryFields | bytes] = {**ORDERED}  # type: ignore[dict-item]
    prefix = write_bundle(tmp_path, "m", entries, [bytes(100), bytes(136)])
    assert names(prefix, sort=sort) == order
    assert [line.split("\t")[0] for line in plain(prefix, sort=sort).splitlines()] == order


def test_every_order_takes_what_is_unknown(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"r": b"\x08\x01\x12\x02\x18\x01",
        b"s": b"\x08\x01\x12\x02\x18\x01",
        b"w": {"shape": (5,), "slices": [[(0, 5)]]},
        b"x": {"dtype": 99, "shape": (1,), "size": 1},
    }
    prefix = write_bundle(tmp_path, "m", entries, [bytes(1)])
    for sort in SORTS:
        assert sorted(names(prefix, sort=sort)) == ["r", "s", "w", "x"]


def test_missing_data_files_are_no_error(corpus: Path, run_cli: RunCli) -> None:
    done = run_cli(["list", corpus / "bad-missing-shard-sudoku" / "model"])
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 132
    assert "variables.data-00001-of-00002 is missing" in done.stderr


def test_missing_data_files_are_counted(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"v%d" % shard: {"shape": (1,), "size": 4, "shard": shard} for shard in range(6)
    }
    prefix = write_bundle(tmp_path, "m", entries, [bytes(4)] * 6)
    for shard in (0, 2, 3, 4, 5):
        Path(f"{prefix}.data-{shard:05d}-of-00006").unlink()
    for options in ({}, {"regex": "v1"}, {"sort": "bytes"}):
        (warning,) = warnings(prefix, **options)
        assert "m.data-00000-of-00006" in warning
        assert "and 2 more are missing" in warning
    # A header may claim what it likes: only what entries refer to is missed.
    entries = {b"w": {"shape": (1,), "size": 4}}
    prefix = write_bundle(tmp_path, "n", entries, [bytes(4)], head=header(2**31 - 1))
    (warning,) = warnings(prefix)
    assert "n.data-00000-of-2147483647 is missing" in warning


def test_a_checkpoint_without_variables(tmp_path: Path, run_cli: RunCli) -> None:
    prefix = write_bundle(tmp_path, "m", {}, [b""])
    done = run_cli(["list", prefix])
    assert (done.returncode, done.stdout) == (0, "")
    assert "m has no variables" in done.stderr


# Modes ----------------------------------------------------------------------------------


def test_json_says_it_all(fixtures_dir: Path, run_cli: RunCli) -> None:
    done = run_cli(["list", fixtures_dir / "partitioned", "--json"])
    document = json.loads(done.stdout)
    assert document["data"]["source"] == str(fixtures_dir / "partitioned")
    table, _, step = document["data"]["variables"]
    assert step == {
        "name": "global_step",
        "key": "global_step",
        "dtype": "int64",
        "shape": [],
        "bytes": 8,
        "shard": 0,
        "offset": 1600,
        "kind": "step",
        "slices": None,
    }
    assert (table["bytes"], table["shard"], table["offset"]) == (800, 0, None)
    assert table["slices"][1] == {"start": [17, 0], "extent": [17, 4], "shard": 0}


def test_records_and_their_summary(fixtures_dir: Path, run_cli: RunCli) -> None:
    done = run_cli(["list", fixtures_dir / "mlp-v1", "--ndjson", "--kind", "model"])
    *records, summary = map(json.loads, done.stdout.splitlines())
    assert [record["type"] for record in records] == ["variable"] * 4
    assert (summary["type"], summary["variables"], summary["ok"]) == ("summary", 4, True)
    assert summary["parameters"] == 784 * 16 + 16 + 16 * 10 + 10
    assert summary["bytes"] == 4 * summary["parameters"]


def test_a_damaged_index_gives_no_half_document(tmp_path: Path, run_cli: RunCli) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        f"v{number:05d}".encode(): {"shape": (1,), "size": 4} for number in range(3000)
    }
    prefix = write_bundle(tmp_path, "m", entries, [bytes(4)], block_size=20_000)
    index = Path(f"{prefix}.index")
    data = bytearray(index.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    index.write_bytes(data)
    done = run_cli(["list", prefix, "--json"])
    assert (done.returncode, done.stdout) == (20, "")
    assert json.loads(done.stderr)["id"] == "block-checksum"
    done = run_cli(["list", prefix])
    assert done.returncode == 20
    lines = done.stdout.splitlines()
    assert 100 < len(lines) < 3000
    assert lines == [f"v{number:05d}\tfloat32\t[1]\t4\t0\tmodel" for number in range(len(lines))]
    with pytest.raises(CorruptError):
        slowly(prefix)


def test_for_people_there_are_units_and_totals(fixtures_dir: Path, run_cli: RunCli) -> None:
    done = run_cli(["list", fixtures_dir / "mlp-v1", "--color=always"], env={"COLUMNS": "200"})
    assert "49.0 KiB" in done.stdout
    assert "17 variables, 38,363 parameters, 149.9 KiB" in done.stdout
    done = run_cli(["list", fixtures_dir / "partitioned", "--color=always"])
    assert "0 (3 slices)" in done.stdout


def test_thousands_of_rows_are_streamed(tmp_path: Path) -> None:
    from ckpttool.cli.screen import Screen

    entries: dict[bytes, EntryFields | bytes] = {
        f"v{number:05d}".encode(): {"shape": (1,), "size": 4} for number in range(3000)
    }
    prefix = write_bundle(tmp_path, "m", entries, [bytes(4)])
    with list_variables(str(prefix)) as listing:
        pieces = list(ListView(listing).human(Screen(80, color=False, unicode=True)))
    assert all(isinstance(piece, str) for piece in pieces)
    lines = "".join(map(str, pieces)).splitlines()
    assert len(lines) == 3002
    assert lines[-1] == "3,000 variables, 3,000 parameters, 11.7 KiB"


def test_listing_is_streamed(tmp_path: Path) -> None:
    """What was read before a later block is damaged has been given already."""
    entries: dict[bytes, EntryFields | bytes] = {
        f"v{number:05d}".encode(): {"shape": (1,), "size": 4} for number in range(3000)
    }
    prefix = write_bundle(tmp_path, "m", entries, [bytes(4)], block_size=20_000)
    with list_variables(str(prefix)) as listing:
        pieces = listing.lines(Look(str, lambda _: "\t", lambda kind: f"{kind}\n"))
        first = next(pieces)
        assert isinstance(first, bytes)
        assert first.startswith(b"v00000\tmodel\n")
        assert first.count(b"\n") < 1000


def test_the_alias(fixtures_dir: Path, run_cli: RunCli) -> None:
    listed = run_cli(["ls", fixtures_dir / "mlp-v1", "-q"])
    assert listed.stdout.splitlines() == names(fixtures_dir / "mlp-v1")
    assert all(a < b for a, b in pairwise(listed.stdout.splitlines()))


def test_a_graph_that_cannot_be_read_is_told_at_once(fixtures_dir: Path, tmp_path: Path) -> None:
    for path in (fixtures_dir / "keras3").iterdir():
        if path.suffix == ".index":
            shutil.copy(path, tmp_path)
    with list_variables(str(next(tmp_path.glob("*.index")))) as listing:
        notes = [note for note in listing.notes if "guessed" in note]
        assert len(notes) == 1
        found = {variable.name: variable.kind for variable in listing.variables()}
    kinds: set[Kind] = set(found.values())
    assert "optimizer" in kinds


def test_it_is_closed_with_its_source(fixtures_dir: Path) -> None:
    listing: Listing = list_variables(str(fixtures_dir / "mlp-v1"))
    with listing:
        pass
    with pytest.raises(CkpttoolError):
        list(listing.variables())
