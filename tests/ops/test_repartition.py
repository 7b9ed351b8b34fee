"""``repartition`` against TensorFlow: what is written, TensorFlow reads back bit for bit."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool import write_checkpoint
from ckpttool.api import open as open_checkpoint
from ckpttool.errors import CkpttoolError, CorruptError, RefusedError, UsageError
from ckpttool.ops.repartition import Repartition, repartition
from ckpttool.ops.rewrite.run import Options
from tests.support.tf_write import write_name_based, write_sharded, write_slices


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def run(source, to, *, check=False, overwrite=False, dry_run=False, verify=True, **asked):
    sources = [source] if isinstance(source, (str, os.PathLike)) else source
    options = Options(check=check, overwrite=overwrite, dry_run=dry_run, verify=verify)
    return repartition([str(one) for one in sources], str(to), Repartition(**asked), options)


def values(prefix) -> dict[str, tuple[Any, ...]]:
    """Every variable's dtype, shape and bytes, read by ckpttool."""
    found: dict[str, tuple[Any, ...]] = {}
    with open_checkpoint(str(prefix)) as checkpoint:
        for variable in checkpoint.values():
            array = checkpoint.read(variable.key)
            content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            found[variable.key] = (variable.dtype, variable.shape, content)
    return found


def tensorflow_values(tf, prefix) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(prefix))
    found = {}
    for name in reader.get_variable_to_shape_map():
        array = reader.get_tensor(name)
        content = array if isinstance(array, bytes) else array.tobytes()
        if not isinstance(array, bytes) and array.dtype.hasobject:
            content = repr(array.tolist())
        found[name] = content
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def model(tf, tmp_path_factory):
    """Every dtype that is saved, several ranks, in one shard."""
    folder = tmp_path_factory.mktemp("model")
    generator = tf.random.Generator.from_seed(3)
    variables = {}
    for dtype in (
        tf.float32, tf.float64, tf.bfloat16, tf.float16, tf.int8, tf.int16, tf.int32, tf.int64,
        tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128,
    ):  # fmt: skip
        for shape in ((), (7,), (6, 5), (4, 3, 2), (0, 3)):
            numbers = generator.uniform(shape, 0, 100, dtype=tf.int32)
            name = f"{dtype.name}/{'x'.join(map(str, shape)) or 'scalar'}"
            variables[name] = tf.cast(numbers, dtype)
    variables["words"] = tf.constant([["a", "bb"], ["", "d" * 300]])
    return write_name_based(folder / "model", variables)


def test_shards_of_every_strategy_hold_the_same_values(tf, model, tmp_path):
    expected = tensorflow_values(tf, model)
    strategies: list[dict[str, Any]] = [
        {"shards": 1},
        {"shards": 3},
        {"shards": 5, "by": "hash"},
        {"shards": 4, "by": "range"},
        {"max_shard_size": 700},
        {"shards": 200},
        {"shards": 3, "by": "fixed", "rules": ("float*=2", "*int*=1", "*=0")},
    ]
    for number, asked in enumerate(strategies):
        to = tmp_path / str(number)
        to.mkdir()
        result = run(model, to / "m", **asked)
        assert tensorflow_values(tf, to / "m") == expected, asked
        assert values(to / "m") == values(model)
        count = len(result.shards)
        assert len(list(to.glob(f"m.data-*-of-{count:05d}"))) == count
        assert count == asked.get("shards", count)
        assert sum(shard.nbytes for shard in result.shards) == result.nbytes
        back = tmp_path / f"{number}-back"
        back.mkdir()
        run(to / "m", back / "model", shards=1, merge_slices=("*",))
        assert tensorflow_values(tf, back / "model") == expected


def test_balanced_shards_are_balanced(model, tmp_path):
    sizes = [shard.nbytes for shard in run(model, tmp_path / "m", shards=3).shards]
    assert max(sizes) - min(sizes) < 0.1 * sum(sizes)


def test_the_largest_data_file_stays_under_the_limit(model, tmp_path):
    result = run(model, tmp_path / "m", max_shard_size=700)
    assert all(shard.nbytes <= 700 or shard.variables == 1 for shard in result.shards)
    assert len(result.shards) > 3


