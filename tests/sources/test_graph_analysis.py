"""What a graph is: likely inputs and outputs, signs of training, names that are near."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpttool.errors import NotFoundError
from ckpttool.sources.graph_analysis import GraphAnalysis, analyse_graph, find_tensor
from ckpttool.sources.graph_signs import training_signs
from ckpttool.sources.graph_topology import Topology, split_tensor
from ckpttool.sources.graph_variables import variable_tasks
from tests.support.graph_files import graph_of, node, placeholder, read_file

SCALAR = "shape { }"
BATCH = "dim { size: -1 } dim { size: 4 }"


def variable(name: str) -> str:
    return node(name, "VariableV2", dtype="type: DT_FLOAT", shape="shape { dim { size: 4 } }")


def of_file(path: Path) -> GraphAnalysis:
    return analyse_graph(read_file(path).main_graph())


def names(tensors: object) -> list[str]:
    return [tensor.name for tensor in tensors]  # type: ignore[attr-defined]


def signs(analysis: GraphAnalysis) -> dict[str, tuple[str, ...]]:
    return {sign.id: sign.nodes for sign in analysis.signs}


# Inputs and outputs -----------------------------------------------------------------------

MODEL = (
    placeholder("x", shape=BATCH)
    + placeholder("labels", "DT_INT32")
    + placeholder("keep_prob", shape="")
    + variable("w")
    + node("w/read", "Identity", "w")
    + node("dense/MatMul", "MatMul", "x", "w/read", T="type: DT_FLOAT")
    + node("logits", "BiasAdd", "dense/MatMul", "w/read", T="type: DT_FLOAT")
    + node("probabilities", "Softmax", "logits", T="type: DT_FLOAT")
    + node("class", "ArgMax", "probabilities", T="type: DT_FLOAT", Tidx="type: DT_INT32")
)
LOSS = (
    node("xent", "SparseSoftmaxCrossEntropyWithLogits", "logits", "labels")
    + node("cost", "Mean", "xent:0")
    + node("Equal", "Equal", "class", "labels", T="type: DT_INT64")
    + node("accuracy/Mean", "Mean", "Equal")
    + node("gradients/cost_grad/Fill", "Fill", "cost")
    + node("gradients/logits_grad", "MatMul", "gradients/cost_grad/Fill", "logits")
    + node("Momentum/update_w/ApplyMomentum", "ApplyMomentum", "w", "gradients/logits_grad")
    + node("cost_1", "ScalarSummary", "cost")
    + node("init", "NoOp", "^w/Assign")
    + node("save/SaveV2", "SaveV2", "save/Const", "w")
    + node("save/Const", "PlaceholderWithDefault", dtype="type: DT_STRING", shape=SCALAR)
)


def test_d35_a_model_that_trains() -> None:
    """Softmax and argmax first; no saver's, gradients', summaries', nor the loss's."""
    found = analyse_graph(graph_of(MODEL, LOSS))
    assert names(found.outputs) == ["probabilities:0", "class:0"]
    assert [(one.op, one.dtype) for one in found.outputs] == [
        ("Softmax", "float32"),
        ("ArgMax", "int64"),
    ]
    assert names(found.inputs) == ["x:0"]
    assert found.inputs[0].shape == (-1, 4)
    assert names(found.placeholders) == ["x:0", "labels:0", "keep_prob:0"]


def test_d35_the_same_model_without_what_trains_it() -> None:
    found = analyse_graph(graph_of(MODEL))
    assert names(found.outputs) == ["probabilities:0", "class:0"]
    assert names(found.inputs) == ["x:0"]


def test_d35_what_a_result_is_compared_with_is_no_input() -> None:
    """A regression whose placeholders are called x and z: z meets the result alone."""
    graph = graph_of(
        placeholder("x")
        + placeholder("z")
        + variable("a")
        + variable("b")
        + node("Mul", "Mul", "x", "a")
        + node("result", "Add", "Mul", "b")
        + node("Sub", "Sub", "result", "z")
        + node("Square", "Square", "Sub")
        + node("Sum", "Sum", "Square")
    )
    found = analyse_graph(graph)
    assert (names(found.inputs), names(found.outputs)) == (["x:0"], ["result:0"])


def test_d35_a_mask_before_weights_is_an_input() -> None:
    graph = graph_of(
        placeholder("x")
        + placeholder("mask")
        + variable("w")
        + node("hidden", "MatMul", "x", "w")
        + node("masked", "Mul", "hidden", "mask")
        + node("out", "MatMul", "masked", "w")
    )
    found = analyse_graph(graph)
    assert (names(found.inputs), names(found.outputs)) == (["x:0", "mask:0"], ["out:0"])


def test_a_name_like_a_loss_is_none_where_weights_follow() -> None:
    """The corpus has a feature column called capital_loss."""
    graph = graph_of(
        placeholder("capital_loss/input")
        + variable("w")
        + node("linear/capital_loss/MatMul", "MatMul", "capital_loss/input", "w")
        + node("linear/sum", "MatMul", "linear/capital_loss/MatMul", "w")
        + node("scores", "Sigmoid", "linear/sum")
    )
    assert names(analyse_graph(graph).outputs) == ["scores:0"]


def test_examples_of_a_pipeline_are_inputs() -> None:
    types = "list { type: DT_FLOAT type: DT_INT64 }"
    shapes = f"list {{ shape {{ {BATCH} }} shape {{ unknown_rank: true }} }}"
    graph = graph_of(
        node("next", "IteratorGetNext", "it", output_types=types, output_shapes=shapes)
        + node("out", "Softmax", "next:0", T="type: DT_FLOAT")
        + node("it", "IteratorV2")
    )
    found = analyse_graph(graph)
    assert [tuple(one) for one in found.inputs] == [
        ("next:0", "IteratorGetNext", "float32", (-1, 4)),
        ("next:1", "IteratorGetNext", "int64", None),
    ]
    assert signs(found)["input-pipeline"] == ("next", "it")


def test_an_old_placeholder_without_a_shape() -> None:
    """Up to version 21 of the format the shape of a scalar stands for none (array_ops.cc)."""
    text = node("x", "Placeholder", dtype="type: DT_FLOAT", shape=SCALAR)
    assert analyse_graph(graph_of(text, producer=21)).placeholders[0].shape is None
    assert analyse_graph(graph_of(text, producer=22)).placeholders[0].shape == ()


@pytest.mark.parametrize(
    ("path", "inputs", "outputs"),
    [
        ("multi-regression-allformats/regression/checkpoint/model.meta", "X:0", "pred:0"),
        ("multi-regression-allformats/regression/graphdef/frozen.pb", "X:0", "pred:0"),
        ("pb-frozen-rnn-fc/lstm/frozen.pb", "X:0", "output:0"),
        ("pb-frozen-rnn-fc/gru/frozen.pb", "X:0", "output:0"),
        ("v1-badhalfplustwo-abspath/export.meta", "Placeholder:0", "Add:0"),
        ("mixed-v1-v2-tdgammon/checkpoint-462746.meta", "x:0", "layer2/activation:0"),
        ("v1-acrobot-adam/model.ckpt.meta", "policy/Placeholder:0", "policy/Softmax:0"),
        (
            "v2-widedeep-5steps/model.ckpt-15280.meta",
            "IteratorGetNext:0",
            "head/predictions/probabilities:0",
        ),
        (
            "v2-linear-part0-slots/model.ckpt-5865.meta",
            "IteratorGetNext:0",
            "linear/head/predictions/probabilities:0",
        ),
        (
            "v2-taxi-2shard-tf1x/model.ckpt-10000.meta",
            "read_batch_features/fifo_queue_Dequeue:0",
            "head/predictions/probabilities:0",
        ),
    ],
)
def test_d35_the_corpus(corpus: Path, path: str, inputs: str, outputs: str) -> None:
    """The first input and output of real graphs, which say neither."""
    found = of_file(corpus / path)
    assert (found.inputs[0].name, found.outputs[0].name) == (inputs, outputs)


def test_signatures_of_the_corpus_are_among_the_guesses(corpus: Path) -> None:
    """SavedModels of TF 1.x say what comes out: the guess for their graphs finds it."""
    for path in (corpus / "sm-halfplustwo-tf1").rglob("saved_model.pb"):
        found = read_file(path)
        graph = found.main_graph()
        guessed = set(names(analyse_graph(graph).outputs))
        # What an Identity hands on is the same tensor.
        handed = [each for each in graph.nodes if each.op == "Identity"]
        guessed |= {f"{each.inputs[0]}:0" for each in handed if f"{each.name}:0" in guessed}
        for signature in found.metas[0].signatures:
            if signature.name == "serving_default":
                assert {one.tensor for one in signature.outputs} <= guessed, path


# Names ------------------------------------------------------------------------------------


def test_d35_a_wrong_name_gets_the_nearest() -> None:
    graph = graph_of(MODEL)
    topology = Topology(graph)
    assert find_tensor(graph, topology, "class").name == "class:0"
    assert find_tensor(graph, topology, "logits:1").name == "logits:1"
    with pytest.raises(NotFoundError) as caught:
        find_tensor(graph, topology, "probabilties:0")
    error = caught.value
    assert (error.id, error.exit_code) == ("tensor-not-found", 10)
    assert "probabilities:0" in error.hint
    with pytest.raises(NotFoundError) as caught:
        find_tensor(graph, topology, "utterly/different")
    assert "inspect --graph" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x", ("x", 0)),
        ("a/x:2", ("a/x", 2)),
        ("^x", ("x", -1)),
        ("x:y", ("x:y", 0)),
        (":1", ("", 1)),
        ("x:" + "9" * 99, ("x:" + "9" * 99, 0)),
    ],
)
def test_names_of_tensors(text: str, parts: tuple[str, int]) -> None:
    assert split_tensor(text) == parts


# Signs ------------------------------------------------------------------------------------


def test_d36_a_graph_that_trains(fixtures_dir: Path) -> None:
    """Batch normalisation of a batch, dropout, a queue, a switch that nobody feeds."""
    found = of_file(fixtures_dir / "graphs" / "training.meta")
    assert signs(found) == {
        "batch-norm-training": ("FusedBatchNormV3",),
        "dropout": ("dropout",),
        "switch-unfed": ("is_training",),
        "queues": ("examples", "batch"),
        "optimizer": tuple(
            f"Adam/update_{name}/ApplyAdam"
            for name in ("model/kernel/part_0", "model/kernel/part_1", "scale")
        ),
    }
    altering = {sign.id for sign in found.signs if sign.alters}
    assert altering == signs(found).keys() - {"optimizer"}
    assert found.outputs[0].name == "probabilities:0"


def test_d36_only_a_scale_of_ones_tells_that_each_example_has_its_own_mean() -> None:
    """So Keras 2 normalises a layer; an offset that is made by ``Fill`` tells nothing."""
    graph = graph_of(
        placeholder("x")
        + variable("gamma")
        + node("made", "Fill", "x")
        + node("batch", "FusedBatchNormV3", "x", "gamma", "made", is_training="b: true")
        + node("layer", "FusedBatchNormV3", "x", "made:0", "gamma", is_training="b: true")
    )
    (sign,) = training_signs(graph, Topology(graph))
    assert (sign.id, sign.nodes) == ("batch-norm-training", ("batch",))


def test_d36_only_what_an_output_needs(fixtures_dir: Path) -> None:
    """A conversion takes the part of the graph behind its outputs, and asks about that."""
    graph = graph_of(
        placeholder("x")
        + node("bn", "FusedBatchNormV3", "x", is_training="b: true")
        + node("aside", "FusedBatchNormV3", "x")
        + node("served", "FusedBatchNormV3", "x", is_training="b: false")
    )
    topology = Topology(graph)
    assert training_signs(graph, topology)[0].nodes == ("bn", "aside"), "true is the default"
    needed = topology.ancestors(topology.of_names(["served:0"]))
    assert training_signs(graph, topology, needed) == ()


@pytest.mark.parametrize(
    ("name", "dtype", "value", "sign"),
    [
        ("is_training", "DT_BOOL", "bool_val: true", True),
        ("is_training", "DT_BOOL", "bool_val: false", False),
        ("use_cache", "DT_BOOL", "bool_val: true", False),
        ("keep_prob", "DT_FLOAT", "float_val: 0.5", True),
        ("keep_prob", "DT_FLOAT", "float_val: 1", False),
        ("dropout_rate", "DT_FLOAT", "float_val: 0", False),
        ("temperature", "DT_FLOAT", "float_val: 0.5", False),
    ],
)
def test_d36_what_a_placeholder_is_by_default(
    name: str, dtype: str, value: str, sign: bool
) -> None:
    tensor = f"tensor {{ dtype: {dtype} {value} }}"
    graph = graph_of(
        node("default", "Const", dtype=f"type: {dtype}", value=tensor)
        + node(name, "PlaceholderWithDefault", "default", dtype=f"type: {dtype}", shape=SCALAR)
    )
    assert ("training-by-default" in signs(analyse_graph(graph))) is sign


def test_d36_moving_averages() -> None:
    found = analyse_graph(graph_of(variable("w") + variable("w/ExponentialMovingAverage")))
    assert signs(found) == {"moving-averages": ("w/ExponentialMovingAverage",)}


# The rest ---------------------------------------------------------------------------------


def test_ops_that_are_gone(corpus: Path) -> None:
    """An op of tf.contrib; a function that is called as an op is none."""
    path = corpus / "v2-taxi-2shard-tf1x/export/chicago-taxi/1550769257/saved_model.pb"
    assert of_file(path).unknown_ops == ("BucketizeWithInputBoundaries",)
    library = 'library { function { signature { name: "Mine" } } }'
    graph = graph_of(node("a", "Mine") + node("b", "Theirs") + node("c", "MatMul") + library)
    assert analyse_graph(graph).unknown_ops == ("Theirs",)


def test_counts_take_functions_in() -> None:
    body = 'node_def { name: "n" op: "Add" } node_def { name: "m" op: "Add" }'
    library = f'library {{ function {{ signature {{ name: "f" }} {body} }} }}'
    found = analyse_graph(graph_of(node("a", "Mul"), library))
    assert found.ops == {"Add": 2, "Mul": 1}
    assert (found.nodes, found.functions, found.function_nodes) == (1, 1, 2)


def test_the_tasks_of_variables() -> None:
    graph = graph_of(
        node("a", "VariableV2", device="/job:ps/replica:0/task:3/device:CPU:0"),
        node("b", "VarHandleOp", device="/job:parameter_server/task:11"),
        node("c", "VariableV2", device="/job:worker/task:1"),
        node("d", "MatMul", device="/job:ps/task:1"),
    )
    assert list(variable_tasks(graph)) == [("a", 3), ("b", 11)]
