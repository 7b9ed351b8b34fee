from __future__ import annotations

import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ckpttool
from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY, VARIABLE_VALUE, parse_object_graph
from ckpttool.limits import Limits
from ckpttool.sources.graph_walk import escape_name, walk_graph
from ckpttool.sources.naming import (
    GraphNames,
    kind_of_name,
    label_of_key,
    label_of_name,
    path_of_key,
    readable_path,
)
from ckpttool.sources.registry import open_source
from ckpttool.sources.v2 import BundleSource
from tests.support.graphs import Node, chain_bytes, graph_bytes, variable_key

# Kinds from names -------------------------------------------------------------------------

BY_KIND = {
    "optimizer": """
        w/Adam  w/Adam_1  w/Adam_7  w/Adagrad  w/Adadelta_1  w/Ftrl  w/Ftrl_1  w/Momentum
        w/RMSProp  w/RMSProp_1  w/RMSProp_2  w/LARSOptimizer  w/part_0/Ftrl  beta1_power
        beta2_power_1  train/beta1_power  OptimizeLoss/dense/kernel/Adam_1
        bert/encoder/layer_0/attention/self/query/kernel/adam_m  cls/predictions/bias/adam_v
        albert/pooler/dense/kernel/lamb_m  decoder/block_000/layer_001/kernel_slot_vr
        decoder/kernel_slot_vc  training/Adam/dense/kernel/m  training/Adam/beta_1
        training/Adagrad/dnn/hiddenlayer_0/bias/accumulator  training/Ftrl/linear/w/linear
        training_1/SGD/w/momentum  training/Adam/Variable_12  Adam/dense/kernel/m
        Adam/m/dense/kernel  Adam_1/v/dense/kernel  SGD/learning_rate  learning_rate
        loss_scale  current_loss_scale  good_steps  transformer/w/Adafactor
    """,
    "ema": """
        w/ExponentialMovingAverage  game/truediv_1/ExponentialMovingAverage
        w/ExponentialMovingAverage_1  tower/w/ema
    """,
    "step": """
        global_step  train/global_step  save_counter  Adam/iterations  training/Ftrl/iter
        Adam/iter  step  epoch  train_step
    """,
    "model": """
        w  dense/kernel  bn/moving_mean  bn/moving_variance  Adamant/kernel  adam/kernel
        Adam_layer/kernel  training/dense/kernel  encoder/step  loop/epoch  mlp/learning_rate
        accumulator  lstm/m  lstm/v  conv/iter  emb/part_0  layer_slot_vr_2/kernel  Momentums/w
        v  training  /  w/_CHECKPOINTABLE_OBJECT_GRAPH  BatchNorm/moving_mean/biased
        game/game_step  apply_gradients/trace/trace
    """,
    "object_graph": "_CHECKPOINTABLE_OBJECT_GRAPH",
    "other": "seed_generator_1/seed_generator_state",
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in BY_KIND.items() for name in names.split()]
)
def test_kind_of_a_name(name: str, kind: str) -> None:
    assert kind_of_name(name) == kind
    assert label_of_name(name) == (name, kind)


def test_the_empty_name_is_the_models() -> None:
    assert kind_of_name("") == "model"


# Kinds in real checkpoints ----------------------------------------------------------------


def kinds_of(address: Path) -> dict[str, int]:
    with open_source(str(address)) as source:
        return dict(Counter(variable.kind for variable in source.variables()))


