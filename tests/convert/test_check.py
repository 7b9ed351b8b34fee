"""The check: what computes the same passes, what does not is found out, whoever made it.

What cannot be compared is said. TensorFlow runs in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from benchmarks.convert_table import in_this_process
from ckpttool.cli.screen import Screen
from ckpttool.cli.views.convert import ConvertView
from ckpttool.conversion.check import CheckResult
from ckpttool.conversion.ports import Port
from ckpttool.conversion.request import CheckSettings, Settings
from ckpttool.conversion.worker.batches import is_filled_up, run_in_batches
from ckpttool.errors import (
    CkpttoolError,
    ConversionError,
    ConverterMissingError,
    ResultDiffersError,
    UsageError,
)
from ckpttool.ops.convert import ConvertResult, convert
from ckpttool.schemas import schema
from tests.support.command import clean_environment
from tests.support.converting import feed, open_program, request

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

CODE = '''
import tensorflow as tf


def normal(*shape):
    return tf.random.stateless_normal(shape, [len(shape), shape[0]])


class Dice(tf.Module):
    def __init__(self):
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        return x * self.scale + tf.random.uniform([4])


class Many(tf.Module):
    """Inputs of every sort, each with a range or a size that has to be kept."""

    def __init__(self):
        self.table = tf.Variable(normal(11, 4), name="table")
        self.large = tf.Variable(normal(500, 4), name="large")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name="ids"),
            tf.TensorSpec([None, None], tf.int64, name="more"),
            tf.TensorSpec([None, None], tf.bool, name="mask"),
            tf.TensorSpec([None], tf.int32, name="kind"),
            tf.TensorSpec([], tf.float32, name="keep"),
            tf.TensorSpec([None], tf.string, name="text"),
        ]
    )
    def __call__(self, ids, more, mask, kind, keep, text):
        joined = tf.concat([tf.cast(ids, tf.int64), more], 1)
        rows = tf.gather(self.table, joined) + tf.gather(self.large, joined)
        both = tf.concat([mask, mask], 1)
        sums = tf.reduce_sum(tf.where(both[..., None], rows, -rows), 1)
        with tf.control_dependencies([tf.debugging.assert_greater(keep, 0.0)]):
            return {
                "scores": sums / keep + tf.one_hot(kind, 4),
                "kind": kind,
                "any": tf.reduce_any(mask, 1),
                "text": tf.strings.join([text, "!"]),
            }


class Picture(tf.Module):
    """It is halved five times, so eight pixels are not enough."""

    def __init__(self):
        self.filter = tf.Variable(normal(3, 3, 3, 2), name="filter")

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float32, name="image")])
    def __call__(self, image):
        image = tf.nn.conv2d(image, self.filter, 1, "VALID")
        for _ in range(4):
            image = tf.nn.max_pool2d(image, 2, 2, "VALID")
        return tf.reduce_mean(image, [1, 2])


class Steps(tf.Module):
    """One step or more: of none there is nothing to stack."""

    def __init__(self):
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32, name="x"),
            tf.TensorSpec([], tf.int32, name="steps"),
        ]
    )
    def __call__(self, x, steps):
        tf.debugging.assert_positive(steps)
        return x * self.scale * tf.cast(steps, tf.float32)


class Dead(tf.Module):
    """Whatever goes in, zeros come out: nothing is compared with these."""

    def __init__(self):
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x):
        return tf.nn.relu(tf.minimum(x * self.scale, 0.0))


class Pair(tf.Module):
    """One input says how long the other has to be."""

    def __init__(self):
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.float32, name="a"),
            tf.TensorSpec([None, 20], tf.float32, name="b"),
        ]
    )
    def __call__(self, a, b):
        return tf.reduce_sum(a * b, 1) * self.scale


class Fixed(tf.Module):
    """Four at a time, no more and no fewer."""

    def __init__(self):
        self.weights = tf.Variable(normal(3, 2), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.float32, name="x")])
    def __call__(self, x):
        return tf.matmul(x, self.weights)


class Overflow(tf.Module):
    def __init__(self):
        self.scale = tf.Variable(float("inf"), name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        return x * self.scale


class Numbers(tf.Module):
    """No made-up text is a number."""

    def __init__(self):
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        return tf.strings.to_number(text) * self.scale
'''


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of CODE, and the code."""
    import importlib.util

    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(CODE)
    spec = importlib.util.spec_from_file_location("mine_build", folder / "mine.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    for name in (
        "Dice",
        "Many",
        "Picture",
        "Dead",
        "Pair",
        "Steps",
        "Fixed",
        "Overflow",
        "Numbers",
    ):
        tf.train.Checkpoint(model=getattr(build, name)()).write(str(folder / name / "ckpt"))
    return folder


