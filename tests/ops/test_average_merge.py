"""``average`` and ``merge`` against NumPy and TensorFlow."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ckpttool import open as open_checkpoint
from ckpttool import write_checkpoint
from ckpttool.errors import CkpttoolError, CorruptError, RefusedError, UsageError
from ckpttool.ops.average import average
from ckpttool.ops.merge import merge
from ckpttool.ops.rewrite.run import Options
from tests.support.tf_write import write_name_based, write_slices


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def mean(sources, to, weights=None, **options):
    return average([str(one) for one in sources], str(to), weights, Options(verify=True, **options))


def union(sources, to, on_conflict="error", take=(), **options):
    return merge(
        [str(one) for one in sources], str(to), on_conflict, take, Options(verify=True, **options)
    )


FLOATS = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128")


@pytest.fixture(scope="module")
def three(tf, tmp_path_factory):
    """Three checkpoints of one model, and what is in them."""
    folder = tmp_path_factory.mktemp("three")
    prefixes, contents = [], []
    for number in range(3):
        numbers = np.random.default_rng(number).normal(size=(301, 211))
        variables = {name: tf.cast(tf.constant(numbers), name) for name in FLOATS}
        variables["global_step"] = tf.constant(100 * (number + 1), tf.int64)
        variables["words"] = tf.constant(f"from {number}")
        variables["empty"] = tf.zeros([0, 3])
        prefixes.append(write_name_based(folder / f"m{number}", variables))
        contents.append({name: value.numpy() for name, value in variables.items()})
    return prefixes, contents


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0]])
def test_floats_are_averaged_in_float64_and_the_rest_is_the_last_ones(tf, three, tmp_path, weights):
    prefixes, contents = three
    mean(prefixes, tmp_path / "mean", weights)
    given = weights or [1.0, 1.0, 1.0]
    shares = [weight / sum(given) for weight in given]
    reader = tf.train.load_checkpoint(str(tmp_path / "mean"))
    for name in FLOATS:
        wide = np.complex128 if name.startswith("complex") else np.float64
        if weights is None and np.dtype(wide).itemsize > contents[0][name].itemsize:
            total = sum(one[name].astype(wide) for one in contents) / len(contents)
        else:
            total = sum(
                share * one[name].astype(wide) for share, one in zip(shares, contents, strict=True)
            )
        expected = total.astype(contents[0][name].dtype)
        assert reader.get_tensor(name).tobytes() == expected.tobytes(), name
    assert reader.get_tensor("global_step") == 300
    assert reader.get_tensor("words") == b"from 2"
    assert reader.get_tensor("empty").shape == (0, 3)


def test_partitioned_one_way_and_another(tf, tmp_path):
    rows = tf.reshape(tf.range(12.0), [6, 2])
    write_name_based(tmp_path / "a", {"emb": rows})
    halves = [((0, 0), (3, 2), rows[:3] + 1), ((3, 0), (3, 2), rows[3:] + 1)]
    write_slices(tmp_path / "b", "emb", [6, 2], halves)
    columns = [((0, 0), (6, 1), rows[:, :1] + 5), ((0, 1), (6, 1), rows[:, 1:] + 5)]
    write_slices(tmp_path / "c", "emb", [6, 2], columns)
    for number, order in enumerate(("abc", "cab", "bca")):
        mean([tmp_path / letter for letter in order], tmp_path / f"m{number}")
        reader = tf.train.load_checkpoint(str(tmp_path / f"m{number}"))
        assert (reader.get_tensor("emb") == rows.numpy() + 2).all()


def test_object_based_ones_restore_in_tensorflow(tf, tmp_path):
    module = tf.Module()
    module.w = tf.Variable([1.0, 2.0])
    module.n = tf.Variable(3)
    checkpoint = tf.train.Checkpoint(module=module)
    first = checkpoint.write(str(tmp_path / "one"))
    module.w.assign([3.0, 6.0])
    module.n.assign(5)
    second = checkpoint.write(str(tmp_path / "two"))
    mean([first, second], tmp_path / "mean")
    module.w.assign([0.0, 0.0])
    checkpoint.read(str(tmp_path / "mean")).assert_consumed()
    assert module.w.numpy().tolist() == [2.0, 4.0]
    assert module.n.numpy() == 5


def test_what_differs_is_listed_all_at_once(tf, tmp_path):
    write_name_based(tmp_path / "a", {"w": [1.0], "x": [1.0], "only_a": 1.0, "n": 1})
    write_name_based(tmp_path / "b", {"w": [1.0, 2.0], "x": tf.zeros([1], tf.float64), "n": [1, 2]})
    with pytest.raises(RefusedError) as caught:
        mean([tmp_path / "a", tmp_path / "b"], tmp_path / "m")
    assert caught.value.id == "sources-differ"
    for words in ("only_a is not in", "w is float32 [1]", "x is float32 [1]", "float64 [1]"):
        assert words in caught.value.why
    assert not list(tmp_path.glob("m.*"))


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [float("nan"), 1.0], [0.0, 0.0]])
def test_weights_that_make_no_sense(three, tmp_path, weights):
    with pytest.raises(UsageError):
        mean(three[0][:2], tmp_path / "m", weights)
    with pytest.raises(UsageError):
        mean(three[0][:1], tmp_path / "m")


def test_a_damaged_source_is_refused(three, tmp_path):
    prefix = three[0][0]
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(prefix + suffix, tmp_path / f"d{suffix}")
    content = bytearray((tmp_path / "d.data-00000-of-00001").read_bytes())
    content[5000] ^= 1
    (tmp_path / "d.data-00000-of-00001").write_bytes(content)
    with pytest.raises(CorruptError) as caught:
        mean([tmp_path / "d", prefix], tmp_path / "m")
    assert caught.value.id == "checksum-mismatch"
    assert not list(tmp_path.glob("m.*"))


@pytest.fixture
def two(tf, tmp_path):
    write_name_based(tmp_path / "back", {"body/w": [1.0], "head/w": [2.0], "step": 1})
    rows = tf.reshape(tf.range(6.0), [3, 2])
    parts = [((0, 0), (2, 2), rows[:2]), ((2, 0), (1, 2), rows[2:])]
    write_slices(tmp_path / "top", "head/emb", [3, 2], parts, {"head/w": [20.0], "step": 7})
    return tmp_path


def read(tf, prefix) -> dict[str, list[Any]]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name).tolist() for name in reader.get_variable_to_shape_map()}


EMB = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_what_both_have_is_refused_by_name(two):
    with pytest.raises(RefusedError) as caught:
        union([two / "back", two / "top"], two / "m")
    assert caught.value.id == "duplicate-key"
    assert "'head/w'" in caught.value.why
    assert "'step'" in caught.value.why
    assert not list(two.glob("m.*"))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("first", {"head/w": [2.0], "step": 1}),
        ("last", {"head/w": [20.0], "step": 7}),
        (
            "prefix",
            {"back/head/w": [2.0], "top/head/w": [20.0], "back/step": 1, "top/step": 7},
        ),
    ],
)
def test_the_rules_for_conflicts(tf, two, rule, expected):
    union([two / "back", two / "top"], two / "m", rule)
    assert read(tf, two / "m") == {"body/w": [1.0], "head/emb": EMB, **expected}


def test_taking_some_from_one(tf, two):
    union([two / "back", two / "top"], two / "m", take=("B:head/*",))
    assert read(tf, two / "m") == {"body/w": [1.0], "head/emb": EMB, "head/w": [20.0], "step": 1}


@pytest.mark.parametrize("take", ["head/*", "C:*", "B:", ":x", "B:nothing*", "BB:x"])
def test_a_take_that_makes_no_sense(two, take):
    with pytest.raises(UsageError):
        union([two / "back", two / "top"], two / "m", take=(take,))


def test_three_that_have_nothing_in_common(tf, tmp_path):
    for letter in "abc":
        write_name_based(tmp_path / letter, {letter: [1.0]})
    result = union([tmp_path / letter for letter in "abc"], tmp_path / "m")
    assert read(tf, tmp_path / "m") == {"a": [1.0], "b": [1.0], "c": [1.0]}
    assert len(result.shards) == 3


def test_an_object_graph_that_misses_the_rest_is_said(tf, tmp_path):
    module = tf.Module()
    module.w = tf.Variable([1.0])
    tf.train.Checkpoint(module=module).write(str(tmp_path / "o"))
    write_name_based(tmp_path / "n", {"x": [1.0]})
    result = union([tmp_path / "o", tmp_path / "n"], tmp_path / "m")
    assert any("object graph is that of" in note for note in result.notes)
    with pytest.raises(CkpttoolError, match="more than one source"):
        union([tmp_path / "o", tmp_path / "o"], tmp_path / "m2")


def test_the_commands(run_cli, three, two):
    a, b, _ = three[0]
    done = run_cli(["average", a, b, "-o", two / "mean", "--weights", "3,1", "--json"])
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert {change["variable"] for change in data["changes"]} >= set(FLOATS)
    done = run_cli(["merge", two / "back", two / "top", "-o", two / "m", "--json"])
    assert done.returncode == 31
    assert json.loads(done.stderr)["id"] == "duplicate-key"
    done = run_cli(["merge", two / "back", two / "top", "-o", two / "m", "--on-conflict", "last"])
    assert done.returncode == 0, done.stderr
    assert run_cli(["average", a, b, "-o", two / "x", "--weights", "a"]).returncode == 2


def test_one_name_in_several_runs_is_told_apart_by_directory(tf, tmp_path):
    """``a/run/model`` and ``b/run/model`` have the last directory in common, too."""
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder / "run").mkdir(parents=True)
        write_name_based(tmp_path / folder / "run" / "model", {"w": tf.constant([float(number)])})
    sources = [tmp_path / folder / "run" / "model" for folder in ("a", "b")]
    union(sources, tmp_path / "m", "prefix")
    assert read(tf, tmp_path / "m") == {"a/run/model/w": [0.0], "b/run/model/w": [1.0]}


def test_files_are_told_apart_by_their_kind(tmp_path):
    arrays = {"w": np.ones(3, np.float32)}
    np.savez(tmp_path / "model.npz", w=arrays["w"])
    write_checkpoint(tmp_path / "model", arrays)
    union([tmp_path / "model.npz", tmp_path / "model"], tmp_path / "m", "prefix")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert set(checkpoint) == {"model.npz/w", "model/w"}


def test_a_run_has_more_checkpoints_than_a_shell_allows_files(tmp_path):
    for step in range(30):
        write_checkpoint(tmp_path / f"m-{step}", {"w": np.full(3, step, np.float32)}, shards=2)
    for limit, code in (("-Sn", 0), ("-n", 40)):
        command = f"ulimit {limit} 40; exec {sys.executable} -m ckpttool average '{tmp_path}/@*'"
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} -o {tmp_path}/mean{code}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
    assert "ulimit -n" in done.stderr
    with open_checkpoint(tmp_path / "mean0") as checkpoint:
        assert checkpoint.read("w").tolist() == [14.5] * 3


def test_a_checkpoint_has_no_two_names_for_itself(two):
    with pytest.raises(RefusedError) as caught:
        union([two / "back", two / "back"], two / "m", "prefix")
    assert caught.value.id == "duplicate-key"


def test_the_graph_file_of_the_last_one_goes_with_the_mean(fixtures_dir, tmp_path):
    source = fixtures_dir / "mlp-v1" / "model.ckpt-1000"
    average([str(source), str(source)], str(tmp_path / "mean"), None, Options())
    assert (tmp_path / "mean.meta").read_bytes() == source.with_name(
        "model.ckpt-1000.meta"
    ).read_bytes()