def test_there_and_back_gives_the_same_values(fixtures_dir, corpus, tmp_path):
    """Spread over four data files and gather again, every readable checkpoint of one."""
    round_trips = 0
    for index in sorted((*fixtures_dir.rglob("*.index"), *corpus.rglob("*.index"))):
        prefix = index.with_name(index.name.removesuffix(".index"))
        data = sorted(prefix.parent.glob(f"{prefix.name}.data-*"))
        if len(data) != 1:
            continue
        away, back = tmp_path / f"{round_trips}a", tmp_path / f"{round_trips}b"
        away.mkdir(exist_ok=True)
        back.mkdir(exist_ok=True)
        try:
            run(prefix, away / "x", shards=4, verify=False)
        except CkpttoolError:
            assert "damaged" in str(prefix) or "bad-" in str(prefix)
            continue
        expected = values(prefix)
        assert values(away / "x") == expected, prefix
        run(away / "x", back / prefix.name, shards=1, verify=False)
        assert values(back / prefix.name) == expected, prefix
        round_trips += 1
    assert round_trips > 30


@pytest.mark.parametrize("seed", range(40))
def test_any_layout_and_back(tf, tmp_path, seed):
    """Random shapes, cuts (also of cuts) and merges; TensorFlow reads what it can put together."""
    dice = random.Random(seed)
    variables = {}
    for number in range(4):
        shape = [dice.randint(1, 9) for _ in range(dice.randint(1, 3))]
        dtype = dice.choice([tf.float32, tf.bfloat16, tf.int64, tf.uint8, tf.complex64, tf.float16])
        elements = tf.random.stateless_uniform(
            shape, (seed, number), maxval=250, dtype=tf.int32, minval=0
        )
        variables[f"v{number}"] = tf.cast(elements, dtype)
    source = write_name_based(tmp_path / "source", variables)
    expected = values(source)
    shapes = {name: list(value.shape) for name, value in variables.items()}
    here = source
    for step in range(3):
        cuts = []
        for name, shape in shapes.items():
            axis = dice.randrange(len(shape))
            rows = shape[axis]
            uneven = sorted(dice.sample(range(1, rows), min(rows - 1, dice.randint(0, 3))))
            lengths = [b - a for a, b in itertools.pairwise([0, *uneven, rows])]
            how = dice.choice([str(dice.randint(1, 5)), ",".join(map(str, lengths))])
            if "," not in how and how == str(lengths[0]) and len(lengths) == 1:
                how = "1"
            cuts.append(f"{name}=axis{axis}:{how}")
        there = tmp_path / f"step{step}"
        run(
            here,
            there,
            slices=tuple(cuts),
            shards=dice.randint(1, 4),
            unrestorable=True,
            check=dice.random() < 0.5,
        )
        assert values(there) == expected
        here = there
    whole = tmp_path / "whole"
    run(here, whole, merge_slices=("*",), shards=1)
    assert tensorflow_values(tf, whole) == tensorflow_values(tf, source)
    reader = tf.train.load_checkpoint(str(here))
    for name, value in variables.items():
        if value.dtype != tf.float16:
            assert (reader.get_tensor(name) == value.numpy()).all()


def test_slices_as_tensorflow_would_have_written_them(tf, tmp_path):
    """The index is TensorFlow's, byte for byte, for the same slices in the same order."""
    rows = tf.reshape(tf.range(40.0), [10, 4])
    source = write_name_based(tmp_path / "source", {"emb": rows, "w": rows[:2]})
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    parts = [((0, 0), (4, 4), rows[:4]), ((4, 0), (3, 4), rows[4:7]), ((7, 0), (3, 4), rows[7:])]
    write_slices(tmp_path / "theirs" / "m", "emb", [10, 4], parts, {"w": rows[:2]})
    run(source, tmp_path / "ours" / "m", slices=("emb=axis0:3",))
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


