"""What people ran into when they wanted to change what is in a checkpoint."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import RunCli
from tests.support.editing import values
from tests.support.tf_write import write_name_based


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture
def bert(tf, tmp_path: Path) -> Path:
    """A checkpoint with the names of BERT's pre-training, Adam's moments and bookkeeping."""
    names = [
        "bert/embeddings/word_embeddings",
        "bert/encoder/layer_0/attention/self/query/kernel",
        "bert/encoder/layer_0/attention/self/query/bias",
        "bert/encoder/layer_0/output/LayerNorm/gamma",
        "cls/predictions/output_bias",
    ]
    variables: dict[str, object] = {}
    for number, name in enumerate(names):
        value = np.full([4, 8], number + 1, "f4") / 3
        variables |= {name: value, f"{name}/adam_m": value + 10, f"{name}/adam_v": value + 20}
    variables["global_step"] = np.int64(900_000)
    write_name_based(tmp_path / "bert_model.ckpt", variables)
    return tmp_path / "bert_model.ckpt"


def test_d19_renaming_is_one_command_and_slots_follow(
    run_cli: RunCli, bert: Path, tmp_path: Path
) -> None:
    """D19: everyone writes the same script, and loses dtypes and slots with it."""
    before = values(bert)
    rule = ["--rename", "s#^bert/#encoder/#", "--rename", "s/LayerNorm/layer_norm/"]
    plan = run_cli(["edit", bert, tmp_path / "new", *rule, "--dry-run"])
    assert plan.returncode == 0
    assert "bert/embeddings/word_embeddings/adam_m\trenamed to encoder/" in plan.stdout
    assert not list(tmp_path.glob("new*"))
    done = run_cli(["edit", bert, tmp_path / "new", *rule, "--verify"])
    assert done.returncode == 0, done.stderr
    after = values(tmp_path / "new")
    for name, value in before.items():
        new = name.replace("bert/", "encoder/").replace("LayerNorm", "layer_norm")
        assert after.pop(new).tobytes() == value.tobytes()
    assert after == {}
    assert {key: value.tobytes() for key, value in values(bert).items()} == {
        key: value.tobytes() for key, value in before.items()
    }, "the original is untouched"
    clash = run_cli(["edit", bert, tmp_path / "no", "--rename", "s#self/query/.*#x#"])
    assert clash.returncode == 31
    assert "query/bias and " in clash.stderr or "query/kernel and " in clash.stderr


def test_d20_a_checkpoint_without_its_optimizer(
    run_cli: RunCli, bert: Path, tmp_path: Path
) -> None:
    """D20: the checkpoint is three times the model; steps stay."""
    done = run_cli(["edit", bert, tmp_path / "slim", "--strip-optimizer", "--color", "always"])
    assert done.returncode == 0
    assert "1,928 bytes of values became 648" in done.stderr
    assert values(tmp_path / "slim").keys() == {
        name for name in values(bert) if not name.endswith(("adam_m", "adam_v"))
    }
    listed = run_cli(["list", bert, "--kind", "optimizer", "-q"]).stdout.split()
    plan = json.loads(
        run_cli(["edit", bert, tmp_path / "x", "--strip-optimizer", "-n", "--json"]).stdout
    )
    assert {change["variable"] for change in plan["data"]["changes"]} == set(listed)


def test_d21_what_a_converter_can_walk_over(run_cli: RunCli, bert: Path, tmp_path: Path) -> None:
    """D21: converters trip over ``global_step``, ``adam_m``: one command takes out both."""
    asked = ["--strip-optimizer", "--drop", "global_step"]
    done = run_cli(["edit", bert, tmp_path / "weights", *asked])
    assert done.returncode == 0
    listed = run_cli(["list", tmp_path / "weights", "--json"])
    kinds = {one["kind"] for one in json.loads(listed.stdout)["data"]["variables"]}
    assert kinds == {"model"}


def test_d24_a_bfloat16_checkpoint_for_float32(tf, run_cli: RunCli, tmp_path: Path) -> None:
    """D24: RestoreV2 does no casting; exact where it can be, said where it cannot."""
    value = tf.cast(tf.reshape(tf.range(40.0), [8, 5]) / 7, tf.bfloat16)
    variables = {"w": value, "n": tf.constant([3], tf.int64), "keep": value}
    write_name_based(tmp_path / "s", {**variables, "b": tf.constant([True]), "s": b"text"})
    done = run_cli(["edit", tmp_path / "s", tmp_path / "d", "--cast", "float32", "--only", "w"])
    assert done.returncode == 0, done.stderr
    assert "rounded" not in done.stderr
    found = values(tmp_path / "d")
    assert found["w"].dtype == np.float32
    assert (found["w"] == value.numpy().astype(np.float32)).all()
    assert found["keep"].tobytes() == value.numpy().tobytes()
    assert (found["n"].dtype, found["b"].dtype, found["s"]) == (np.int64, np.bool_, b"text")
    restored = tf.Variable(tf.zeros([8, 5]))
    restored.assign(tf.raw_ops.RestoreV2(prefix=str(tmp_path / "d"), tensor_names=["w"],
                    shape_and_slices=[""], dtypes=[tf.float32])[0])  # fmt: skip
    lossy = run_cli(["edit", tmp_path / "d", tmp_path / "e", "--cast", "float16", "--only", "w"])
    assert "warning: w: float32 → float16: " not in lossy.stderr, "bfloat16's 8 bits fit"
    write_name_based(tmp_path / "big", {"w": [1e6, 1 / 3]})
    lossy = run_cli(["edit", tmp_path / "big", tmp_path / "f", "--cast", "float16"])
    assert "1 of 2 values rounded, 1 of 2 values overflowed to inf" in lossy.stderr


def test_d26_a_map_of_names_and_what_it_leaves_over(tf, run_cli: RunCli, tmp_path: Path) -> None:
    """D26: TF 1 → TF 2 by a file of names, with everything that fits nowhere listed."""

    def layer(rows: int, value: float):
        made = tf.Module()
        made.kernel = tf.Variable(tf.fill([rows, rows], value))
        made.bias = tf.Variable(tf.fill([rows], value))
        return made

    fresh = tf.train.Checkpoint(first=layer(3, 0.0), second=layer(3, 0.0))
    layout = fresh.save(str(tmp_path / "fresh"))
    old = {
        "scope/fc1/weights": np.full([3, 3], 1, "f4"),
        "scope/fc1/biases": np.full([3], 2, "f4"),
        "scope/fc2/weights": np.full([3, 3], 3, "f4"),
        "scope/fc2/biases": np.full([3], 4, "f4"),
        "scope/fc2/biases/Adam": np.full([3], 5, "f4"),
    }
    write_name_based(tmp_path / "tf1", old)
    asked = ["edit", tmp_path / "tf1", tmp_path / "tf2", "--like", layout]
    guess = run_cli(asked)
    assert guess.returncode == 31
    for name in [*list(old)[:4], "first/kernel", "first/bias", "second/kernel", "second/bias"]:
        assert name in guess.stderr, "no name of either side is left out"
    with (tmp_path / "map.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        for name in list(old)[:3]:
            new = name.replace("scope/fc1", "first").replace("scope/fc2", "second")
            rows.writerow([name, new.replace("weights", "kernel").replace("biases", "bias")])
    # The fourth is the only one left of its shape on either side.
    done = run_cli([*asked, "--map", tmp_path / "map.csv", "--verify"])
    assert done.returncode == 0, done.stderr
    model = tf.train.Checkpoint(first=layer(3, 9.0), second=layer(3, 9.0))
    model.restore(str(tmp_path / "tf2")).assert_consumed()
    found = [model.first.kernel, model.first.bias, model.second.kernel, model.second.bias]
    assert [variable.numpy().flat[0] for variable in found] == [1, 2, 3, 4]
