from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from ckpttool.cli.screen import Screen
from ckpttool.cli.views.inspect import InspectView
from ckpttool.errors import CkpttoolError, CorruptError, ForeignFormatError, NotFoundError
from ckpttool.model import Variable
from ckpttool.ops.census import Total, take_census
from ckpttool.ops.inspect import CheckpointReport, InspectResult, inspect
from ckpttool.ops.scopes import Scope
from ckpttool.schemas import schema
from tests.support.handmade import slice_key, write_bundle

ENVELOPE = jsonschema.Draft202012Validator(schema("envelope"))
DATA = jsonschema.Draft202012Validator(schema("inspect"))


def inspected(address: Path | str, **options: object) -> InspectResult:
    """The result; what it is in JSON fits the schema."""
    result = inspect(os.fspath(address), **options)  # type: ignore[arg-type]
    DATA.validate(json.loads(json.dumps(InspectView(result).data(), default=list)))
    return result


def report_of(address: Path | str) -> CheckpointReport:
    report = inspected(address).checkpoint
    assert report is not None
    return report


def ids(result: InspectResult) -> set[str]:
    return {problem.id for problem in result.problems}


def human_text(result: InspectResult, *, unicode: bool = True) -> str:
    from ckpttool.cli.rich_text import RichText

    screen = Screen(100, color=False, unicode=unicode)
    rich = RichText(screen)
    pieces = InspectView(result).human(screen)
    return "".join(piece if isinstance(piece, str) else rich.render(piece) for piece in pieces)


def plain_rows(result: InspectResult) -> list[list[str]]:
    return [line.split("\t") for line in "".join(InspectView(result).plain()).splitlines()]


# What it is -------------------------------------------------------------------------------


def test_a_tensorflow_1_run(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "mlp-v1")
    report = result.checkpoint
    assert report is not None
    assert (result.kind, report.kind, report.style) == ("run", "tf-v2", "name")
    assert report.prefix == str(fixtures_dir / "mlp-v1/model.ckpt-1000")
    assert report.step is not None
    assert (report.step.value, report.step.variable, report.number) == (1000, "global_step", 1000)
    assert report.census.total == Total(17, 38363, 153_456)
    assert report.census.by_kind == {
        "optimizer": Total(10, 25462, 101_848),
        "model": Total(4, 12730, 50_920),
        "ema": Total(2, 170, 680),
        "step": Total(1, 1, 8),
    }
    assert list(report.census.by_dtype) == ["float32", "int64"]
    assert report.graph is not None
    assert report.graph.path.endswith("model.ckpt-1000.meta")
    assert [shard.expected for shard in report.shards] == [153_456]
    assert ids(result) == set()


def test_a_keras_3_run(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "keras3")
    report = result.checkpoint
    assert report is not None
    assert report.style == "object"
    assert report.step is not None
    assert (report.step.variable, report.number) == ("adam/iteration", 4)
    assert result.step == report.step.value == 16
    assert result.run is not None
    found = [
        (item.step, item.number, item.whole, item.listed, item.latest)
        for item in result.run.checkpoints
    ]
    assert found == [
        (8, 2, True, True, False),
        (12, 3, True, True, False),
        (16, 4, True, True, True),
    ]
    assert "object_graph" not in {variable.kind for variable in report.census.largest}


def test_a_savedmodel(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "savedmodel")
    assert result.kind == "savedmodel"
    assert result.run is None
    assert result.checkpoint is not None
    assert result.checkpoint.graph is not None
    assert result.checkpoint.graph.path.endswith("savedmodel/saved_model.pb")


def test_d22_partitioned_variables_with_their_layout(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "partitioned")
    assert result.checkpoint is not None
    census = result.checkpoint.census
    assert [(item.name, item.slices, item.axes) for item in census.partitioned] == [
        ("embedding/table", 3, (0,)),
        ("embedding/table/Adagrad", 3, (0,)),
    ]
    assert "embedding/table [50,4] in 3 slices along axis 0" in human_text(result)


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00001", ".meta"])
def test_d01_d02_one_of_the_files_stands_for_the_checkpoint(
    fixtures_dir: Path, ending: str
) -> None:
    result = inspected(f"{fixtures_dir}/mlp-v1/model.ckpt-1000{ending}")
    assert result.checkpoint is not None
    assert result.checkpoint.census.total.variables == 17
    assert any("which is read" in note for note in result.notes)


