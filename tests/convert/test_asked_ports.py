"""What was asked of a graph's inputs has to be enough, and possible."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.origin import find_origin
from ckpttool.conversion.request import CheckSettings
from ckpttool.errors import CkpttoolError
from ckpttool.limits import Limits
from tests.support.converting import open_program, request

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two placeholders and two outputs: a checkpoint, one with signatures, SavedModels."""
    folder = tmp_path_factory.mktemp("graphs")
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
        x = tf1.placeholder(tf.float32, (None, 4), name="x")
        y = tf1.placeholder(tf.float32, (None, 3), name="y")
        one = tf1.placeholder(tf.float32, (1, 3), name="one")
        weights = tf1.get_variable("weights", (4, 3), initializer=tf1.ones_initializer())
        product = tf.matmul(x, weights, name="product")
        both = tf.add(product, y, name="both")
        tf.negative(one * weights[0], name="negative")
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(folder / "plain"))
        define = tf1.saved_model.predict_signature_def
        signatures = {
            "serving_default": define({"x": x}, {"product": product}),
            "sum": define({"x": x, "y": y}, {"both": both}),
        }
        builder = tf1.saved_model.Builder(str(folder / "of-1"))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
        meta = tf1.train.export_meta_graph(graph=graph)
    for name, signature in signatures.items():
        meta.signature_def[name].CopyFrom(signature)
    (folder / "signed.meta").write_bytes(meta.SerializeToString())
    for part in ("index", "data-00000-of-00001"):
        shutil.copy(folder / f"plain.{part}", folder / f"signed.{part}")
    module = tf.Module()
    module.weights = tf.Variable(np.ones((4, 3), np.float32))
    function = tf.function(
        lambda x, y: {"both": x @ module.weights + y},
        input_signature=[
            tf.TensorSpec((None, 4), tf.float32, name="x"),
            tf.TensorSpec((None, 3), tf.float32, name="y"),
        ],
    )
    tf.saved_model.save(module, str(folder / "of-2"), signatures=function)
    return folder


def refused(source: Path, **given: Any) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        find_origin(request(source, **given), Limits())
    return caught.value


def test_an_input_that_was_not_named_is_not_left_unfed(graphs: Path) -> None:
    """The result would be written, and nobody could run it."""
    for source, named in (("plain", "x:0"), ("of-1", "product")):
        error = refused(graphs / source, inputs=[named], outputs=["both"])
        assert (error.id, error.exit_code) == ("input-missing", 2), source
        assert error.why.startswith("y would have to be fed")
        assert "--input y" in error.hint
        assert "--freeze-input y=VALUE" in error.hint
    zeros = "y=[[0.0,0.0,0.0]]"
    for source in ("plain", "of-1"):
        with open_program(graphs / source, inputs=["x"], outputs=["both"], freeze=[zeros]) as found:
            (function,) = found.functions[-1:]
            feeds = {"x": np.ones((2, 4), np.float32)}
            np.testing.assert_allclose(function.run(feeds)["both"], np.full((2, 3), 4.0))


def test_a_shape_that_an_input_cannot_have(graphs: Path) -> None:
    """Before, a SavedModel was said to be unloadable, and written so that it could not be run."""
    for source in ("of-1", "of-2"):
        for shape in ("[?,5]", "[4]", "[2,?,4]"):
            error = refused(graphs / source, inputs=[f"x:float32{shape}"])
            assert (error.id, error.exit_code) == ("port-shape", 2)
            assert shape in error.what
            assert "[?,4]" in error.why
        assert refused(graphs / source, inputs=["x:int32"]).id == "port-dtype"
        find_origin(request(graphs / source, inputs=["x:float32[2,4]"]), Limits())
    opening = open_program(graphs / "plain", inputs=["x:float32[?,5]"], outputs=["product"])
    with pytest.raises(CkpttoolError) as caught, opening:
        pass
    assert caught.value.id == "port-shape"
    asked = {"inputs": ["one:float32[?,3]"], "outputs": ["negative"]}
    with open_program(graphs / "plain", **asked) as found:
        assert found.functions[0].signature.inputs[0].shape == (None, 3), "it may become open"


def test_an_input_to_fix_that_is_not_there(graphs: Path) -> None:
    error = refused(graphs / "of-2", freeze=["yy=1.0"])
    assert (error.id, error.hint) == ("model-input-unknown", "did you mean: --freeze-input y")
    with pytest.raises(CkpttoolError) as caught, open_program(graphs / "of-1", freeze=["yy=1.0"]):
        pass
    assert caught.value.id == "tensor-not-found"


def test_no_signature_of_a_graph_file_is_lost_in_silence(graphs: Path) -> None:
    origin = find_origin(request(graphs / "signed"), Limits())
    assert [one.name for one in origin.signatures] == ["serving_default"]
    assert "only serving_default: it also has sum; --signature chooses" in origin.notes
    chosen = find_origin(request(graphs / "signed", signatures=("sum",)), Limits())
    assert [port.name for port in chosen.signatures[0].outputs] == ["both"]
    error = refused(graphs / "signed", signatures=("sum", "serving_default"))
    assert (error.id, error.exit_code) == ("signature-one", 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"outputs": ["a=product", "a=both"]}, "--output names a twice"),
        ({"inputs": ["a=x", "a=y"]}, "--input names a twice"),
        ({"inputs": ["a=x", "b=x:0"]}, "--input names x:0 twice"),
        ({"signatures": ("sum", "sum")}, "--signature names sum twice"),
        ({"freeze": ["y=1.0", "y=2.0"]}, "--freeze-input names y twice"),
    ],
)
def test_what_is_named_twice_is_not_lost_in_silence(
    given: dict[str, Any], said: str, graphs: Path
) -> None:
    """Before, one of two outputs of one name was gone, and the rest proven."""
    for source in ("plain", "signed", "of-1", "of-2"):
        error = refused(graphs / source, **given)
        assert (error.id, error.exit_code, error.what) == ("asked-twice", 2, said)


def test_options_that_a_graph_makes_meaningless(graphs: Path) -> None:
    for given in (
        {"model": "build.py:build", "allow_training_graph": True},
        {"check": CheckSettings(execute=True)},
    ):
        assert refused(graphs / "plain", **given).id == "options-contradict"
