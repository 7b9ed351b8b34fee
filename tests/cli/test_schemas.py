"""What `--json` and `--ndjson` print is what the shipped schemas say, errors too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ckpttool.cli.app import COMMANDS
from ckpttool.schemas import names, schema
from tests.support.command import RunCli

#: Commands whose output is one kind of text, without --json.
WITHOUT_JSON = {"completion", "serve-ps"}
#: Those of subcommands; `tests/ps` runs them, for they need a cluster.
SUBCOMMANDS = {"serve-ps-down", "serve-ps-status"}
#: What describes no command's data.
FRAME = {"convert-report", "envelope", "error", "summary"}

#: Command lines on fixtures (the working directory), and the exit code.
DOCUMENTS: list[tuple[list[str], int]] = [
    (["explain"], 0),
    (["explain", "internal"], 0),
    (["explain", "20"], 0),
    (["doctor"], 0),
    (["list", "mlp-v1"], 0),
    (["list", "keras3"], 0),
    (["list", "partitioned"], 0),
    (["list", "dtypes/all"], 0),
    (["list", "savedmodel"], 0),
    (["list", "module/encoder"], 0),
    (["list", "damaged/missing-shard"], 0),
    (["list", "two-shards", "--kind", "step"], 0),
    (["inspect", "mlp-v1"], 0),
    (["inspect", "keras3/@4"], 0),
    (["inspect", "keras3"], 0),
    (["inspect", "partitioned"], 0),
    (["inspect", "dtypes/all"], 0),
    (["inspect", "savedmodel"], 0),
    (["inspect", "savedmodel", "--graph"], 0),
    (["inspect", "graphs/frozen.pb", "--graph"], 0),
    (["inspect", "graphs/training.meta", "--graph"], 0),
    (["inspect", "graphs/constant-model", "--graph"], 0),
    (["inspect", "mlp-v1", "--graph"], 0),
    (["inspect", "module/encoder", "--tree"], 0),
    (["inspect", "models/dense.onnx"], 0),
    (["inspect", "models/dense.tflite", "--graph"], 0),
    (["inspect", "models/tfjs"], 0),
    (["inspect", "arrays/model.safetensors"], 0),
    (["inspect", "two-shards"], 0),
    (["inspect", "damaged/missing-shard"], 0),
    (["inspect", "mlp-v1", "--html", "copied/report.html"], 0),
    (["load", "mlp-v1", "global_step"], 0),
    (["load", "mlp-v1", "hidden/weights[0:2]", "hidden/biases"], 0),
    (["load", "dtypes/all", "*"], 0),
    (["load", "mlp-v1", "global_step", "-n"], 0),
    (["diff", "keras3/@3", "keras3/@4"], 1),
    (["diff", "savedmodel", "module/encoder"], 1),
    (["diff", "mlp-v1", "dtypes/all", "--names", "key"], 1),
    (["diff", "mlp-v1", "mlp-v1", "--rtol", "1e-3"], 0),
    (["diff", "damaged/flipped-bit", "two-shards"], 3),
    (["diff", "mlp-v1", "--graph", "mlp-v1/model.ckpt-1000.meta"], 0),
    (["verify", "v1"], 0),
    (["verify", "arrays/model.safetensors"], 3),
    (["stats", "mlp-v1"], 0),
    (["stats", "dtypes/all", "--check"], 1),
    (["stats", "keras3/@*", "--kind", "model"], 0),
    (["stats", "damaged/flipped-bit"], 3),
    (["verify", "two-shards"], 0),
    (["verify", "two-shards", "mlp-v1", "--quick"], 0),
    (["verify", "dtypes/all"], 0),
    (["verify", "damaged/flipped-bit"], 1),
    (["verify", "damaged/missing-shard"], 1),
    (["verify", "damaged/truncated-index"], 1),
    (["state", "keras3"], 0),
    (["state", "damaged/missing-shard"], 0),
    (["latest", "keras3"], 0),
    (["state", "keras3", "--fix", "--min-age", "0", "-n"], 0),
    (["prune", "keras3", "--max-to-keep", "1", "--min-age", "0", "-n"], 0),
    (["prune", "keras3", "--max-to-keep", "1", "--min-age", "0", "--check"], 1),
    (["rm", "keras3/@2", "--min-age", "0", "-n"], 0),
    (["cp", "mlp-v1", "copied/ckpt-1", "-n"], 0),
    (["cp", "mlp-v1", "copied/ckpt-2"], 0),
    (["cp", "damaged/flipped-bit", "copied/ckpt-3", "--salvage"], 3),
    (["mv", "module/encoder", "copied/ckpt-4", "-n"], 0),
    (["cp", "partitioned", "copied/ckpt-9", "--link", "--verify"], 0),
    (["repartition", "mlp-v1", "copied/ckpt-5", "--slice", "hidden/*=axis0:2", "-n"], 0),
    (["merge", "two-shards", "dtypes/all", "-o", "copied/ckpt-7", "--link", "-n"], 0),
    (["repartition", "mlp-v1", "copied/ckpt-5", "--shards", "2"], 0),
    (["edit", "mlp-v1", "copied/ckpt-8", "--strip-optimizer"], 0),
    (["average", "keras3/@3", "keras3/@4", "-o", "copied/ckpt-6"], 0),
    (["merge", "two-shards", "dtypes/all", "-o", "copied/ckpt-7"], 0),
    (["convert", "--list"], 0),
    (["convert", "savedmodel", "copied/export", "--to", "savedmodel", "-n"], 0),
]
RECORDS: list[tuple[list[str], int]] = [
    (["list", "mlp-v1"], 0),
    (["list", "partitioned"], 0),
    (["stats", "partitioned"], 0),
    (["stats", "keras3/@*", "--check"], 0),
    (["diff", "keras3/@3", "keras3/@4"], 1),
    (["diff", "dtypes/all", "savedmodel", "--level", "keys"], 1),
    (["verify", "two-shards"], 0),
    (["verify", "damaged/flipped-bit"], 1),
    (["prune", "keras3", "--max-to-keep", "1", "--min-age", "0", "-n"], 0),
]
ERRORS: list[tuple[list[str], int]] = [
    (["nonsense"], 2),
    (["list"], 2),
    (["list", "--no-such-option"], 2),
    (["load", "mlp-v1", "hidden/weights[", "--color", "blue"], 2),
    (["explain", "nonsense"], 10),
    (["list", "missing"], 10),
    (["list", "keras3/@*"], 2),
    (["stats", "missing/@*"], 10),
    (["inspect", "missing/model.ckpt-1"], 10),
    (["diff", "mlp-v1"], 2),
    (["diff", "mlp-v1", "missing"], 10),
    (["inspect", "module/encoder", "--graph"], 10),
    (["inspect", "mlp-v1", "--html", "README.md"], 31),
    (["inspect", "mlp-v1", "--html", "nowhere/report.html"], 10),
    (["load", "mlp-v1", "hidden/weight"], 10),
    (["state", "missing"], 10),
    (["latest", "damaged"], 10),
    (["list", "README.md"], 11),
    (["list", "damaged/truncated-index"], 20),
    (["load", "damaged/missing-shard", "tower/kernel"], 20),
    (["load", "damaged/flipped-bit", "tower/kernel"], 20),
    (["cp", "damaged/missing-shard", "copied/x"], 20),
    (["cp", "mlp-v1", "nowhere/x"], 10),
    (["mv", "savedmodel", "copied/x"], 31),
    (["repartition", "mlp-v1", "mlp-v1", "--shards", "2"], 31),
    (["average", "keras3/@3", "mlp-v1", "-o", "copied/x"], 31),
    (["merge", "two-shards", "mlp-v1", "-o", "copied/x"], 31),
    (["convert", "module/encoder", "copied/x", "--to", "savedmodel"], 53),
    (["convert", "savedmodel", "copied/x", "--to", "pytorch"], 2),
]


def validate(value: Any, name: str) -> None:
    errors = sorted(Draft202012Validator(schema(name)).iter_errors(value), key=str)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def ids(value: object) -> str | None:
    return " ".join(value) if isinstance(value, list) else None


@pytest.fixture(scope="module")
def place(fixtures_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the fixtures that may be written to, with a folder `copied` for results."""
    copy = shutil.copytree(fixtures_dir, tmp_path_factory.mktemp("schemas") / "fixtures")
    (copy / "copied").mkdir()
    return copy