def test_d02_no_variables_is_said(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {}, [b""])
    result = inspected(tmp_path / "m")
    assert result.checkpoint is not None
    assert result.checkpoint.census.total == Total(0, 0, 0)
    assert ids(result) == {"no-variables"}


def test_d05_a_run_of_lfs_pointers_says_how_to_fetch_them(corpus: Path) -> None:
    with pytest.raises(ForeignFormatError) as raised:
        inspect(str(corpus / "bad-lfs-pointers/network_01900000"))
    assert "lfs pull" in raised.value.hint
    result = inspected(corpus / "bad-lfs-pointers")
    assert result.checkpoint is None
    assert result.unreadable is not None
    assert result.unreadable.id == "git-lfs-pointer"
    assert InspectView(result).exit_code == 11
    assert result.run is not None
    assert [item.whole for item in result.run.checkpoints] == [False, False]
    assert "git-lfs-pointer" in ids(result)


def test_d07_d18_what_it_is_comes_before_anything_else(fixtures_dir: Path) -> None:
    for name, words in (
        ("mlp-v1/model.ckpt-1000", "V2 checkpoint, name-based"),
        ("module/encoder", "V2 checkpoint, object-based"),
        ("savedmodel", "SavedModel variables, object-based"),
    ):
        result = inspected(fixtures_dir / name)
        assert human_text(result).startswith(words)
        assert [row[0] for row in plain_rows(result)][:3] == ["kind", "style", "source"]


def test_d12_without_a_state_file_a_run_is_scanned(fixtures_dir: Path, tmp_path: Path) -> None:
    for file in (fixtures_dir / "keras3").glob("ckpt-*"):
        shutil.copy(file, tmp_path)
    result = inspected(tmp_path)
    assert result.checkpoint is not None
    assert result.checkpoint.prefix.endswith("ckpt-4")
    assert "state-missing" in ids(result)
    assert "not listed" not in human_text(result)


# What is wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("missing-shard0", {"shard-missing"}),
        ("zero-byte-data", {"shard-empty", "past-end"}),
        ("truncated-data", {"shard-short", "past-end"}),
        ("index-only", {"shard-missing"}),
        ("bitflip-data", set()),
    ],
)
def test_d13_damage_is_found_without_reading_values(
    corpus: Path, folder: str, expected: set[str]
) -> None:
    result = inspected(corpus / "derived-damaged-iris" / folder / "model.ckpt")
    assert ids(result) == expected
    assert InspectView(result).exit_code == 0
    assert result.checkpoint is not None
    assert result.checkpoint.census.total.variables == 18


@pytest.mark.parametrize("folder", ["truncated-index", "zero-byte-index", "crlf-index"])
def test_an_unreadable_index_is_an_error(corpus: Path, folder: str) -> None:
    address = corpus / "derived-damaged-iris" / folder
    with pytest.raises(CkpttoolError) as raised:
        inspect(str(address / "model.ckpt"))
    assert raised.value.exit_code == 20
    result = inspected(address)
    assert result.unreadable is not None
    assert result.unreadable.id == raised.value.id
    assert InspectView(result).exit_code == 20


def test_a_missing_shard_is_in_the_list_of_shards(corpus: Path) -> None:
    report = report_of(corpus / "bad-missing-shard-sudoku/model")
    assert [(shard.present, shard.nbytes) for shard in report.shards] == [
        (True, 25_924),
        (False, None),
    ]
    assert report.shards[1].expected == 93_707_852
    assert report.step is None  # it lies in the missing shard
    text = human_text(inspected(corpus / "bad-missing-shard-sudoku/model"))
    assert "1 missing" in text
    assert "variables.data-00001-of-00002            89.4 MiB  missing" in text


def test_shards_never_outgrow_the_disk(hostile: Path) -> None:
    report = report_of(hostile / "num_shards_huge/c")
    assert len(report.shards) < 10