@pytest.mark.parametrize(
    ("prefix", "kinds"),
    [
        ("mixed-v1-v2-tdgammon/checkpoint-462746", {"model": 12, "ema": 3, "step": 1}),
        ("multi-regression-allformats/regression/checkpoint/model", {"model": 2}),
        ("v2-linear-part0-slots/model.ckpt-5355", {"model": 6, "optimizer": 12, "step": 1}),
        ("v2-taxi-2shard-tf1x/model.ckpt-10000", {"model": 20, "optimizer": 30, "step": 1}),
        ("v2-taxi-tf29-estimator/model.ckpt-1000", {"model": 20, "optimizer": 38, "step": 2}),
        ("v2-widedeep-5steps/model.ckpt-13752", {"model": 19, "optimizer": 30, "step": 1}),
        ("synth-partitioned-3-slices/model.ckpt-7", {"model": 2, "optimizer": 6}),
        ("obj-iris-2shard/model.ckpt", {"model": 4, "optimizer": 12, "step": 1}),
        ("obj-a2c-2shard-unlisted/ckpt-5", {"model": 8, "optimizer": 20, "step": 2}),
        ("obj-manager-timestamps/ckpt_nstep/ckpt-1", {"model": 6, "optimizer": 16, "step": 2}),
        (
            "obj-trained-weights-1to10/saved_models/trained_weights_1",
            {"model": 4, "optimizer": 9, "step": 1, "other": 4},
        ),
        ("sm-a2c-2shard/a2c-cartpole/variables/variables", {"model": 6}),
        ("sm-halfplustwo-tf2/saved_model_half_plus_two_tf2_cpu/00000123", {"model": 3}),
    ],
)
def test_kinds_of_the_corpus(corpus: Path, prefix: str, kinds: dict[str, int]) -> None:
    found = kinds_of(corpus / prefix)
    found.pop("object_graph", None)
    assert found == kinds


def test_kinds_where_the_object_graph_cannot_be_read(corpus: Path) -> None:
    whole = kinds_of(corpus / "obj-iris-2shard/model.ckpt")
    assert kinds_of(corpus / "derived-damaged-iris/missing-shard0/model.ckpt") == whole
    sudoku = kinds_of(corpus / "bad-missing-shard-sudoku/model")
    assert set(sudoku) == {"model", "optimizer", "step", "other", "object_graph"}


def test_keras3_weights_are_the_models_whatever_their_keys_say(fixtures_dir: Path) -> None:
    with open_source(str(fixtures_dir / "keras3/ckpt-4")) as source:
        found = {variable.key: variable for variable in source.variables()}
    kernel = found[variable_key("optimizer/_trainable_variables/0")]
    assert (kernel.name, kernel.kind) == ("regressor/hidden/kernel", "model")
    assert found[variable_key("optimizer/_iterations")].kind == "step"
    assert found[variable_key("epoch")].kind == "step"
    momentum = found[variable_key("optimizer/_variables/2")]
    assert (momentum.name, momentum.kind) == ("adam/regressor_hidden_kernel_momentum", "optimizer")
    kinds = Counter(variable.kind for variable in found.values())
    assert kinds == {"model": 8, "optimizer": 13, "step": 3, "object_graph": 1}


def labels_of(prefix: str) -> dict[str, tuple[str, str]]:
    """Readable name → kind and object path, as an open checkpoint gives them."""
    with open_source(prefix) as source:
        assert isinstance(source, BundleSource)
        assert source.names is not None
        return {
            variable.name: (variable.kind, source.names.path(variable.key))
            for variable in source.variables()
        }


