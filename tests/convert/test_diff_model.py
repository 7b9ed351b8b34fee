"""``diff --model``: what a model asks for, against what TensorFlow and Keras really restore."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.conversion.child import Bounds
from ckpttool.errors import CkpttoolError, UnsupportedError, UsageError
from ckpttool.limits import Limits
from ckpttool.ops.diff.facts import DiffResult
from ckpttool.ops.diff.model import diff_model
from ckpttool.ops.diff.model_code import ModelCode
from ckpttool.ops.diff.run import diff
from ckpttool.ops.wanted import Wanted
from tests.support.command import RunCli
from tests.support.tf_write import write_name_based

# Keras warns of what it does itself when it writes a file.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

#: TensorFlow in a child takes seconds, and minutes on a machine that is busy.
PATIENCE = 600.0

INPUT = "x:float32[?,12]"


def here(
    task: str, job: Mapping[str, object], *, folder: str, log: str, bounds: Bounds
) -> dict[str, Any]:
    """The child's task in the test's process."""
    del folder, log, bounds
    answer = import_module(task).run(json.loads(json.dumps(job)))
    return json.loads(json.dumps(answer))  # type: ignore[no-any-return]


def asked(source: Path, models: Path, function: str, *arguments: str, **details: Any) -> DiffResult:
    code = ModelCode(f"{models / 'build.py'}:{function}", arguments, **details)
    return diff_model(str(source), code, want=Wanted(), limits=Limits(), run=here)


def missing(result: DiffResult) -> set[str]:
    return {one.name for one in result.only_b}


CASES = {
    "Keras 3, subclassed": ("subclass/ckpt", "subclass", {"inputs": (INPUT,)}),
    "Keras 3 with its optimizer": ("recurrent/ckpt", "recurrent", {}),
    "Keras 3, .weights.h5": ("recurrent.weights.h5", "recurrent", {}),
    "Keras 3, .keras": ("recurrent.keras", "recurrent", {}),
    "a module": ("embedding/ckpt", "Embedding", {}),
    "a module that is the root": ("narrow/ckpt", "Narrow", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_was_saved_of_a_model_restores_into_it(models: Path, case: str) -> None:
    source, function, details = CASES[case]
    found = asked(models / source, models, function, **details)
    assert found.restores, found
    assert not found.only_b
    assert found.common == found.b.variables > 0
    # What the model does not take is the optimizer's, and the count of saves.
    assert {one.kind for one in found.only_a} <= {"optimizer", "step"}
    assert bool(found.only_a) is ("recurrent" in source)


def test_everything_that_is_unmatched_on_both_sides(models: Path) -> None:
    """Another model: TensorFlow would say nothing at all, or name one of it."""
    found = asked(models / "recurrent" / "ckpt", models, "subclass", inputs=(INPUT,))
    assert not found.restores
    assert len(found.only_b) == 4
    assert sum(one.kind == "model" for one in found.only_a) == 8


def test_every_shape_at_once_where_tensorflow_stops_at_the_first(models: Path) -> None:
    source = models / "subclass" / "ckpt"
    found = asked(source, models, "subclass", "units=8", inputs=(INPUT,))
    assert not found.restores
    assert {(one.a, one.b) for one in found.shape} == {
        ("[12,16]", "[12,8]"),
        ("[16]", "[8]"),
        ("[16,4]", "[8,4]"),
    }
    assert not found.only_b
    weights = models / "smaller.weights.h5"
    _save_smaller(models, weights)
    in_keras = asked(weights, models, "subclass", inputs=(INPUT,))
    assert not in_keras.restores
    assert {(one.a, one.b) for one in in_keras.shape} == {
        ("[12,8]", "[12,16]"),
        ("[8]", "[16]"),
        ("[8,4]", "[16,4]"),
    }


def _save_smaller(models: Path, path: Path) -> None:
    from tests.support.tf_models import load_build

    model = load_build(models).subclass(8)
    model(np.zeros((1, 12), np.float32))
    model.save_weights(path)


def test_keras_2_and_3_are_told_apart(models: Path, tmp_path: Path) -> None:
    """D35: their objects are named otherwise, and Keras 3 would stay as it was made."""
    pytest.importorskip("tf_keras")
    from tests.support.tf_models import load_build

    model = load_build(models).keras2()
    model.save_weights(str(tmp_path / "run" / "ckpt"))
    model.save_weights(str(tmp_path / "run.weights.h5"))
    model.save_weights(str(tmp_path / "run.h5"))
    for source in ("run/ckpt", "run.weights.h5"):
        assert asked(tmp_path / source, models, "keras2").restores, source
    found = asked(tmp_path / "run" / "ckpt", models, "keras3_of_keras2")
    assert not found.restores
    assert found.only_b
    with pytest.raises(UnsupportedError) as caught:
        asked(tmp_path / "run.h5", models, "keras2")
    assert caught.value.id == "diff-model-source"


def test_a_file_without_the_optimizer_of_a_compiled_model_restores(tmp_path: Path) -> None:
    """Keras loads it, and a use of the model needs none; a layer that is missing is told alone."""
    keras = pytest.importorskip("keras")
    (tmp_path / "build.py").write_text(
        "import keras\n\ndef compiled(more=False):\n"
        "    layers = [keras.Input((3,)), keras.layers.Dense(2)]\n"
        "    model = keras.Sequential(layers + [keras.layers.Dense(2)] * more)\n"
        "    model.compile('adam', 'mse')\n"
        "    return model\n"
    )
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    plain.save_weights(tmp_path / "plain.weights.h5")
    found = asked(tmp_path / "plain.weights.h5", tmp_path, "compiled")
    assert found.restores
    assert not found.only_b
    assert not found.warnings
    code = ModelCode(f"{tmp_path / 'build.py'}:compiled", ("more=True",))
    source = str(tmp_path / "plain.weights.h5")
    larger = diff_model(source, code, want=Wanted(), limits=Limits(), run=here)
    assert not larger.restores
    assert {one.kind for one in larger.only_b} == {"model"}


@pytest.mark.parametrize(
    ("changes", "restores"),
    [
        ({}, True),
        ({"more": np.zeros(2, np.float32)}, True),
        ({"table": None}, False),
        ({"table": np.zeros((30, 5), np.float32)}, False),
        ({"table": np.zeros((30, 4), np.float64)}, False),
    ],
)
def test_by_names(models: Path, tmp_path: Path, changes: dict[str, Any], restores: bool) -> None:
    whole: dict[str, Any] = {
        "table": np.zeros((30, 4), np.float32),
        "weights": np.zeros((4, 2), np.float32),
    }
    values = {name: one for name, one in (whole | changes).items() if one is not None}
    prefix = write_name_based(tmp_path / "m", values)
    found = asked(Path(prefix), models, "Embedding")
    assert found.restores is restores
    assert found.b.variables == 2


HARD = '''
import tensorflow as tf


class Part(tf.Module):
    def __init__(self, width):
        self.kernel = tf.Variable(tf.ones([2, width]))


class Net(tf.Module):
    """Lists, dicts and an object with two names; nothing says what it is called with."""

    def __init__(self, width, extra):
        self.shared = Part(width)
        self.again = self.shared
        self.parts = [Part(1), Part(2)]
        self.named = {"a": Part(3)}
        if extra:
            self.parts.append(Part(4))
            self.named["b"] = self.shared


def net(width=5, extra=False):
    return Net(width, extra)
'''


@pytest.mark.parametrize(("saved", "built"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_the_walk_finds_what_tensorflow_restores(
    models: Path, tmp_path: Path, saved: int, built: int
) -> None:
    """Marks that a real restore leaves are the variables that are told as missing."""
    tf = pytest.importorskip("tensorflow")
    from ckpttool.conversion.worker.factory import build_model
    from ckpttool.conversion.worker.restoring import restore

    code = tmp_path / "hard_of_a_test.py"
    code.write_text(HARD)
    spec = f"{code}:net"
    namespace: dict[str, Any] = {}
    exec(compile(HARD, "hard", "exec"), namespace)
    prefix = str(tmp_path / "ckpt")
    step = tf.Variable(3)
    tf.train.Checkpoint(net=namespace["net"](extra=bool(saved)), step=step).write(prefix)
    given = (f"extra={bool(built)}".lower(),)
    found = diff_model(prefix, ModelCode(spec, given), want=Wanted(), limits=Limits(), run=here)
    from ckpttool.conversion.specs import parse_named_value

    model = build_model(spec, [parse_named_value("--model-arg", given[0])])
    left = restore(model, model.variables, prefix, None).left
    assert len(found.only_b) == len(left)
    assert found.restores is (not left)
    assert found.b.variables == len(model.variables)
    if built and not saved:
        assert missing(found) == {"net/parts/2/kernel"}
    assert any("was not called" in one for one in found.warnings)


def test_the_command(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """A real child: nothing of TensorFlow on stdout, and the answer is no."""
    args = ["diff", str(models / "subclass" / "ckpt"), "--model"]
    spec = f"{models / 'build.py'}:subclass"
    more = ["--model-arg", "units=8", "--input", INPUT, "--json"]
    log = tmp_path / "child.log"
    result = run_cli([*args, spec, *more, "--log", str(log)], timeout=PATIENCE)
    assert result.returncode == 1, result.stderr
    data = json.loads(result.stdout)["data"]
    assert data["restores"] is False
    assert data["b"] == {
        "source": spec,
        "location": spec,
        "kind": "model",
        "style": None,
        "variables": 4,
    }
    assert len(data["shape"]) == 3
    assert log.exists()


def test_an_error_of_the_code(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    args = ["diff", str(models / "subclass" / "ckpt"), "--model"]
    result = run_cli(
        [*args, f"{models / 'build.py'}:broken", "--json"], timeout=PATIENCE, env=environment
    )
    assert result.returncode == 51
    error = json.loads(result.stderr.splitlines()[-1])
    assert error["id"] == "model-function-failed"
    # Only the log of what failed is left.
    assert [name.rpartition(".")[2] for name in os.listdir(tmp_path)] == ["log"]


@pytest.mark.parametrize(
    ("args", "id"),
    [
        (["--model", "b.py:f", "--level", "values"], "usage"),
        (["--model", "b.py:f", "--rtol", "1e-3"], "usage"),
        (["--model", "b.py:f", "--graph", "x.meta"], "usage"),
        (["B", "--model", "b.py:f"], "usage"),
        (["B", "--model-arg", "x=1"], "options-contradict"),
        (["B", "--timeout", "1m"], "options-contradict"),
    ],
)
def test_what_makes_no_sense(fixtures_dir: Path, run_cli: RunCli, args: list[str], id: str) -> None:
    result = run_cli(["diff", str(fixtures_dir / "mlp-v1"), *args, "--json"])
    assert result.returncode == 2
    assert json.loads(result.stderr)["id"] == id


def test_none_of_the_three(fixtures_dir: Path) -> None:
    with pytest.raises(UsageError, match="either B, a graph or a model"):
        diff(fixtures_dir / "mlp-v1")


def test_a_model_without_variables(models: Path, tmp_path: Path) -> None:
    code = tmp_path / "empty_of_a_test.py"
    code.write_text("import tensorflow as tf\n\ndef f():\n    return tf.Module()\n")
    with pytest.raises(CkpttoolError) as caught:
        diff_model(
            str(models / "subclass" / "ckpt"),
            ModelCode(f"{code}:f"),
            want=Wanted(),
            limits=Limits(),
            run=here,
        )
    assert caught.value.id in {"model-kind", "model-inputs"}


def test_a_plain_class_has_no_place_in_an_object_based_checkpoint(
    models: Path, tmp_path: Path
) -> None:
    code = tmp_path / "plain_of_a_test.py"
    code.write_text(
        "import tensorflow as tf\n\nclass Plain:\n"
        "    def __init__(self):\n        self.variables = [tf.Variable(1.0)]\n"
    )
    with pytest.raises(UsageError) as caught:
        diff_model(
            str(models / "subclass" / "ckpt"),
            ModelCode(f"{code}:Plain", inputs=(INPUT,)),
            want=Wanted(),
            limits=Limits(),
            run=here,
        )
    assert caught.value.id == "model-kind"


def test_an_attribute_of_a_file_of_keras_is_refused(models: Path) -> None:
    with pytest.raises(UsageError) as caught:
        asked(models / "recurrent.weights.h5", models, "recurrent", root="net")
    assert caught.value.id == "options-contradict"