def of_mine(folder: Path, name: str, destination: Path, **check: Any) -> Any:
    return request(
        folder / name / "ckpt",
        model=f"{folder / 'mine.py'}:{name}",
        destination=str(destination),
        check=CheckSettings(**check),
    )


def converted(asked: Any) -> ConvertResult:
    return convert(asked, run=in_this_process)


def write_export(folder: Path, function: Callable[..., Any], *specs: Any) -> None:
    """What somebody else's converter might make."""
    module = tf.Module()
    made = tf.function(function, input_signature=list(specs))
    tf.saved_model.save(module, str(folder), signatures={"serving_default": made})


def only(
    source: Path, destination: Path, target: str = "savedmodel", **given: Any
) -> ConvertResult:
    check = CheckSettings(only=True, **given)
    asked = request(source, target=target, destination=str(destination), check=check)
    return converted(asked)


# What is proven ----------------------------------------------------------------------


def test_a_result_is_proven_and_its_report_says_of_what(models: Path, tmp_path: Path) -> None:
    import hashlib

    result = converted(request(models / "mlp-ref", destination=str(tmp_path / "export")))
    assert result.check.state == "passed"
    figures = result.check.metrics["serving_default"]["output"]  # type: ignore[index]
    assert figures["values"] == (2 + 3) * 200, "two batch sizes"
    assert figures["nrmse"] == 0.0
    assert result.report == str(tmp_path / "export.report.json")
    report = json.loads(Path(result.report).read_text())
    Draft202012Validator(schema("convert-report")).validate(report)
    data = json.loads(json.dumps(ConvertView(result).data()))
    Draft202012Validator(schema("convert")).validate(data)
    listed = [*report["source"]["files"], *report["result"]["files"]]
    assert {Path(one["path"]).name for one in report["source"]["files"]} == {
        f"model.ckpt-3.{end}" for end in ("meta", "index", "data-00000-of-00001")
    }
    assert [one["path"] for one in report["result"]["files"]] == [
        one.path for one in result.outputs
    ]
    for one in listed:
        data = Path(one["path"]).read_bytes()
        assert one["bytes"] == len(data)
        assert one["sha256"] == hashlib.sha256(data).hexdigest()
    assert report["versions"]["tensorflow"] == tf.__version__
    assert {"ckpttool", "python", "keras"} <= report["versions"].keys()
    assert {"restore", "convert", "reference", "check"} <= report["seconds"].keys()
    assert report["check"]["metrics"]["serving_default"]["output"]["passed"]


def test_inputs_keep_to_the_ranges_and_sizes_that_the_graph_wants(
    mine: Path, tmp_path: Path
) -> None:
    result = converted(of_mine(mine, "Many", tmp_path / "export"))
    assert result.check.state == "passed"
    figures = result.check.metrics["serving_default"]
    assert set(figures) == {"scores", "kind", "any", "text"}  # type: ignore[call-overload]
    assert all(one["values"] for one in figures.values())  # type: ignore[attr-defined]
    spec = f"{mine / 'mine.py'}:Many"
    with open_program(mine / "Many" / "ckpt", model=spec) as program:
        feeds = feed(program.functions[0], 400)
        assert feeds["ids"].shape == feeds["more"].shape == feeds["mask"].shape
        assert (feeds["ids"].max(), feeds["more"].max()) == (10, 10), "the smaller table's last row"
        assert feeds["kind"].max() == 3
        assert 0 < feeds["keep"] <= 1
        again = feed(program.functions[0], 400)
        assert all((again[name] == array).all() for name, array in feeds.items()), "seeded"