def test_shards_as_tensorflow_would_have_written_them(tf, tmp_path):
    variables = {"a": tf.range(6.0), "b": tf.range(3), "c": tf.constant("text")}
    source = write_name_based(tmp_path / "source", variables)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    write_sharded(
        tmp_path / "theirs" / "m",
        [{"b": variables["b"]}, {"a": variables["a"], "c": variables["c"]}],
    )
    run(source, tmp_path / "ours" / "m", shards=2, by="fixed", rules=("b=0", "*=1"))
    theirs, ours = files(tmp_path / "theirs"), files(tmp_path / "ours")
    assert ours == theirs


def test_literal_parts_and_back(tf, tmp_path):
    """D22: a graph asks for ``emb/part_0``…; and slots have their number inside the name."""
    rows = tf.reshape(tf.range(40.0), [10, 4])
    source = write_name_based(tmp_path / "s", {"emb": rows, "b": rows[0]})
    run(source, tmp_path / "parts", slices=("emb=axis0:3",), form="parts")
    reader = tf.train.load_checkpoint(str(tmp_path / "parts"))
    assert reader.get_variable_to_shape_map() == {
        "b": [4], "emb/part_0": [4, 4], "emb/part_1": [3, 4], "emb/part_2": [3, 4],
    }  # fmt: skip
    assert (reader.get_tensor("emb/part_1") == rows[4:7].numpy()).all()
    run(tmp_path / "parts", tmp_path / "joined", join_parts=("emb*",))
    assert tensorflow_values(tf, tmp_path / "joined") == tensorflow_values(tf, source)
    slots = {
        "w/part_0/Adam": rows[:6],
        "w/part_1/Adam": rows[6:],
        "w/part_0": rows,
        "x/part_0": 1.0,
    }
    write_name_based(tmp_path / "slots", slots)
    run(tmp_path / "slots", tmp_path / "named", join_parts=("*",))
    reader = tf.train.load_checkpoint(str(tmp_path / "named"))
    assert reader.get_variable_to_shape_map() == {"w": [10, 4], "w/Adam": [10, 4], "x": []}
    assert (reader.get_tensor("w/Adam") == rows.numpy()).all()


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"e/part_0": [[1.0]], "e/part_2": [[1.0]]}, "e/part_1 is missing"),
        ({"e/part_0": [[1.0]], "e/part_1": [[1]]}, "dtypes are"),
        ({"e/part_0": [[1.0]], "e/part_1": [1.0]}, "different numbers of dimensions"),
        ({"e/part_0": [[1.0]], "e/part_1": [[1.0, 2.0], [3.0, 4.0]]}, "differ in axes"),
        ({"e/part_0": 1.0, "e/part_1": 2.0}, "scalars"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tf, tmp_path, parts, why):
    write_name_based(tmp_path / "s", {name: tf.constant(value) for name, value in parts.items()})
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", join_parts=("*",))
    assert caught.value.id == "parts-do-not-fit"
    assert why in caught.value.why
    assert not list(tmp_path.glob("d.*"))


def test_slices_that_tensorflow_cannot_put_together_need_a_flag(tf, tmp_path):
    write_name_based(tmp_path / "s", {"h": tf.zeros([4, 2], tf.float16)})
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", slices=("h=axis0:2",))
    assert caught.value.id == "slices-unrestorable"
    assert "--allow-unrestorable" in caught.value.hint
    run(tmp_path / "s", tmp_path / "d", slices=("h=axis0:2",), unrestorable=True)
    assert values(tmp_path / "d") == values(tmp_path / "s")


def test_slices_of_many_dimensions_would_end_tensorflow(tf, tmp_path):
    shapes = {"eight": [2] + [1] * 7, "nine": [2] + [1] * 8}
    variables = {name: tf.zeros(shape) for name, shape in shapes.items()}
    write_name_based(tmp_path / "s", variables)
    run(tmp_path / "s", tmp_path / "d", slices=("eight=axis0:2",))
    assert tensorflow_values(tf, tmp_path / "d") == tensorflow_values(tf, tmp_path / "s")
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "e", slices=("nine=axis0:2",))
    assert caught.value.id == "slices-unrestorable"
    assert "9 dimensions" in caught.value.why


