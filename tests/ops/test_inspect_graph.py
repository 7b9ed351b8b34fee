"""`inspect` and graphs: what it says of one in every form, and when there is none."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ckpttool.cli.rich_text import RichText
from ckpttool.cli.screen import Screen
from ckpttool.cli.views.inspect import InspectView
from ckpttool.errors import CkpttoolError, CorruptError, NotFoundError
from ckpttool.ops.graph_report import GraphReport
from ckpttool.ops.inspect import InspectResult, inspect
from ckpttool.schemas import schema
from tests.support.command import RunCli
from tests.support.graph_files import binary, node, placeholder

DATA = jsonschema.Draft202012Validator(schema("inspect"))
NASTY = "a\x1b[31mred\x1b[0m\n<script>"


def inspected(address: Path, *, graph: bool = True) -> InspectResult:
    """The result; what it is in JSON fits the schema."""
    result = inspect(os.fspath(address), graph=graph)
    DATA.validate(data_of(result))
    return result


def data_of(result: InspectResult) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(InspectView(result).data(), default=list))
    return data


def graph_of(address: Path, *, graph: bool = True) -> GraphReport:
    report = inspected(address, graph=graph).checkpoint
    assert report is not None
    assert report.graph is not None
    return report.graph


def text_of(result: InspectResult, width: int = 100) -> str:
    screen = Screen(width, color=False, unicode=True)
    rich = RichText(screen)
    pieces = InspectView(result).human(screen)
    return "".join(piece if isinstance(piece, str) else rich.render(piece) for piece in pieces)


def rows_of(result: InspectResult) -> list[list[str]]:
    return [line.split("\t") for line in "".join(InspectView(result).plain()).splitlines()]


# Beside a checkpoint ----------------------------------------------------------------------


def test_the_graph_beside_a_checkpoint(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "mlp-v1", graph=False)
    report = result.checkpoint
    assert report is not None
    graph = report.graph
    assert graph is not None
    assert graph.path.endswith("model.ckpt-1000.meta")
    assert graph.nbytes == os.path.getsize(graph.path)
    assert graph.message == "MetaGraphDef"
    assert graph.writer is not None
    assert graph.writer.tensorflow_version == "2.21.0"
    assert graph.main is None, "its nodes are looked at only when asked for"
    data = sum(shard.nbytes or 0 for shard in report.shards)
    share = f"{graph.nbytes / data:.0%} of the data), by TensorFlow 2.21.0"
    assert share in " ".join(text_of(result).split())


def test_d35_what_is_in_a_graph(fixtures_dir: Path) -> None:
    """Placeholders with shapes and likely outputs, for people, pipes and programs."""
    result = inspected(fixtures_dir / "graphs" / "frozen.pb")
    graph = data_of(result)["graph"]
    assert graph["placeholders"] == [
        {"name": "features:0", "dtype": "float32", "shape": [-1, 4], "default": False},
        {"name": "keep_prob:0", "dtype": "float32", "shape": [], "default": False},
    ]
    outputs = graph["likely_outputs"]
    assert [one["name"] for one in outputs] == ["probabilities:0", "class:0"]
    rows = rows_of(result)
    assert ["placeholder", "features:0", "float32", "[-1,4]", "-"] in rows
    assert ["likely-input", "features:0", "Placeholder", "float32", "[-1,4]"] in rows
    assert ["likely-output", "probabilities:0", "Softmax", "float32", "unknown"] in rows
    assert ["op", "Const", "11"] in rows
    text = text_of(result)
    assert text.index("probabilities:0") < text.index("class:0")
    assert "likely output" in text


def test_d36_signs_of_training_are_shown(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "graphs" / "training.meta")
    text = " ".join(text_of(result).split())
    assert "signs of a graph that trains" in text
    assert "! batch normalisation uses the mean of the batch it is fed" in text
    assert "! examples come out of queues" in text
    rows = [row for row in rows_of(result) if row[0] == "training"]
    assert [(row[1], row[3]) for row in rows if row[1] in ("dropout", "optimizer")] == [
        ("dropout", "alters"),
        ("optimizer", "-"),
    ]


def test_ops_that_are_gone_are_named(corpus: Path) -> None:
    path = corpus / "v2-taxi-2shard-tf1x/export/chicago-taxi/1550769257"
    result = inspected(path)
    assert data_of(result)["graph"]["unknown_ops"] == ["BucketizeWithInputBoundaries"]
    assert "ops that TensorFlow 2.21.0 does not have" in text_of(result)
    assert [row[1] for row in rows_of(result) if row[0] == "unknown-op"] == [
        "BucketizeWithInputBoundaries"
    ]


def test_a_graph_as_text_in_the_directory(fixtures_dir: Path, tmp_path: Path) -> None:
    """An Estimator's graph.pbtxt will do where there is no .meta."""
    for path in (fixtures_dir / "module").iterdir():
        shutil.copy(path, tmp_path)
    shutil.copy(fixtures_dir / "graphs" / "frozen.pbtxt", tmp_path / "graph.pbtxt")
    graph = graph_of(tmp_path / "encoder")
    assert graph.path.endswith("graph.pbtxt")
    assert graph.main is not None
    assert graph.main.nodes == 24


# SavedModels ------------------------------------------------------------------------------


def test_the_signatures_of_a_saved_model(fixtures_dir: Path) -> None:
    result = inspected(fixtures_dir / "savedmodel", graph=False)
    signatures = data_of(result)["signatures"]
    assert [one["name"] for one in signatures] == ["serving_default"]
    assert signatures[0]["tags"] == ["serve"]
    assert all(one["dtype"] and one["tensor"] for one in signatures[0]["inputs"])
    fingerprint = data_of(result)["graph"]["fingerprint"]
    assert int(str(fingerprint["checkpoint_hash"])) > 2**32
    assert any(row[:2] == ["signature", "serving_default"] for row in rows_of(result))
    assert "signature serving_default" in text_of(result)