def test_what_picks_along_another_axis_keeps_to_that(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        table = tf.constant(np.ones((9, 3, 5), np.float32))
        for name, axis in (("of_3", 1), ("of_5", -1)):
            ids = tf.compat.v1.placeholder(tf.int32, [None], name=name)
            tf.gather(table, ids, axis=axis, name=f"{name}_picked")
    tf.compat.v1.train.write_graph(graph, str(tmp_path), "graph.pb", as_text=False)
    for name, last in (("of_3", 2), ("of_5", 4)):
        given = {"inputs": [name], "outputs": [f"{name}_picked"]}
        with open_program(tmp_path / "graph.pb", **given) as program:
            assert feed(program.functions[0], 100)[name].max() == last


@pytest.mark.parametrize("name", ["Picture", "Pair", "Steps"])
def test_a_size_that_the_graph_takes_is_found(name: str, mine: Path, tmp_path: Path) -> None:
    assert converted(of_mine(mine, name, tmp_path / "export")).check.state == "passed"


# What is found out -------------------------------------------------------------------


@pytest.fixture(scope="module")
def exports(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the MLP, each wrong in a way of its own, and a right one with other names."""
    import ckpttool

    folder = tmp_path_factory.mktemp("exports")
    with ckpttool.open(models / "mlp-ref") as checkpoint:
        weights, biases = checkpoint.read("weights"), checkpoint.read("biases")
    spec = tf.TensorSpec([None, 784], tf.float32, name="input")

    def right(x: Any) -> Any:
        return tf.nn.relu(x @ weights + biases)

    cases: dict[str, tuple[Callable[..., Any], Any]] = {
        "renamed": (lambda x: {"Identity": right(x)}, tf.TensorSpec([None, 784], name="x_0")),
        "untrained": (lambda x: {"output": tf.nn.relu(x @ weights[::-1] + biases)}, spec),
        "close": (lambda x: {"output": right(x) * 1.01}, spec),
        "baked": (lambda x: {"output": tf.add(right(x), [[0.0], [1e-9]])}, spec),
        "nan": (lambda x: {"output": right(x) / tf.sign(right(x))}, spec),
        "wide": (lambda x: {"output": tf.cast(right(x), tf.float64)}, spec),
        "transposed": (lambda x: {"output": tf.transpose(right(x))}, spec),
        "two": (lambda x: {"output": right(x), "extra": x}, spec),
        "one": (lambda x: {"output": right(x)}, tf.TensorSpec([1, 784], name="input")),
        "other": (lambda x: {"output": right(x[:, :784])}, tf.TensorSpec([None, 785], name="x")),
    }
    for name, (function, one) in cases.items():
        write_export(folder / name, function, one)
    return folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("untrained", "NRMSE"),
        ("close", "NRMSE 0.01, over 0.0001"),
        ("baked", "fails on a batch of 3"),
        ("nan", "NaN or infinite on one side only"),
        ("wide", "it is float64, and the source's float32"),
        ("transposed", "its shape is [200, 2], and the source's [2, 200]"),
        ("two", "gives extra, and the source has no such output"),
        ("other", "takes x, and the source has no such input (only input)"),
    ],
)
def test_anyone_s_wrong_result_is_found_out(
    name: str, said: str, models: Path, exports: Path
) -> None:
    before = sorted(path.stat().st_mtime_ns for path in exports.rglob("*"))
    result = only(models / "mlp-ref", exports / name)
    assert result.check.state == "failed"
    assert said in result.check.why
    view = ConvertView(result)
    assert view.exit_code == 52
    assert any(said in one for one in view.warnings)
    assert not result.applied
    assert sorted(path.stat().st_mtime_ns for path in exports.rglob("*")) == before


def test_the_table_has_the_share_of_equal_elements_of_exact_outputs_only() -> None:
    """Floats of a right result differ in their last bits, and a share of 0.2 would alarm."""
    figures = {"nrmse": 1e-7, "cosine": 1.0, "max_rel": 2e-7, "argmax": None, "equal": 0.2}
    metrics = {"serve": {"score": {"dtype": "float32", **figures}}}

    def shown() -> str:
        check = CheckResult("passed", "run", metrics=metrics)
        result = ConvertResult("a", "b", "onnx", "", (), (), check, None, True, (), (), {})
        return "".join(map(str, ConvertView(result).human(Screen(100, color=False, unicode=True))))

    assert "NRMSE" in shown()
    assert "equal" not in shown()
    assert "same argmax" not in shown()
    metrics["serve"]["kind"] = {"dtype": "int64", **figures, "equal": 0.875}
    assert "equal" in shown()
    assert "0.875" in shown()
    assert "0.2" not in shown()


def test_anyone_s_right_result_agrees_whatever_its_names(models: Path, exports: Path) -> None:
    result = only(models / "mlp-ref", exports / "renamed")
    assert result.check.state == "passed"
    assert ConvertView(result).exit_code == 0
    assert any("output = Identity" in note for note in result.warnings)
    assert any("input = x_0" in note for note in result.warnings)


def test_a_result_that_takes_one_at_a_time_is_run_so(models: Path, exports: Path) -> None:
    result = only(models / "mlp-ref", exports / "one")
    assert result.check.state == "passed"
    assert result.check.metrics["serving_default"]["output"]["rows"] == 5  # type: ignore[index]
    assert any("takes 1 row at a time" in note for note in result.warnings)


@pytest.mark.parametrize(
    ("target", "what", "said"),
    [
        ("savedmodel", "file", "it is a file, and a result of savedmodel is a directory"),
        ("savedmodel", "folder", "there is no saved_model.pb or saved_model.pbtxt in it"),
        ("tfjs", "folder", "there is no model.json in it"),
        ("onnx", "folder", "it is a directory, and a result of onnx is a file"),
        ("onnx", "file", "Protobuf parsing failed"),
        ("tflite", "file", "is a malformed TFLite model"),
    ],
)
def test_what_is_no_result_of_that_kind_fails_the_check(
    target: str, what: str, said: str, models: Path, tmp_path: Path
) -> None:
    """One answer whatever stands there: 52."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("hello")
    result = only(models / "mlp-ref", tmp_path / what, target=target)
    assert result.check.state == "failed"
    assert said in result.check.why
    assert ConvertView(result).exit_code == 52


def test_the_files_of_a_result_are_all_named(models: Path, tmp_path: Path) -> None:
    model, report = tmp_path / "m.onnx", tmp_path / "r.json"
    given: dict[str, Any] = {"target": "onnx", "destination": str(model)}
    converted(request(models / "mlp-ref", **given, settings=Settings(external_data=True)))
    result = only(models / "mlp-ref", model, target="onnx", report=str(report))
    assert result.check.state == "passed"
    names = [str(model), f"{model}.data"]
    assert [one.path for one in result.outputs] == names
    assert [one["path"] for one in json.loads(report.read_text())["result"]["files"]] == names


def test_tolerance_accepts_more(models: Path, exports: Path) -> None:
    assert only(models / "mlp-ref", exports / "close", tolerance=0.02).check.state == "passed"
    assert only(models / "mlp-ref", exports / "close", tolerance=0.005).check.state == "failed"
    assert only(models / "mlp-ref", exports / "wide", tolerance=9.0).check.state == "failed"


def test_a_signature_that_is_missing(models: Path, tmp_path: Path) -> None:
    """As TFLite's converter keeps serving_default only, and says nothing."""
    source = request(models / "embedding/ckpt", model=f"{models / 'build.py'}:Embedding")
    with open_program(source.source, model=source.model) as program:
        program.functions = program.functions[:1]  # type: ignore[misc]
        program.save(str(tmp_path / "export"))
    asked = request(
        models / "embedding/ckpt",
        model=source.model,
        destination=str(tmp_path / "export"),
        check=CheckSettings(only=True),
    )
    result = converted(asked)
    assert result.check.state == "failed"
    assert "no signature head; it has serving_default" in result.check.why


def test_d36_a_result_of_the_training_graph(models: Path, tmp_path: Path) -> None:
    """D36: batch statistics and dropout left on give other outputs than the one that serves."""
    serving = ["is_training=False", "keep_prob=1.0"]
    for name, freeze in (
        ("statistics", ["is_training=True", "keep_prob=1.0"]),
        ("serving", serving),
    ):
        asked = request(
            models / "conditional",
            destination=str(tmp_path / name),
            freeze=freeze,
            allow_training_graph=True,
        )
        assert converted(asked).check.state == "passed"
        asked = request(
            models / "conditional",
            destination=str(tmp_path / name),
            freeze=serving,
            check=CheckSettings(only=True),
        )
        check = converted(asked).check
        assert check.state == ("passed" if name == "serving" else "failed")
        figures = check.metrics["serving_default"]["probs"]  # type: ignore[index]
        assert (figures["nrmse"] > 0.01) is (name == "statistics")


def test_there_is_nothing_to_check(models: Path, tmp_path: Path) -> None:
    with pytest.raises(CkpttoolError, match="there is no") as caught:
        only(models / "mlp-ref", tmp_path / "absent")
    assert caught.value.exit_code == 10


def test_a_failed_check_leaves_nothing_but_the_report_that_was_asked_for(
    models: Path, exports: Path, tmp_path: Path
) -> None:
    def other_result(task: str, job: Mapping[str, object], **rest: Any) -> dict[str, Any]:
        """As if the converter had been wrong: another's result is run."""
        if task.endswith("execute"):
            job = {**job, "path": str(exports / "untrained")}
        return in_this_process(task, job, **rest)

    export = tmp_path / "export"
    for report in (None, str(tmp_path / "kept.json")):
        asked = request(
            models / "mlp-ref", destination=str(export), check=CheckSettings(report=report)
        )
        with pytest.raises(ResultDiffersError, match="NRMSE") as caught:
            convert(asked, run=other_result)
        assert caught.value.exit_code == 52
        assert "--report" in caught.value.hint
        kept = [] if report is None else ["kept.json"]
        assert [path.name for path in tmp_path.iterdir()] == kept
    document = json.loads((tmp_path / "kept.json").read_text())
    Draft202012Validator(schema("convert-report")).validate(document)
    assert document["check"]["state"] == "failed"
    assert not document["check"]["metrics"]["serving_default"]["output"]["passed"]


def test_a_runtime_that_dies_of_a_result_or_is_not_there(models: Path, tmp_path: Path) -> None:
    def dying(task: str, job: Mapping[str, object], **rest: Any) -> dict[str, Any]:
        if task.endswith("execute"):
            raise error
        return in_this_process(task, job, **rest)

    error: CkpttoolError = ConversionError(
        "it broke", why="it died of SIGSEGV", id="converter-died"
    )
    asked = request(models / "mlp-ref", destination=str(tmp_path / "export"))
    with pytest.raises(ResultDiffersError, match="cannot be run: it died of SIGSEGV"):
        convert(asked, run=dying)
    assert list(tmp_path.iterdir()) == []
    error = ConverterMissingError("it needs node", why="it is not installed")
    result = convert(asked, run=dying)
    assert (result.check.state, result.applied) == ("not_run", True)
    assert "it needs node" in result.check.why
    assert any("not proven" in one for one in ConvertView(result).warnings)
    assert ConvertView(result).exit_code == 0


def test_a_result_is_run_without_tensorflow_where_its_runtime_needs_none() -> None:
    code = "import sys, ckpttool.conversion.worker.execute; sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=clean_environment(), check=False)
    assert done.returncode == 0


# What cannot be compared -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Dice", "random_uniform/RandomUniform (RandomUniform); nothing can be compared"),
        ("Overflow", "no finite number"),
        ("Numbers", "does not take made-up inputs"),
    ],
)
def test_what_cannot_be_compared_is_said(name: str, said: str, mine: Path, tmp_path: Path) -> None:
    result = converted(of_mine(mine, name, tmp_path / "export"))
    assert result.check.state == "not_run"
    assert said in result.check.why
    assert any("not proven" in one for one in ConvertView(result).warnings)
    asked = of_mine(mine, name, tmp_path / "proven", require=True)
    with pytest.raises(ConverterMissingError, match="cannot be checked") as caught:
        converted(asked)
    assert (caught.value.exit_code, caught.value.id) == (50, "check-not-run")
    assert not (tmp_path / "proven").exists()