def test_stray_pieces_of_a_save_per_machine(tf, tmp_path):
    """D40: every machine wrote its part to its own disk, and the merge never happened."""
    rows = tf.reshape(tf.range(12.0), [6, 2])
    for machine in (0, 1):
        folder = tmp_path / f"host{machine}"
        folder.mkdir()
        part = (machine * 3, 0), (3, 2), rows[3 * machine : 3 * machine + 3]
        write_slices(
            folder / f"part-0000{machine}-of-00002",
            "emb",
            [6, 2],
            [part],
            {f"b{machine}": rows[machine]},
        )
    pieces = [tmp_path / f"host{n}" / f"part-0000{n}-of-00002" for n in (0, 1)]
    result = run(pieces, tmp_path / "whole")
    assert len(result.shards) == 2
    reader = tf.train.load_checkpoint(str(tmp_path / "whole"))
    assert (reader.get_tensor("emb") == rows.numpy()).all()
    assert set(reader.get_variable_to_shape_map()) == {"emb", "b0", "b1"}
    one = run(pieces, tmp_path / "one", shards=1, merge_slices=("*",))
    assert len(one.shards) == 1
    assert tensorflow_values(tf, tmp_path / "one") == tensorflow_values(tf, tmp_path / "whole")


def test_a_key_in_two_pieces_is_refused_by_name(tf, tmp_path):
    """D23: nothing is picked silently, and both files are named."""
    write_name_based(tmp_path / "a", {"embedding_0": [1.0], "x": 1})
    write_name_based(tmp_path / "b", {"embedding_0": [2.0]})
    with pytest.raises(RefusedError) as caught:
        run([tmp_path / "a", tmp_path / "b"], tmp_path / "d")
    assert caught.value.id == "duplicate-key"
    assert "embedding_0" in caught.value.what
    assert str(tmp_path / "a") in caught.value.why
    assert str(tmp_path / "b") in caught.value.why


def test_by_device_follows_the_graph(tf, tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session(graph=v1.get_default_graph()) as session:
        with tf.device("/job:ps/task:1"):
            v1.get_variable("w", initializer=[1.0, 2.0])
        with tf.device("/job:ps/replica:0/task:2/device:CPU:0"):
            v1.get_variable("e", initializer=[3.0], use_resource=True)
        v1.get_variable("free", initializer=[5.0])
        graph = v1.train.export_meta_graph(
            clear_devices=False, saver_def=v1.train.Saver().as_saver_def()
        )
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in (
            ("w", [1.0, 2.0]),
            ("w/Adam", [0.5, 0.5]),
            ("e", [3.0]),
            ("free", [5.0]),
        ):
            v1.get_variable(name, initializer=value)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "m"), write_meta_graph=False)
    (tmp_path / "m.meta").write_bytes(graph.SerializeToString())
    run(tmp_path / "m", tmp_path / "d", by="device")
    with open_checkpoint(str(tmp_path / "d")) as checkpoint:
        shards = {name: variable.shard for name, variable in checkpoint.items()}
    assert shards == {"w": 1, "w/Adam": 1, "e": 2, "free": 0}
    assert (tmp_path / "d.meta").read_bytes() == (tmp_path / "m.meta").read_bytes()


def test_by_device_without_a_graph_says_so(tf, tmp_path):
    write_name_based(tmp_path / "s", {"w": [1.0]})
    with pytest.raises(CkpttoolError) as caught:
        run(tmp_path / "s", tmp_path / "d", by="device")
    assert caught.value.id == "graph-missing"


def test_over_itself_with_fewer_data_files(tf, tmp_path):
    write_sharded(tmp_path / "m", [{"a": [1.0]}, {"b": [2.0]}, {"c": [3.0]}])
    expected = values(tmp_path / "m")
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "m", tmp_path / "m", shards=1)
    assert caught.value.id == "exists"
    run(tmp_path / "m", tmp_path / "m", shards=1, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "m.data-00000-of-00001",
        "m.index",
    ]
    assert values(tmp_path / "m") == expected