def test_what_tensorflow_writes_without_keras(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.w = tf.Variable([1.0], name="w")
    module.plain = [tf.Variable([2.0]), tf.Variable([3.0])]
    module.inner = {"x/y.z": tf.Variable([4.0], name="odd")}
    adam = tf.compat.v1.train.AdamOptimizer()
    with tf.GradientTape() as tape:
        loss = module.w * module.plain[0]
    chosen = [module.w, module.plain[0]]
    adam.apply_gradients(zip(tape.gradient(loss, chosen), chosen, strict=True))
    averages = tf.train.ExponentialMovingAverage(0.9)
    averages.apply([module.w])
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    numbers = iter(tf.data.Dataset.range(3))
    checkpoint = tf.train.Checkpoint(
        m=module,
        trainer=adam,
        mean=averages.average(module.w),
        table=table,
        numbers=numbers,
        rng=tf.random.Generator.from_seed(1),
        step=tf.Variable(7, dtype=tf.int64),
    )
    prefix = checkpoint.save(str(tmp_path / "ckpt"))
    assert labels_of(prefix) == {
        "_CHECKPOINTABLE_OBJECT_GRAPH": ("object_graph", "_CHECKPOINTABLE_OBJECT_GRAPH"),
        "w": ("model", "m/w"),
        "m/plain/0": ("model", "m/plain/0"),
        "m/plain/1": ("model", "m/plain/1"),
        "odd": ("model", "m/inner/x/y.z"),
        "w/Adam": ("optimizer", "m/w/.OPTIMIZER_SLOT/trainer/m"),
        "w/Adam_1": ("optimizer", "m/w/.OPTIMIZER_SLOT/trainer/v"),
        "Variable/Adam": ("optimizer", "m/plain/0/.OPTIMIZER_SLOT/trainer/m"),
        "Variable/Adam_1": ("optimizer", "m/plain/0/.OPTIMIZER_SLOT/trainer/v"),
        "beta1_power": ("optimizer", "trainer/beta1_power"),
        "beta2_power": ("optimizer", "trainer/beta2_power"),
        "w/ExponentialMovingAverage": ("ema", "mean"),
        "table/.ATTRIBUTES/table-keys": ("other", "table/.ATTRIBUTES/table-keys"),
        "table/.ATTRIBUTES/table-values": ("other", "table/.ATTRIBUTES/table-values"),
        "numbers/.ATTRIBUTES/ITERATOR_STATE": ("other", "numbers/.ATTRIBUTES/ITERATOR_STATE"),
        "rng/_state_var": ("other", "rng/_state_var"),
        "step": ("step", "step"),
        "save_counter": ("step", "save_counter"),
    }


def test_what_keras_3_writes(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="d")], name="net")
    adam = keras.optimizers.Adam(use_ema=True)
    optimizer = keras.optimizers.LossScaleOptimizer(adam)
    weights = {
        "net/d/kernel": ("model", "model/_functional/_operations/1/_kernel"),
        "net/d/bias": ("model", "model/_functional/_operations/1/bias"),
    }

    def kinds(prefix: str) -> Counter[str]:
        return Counter(kind for kind, _ in labels_of(prefix).values())

    before = tf.train.Checkpoint(model=model, o=optimizer).write(str(tmp_path / "before"))
    found = labels_of(before)
    assert {name: found[name] for name in weights} == weights
    assert {kind for kind, path in found.values() if path.startswith("o/")} == {
        "optimizer",
        "step",
    }
    assert kinds(before)["model"] == 2

    optimizer.build(model.trainable_variables)
    after = tf.train.Checkpoint(model=model, o=optimizer).write(str(tmp_path / "after"))
    found = labels_of(after)
    assert {name: found[name] for name in weights} == weights
    averages = {path for kind, path in found.values() if kind == "ema"}
    assert averages == {f"o/inner_optimizer/_model_variables_moving_average/{n}" for n in (0, 1)}
    moments = {path: kind for kind, path in found.values() if "/_momentums/" in path}
    assert moments == {f"o/inner_optimizer/_momentums/{n}": "optimizer" for n in (0, 1)}
    assert kinds(after)["model"] == 2

    alone = tf.train.Checkpoint(o=optimizer).write(str(tmp_path / "alone"))
    assert kinds(alone) == kinds(after)
    assert labels_of(alone)["net/d/kernel"][0] == "model"


# Names from graphs ------------------------------------------------------------------------


def names_of(nodes: list[Node]) -> GraphNames:
    return GraphNames(parse_object_graph(graph_bytes(nodes), Limits()))


def value(path: str, full_name: str = "") -> Node:
    """A variable that was keyed by this path."""
    return Node(attributes=[(VARIABLE_VALUE, full_name, variable_key(path))])


def described(nodes: list[Node]) -> dict[str, tuple[str, str]]:
    """Path → name and kind, for every saved tensor."""
    names = names_of(nodes)
    keys = [key for node in nodes for _, _, key in node.attributes]
    return {names.path(key): names.label(key) for key in keys}


def test_a_full_name_is_the_name_where_it_says_something() -> None:
    texts = ["dense/kernel", "Variable", "Variable_3", "ShardedVariable", "", "twice", "twice"]
    nodes = [
        Node([(1 + number, f"v{number}") for number in range(len(texts))]),
        *(value(f"v{number}", text) for number, text in enumerate(texts)),
    ]
    assert [name for name, _ in described(nodes).values()] == [
        "dense/kernel",
        *(f"v{number}" for number in range(1, 7)),
    ]