def test_the_check_changes_nothing_of_what_is_written(models: Path, tmp_path: Path) -> None:
    """A model that counts its calls is exported as it was, not as the check left it."""
    import ckpttool

    asked = request(
        models / "counter/ckpt",
        model=f"{models / 'build.py'}:Counter",
        destination=str(tmp_path / "export"),
    )
    result = converted(asked)
    assert result.check.state == "not_run"
    assert "other values each time" in result.check.why
    with ckpttool.open(tmp_path / "export") as exported, ckpttool.open(asked.source) as saved:
        (name,) = [one for one in exported if exported[one].dtype == "float32"]
        assert exported.read(name) == saved.read("count") == 0


# Real inputs -------------------------------------------------------------------------


def test_real_inputs_and_right_answers(mine: Path, models: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, text=np.array(["1.5", "-2"]))
    result = converted(of_mine(mine, "Numbers", tmp_path / "numbers", data=str(data)))
    assert result.check.state == "passed"
    rows = np.random.default_rng(1).normal(size=(50, 784))  # float64: cast
    labels = np.zeros(50, np.int64)
    np.savez(data, input=rows, label=labels)
    check = CheckSettings(data=str(data))
    asked = request(models / "mlp-ref", destination=str(tmp_path / "mlp"), check=check)
    figures = converted(asked).check.metrics["serving_default"]["output"]  # type: ignore[index]
    assert figures["rows"] == 50
    accuracy = figures["accuracy"]
    assert accuracy["source"] == accuracy["result"] < 1
    assert accuracy["difference"] == 0.0