def test_unknown_dtypes_are_listed_and_told(hostile: Path) -> None:
    result = inspected(hostile / "bad_dtype/c")
    assert "unknown-dtype" in ids(result)
    assert result.checkpoint is not None
    [name] = result.checkpoint.census.by_dtype
    assert name.startswith("dtype_")
    assert result.checkpoint.census.total.parameters == 0


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([[(0, 1)], [(2, 1)]], "slice-gap"),
        ([[(0, 2)], [(1, 2)]], "slice-overlap"),
        ([[(0, 2)], [(2, 2)]], "slice-shape"),
    ],
)
def test_slices_that_do_not_fit(
    tmp_path: Path, slices: list[list[tuple[int, int]]], expected: str
) -> None:
    entries = {b"emb": {"shape": (3,), "slices": slices, "size": 0}}
    offset = 0
    for part in slices:
        length = part[0][1]
        entries[slice_key(b"emb", part)] = {
            "shape": (length,),
            "offset": offset,
            "size": 4 * length,
        }
        offset += 4 * length
    write_bundle(tmp_path, "m", entries, [bytes(offset)])  # type: ignore[arg-type]
    result = inspected(tmp_path / "m")
    assert expected in ids(result)
    assert result.checkpoint is not None
    assert result.checkpoint.census.partitioned_count == 1


def test_extra_shards_are_told(fixtures_dir: Path, tmp_path: Path) -> None:
    for file in (fixtures_dir / "two-shards").iterdir():
        shutil.copy(file, tmp_path)
    shutil.copy(
        tmp_path / "model.ckpt-42.data-00000-of-00002",
        tmp_path / "model.ckpt-42.data-00000-of-00003",
    )
    assert ids(inspected(tmp_path / "model.ckpt-42")) == {"shard-count-mixed"}


# Runs -------------------------------------------------------------------------------------


def test_unlisted_and_incomplete_checkpoints_and_leftovers(
    corpus: Path, fixtures_dir: Path, tmp_path: Path
) -> None:
    result = inspected(corpus / "obj-a2c-2shard-unlisted")
    assert result.run is not None
    assert [item.listed for item in result.run.checkpoints] == [False, True]
    assert ids(result) == {"checkpoint-unlisted"}

    run = tmp_path / "run"
    shutil.copytree(fixtures_dir / "keras3", run)
    (run / "ckpt-3.data-00000-of-00001").unlink()
    (run / "ckpt-5_temp").mkdir()
    (run / "ckpt-4.data-00000-of-00001.tempstate12345").touch()
    result = inspected(run)
    assert result.run is not None
    assert [item.whole for item in result.run.checkpoints] == [True, False, True]
    assert result.run.checkpoints[1].flaw == "ckpt-3.data-00000-of-00001 is missing"
    assert {Path(path).name for path, _ in result.run.leftovers} == {
        "ckpt-5_temp",
        "ckpt-4.data-00000-of-00001.tempstate12345",
    }
    assert {"checkpoint-incomplete"} <= ids(result)
    text = human_text(result)
    assert text.startswith("run of 3 checkpoints")
    assert "left behind by saves" in text


def test_a_run_reports_its_progress(corpus: Path) -> None:
    seen: list[tuple[int, int]] = []
    inspect(str(corpus / "v2-widedeep-5steps"), progress=lambda *state: seen.append(state))
    assert seen == [(number, 5) for number in range(1, 6)]


def test_many_checkpoints_are_cut_for_people_only(fixtures_dir: Path, tmp_path: Path) -> None:
    for number in range(40):
        for ending in ("index", "data-00000-of-00001"):
            shutil.copy(
                fixtures_dir / f"module/encoder.{ending}", tmp_path / f"encoder-{number}.{ending}"
            )
    result = inspected(tmp_path)
    assert "10 older ones are not shown" in human_text(result)
    assert sum(row[0] == "checkpoint" for row in plain_rows(result)) == 40


def test_a_directory_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        inspect(str(tmp_path))


# Steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "value", "variable"),
    [
        ("obj-manager-timestamps/ckpt_nstep/ckpt-1", None, "Adam/iter"),
        ("obj-trained-weights-1to10/saved_models/trained_weights_3", None, "iteration"),
        ("v2-taxi-tf29-estimator/model.ckpt-999", 999, "global_step"),
    ],
)
def test_the_step_is_read(corpus: Path, prefix: str, value: int | None, variable: str) -> None:
    step = report_of(corpus / prefix).step
    assert step is not None
    assert step.variable.endswith(variable.rpartition("/")[2])
    assert value in (None, step.value)