def test_the_variables_of_a_saved_model_in_place(tf, fixtures_dir, tmp_path):
    import shutil

    model = tmp_path / "export"
    shutil.copytree(fixtures_dir / "savedmodel", model)
    had_fingerprint = (model / "fingerprint.pb").exists()
    variables = model / "variables" / "variables"
    expected = tensorflow_values(tf, variables)
    result = run(model, model, shards=2, overwrite=True)
    assert len(result.shards) == 2
    assert not (model / "fingerprint.pb").exists()
    assert any("fingerprint.pb" in warning for warning in result.warnings) == had_fingerprint
    assert tensorflow_values(tf, variables) == expected
    tf.saved_model.load(str(model))


def test_a_dry_run_writes_nothing_and_says_the_same(model, tmp_path):
    plan = run(model, tmp_path / "m", shards=3, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    assert not plan.applied
    done = run(model, tmp_path / "m", shards=3)
    assert plan.shards == done.shards
    assert list(plan.changes) == list(done.changes)
    assert all(change.reason for change in plan.changes)


@pytest.mark.parametrize(
    "asked",
    [
        {"shards": 2, "max_shard_size": 5},
        {"by": "hash"},
        {"by": "range"},
        {"by": "fixed", "shards": 2},
        {"rules": ("a=1",), "shards": 2},
        {"by": "hash", "max_shard_size": 5},
    ],
)
def test_wishes_that_contradict_each_other(asked):
    with pytest.raises(UsageError):
        Repartition(**asked)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a=",
        "a=0",
        "a=axis0:",
        "a=axis0:x",
        "a=axis0:0",
        "a=axis0:size=",
        "a=axis0:max=2,size=3,max=4",
        "=axis0:3",
    ],
)
def test_slice_rules_that_make_no_sense(model, tmp_path, text):
    with pytest.raises(UsageError):
        run(model, tmp_path / "m", slices=(text,))


def test_a_cut_variable_with_a_damaged_byte_is_refused(tf, tmp_path):
    write_name_based(tmp_path / "s", {"w": tf.reshape(tf.range(20.0), [10, 2])})
    data = tmp_path / "s.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[33] ^= 1
    data.write_bytes(content)
    for how in ("axis0:3", "axis1:2"):
        with pytest.raises(CorruptError) as caught:
            run(tmp_path / "s", tmp_path / "d", slices=(f"w={how}",), verify=False)
        assert caught.value.id == "checksum-mismatch"
        assert not list(tmp_path.glob("d.*"))


def test_the_command(run_cli, fixtures_dir, tmp_path):
    done = run_cli(
        ["repartition", fixtures_dir / "mlp-v1", tmp_path / "m", "--shards", "2", "--json"]
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "ckpttool.repartition/1"
    assert [shard["path"] for shard in document["data"]["shards"]] == [
        f"{tmp_path}/m.data-0000{n}-of-00002" for n in (0, 1)
    ]
    again = run_cli(["repartition", fixtures_dir / "mlp-v1", tmp_path / "m", "--shards", "2"])
    assert again.returncode == 31
    assert "--overwrite" in again.stderr
    asked = run_cli(["repartition", fixtures_dir / "mlp-v1", tmp_path / "m", "--overwrite"])
    assert asked.returncode == 4
    done = run_cli(["repartition", fixtures_dir / "mlp-v1", tmp_path / "m", "--overwrite", "-y"])
    assert done.returncode == 0, done.stderr


def test_ranges_leave_whole_what_tensorflow_cannot_put_together(tmp_path):
    """One variable of nine dimensions, and the others are cut all the same."""
    arrays = {"deep": np.ones((4, *[1] * 8), np.float32), "w": np.ones((4, 2), np.float32)}
    write_checkpoint(tmp_path / "m", arrays)
    run(tmp_path / "m", tmp_path / "cut", shards=2, by="range")
    with open_checkpoint(str(tmp_path / "cut")) as checkpoint:
        cut = {one.key: len(one.slices or ()) for one in checkpoint.values()}
    assert cut == {"deep": 0, "w": 2}