def test_several_meta_graphs_and_no_variables(fixtures_dir: Path) -> None:
    """Each MetaGraph's tags and signatures; that there are no variables is no error."""
    result = inspected(fixtures_dir / "graphs" / "constant-model")
    assert result.kind == "savedmodel"
    data = data_of(result)
    metas = data["graph"]["meta_graphs"]
    assert [one["tags"] for one in metas] == [["serve"], ["serve", "gpu"]]
    assert len(data["signatures"]) == 2
    assert any("no directory variables" in note for note in result.notes)
    text = text_of(result)
    assert "SavedModel without variables" in text
    assert "tags serve, gpu" in text


def test_assets(corpus: Path) -> None:
    """Of TF 2.x in a field of their own, of TF 1.x in a collection."""
    for path, names in (
        ("sm-halfplustwo-tf2/saved_model_half_plus_two_tf2_cpu/00000123", ["foo.txt"]),
        ("sm-halfplustwo-tf1/saved_model_half_plus_two_cpu/00000123", ["foo.txt"]),
    ):
        graph = graph_of(corpus / path, graph=False)
        assert [asset.filename for asset in graph.metas[0].assets] == names


def test_d37_a_saved_model_of_keras_2_with_an_optimizer(corpus: Path) -> None:
    """tf.saved_model.load fails on it today; that is said before anybody tries."""
    result = inspected(corpus / "bad-missing-shard-sudoku/model", graph=False)
    problem = next(each for each in result.problems if each.id == "saved-model-slots")
    assert problem.severity == "note"
    assert "add_slot" in problem.message
    fine = inspected(corpus / "sm-a2c-2shard/a2c-cartpole", graph=False)
    assert "saved-model-slots" not in {each.id for each in fine.problems}


def test_old_writers(corpus: Path) -> None:
    """Before 0.12 a graph only said the version of its format."""
    graph = graph_of(corpus / "v1-acrobot-adam" / "model.ckpt", graph=False)
    assert graph.writer is not None
    assert (graph.writer.tensorflow_version, graph.writer.producer) == ("", 10)


# Without one, or damaged ------------------------------------------------------------------


def test_d34_a_checkpoint_without_a_graph(fixtures_dir: Path) -> None:
    """It holds no graph, and is told what would help."""
    with pytest.raises(NotFoundError) as caught:
        inspect(os.fspath(fixtures_dir / "module" / "encoder"), graph=True)
    error = caught.value
    assert (error.id, error.exit_code) == ("graph-missing", 10)
    assert "holds values alone" in error.why
    for words in (".meta", ".pbtxt", "SavedModel"):
        assert words in error.hint


def test_a_damaged_graph_is_a_problem_of_the_checkpoint(fixtures_dir: Path, tmp_path: Path) -> None:
    """The checkpoint is inspected all the same; with --graph it is an error."""
    run = tmp_path / "run"
    shutil.copytree(fixtures_dir / "mlp-v1", run)
    meta = run / "model.ckpt-1000.meta"
    meta.write_bytes(meta.read_bytes()[:5000])
    result = inspected(run / "model.ckpt-1000", graph=False)
    assert [each.id for each in result.problems] == ["graph-malformed"]
    assert result.checkpoint is not None
    assert result.checkpoint.census.total.variables > 0
    with pytest.raises(CorruptError):
        inspect(os.fspath(run / "model.ckpt-1000"), graph=True)


def test_a_graph_that_is_a_link_is_not_followed(fixtures_dir: Path, tmp_path: Path) -> None:
    """FAULTS 12: what lies behind a link is not the checkpoint's."""
    run = tmp_path / "run"
    shutil.copytree(fixtures_dir / "module", run)
    (run / "encoder.meta").symlink_to(fixtures_dir / "graphs" / "training.meta")
    result = inspected(run / "encoder", graph=False)
    assert result.checkpoint is not None
    assert result.checkpoint.graph is None
    with pytest.raises(CkpttoolError):
        inspect(os.fspath(run / "encoder"), graph=True)


def test_names_of_a_graph_are_escaped(tmp_path: Path) -> None:
    """FAULTS 10: a name that would colour the terminal, or add a line."""
    escaped = NASTY.replace("\n", "\\n").replace("\x1b", "\\033")
    path = tmp_path / "graph.pb"
    nodes = placeholder(escaped) + node(f"{escaped}/out", escaped, escaped)
    path.write_bytes(binary(placeholder("first") + nodes))
    result = inspected(path)
    assert "\x1b" not in text_of(result)
    plain = "".join(InspectView(result).plain())
    assert "\x1b" not in plain
    assert all(
        line.split("\t")[0].strip("-abcdefghijklmnopqrstuvwxyz") == ""
        for line in plain.splitlines()
    )


@pytest.mark.parametrize("width", [80, 160])
def test_any_width(fixtures_dir: Path, width: int) -> None:
    for name in ("graphs/training.meta", "graphs/frozen.pb", "graphs/constant-model"):
        text = text_of(inspected(fixtures_dir / name), width)
        prefix = str(fixtures_dir)
        for line in text.splitlines():
            assert len(line) <= width or prefix in line or " " not in line.strip(), line


def test_the_command(run_cli: RunCli, fixtures_dir: Path) -> None:
    path = fixtures_dir / "graphs" / "training.meta"
    done = run_cli(["inspect", path, "--graph", "--json"])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["data"]["graph"]["nodes"] == 220
    assert document["data"]["kind"] == "metagraph"
    refused = run_cli(["inspect", path, "--graph", "--html", "x.html"])
    assert refused.returncode == 2