def test_a_full_name_that_is_anothers_path_is_not_the_name() -> None:
    nodes = [Node([(1, "a"), (2, "b"), (3, "c")]), value("a", "b"), value("b"), value("c", "c")]
    assert described(nodes) == {"a": ("a", "model"), "b": ("b", "model"), "c": ("c", "model")}


def test_paths_are_unescaped_where_that_is_unambiguous() -> None:
    nodes = [
        Node([(1, "x/y"), (2, "x"), (4, "p.q")]),
        value("x.Sy"),
        Node([(3, "y")]),
        value("x/y"),
        value("p..q"),
    ]
    assert set(described(nodes)) == {"x.Sy", "x/y", "p.q"}


def test_what_is_no_variable_goes_by_its_key() -> None:
    key = "table/.ATTRIBUTES/table"
    names = names_of([Node([(1, "table")]), Node(attributes=[("table", "", key)])])
    assert names.label(key) == (key, "other")
    assert names.label(key + "-keys") == (key + "-keys", "other")
    assert names.path(key) == key
    assert names.label("_CHECKPOINTABLE_OBJECT_GRAPH")[1] == "object_graph"


def test_keys_are_found_by_name_and_by_path() -> None:
    names = names_of([Node([(1, "a")]), value("a", "dense/kernel")])
    assert names.key_of("dense/kernel") == names.key_of("a") == variable_key("a")
    assert names.full_name(variable_key("a")) == "dense/kernel"
    assert names.key_of("b") is None


@pytest.mark.parametrize(
    "signs", [("_iterations", "_variables"), ("iter", "decay"), ("beta1_power", "beta2_power")]
)
def test_an_optimizer_is_recognised_by_its_edges(signs: tuple[str, str]) -> None:
    nodes = [
        Node([(1, "first"), (2, "net")]),
        Node([(3, signs[0]), (4, signs[1]), (5, "_trainable_variables"), (7, "extra")]),
        Node([(6, "kernel")]),
        value("first/a"),
        Node([(8, "0")]),
        Node([(6, "0")]),
        value("first/_trainable_variables/0"),
        value("first/extra"),
        value("first/b/0"),
    ]
    found = {path: kind for path, (_, kind) in described(nodes).items()}
    assert found["net/kernel"] == "model"
    assert found["first/extra"] == found[f"first/{signs[1]}/0"] == "optimizer"
    counts = signs[0] in {"_iterations", "iter"}
    assert found[f"first/{signs[0]}"] == ("step" if counts else "optimizer")


@pytest.mark.parametrize("edge", ["optimizer", "_optimizer", "disc_optimizer", "optimizers"])
def test_an_optimizer_is_recognised_by_an_edge_to_it(edge: str) -> None:
    nodes = [Node([(1, edge), (2, "w")]), Node([(2, "w"), (3, "m")]), value("w"), value("m")]
    assert {kind for _, kind in described(nodes).values()} == {"model", "optimizer"}
    assert described(nodes)[f"{edge}/m"][1] == "optimizer"


def test_a_short_name_needs_a_sign() -> None:
    for inside, kind in (("m", "optimizer"), ("decoder", "model")):
        nodes = [Node([(1, "opt")]), Node([(2, inside)]), value("x")]
        assert described(nodes)[f"opt/{inside}"][1] == kind


def test_slots_have_two_paths_and_are_the_optimizers() -> None:
    nodes = [
        Node([(1, "w/0"), (2, "o")]),
        value("w.S0", "w"),
        Node(slots=[(1, "m", 3), (1, "average", 4)]),
        value("w.S0/.OPTIMIZER_SLOT/o/m", "Adam/w/m"),
        value("w.S0/.OPTIMIZER_SLOT/o/average", "SWA/w/average"),
    ]
    assert described(nodes) == {
        "w/0": ("w", "model"),
        "w/0/.OPTIMIZER_SLOT/o/m": ("Adam/w/m", "optimizer"),
        "w/0/.OPTIMIZER_SLOT/o/average": ("SWA/w/average", "ema"),
    }