@pytest.mark.parametrize("name", names())
def test_a_schema_is_valid_and_names_itself(name: str) -> None:
    loaded = schema(name)
    Draft202012Validator.check_schema(loaded)
    assert loaded["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert loaded["$id"] == f"ckpttool:{name}"
    assert loaded["type"] == "object"
    assert set(loaded["required"]) <= set(loaded["properties"])


def test_every_command_has_a_schema_and_is_tried() -> None:
    commands = set(COMMANDS) - WITHOUT_JSON
    assert set(names()) - FRAME - SUBCOMMANDS == commands
    assert {args[0] for args, _ in DOCUMENTS} == commands


def test_an_unknown_schema() -> None:
    with pytest.raises(KeyError):
        schema("../errors")


@pytest.mark.parametrize(("args", "code"), DOCUMENTS, ids=ids)
def test_a_document(args: list[str], code: int, place: Path, run_cli: RunCli) -> None:
    result = run_cli([*args, "--json"], cwd=place)
    assert result.returncode == code, result.stderr
    assert result.stderr == ""
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    validate(document, "envelope")
    assert document["schema"] == f"ckpttool.{args[0]}/1"
    assert document["ok"] is (code == 0)
    validate(document["data"], args[0])


@pytest.mark.parametrize(("args", "code"), RECORDS, ids=ids)
def test_records(args: list[str], code: int, place: Path, run_cli: RunCli) -> None:
    result = run_cli([*args, "--ndjson"], cwd=place)
    assert result.returncode == code, result.stderr
    assert result.stderr == ""
    *records, summary = [json.loads(line) for line in result.stdout.splitlines()]
    validate(summary, "summary")
    assert summary["schema"] == f"ckpttool.{args[0]}/1"
    assert summary["ok"] is (code == 0)
    assert all(record["type"] not in {"summary", "record"} for record in records)


@pytest.mark.parametrize("option", ["--json", "--ndjson"])
@pytest.mark.parametrize(("args", "code"), ERRORS, ids=ids)
def test_an_error(args: list[str], code: int, option: str, place: Path, run_cli: RunCli) -> None:
    if option == "--ndjson" and args[0] not in {args[0] for args, _ in RECORDS}:
        pytest.skip(f"{args[0]} has no --ndjson")
    result = run_cli([*args, option], cwd=place)
    assert result.returncode == code, result.stderr
    report = json.loads(result.stderr)
    validate(report, "error")
    assert report["code"] == code
    if option == "--json":
        assert result.stdout == ""


@pytest.mark.parametrize(("args", "code"), ERRORS, ids=ids)
def test_the_same_error_for_people(
    args: list[str], code: int, place: Path, run_cli: RunCli
) -> None:
    """At most three lines, each with its word, and the id in brackets."""
    result = run_cli(args, cwd=place)
    assert result.returncode == code, result.stderr
    report = json.loads(run_cli([*args, "--json"], cwd=place).stderr)
    _, said, text = result.stderr.rpartition("error: ")  # a note may come first
    lines = (said + text).splitlines()
    assert 2 <= len(lines) <= 3
    assert lines[0] == f"error: {report['message']}"
    assert lines[-1] == f"  next: {report['hint']}  [{report['id']}]"