def test_a_source_that_gives_zeros_only_proves_nothing(mine: Path, tmp_path: Path) -> None:
    check = converted(of_mine(mine, "Dead", tmp_path / "export")).check
    assert check.state == "not_run"
    assert "gives zero for all of these inputs" in check.why


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"label": np.zeros(49, np.int64)}, "int64[49]"),
        ({"label": np.zeros((50, 10), np.int64)}, "int64[50, 10]"),
        ({"label": np.full(50, 0.5)}, "float64[50]"),
        ({"label": np.full(50, "cat")}, "str96[50]"),
        ({"label:nosuch": np.zeros(50, np.int64)}, "no such output"),
    ],
    ids=str,
)
def test_labels_that_are_none(labels: Any, said: str, models: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, input=np.ones((50, 784)), **labels)
    check = CheckSettings(data=str(data))
    asked = request(models / "mlp-ref", destination=str(tmp_path / "mlp"), check=check)
    with pytest.raises(UsageError) as caught:
        converted(asked)
    assert caught.value.id == "check-data"
    assert said in caught.value.why
    assert not (tmp_path / "mlp").exists()


def test_a_column_of_labels_is_a_label_a_row(models: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(50, 784))
    found: list[object] = []
    for labels in (np.arange(50) % 10, (np.arange(50) % 10)[:, None]):
        np.savez(tmp_path / "data.npz", input=rows, label=labels)
        check = CheckSettings(data=str(tmp_path / "data.npz"))
        destination = str(tmp_path / f"mlp-{len(found)}")
        asked = request(models / "mlp-ref", destination=destination, check=check)
        figures: Any = converted(asked).check.metrics["serving_default"]
        found.append(figures["output"]["accuracy"])
    assert found[0] == found[1]