def test_counters_averages_metrics_and_generators() -> None:
    nodes = [
        Node([(1, "step"), (2, "ema_model"), (4, "loss"), (7, "rng"), (9, "named"), (10, "deep")]),
        value("step"),
        Node([(3, "w")]),
        value("ema_model/w"),
        Node([(5, "total"), (6, "count")]),
        value("loss/total", "total"),
        value("loss/count", "count"),
        Node([(8, "_state_var")]),
        value("rng/_state_var", "StateVar"),
        value("named", "global_step"),
        Node([(11, "step"), (12, "ema")]),
        value("deep/step"),
        value("deep/ema", "w/ExponentialMovingAverage"),
    ]
    assert {path: kind for path, (_, kind) in described(nodes).items()} == {
        "step": "step",
        "ema_model/w": "ema",
        "loss/total": "other",
        "loss/count": "other",
        "rng/_state_var": "other",
        "named": "step",
        "deep/step": "model",
        "deep/ema": "ema",
    }


def test_a_shared_variable_is_the_models() -> None:
    nodes = [
        Node([(1, "ema_model"), (1, "metrics"), (2, "optimizer"), (3, "z")]),
        Node([(5, "w")]),
        Node([(5, "w")]),
        Node([(4, "y")]),
        Node([(5, "w")]),
        value("ema_model/w"),
    ]
    assert described(nodes) == {"z/y/w": ("z/y/w", "model")}


def test_an_unreachable_variable_goes_by_its_key() -> None:
    assert described([Node(), value("a/b")]) == {"a/b": ("a/b", "other")}


def test_a_long_chain_costs_no_more_than_it_has_bytes() -> None:
    # Were the path of each node kept, they would have 2 * 10^10 characters.
    count = 200_000
    data = chain_bytes(count)
    data += graph_bytes([Node([(0, "n")], [(VARIABLE_VALUE, "", variable_key("far"))])])
    start = time.process_time()
    names = GraphNames(parse_object_graph(data, Limits()))
    assert time.process_time() - start < 30
    assert names.label(variable_key("far")) == ("far", "model")


def test_a_deep_variable_has_its_path() -> None:
    nodes = [Node([(number + 1, f"layer_{number}")]) for number in range(50)]
    names = names_of([*nodes, value("short")])
    assert names.path(variable_key("short")).count("/") == 49


EDGE_NAMES = st.sampled_from(
    [
        *("a", "b", "x/y", "x", "y", ".", "..S", "step"),
        *("optimizer", "opt", "m", "iter", "decay", "_iterations", "_variables"),
        *("_trainable_variables", "metrics", "ema", "total", "count"),
    ]
)


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 10))
    node = st.integers(0, count - 1)
    full_name = st.sampled_from(["", "w", "Variable", "a", "x/y", "v/Adam", "dense/kernel"])
    nodes = []
    for number in range(count):
        edges = draw(st.lists(st.tuples(node, EDGE_NAMES), max_size=5))
        saved = draw(st.sampled_from(["", VARIABLE_VALUE, VARIABLE_VALUE, "table"]))
        key = draw(st.sampled_from([variable_key(f"k{number}"), f"k{number}", variable_key("k")]))
        slots = draw(st.lists(st.tuples(node, EDGE_NAMES, node), max_size=2))
        nodes.append(Node(edges, [(saved, draw(full_name), key)] if saved else [], slots))
    return nodes


@settings(deadline=None)
@given(graphs())
def test_names_and_paths_are_unique_and_stable(nodes: list[Node]) -> None:
    names, again = names_of(nodes), names_of(nodes)
    keys = {key for node in nodes for _, _, key in node.attributes}
    for of in (lambda key: names.label(key)[0], names.path):
        assert len({of(key) for key in keys}) == len(keys)
        assert all(of(key) for key in keys)
    for key in keys:
        name, kind = names.label(key)
        assert (name, kind, names.path(key)) == (*again.label(key), again.path(key))
        assert names.key_of(name) == key


