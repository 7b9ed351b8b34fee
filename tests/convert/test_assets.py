"""Files that tables are filled from go into an export, and come from nowhere but the source."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError
from tests.support.converting import open_program

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A checkpoint of TensorFlow 1 whose graph looks words up in ``words.txt``, and an export."""
    words = tmp_path / "words.txt"
    words.write_text("alpha\nbeta\n")
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
        word = tf1.placeholder(tf.string, (None,), name="word")
        name = tf.constant(str(words), name="words")
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, name)
        kinds = tf.lookup.TextFileIndex
        filling = tf.lookup.TextFileInitializer(
            name, tf.string, kinds.WHOLE_LINE, tf.int64, kinds.LINE_NUMBER
        )
        table = tf.lookup.StaticHashTable(filling, 2)
        rows = tf1.get_variable("rows", initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        vector = tf.gather(rows, table.lookup(word), name="vector")
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        tf1.train.Saver().save(session, str(tmp_path / "model"))
        builder = tf1.saved_model.Builder(str(tmp_path / "export"))
        signature = tf1.saved_model.predict_signature_def({"word": word}, {"vector": vector})
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf1.tables_initializer(),
        )
        builder.save()
    return tmp_path


def looked_up(export: Path) -> list[list[float]]:
    given = tf.constant(["beta", "alpha", "gamma"])
    found = tf.saved_model.load(str(export)).signatures["serving_default"](word=given)
    rows: list[list[float]] = found["vector"].numpy().tolist()
    return rows


@pytest.mark.parametrize("source", ["model", "export"])
def test_an_export_works_where_the_file_it_was_trained_with_is_not(
    source: str, trained: Path
) -> None:
    """Before, it named the file by its path on the machine that trained; and was proven there."""
    if source == "export":
        (trained / "words.txt").unlink()
    with open_program(trained / source, outputs=["vector"]) as program:
        program.save(str(trained / "first"))
    with open_program(trained / "first") as program:  # an export of ours is a source as well
        program.save(str(trained / "second"))
    (trained / "words.txt").unlink(missing_ok=True)
    shutil.move(trained / "second", trained / "elsewhere")
    shutil.rmtree(trained / "first")
    assert (trained / "elsewhere" / "assets" / "words.txt").read_text() == "alpha\nbeta\n"
    assert looked_up(trained / "elsewhere") == [[3.0, 4.0], [1.0, 2.0], [5.0, 6.0]]


def test_a_fixed_input_fills_the_tables_anew(trained: Path) -> None:
    (trained / "words.txt").unlink()
    with open_program(trained / "export", freeze=['word=["beta"]']) as program:
        assert program.functions[0].run({})["vector"].tolist() == [[3.0, 4.0]]


def test_a_file_that_is_missing(trained: Path) -> None:
    (trained / "words.txt").unlink()
    with (
        open_program(trained / "model", outputs=["vector"]) as program,
        pytest.raises(CkpttoolError) as caught,
    ):
        program.save(str(trained / "first"))
    assert (caught.value.id, caught.value.exit_code) == ("asset-missing", 20)
    assert str(trained / "words.txt") in caught.value.why
    (trained / "export" / "assets" / "words.txt").unlink()
    with pytest.raises(CkpttoolError) as caught, open_program(trained / "export"):
        pass
    assert caught.value.id == "asset-missing"


@pytest.mark.parametrize("way", ["link", "name"])
def test_an_export_does_not_take_files_from_elsewhere(way: str, trained: Path) -> None:
    """TensorFlow would copy them into the result, for everybody who is served."""
    secret = trained / "secret"
    secret.write_text("not for everybody\n")
    asset = trained / "export" / "assets" / "words.txt"
    if way == "link":
        asset.unlink()
        os.symlink(secret, asset)
    else:
        model = trained / "export" / "saved_model.pb"
        data = model.read_bytes()
        assert b"\x12\x09words.txt" in data
        model.write_bytes(data.replace(b"\x12\x09words.txt", b"\x12\x09../secret"))
    with pytest.raises(CkpttoolError) as caught, open_program(trained / "export"):
        pass
    wanted = {"link": "unsafe-link", "name": "unsafe-path"}[way]
    assert (caught.value.id, caught.value.exit_code) == (wanted, 22)
