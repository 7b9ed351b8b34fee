"""Graph files as sources: values against TensorFlow's, and what has no values."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from ckpttool.errors import IncompleteError
from ckpttool.sources.address import resolve
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.support.graph_files import binary, node


def test_the_constants_of_a_frozen_graph(fixtures_dir: Path) -> None:
    """The binary and the text form of one graph have the same values."""
    with (
        open_source(str(fixtures_dir / "graphs" / "frozen.pb")) as one,
        open_source(str(fixtures_dir / "graphs" / "frozen.pbtxt")) as other,
    ):
        assert [each.key for each in one.variables()] == [each.key for each in other.variables()]
        for variable in one.variables():
            assert variable.shape is not None
            selection = Selection.whole(variable.shape)
            values = one.read(variable, selection)
            again = other.read(other.find(variable.key), selection)
            np.testing.assert_array_equal(values, again)
        assert one.read(one.find("filled"), Selection.whole((2, 3))).tolist() == [[0.25] * 3] * 2
        typed = one.find("typed")
        assert one.read(typed, Selection.of((2, 3), (1,))).tolist() == [4.0, 0.5, 6.0]
        names = one.find("names")
        assert one.strings(names, Selection.of((3,), (slice(None, None, -1),))) == [
            b"two",
            b"one",
            b"zero",
        ]


def test_weights_are_told_from_other_constants(fixtures_dir: Path) -> None:
    with open_source(str(fixtures_dir / "graphs" / "frozen.pb")) as source:
        kinds = {variable.name: variable.kind for variable in source.variables()}
    assert kinds["dense/kernel"] == kinds["dense/bias"] == "model"
    assert kinds["names"] == kinds["class/dimension"] == kinds["integers"] == "other"


def test_frozen_graphs_of_the_corpus(corpus: Path) -> None:
    """Every constant of every frozen graph, as TensorFlow reads it."""
    tf = pytest.importorskip("tensorflow")
    paths = sorted(corpus.rglob("frozen.pb"))
    assert len(paths) == 4
    for path in paths:
        graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
        theirs = {
            each.name: tf.make_ndarray(each.attr["value"].tensor)
            for each in graph.node
            if each.op == "Const"
        }
        with open_source(str(path)) as source:
            assert source.kind == "frozen-graph"
            assert {variable.key for variable in source.variables()} == theirs.keys()
            for variable in source.variables():
                shape = theirs[variable.key].shape
                assert variable.shape == shape
                values = source.read(variable, Selection.whole(shape))
                assert values.tobytes() == theirs[variable.key].tobytes(), variable.key


def test_a_graph_with_variables_is_not_frozen(tmp_path: Path) -> None:
    """Its constants are what it begins with, not what was trained."""
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        tf.compat.v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
    for name, content in (
        ("g.pb", graph.as_graph_def().SerializeToString()),
        ("g.pbtxt", str(graph.as_graph_def()).encode()),
    ):
        (tmp_path / name).write_bytes(content)
        with open_source(str(tmp_path / name)) as source:
            assert source.kind == "graph"


def test_a_meta_graph_says_which_variables_there_are(fixtures_dir: Path, corpus: Path) -> None:
    """A `.meta` alone: keys, dtypes and shapes as the checkpoint has them; values are not here."""
    with open_source(str(fixtures_dir / "graphs" / "training.meta")) as source:
        assert source.kind == "metagraph"
        shapes = {variable.key: variable.shape for variable in source.variables()}
        assert shapes["model/kernel"] == (9, 4), "its two parts are one variable"
        assert shapes["model/kernel/Adam"] == (9, 4)
        assert shapes["global_step"] == ()
        assert "model/kernel/part_0" not in shapes
        variable = source.find("model/kernel")
        with pytest.raises(IncompleteError) as caught:
            source.read(variable, Selection.whole((9, 4)))
    assert (caught.value.id, caught.value.exit_code) == ("graph-without-values", 20)
    assert ".index" in caught.value.hint


@pytest.mark.parametrize(
    ("folder", "prefix"),
    [
        ("synth-partitioned-3-slices", "model.ckpt-7"),
        ("v2-taxi-2shard-tf1x", "model.ckpt-10000"),
        ("v1-acrobot-adam", "model.ckpt"),
        ("v2-linear-part0-slots", "model.ckpt-5865"),
    ],
)
def test_the_variables_of_a_meta_graph_are_those_of_its_checkpoint(
    corpus: Path, tmp_path: Path, folder: str, prefix: str
) -> None:
    alone = tmp_path / "alone.meta"
    shutil.copy(corpus / folder / f"{prefix}.meta", alone)
    with (
        open_source(str(corpus / folder / prefix)) as checkpoint,
        open_source(str(alone)) as graph,
    ):
        stored = {each.key: (each.dtype, each.shape) for each in checkpoint.variables()}
        said = {each.key: (each.dtype, each.shape) for each in graph.variables()}
    assert stored.items() <= said.items()
    # Local variables, such as the counters of a reader, are not saved.
    assert not [key for key in said.keys() - stored.keys() if "read_batch" not in key]


def test_every_graph_of_the_corpus_is_an_address_of_its_own(corpus: Path, tmp_path: Path) -> None:
    for number, path in enumerate(sorted(corpus.rglob("*.meta"))):
        if path.read_bytes().startswith(b"version https://git-lfs"):
            continue
        alone = tmp_path / f"g{number}.meta"
        shutil.copy(path, alone)
        assert resolve(str(alone)).kind == "graph", path
    for number, path in enumerate(sorted(corpus.rglob("saved_model.pb"))):
        alone = tmp_path / f"export{number}"
        alone.mkdir()
        shutil.copy(path, alone)
        with open_source(str(alone)) as source:
            assert source.kind == "savedmodel"
            assert any("no directory variables" in note for note in source.notes)


def test_values_of_a_saved_model_without_variables(corpus: Path, tmp_path: Path) -> None:
    """D16: its signatures can be looked into; its values are missing, and said to be."""
    model = corpus / "sm-a2c-2shard" / "a2c-cartpole" / "saved_model.pb"
    shutil.copy(model, tmp_path)
    with open_source(str(tmp_path)) as source:
        variables = list(source.variables())
        assert "dense/kernel" in {variable.name for variable in variables}
        assert variables[0].shape is not None
        with pytest.raises(IncompleteError) as caught:
            source.read(variables[0], Selection.whole(variables[0].shape))
    assert caught.value.id == "variables-missing"


def test_two_nodes_of_one_name(tmp_path: Path) -> None:
    """No TensorFlow writes it: the first counts, and nothing fails."""
    path = tmp_path / "twice.pb"
    values = (f"tensor {{ dtype: DT_INT32 int_val: {number} }}" for number in (1, 2))
    path.write_bytes(binary("".join(node("c", "Const", value=value) for value in values)))
    with open_source(str(path)) as source:
        assert [variable.key for variable in source.variables()] == ["c"]
        assert source.read(source.find("c"), Selection.whole(())) == 1