@settings(deadline=None)
@given(graphs())
def test_paths_lead_to_their_nodes(nodes: list[Node]) -> None:
    graph = parse_object_graph(graph_bytes(nodes), Limits())
    walked = walk_graph(graph)
    slots = {slot.variable for slot in graph.slots}
    for node, path in enumerate(walked.paths):
        if path is None or (node in slots and ".OPTIMIZER_SLOT" in path):
            continue
        at = {0}
        for step in path.split("/") if path else []:
            at = {
                child
                for parent in at
                for child, name in zip(*graph.edges.get(parent, ((), ())), strict=True)
                if escape_name(name) == step
            }
        assert node in at


# Paths and keys ---------------------------------------------------------------------------


@given(st.text())
@example("..S/.")
@example(".OPTIMIZER_SLOT")
def test_unescaping_undoes_escaping(name: str) -> None:
    assert readable_path(escape_name(name)) == name


def test_escaping_is_tensorflows() -> None:
    pytest.importorskip("tensorflow")
    from tensorflow.python.trackable.trackable_utils import escape_local_name

    for name in ("x/y.z", "..S", "/", ".", "plain", ".S", "é/."):
        assert escape_name(name) == escape_local_name(name)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (variable_key("a/b"), "a/b"),
        ("a/.ATTRIBUTES/table-keys", "a/.ATTRIBUTES/table-keys"),
        ("dense/kernel", "dense/kernel"),
        ("/.ATTRIBUTES/VARIABLE_VALUE", "/.ATTRIBUTES/VARIABLE_VALUE"),
    ],
)
def test_path_of_a_key(key: str, path: str) -> None:
    assert path_of_key(key) == path


@pytest.mark.parametrize(
    ("key", "label"),
    [
        (variable_key("model/w"), ("model/w", "model")),
        (variable_key("optimizer/iter"), ("optimizer/iter", "step")),
        (variable_key("optimizer/beta_1"), ("optimizer/beta_1", "optimizer")),
        (variable_key("disc_optimizer/_variables/3"), ("disc_optimizer/_variables/3", "optimizer")),
        (
            variable_key("optimizer/_trainable_variables/0"),
            ("optimizer/_trainable_variables/0", "model"),
        ),
        (
            variable_key("w/.OPTIMIZER_SLOT/optimizer/m"),
            ("w/.OPTIMIZER_SLOT/optimizer/m", "optimizer"),
        ),
        (
            variable_key("w/.OPTIMIZER_SLOT/optimizer/average"),
            ("w/.OPTIMIZER_SLOT/optimizer/average", "ema"),
        ),
        (
            variable_key("optimizer/_model_variables_moving_average/0"),
            ("optimizer/_model_variables_moving_average/0", "ema"),
        ),
        (variable_key("save_counter"), ("save_counter", "step")),
        (variable_key("keras_api/metrics/0/total"), ("keras_api/metrics/0/total", "other")),
        ("t/.ATTRIBUTES/table-keys", ("t/.ATTRIBUTES/table-keys", "other")),
        ("dense/kernel/Adam", ("dense/kernel/Adam", "optimizer")),
    ],
)
def test_label_of_a_key_without_its_graph(key: str, label: tuple[str, str]) -> None:
    assert label_of_key(key) == label


def test_what_keras_exports_has_its_names(tmp_path: Path) -> None:
    """An export has every variable twice: the first has the name, the copy its path."""
    keras = pytest.importorskip("keras")
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, name="one"), keras.layers.Dense(2, name="two")],
        name="net",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras and TensorFlow warn of what they do themselves
        model.export(str(tmp_path / "export"), verbose=False)
    with ckpttool.open(tmp_path / "export") as export:
        names = set(export)
        assert names >= {"net/one/kernel", "net/one/bias", "net/two/kernel", "net/two/bias"}
        assert {name.partition("/")[0] for name in names} == {
            "net",
            "_all_variables",
            OBJECT_GRAPH_KEY,
        }
        kernel = model.get_layer("two").kernel.numpy()
        assert (export.read("net/two/kernel") == kernel).all()
        assert (export.read("variables/2") == kernel).all(), "by its path too"
        for at in range(4):
            assert f"_all_variables/{at}" in names
