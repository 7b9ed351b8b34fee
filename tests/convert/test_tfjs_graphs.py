"""What of a graph TensorFlow.js runs once it is written by us, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import UnsupportedError
from tests.support.converting import feed, open_program
from tests.support.node import node_modules
from tests.support.tfjs_results import close, run_js, write_js

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def _constant(*shape: int, dtype: Any = None) -> Any:
    values = np.random.default_rng(len(shape)).normal(size=shape)
    return tf.constant(values, dtype or tf.float32)


def recurrent_of_tensorflow_1(x: Any) -> Any:
    """Enter, Exit and arrays, as dynamic_rnn builds them."""
    steps = tf.TensorArray(tf.float32, 4).unstack(tf.transpose(x)[:, :, None])
    weights = _constant(3, 2)

    def body(i: Any, state: Any, found: Any) -> Any:
        state = tf.tanh(tf.matmul(tf.concat([steps.read(i), state], 1), weights))
        return i + 1, state, found.write(i, state)

    start = (0, tf.zeros([tf.shape(x)[0], 2]), tf.TensorArray(tf.float32, 4))
    return tf.while_loop(lambda i, _s, _f: i < 4, body, start)[2].stack()


def condition(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)


def branches_that_give_two_outputs_of_one_operation(x: Any) -> Any:
    first, second = tf.cond(
        tf.reduce_sum(x) > -1e9, lambda: tuple(tf.split(x, 2, 1)), lambda: (x[:, :2], x[:, 2:])
    )
    return first - 2 * second


def body_that_gives_named_outputs(x: Any) -> Any:
    def body(i: Any, _values: Any, _indices: Any) -> Any:
        values, indices = tf.math.top_k(x * tf.cast(i, tf.float32), 4)
        return i + 1, values, indices

    _, values, indices = tf.while_loop(
        lambda i, _v, _i: i < 3, body, (1, x, tf.zeros(tf.shape(x), tf.int32))
    )
    return values + tf.cast(indices, tf.float32)


def loop_in_a_loop_that_fills_a_list(x: Any) -> Any:
    def outer(i: Any, found: Any) -> Any:
        def inner(j: Any, found: Any) -> Any:
            return j + 1, found.write(i * 2 + j, x * tf.cast(i + j, tf.float32))

        return i + 1, tf.while_loop(lambda j, _: j < 2, inner, (0, found))[1]

    return tf.while_loop(lambda i, _: i < 2, outer, (0, tf.TensorArray(tf.float32, 4)))[1].stack()


def list_that_only_its_last_element_is_read_of(x: Any) -> Any:
    def body(i: Any, found: Any) -> Any:
        return i + 1, found.write(0, x * tf.cast(i, tf.float32))

    list_ = tf.TensorArray(tf.float32, 1, clear_after_read=False)
    return tf.while_loop(lambda i, _: i < 3, body, (0, list_))[1].read(0)


def no_weights(x: Any) -> Any:
    return tf.nn.relu(x)


def softsign(x: Any) -> Any:
    return tf.nn.softsign(x)


def wide_floats(x: Any) -> Any:
    return tf.cast(tf.matmul(tf.cast(x, tf.float64), _constant(4, 2, dtype=tf.float64)), tf.float32)


def product_of_batches(x: Any) -> Any:
    return tf.raw_ops.BatchMatMulV3(x=x[:, None], y=_constant(4, 2), Tout=tf.float32)


def pictures(x: Any) -> Any:
    picture = tf.reshape(x, [-1, 2, 2, 1])
    found = tf.nn.conv2d(picture, _constant(2, 2, 1, 3), 1, "SAME")
    normal = tf.compat.v1.nn.fused_batch_norm(
        found, *(tf.constant([1.0, 2, 3]) for _ in range(4)), is_training=False
    )
    return tf.nn.max_pool2d(tf.nn.relu6(normal[0]), 2, 2, "VALID")


def transformed(x: Any) -> Any:
    return tf.abs(tf.signal.rfft(x))


def asserted(x: Any) -> Any:
    with tf.control_dependencies([tf.compat.v1.assert_greater(tf.shape(x)[0], 0)]):
        return x * 2


def integers(x: Any) -> Any:
    whole = tf.cast(x * 10, tf.int64)
    return (whole - 3) // 2 * 10 + (whole - 5) % 3


def complex_numbers(x: Any) -> Any:
    product = x * x
    return tf.concat([tf.math.real(product), tf.math.imag(product)], 1)


def nothing_but_a_constant(x: Any) -> Any:
    """Whoever disposes of the output must not dispose of the weight: it is run more than once."""
    del x
    return tf.constant([1.0, 2.0])


def hashed(x: Any) -> Any:
    return tf.strings.to_hash_bucket_fast(x, 1000)


NEW: tuple[Callable[[Any], Any], ...] = (
    asserted,
    body_that_gives_named_outputs,
    branches_that_give_two_outputs_of_one_operation,
    complex_numbers,
    condition,
    hashed,
    integers,
    list_that_only_its_last_element_is_read_of,
    loop_in_a_loop_that_fills_a_list,
    no_weights,
    nothing_but_a_constant,
    pictures,
    product_of_batches,
    softsign,
    transformed,
    wide_floats,
)
OLD: tuple[Callable[[Any], Any], ...] = (condition, recurrent_of_tensorflow_1)
INPUTS = {"hashed": (tf.string, [None]), "complex_numbers": (tf.complex64, [None, 4])}


def graph_of(folder: Path, build: Callable[[Any], Any], *, old: bool = False) -> Path:
    """A frozen graph of an input ``x`` (numbers of [?, 4]) and an output ``y``."""
    tf1 = tf.compat.v1
    if old:
        tf1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            dtype, shape = INPUTS.get(build.__name__, (tf.float32, [None, 4]))
            tf.identity(build(tf1.placeholder(dtype, shape, name="x")), name="y")
        tf1.train.write_graph(graph, str(folder), "graph.pb", as_text=False)
    finally:
        tf1.enable_control_flow_v2()
    return folder / "graph.pb"


def computes_the_same(folder: Path, build: Callable[[Any], Any], *, old: bool = False) -> None:
    from ckpttool.conversion.worker.run_tfjs import open_result

    path = graph_of(folder, build, old=old)
    with open_program(path, inputs=["x"], outputs=["y"], allow_training_graph=True) as program:
        write_js(program, folder / "web")
        runner = open_result(str(folder / "web"))
        for batch in (2, 3):
            feeds = feed(program.functions[0], batch)
            close(run_js(runner, feeds), program.functions[0].run(feeds))


@pytest.mark.parametrize("build", NEW, ids=lambda one: one.__name__)
def test_it_runs(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTTOOL_NODE_MODULES", str(node_modules()))
    computes_the_same(tmp_path, build)


@pytest.mark.parametrize("build", OLD, ids=lambda one: one.__name__)
def test_it_runs_with_control_flow_of_tensorflow_1(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTTOOL_NODE_MODULES", str(node_modules()))
    computes_the_same(tmp_path, build, old=True)


def refusal(folder: Path, build: Callable[[Any], Any]) -> UnsupportedError:
    path = graph_of(folder, build)
    given: dict[str, Any] = {"inputs": ["x"], "outputs": ["y"], "allow_training_graph": True}
    with open_program(path, **given) as program, pytest.raises(UnsupportedError) as caught:
        write_js(program, folder / "web")
    assert not (folder / "web" / "model.json").exists()
    return caught.value


def test_an_operation_that_it_does_not_have_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, lambda x: tf.linalg.inv(tf.reshape(x, [-1, 2, 2]), name="inverse"))
    assert error.id == "tfjs-op-unknown"
    assert "MatrixInverse" in error.why
    assert "inverse" in error.why


def test_an_operation_that_it_has_and_that_fails_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, lambda x: tf.bitwise.bitwise_and(tf.cast(x, tf.int32), 3))
    assert error.id == "tfjs-op-unknown"
    assert "BitwiseAnd" in error.why


def test_a_convolution_in_groups_is_refused(tmp_path: Path) -> None:
    def build(x: Any) -> Any:
        picture = tf.reshape(x, [-1, 1, 1, 4])
        return tf.nn.conv2d(picture, _constant(1, 1, 2, 6), 1, "SAME", name="grouped")

    error = refusal(tmp_path, build)
    assert error.id == "tfjs-op-unknown"
    assert "grouped" in error.why
    assert "groups" in error.hint


def test_a_list_that_a_branch_fills_is_refused(tmp_path: Path) -> None:
    def build(x: Any) -> Any:
        def body(i: Any, found: Any) -> Any:
            return i + 1, tf.cond(i < 2, lambda: found.write(i, x), lambda: found.write(i, -x))

        start = tf.TensorArray(tf.float32, 4, element_shape=[None, 4])
        return tf.while_loop(lambda i, _: i < 4, body, (0, start))[1].stack()

    error = refusal(tmp_path, build)
    assert error.id == "tfjs-loop"
    assert "unroll=True" in error.hint


def test_normalising_by_the_batch_is_refused(tmp_path: Path) -> None:
    def build(x: Any) -> Any:
        one = tf.constant([1.0])
        picture = tf.reshape(x, [-1, 2, 2, 1])
        return tf.compat.v1.nn.fused_batch_norm(picture, one, one, is_training=True)[0]

    error = refusal(tmp_path, build)
    assert error.id == "training-norm"


def test_a_constant_that_int32_does_not_hold_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, lambda x: tf.cast(x, tf.int64) + 2**40)
    assert error.id == "number-too-large"
    assert str(2**40) in error.what


def test_integers_that_may_grow_too_large_are_a_warning(tmp_path: Path) -> None:
    path = graph_of(tmp_path, lambda x: tf.cast(x, tf.int64) * 65599)
    with open_program(path, inputs=["x"], outputs=["y"]) as program:
        written = write_js(program, tmp_path / "web")
    (warning,) = written.warnings
    assert "Mul" in warning
    assert "2147483648" in warning
    assert written.signatures[0].outputs[0].dtype == "int32"


def test_the_list_of_operations_is_that_of_the_package() -> None:
    from ckpttool.conversion import tfjs_ops
    from fixtures.make_tfjs_ops import TARGET, listed

    assert TARGET.read_text() == listed(node_modules())
    assert len(tfjs_ops.js_ops()) > 200
    assert tfjs_ops.js_version() == "4.22.0"