def test_a_source_of_one_batch_size_takes_any_number_of_rows(mine: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    for rows in (12, 6, 1):
        np.savez(data, x=np.random.default_rng(1).normal(size=(rows, 3)))
        result = converted(of_mine(mine, "Fixed", tmp_path / f"export-{rows}", data=str(data)))
        assert result.check.state == "passed"
        figures = result.check.metrics["serving_default"]["output"]  # type: ignore[index]
        assert figures["rows"] == rows
        assert any("filled up" in one for one in result.warnings) == (rows % 4 > 0)
    assert converted(of_mine(mine, "Fixed", tmp_path / "seeded")).check.state == "passed"


def test_a_result_of_one_batch_size_takes_any_number_of_rows(models: Path, tmp_path: Path) -> None:
    """Rows that were added to fill a batch are not among those that are compared."""
    data = tmp_path / "data.npz"
    rows = np.random.default_rng(1).normal(size=(6, 784))
    np.savez(data, input=rows, label=np.arange(6))
    asked = request(
        models / "mlp-ref",
        destination=str(tmp_path / "export"),
        settings=Settings(batch=4),
        check=CheckSettings(data=str(data)),
    )
    result = converted(asked)
    figures = result.check.metrics["serving_default"]["output"]  # type: ignore[index]
    assert (result.check.state, figures["rows"]) == ("passed", 6)
    assert any("filled up with rows that are not compared" in one for one in result.warnings)
    again = only(models / "mlp-ref", tmp_path / "export")
    assert again.check.state == "passed"
    assert any("takes 4 rows at a time" in one for one in again.warnings)
    assert sum("filled up" in one for one in again.warnings) == 1


def test_batches_are_cut_filled_up_and_put_together() -> None:
    ports = [Port("x", "float32", (4, 2)), Port("scale", "float32", ())]
    seen: list[tuple[int, ...]] = []

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(feeds["x"].shape)
        scaled = feeds["x"] * feeds["scale"]
        return {"rows": scaled, "flat": scaled.ravel(), "mean": np.mean(scaled)}

    for rows in range(1, 10):
        x = np.arange(rows * 2.0).reshape(rows, 2)
        found = run_in_batches(run, ports, {"x": x, "scale": np.float32(3)})
        assert found["rows"].tolist() == (x * 3).tolist()
        assert found["flat"].tolist() == (x * 3).ravel().tolist()
        assert found["mean"].shape == (() if rows == 4 else (-(-rows // 4),)), "one a batch"
        assert is_filled_up(ports, {"x": x, "scale": np.float32(3)}) == (rows % 4 > 0)
    assert set(seen) == {(4, 2)}


@pytest.mark.parametrize(
    ("arrays", "code", "said"),
    [
        ({"inputs": np.ones((2, 784))}, 10, "there is no input; it has inputs"),
        ({"input": np.ones((0, 784), np.float32)}, 2, "has nothing in it"),
        ({"input": np.ones((2, 783), np.float32)}, 2, "float32[2, 783]"),
        ({"input": np.ones(784, np.float32)}, 2, "an array is a batch"),
        ({"input": np.ones((2, 784), np.int64)}, 2, "int64"),
        ({"input": np.array([["a"] * 784])}, 2, "input:float32[?,784]"),
        ({"input": np.array([{}])}, 2, "plain arrays"),
        (None, 10, "there is no"),
        (b"text", 2, "no .npz"),
    ],
)
def test_data_that_do_not_fit(
    arrays: Any, code: int, said: str, models: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data.npz"
    if isinstance(arrays, bytes):
        data.write_bytes(arrays)
    elif arrays is not None:
        np.savez(data, **arrays)
    check = CheckSettings(data=str(data))
    asked = request(models / "mlp-ref", destination=str(tmp_path / "export"), check=check)
    with pytest.raises(CkpttoolError) as caught:
        converted(asked)
    assert (caught.value.exit_code, caught.value.id) == (code, "check-data")
    assert said in f"{caught.value} {caught.value.hint}"
    assert not (tmp_path / "export").exists()


# The report's place ------------------------------------------------------------------


def test_a_report_replaces_a_report_and_nothing_else(models: Path, tmp_path: Path) -> None:
    export, report = tmp_path / "export", tmp_path / "export.report.json"
    report.write_text('{"schema": "ckpttool.convert-report/1"}')
    converted(request(models / "mlp-ref", destination=str(export)))
    assert json.loads(report.read_text())["check"]["state"] == "passed"
    import shutil

    shutil.rmtree(export)
    report.write_text("my own notes")
    with pytest.raises(CkpttoolError) as caught:
        converted(request(models / "mlp-ref", destination=str(export)))
    assert (caught.value.exit_code, caught.value.id) == (31, "exists")
    assert report.read_text() == "my own notes"
    assert not export.exists()


@pytest.mark.parametrize(
    ("report", "id"),
    [
        ("absent/report.json", "destination-directory"),
        ("folder", "output-not-a-file"),
        ("export", "output-not-a-file"),
        ("notes.txt", "exists"),
    ],
)
def test_a_report_that_has_no_place(report: str, id: str, models: Path, tmp_path: Path) -> None:
    """It is refused before anything is converted."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    before = sorted(tmp_path.iterdir())
    check = CheckSettings(report=str(tmp_path / report))
    asked = request(models / "mlp-ref", destination=str(tmp_path / "export"), check=check)
    with pytest.raises(CkpttoolError) as caught:
        convert(asked)  # no RunTask: a child would be started
    assert caught.value.id == id
    assert sorted(tmp_path.iterdir()) == before


def test_no_check_and_a_plan_leave_no_report(models: Path, tmp_path: Path) -> None:
    asked = request(
        models / "mlp-ref", destination=str(tmp_path / "export"), check=CheckSettings(run=False)
    )
    result = converted(asked)
    assert result.report is None
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    kept = CheckSettings(run=False, report=str(tmp_path / "report.json"))
    result = converted(request(models / "mlp-ref", destination=str(tmp_path / "2"), check=kept))
    assert json.loads((tmp_path / "report.json").read_text())["check"]["state"] == "not_run"
    assert "not proven" in "".join(ConvertView(result).warnings)
    plan = convert(request(models / "mlp-ref", destination=str(tmp_path / "3")), dry_run=True)
    assert plan.report is None
    assert ConvertView(plan).warnings == []


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_tolerance_that_is_none(tolerance: float, models: Path, tmp_path: Path) -> None:
    """A NaN would accept anything, for nothing is over it."""
    check = CheckSettings(tolerance=tolerance)
    with pytest.raises(UsageError) as caught:
        converted(request(models / "mlp-ref", destination=str(tmp_path / "x"), check=check))
    assert caught.value.id == "tolerance"


def test_contradicting_options(models: Path, tmp_path: Path) -> None:
    """A check that is required and left out, or alone and left out, is a slip."""
    for check in (CheckSettings(run=False, require=True), CheckSettings(run=False, only=True)):
        with pytest.raises(UsageError) as caught:
            converted(request(models / "mlp-ref", destination=str(tmp_path / "x"), check=check))
        assert caught.value.id == "options-contradict"