def test_the_number_in_the_name_is_the_step_where_none_is_stored(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    for ending in ("index", "data-00000-of-00001"):
        shutil.copy(fixtures_dir / f"dtypes/all.{ending}", tmp_path / f"all-77.{ending}")
    result = inspected(tmp_path / "all-77")
    assert (result.step, result.checkpoint and result.checkpoint.step) == (77, None)
    assert "77 (the number in its name)" in human_text(result)


def test_negative_and_wide_steps(tmp_path: Path) -> None:
    write_bundle(
        tmp_path,
        "m",
        {b"global_step": {"dtype": 9, "shape": (), "size": 8}},
        [(-5).to_bytes(8, "little", signed=True)],
    )
    step = report_of(tmp_path / "m").step
    assert step is not None
    assert step.value == -5


# Counting ---------------------------------------------------------------------------------


def variable(name: str, nbytes: int, **changes: object) -> Variable:
    shape = (nbytes // 4,)
    made = Variable(name, name, "float32", shape, nbytes, 0, 0, "model")
    return made._replace(**changes)  # type: ignore[arg-type]


def test_the_largest_are_those_with_most_bytes_first_come_first() -> None:
    census = take_census(variable(f"v{size}", 4 * (size % 50)) for size in range(1000))
    assert [item.nbytes for item in census.largest] == [196] * 10
    assert [item.name for item in census.largest] == [f"v{49 + 50 * n}" for n in range(10)]


def test_strings_and_unknown_dtypes_have_no_parameters() -> None:
    census = take_census(
        [
            variable("a", 8),
            variable("b", 8, dtype="string"),
            variable("c", 8, dtype="dtype_99", kind="other"),
            variable("d", 8, shape=None),
        ]
    )
    assert census.total == Total(4, 2, 32)
    assert census.by_dtype["float32"] == Total(2, 2, 16)
    assert census.by_kind == {"model": Total(3, 2, 24), "other": Total(1, 0, 8)}


def tree_of(*names: str, depth: int | None = None) -> Scope:
    root = take_census((variable(name, 4) for name in names), scopes=True, depth=depth).scopes
    assert root is not None
    return root


def outline(scope: Scope) -> list[object]:
    return [
        inner.name + (f"={inner.variables}" if inner.variable is None else "")
        if not inner.inner
        else [inner.name, *outline(inner)]
        for inner in scope.inner
    ]


def test_scopes_are_in_natural_order_with_subtotals() -> None:
    root = tree_of("net/layer_10/w", "net/layer_9/w", "net/layer_9/b", "step")
    assert (root.variables, root.parameters, root.nbytes) == (4, 4, 16)
    assert outline(root) == [["net", ["layer_9", "b", "w"], ["layer_10", "w"]], "step"]


def test_a_scope_of_one_scope_is_joined_with_it() -> None:
    assert outline(tree_of("a/b/c/w", "a/b/c/v")) == [["a/b/c", "v", "w"]]


def test_a_variable_may_be_a_scope_too() -> None:
    root = tree_of("w", "w/Adam", "w/Adam_1")
    [both] = root.inner
    assert both.variable is not None
    assert (both.variables, both.nbytes) == (3, 12)


def test_depth_cuts_the_tree() -> None:
    names = ("a/b/c", "a/b/d", "a/e", "f")
    assert outline(tree_of(*names, depth=1)) == ["a=3", "f"]
    assert outline(tree_of(*names, depth=2)) == [["a", "b=2", "e"], "f"]


def test_names_with_endless_slashes_are_no_endless_tree() -> None:
    root = tree_of("/" * 100_000, "a" + "/a" * 100_000)
    assert root.variables == 2
    json.dumps(InspectView(_with_scopes(root)).data(), default=list)


def _with_scopes(root: Scope) -> InspectResult:
    from dataclasses import replace

    census = replace(take_census([]), scopes=root)
    report = CheckpointReport("p", "tf-v2", "name", None, None, 0.0, census, (), None, (), {})
    return InspectResult("p", None, report, None, ())


# How it looks -----------------------------------------------------------------------------


def test_the_tree_for_people_and_in_a_pipe(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "mlp-v1", tree=True)
    lines = human_text(result).splitlines()
    start = next(number for number, line in enumerate(lines) if "├─ hidden" in line)
    assert [line.split()[:4] for line in lines[start : start + 3]] == [
        ["├─", "hidden", "6", "variables"],
        ["│", "├─", "biases", "float32"],
        ["│", "│", "├─", "Adam"],
    ]
    assert "|- hidden" in human_text(result, unicode=False)
    assert human_text(result, unicode=False).isascii()
    rows = plain_rows(result)
    assert ["scope", "hidden", "6", "37680", "150720"] in rows
    assert ["variable", "hidden/biases/Adam", "float32", "[16]", "64", "optimizer"] in rows
    assert not any(row[0] == "largest" for row in rows)
    shallow = inspected(fixtures_dir / "mlp-v1", tree=True, depth=1)
    assert [row[1] for row in plain_rows(shallow) if row[0] == "scope"] == ["hidden", "logits"]


def test_json_plain_and_the_tree_on_the_command_line(run_cli, fixtures_dir: Path) -> None:
    for extra in ([], ["--tree"], ["--depth", "1"]):
        done = run_cli(["inspect", fixtures_dir / "keras3", "--json", *extra])
        document = json.loads(done.stdout)
        ENVELOPE.validate(document)
        DATA.validate(document["data"])
        assert (done.returncode, document["ok"]) == (0, True)
        assert ("tree" in document["data"]) == bool(extra)
    plain = run_cli(["inspect", fixtures_dir / "keras3"]).stdout.splitlines()
    assert "style\tobject" in plain
    assert "step\t16" in plain


def test_an_unreadable_checkpoint_of_a_run_on_the_command_line(run_cli, fixtures_dir: Path) -> None:
    done = run_cli(["inspect", fixtures_dir / "damaged/truncated-index", "--json"])
    assert done.returncode == 20
    document = json.loads(done.stdout)
    DATA.validate(document["data"])
    assert document["ok"] is False
    error = json.loads(done.stderr)
    assert (error["code"], error["id"]) == (20, document["data"]["problems"][0]["id"])
    people = run_cli(["inspect", fixtures_dir / "damaged/truncated-index", "--color", "always"])
    assert people.returncode == 20
    assert "not whole" in people.stdout
    assert "nothing wrong" not in people.stdout
    assert people.stderr.count(error["id"]) == 1


def test_names_that_would_harm_a_terminal_are_escaped(run_cli, tmp_path: Path) -> None:
    entries = {b"\x1b[31m/\xff\n": {"shape": (1,), "size": 4}}
    write_bundle(tmp_path, "m", entries, [bytes(4)])  # type: ignore[arg-type]
    for arguments in ([], ["--tree"], ["--color", "always"], ["--color", "always", "--tree"]):
        done = run_cli(["inspect", tmp_path / "m", *arguments])
        assert done.returncode == 0
        assert "\x1b[31m/" not in done.stdout
        assert "\\xff\\n" in done.stdout
    document = json.loads(run_cli(["inspect", tmp_path / "m", "--json"]).stdout)
    DATA.validate(document["data"])
    [largest] = document["data"]["largest"]
    assert largest["key_base64"] == "G1szMW0v/wo="


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("bad_dtype", 0),
        ("block_handle_64G", 20),
        ("crc_bad", 0),
        ("dup_key", 20),
        ("empty_table", 20),
        ("header_missing", 20),
        ("huge_shape_2p60", 0),
        ("neg_dim", 20),
        ("num_shards_huge", 0),
        ("offset_past_eof", 0),
        ("prefix_blowup", 20),
        ("shared_gt_prev", 20),
        ("snappy_bomb_4G", 20),
        ("string_many_elems", 0),
        ("too_many_dims", 21),
        ("unsorted", 20),
        ("valid", 0),
    ],
)
def test_hostile_files_stay_in_bounds(run_cli, hostile: Path, case: str, code: int) -> None:
    done = run_cli(["inspect", hostile / case / "c", "--tree"], memory_mb=400)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_damaged_block_in_the_middle_is_an_error(tmp_path: Path, fixtures_dir: Path) -> None:
    for file in (fixtures_dir / "module").iterdir():
        shutil.copy(file, tmp_path)
    index = tmp_path / "encoder.index"
    data = bytearray(index.read_bytes())
    data[40] ^= 1
    index.write_bytes(data)
    with pytest.raises(CorruptError):
        inspect(str(tmp_path / "encoder"))
