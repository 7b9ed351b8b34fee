"""``edit`` of name-based checkpoints, against TensorFlow's v1 Saver."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, CorruptError, RefusedError, UsageError
from ckpttool.ops.edit.run import Edit
from tests.support.editing import changes_of, run, values
from tests.support.tf_write import write_name_based, write_slices


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def rows(tf, n=12):
    return tf.reshape(tf.range(float(n)), [n // 2, 2])


def same(found, expected) -> None:
    """Bit for bit, dtypes too."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        theirs = np.asarray(value)
        assert np.asarray(found[name]).dtype == theirs.dtype, name
        assert np.asarray(found[name]).tobytes() == theirs.tobytes(), name


def test_slots_follow_a_renamed_variable(tf, tmp_path):
    w = rows(tf)
    names = {
        "net/w": w,
        "net/w/Adam": w + 1,
        "net/w/Adam_1": w + 2,
        "net/w/part_0/Ftrl": w + 3,
        "net/w/ExponentialMovingAverage": w + 4,
        "OptimizeLoss/net/w/Momentum": w + 5,
        "training/Adagrad/net/w/accumulator": w + 6,
        "net/w_slot_vr": w + 7,
        "net/wide": w + 8,
        "net/wide/Adam": w + 9,
        "global_step": tf.constant(7, tf.int64),
    }
    write_name_based(tmp_path / "s", names)
    result = run(tmp_path / "s", tmp_path / "d", renames=("net/w=tower/kernel",))
    renamed = {name.replace("net/w", "tower/kernel", 1): value for name, value in names.items()}
    renamed["net/wide"] = renamed.pop("tower/kernelide")
    renamed["net/wide/Adam"] = renamed.pop("tower/kernelide/Adam")
    same(values(tmp_path / "d"), renamed)
    said = changes_of(result)
    assert said["net/w"] == "renamed to tower/kernel"
    assert said["OptimizeLoss/net/w/Momentum"] == "renamed to OptimizeLoss/tower/kernel/Momentum"
    assert "net/wide" not in said


@pytest.mark.parametrize(
    ("rules", "old", "new"),
    [
        (["s/weights$/kernel/"], "a/weights", "a/kernel"),
        (["s#a/#b/#"], "a/a/w", "b/a/w"),
        (["s#a/#b/#g"], "a/a/w", "b/b/w"),
        (["s/LAYER/l/i"], "Layer/w", "l/w"),
        (["s,^(.*)/(.*)$,\\2/\\1,"], "x/y", "y/x"),
        (["s/w/[&]/"], "w", "[w]"),
        (["s/w/\\&/"], "w", "&"),
        (["s|a\\|b|c|"], "a|b", "c"),
        (["s/a\\/b/c/"], "a/b", "c"),
        (["s/a/b/", "s/b/c/"], "a", "c"),
        (["a=b", "b=c"], "a", "c"),
    ],
)
def test_rules(tf, tmp_path, rules, old, new):
    write_name_based(tmp_path / "s", {old: [1.0], "zzz": [2.0]})
    run(tmp_path / "s", tmp_path / "d", renames=tuple(rules), allow_unmatched=True)
    assert values(tmp_path / "d").keys() == {new, "zzz"}


@pytest.mark.parametrize(
    "text", ["", "x", "=b", "a=", "s/a/", "s/(/x/", "s/a/b/q", "s/a/b/gg", "s//x/", r"s/a/\2/"]
)
def test_rules_that_make_no_sense(tf, tmp_path, text):
    write_name_based(tmp_path / "s", {"a": [1.0]})
    with pytest.raises(UsageError):
        run(tmp_path / "s", tmp_path / "d", renames=(text,))
    assert not list(tmp_path.glob("d.*"))


def test_two_variables_of_one_name_are_refused_and_both_named(tf, tmp_path):
    write_name_based(tmp_path / "s", {"a/w": [1.0], "b/w": [2.0], "c": [3.0]})
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", renames=("s#^./##",))
    assert caught.value.id == "duplicate-key"
    assert "a/w and b/w" in caught.value.why
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", renames=("a/w=c",), dry_run=True)
    assert caught.value.id == "duplicate-key"
    assert not list(tmp_path.glob("d.*"))


@pytest.mark.parametrize("rule", ["s/.*//", "s/a/\0a/"])
def test_names_that_no_key_can_be(tf, tmp_path, rule):
    write_name_based(tmp_path / "s", {"a": [1.0]})
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", renames=(rule,))
    assert caught.value.id == "name-unusable"


def test_what_fits_nothing_is_refused_with_all_of_it(tf, tmp_path):
    write_name_based(tmp_path / "s", {"dense/kernel": [1.0], "n": 3})
    asked: dict[str, Any] = {
        "drop": ("nothing*",),
        "renames": ("dense/kernle=x", "s/nope/x/"),
        "cast": "float64",
        "only": ("n",),
    }
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", **asked)
    assert caught.value.id == "unmatched"
    for part in ("--drop nothing*", "dense/kernle", "s/nope/x/", "--only n"):
        assert part in caught.value.why
    run(tmp_path / "s", tmp_path / "d", **asked, allow_unmatched=True)
    same(values(tmp_path / "d"), values(tmp_path / "s"))


def test_partitioned_variables_keep_their_slices(tf, tmp_path):
    w = rows(tf)
    parts = [((0, 0), (2, 2), w[:2]), ((2, 0), (4, 2), w[2:])]
    write_slices(tmp_path / "s", "emb", [6, 2], parts, {"emb/Adagrad": w + 1, "b": w[0]})
    run(tmp_path / "s", tmp_path / "d", renames=("s/^emb/table\xff\0/",))
    assert values(tmp_path / "d").keys() == {"table\xff\0", "table\xff\0/Adagrad", "b"}
    write_slices(tmp_path / "theirs", "table", [6, 2], parts, {"table/Adagrad": w + 1, "b": w[0]})
    run(tmp_path / "s", tmp_path / "d2", renames=("emb=table",))
    theirs, ours = (tmp_path / f"{name}.index" for name in ("theirs", "d2"))
    assert theirs.read_bytes() == ours.read_bytes()
    same(values(tmp_path / "d2"), values(tmp_path / "theirs"))
    run(tmp_path / "s", tmp_path / "d3", cast="bfloat16")
    assert values(tmp_path / "d3")["emb"].tobytes() == tf.cast(w, tf.bfloat16).numpy().tobytes()
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d4", cast="float16")
    assert caught.value.id == "slices-unrestorable"
    run(tmp_path / "s", tmp_path / "d4", cast="float16", only=("b",))
    run(tmp_path / "s", tmp_path / "d5", drop=("emb",))
    assert values(tmp_path / "d5").keys() == {"b"}


@pytest.mark.parametrize("form", ["object", "pairs", "members", "csv", "header", "turned"])
@pytest.mark.parametrize("direction", ["there", "back"])
def test_maps(tf, tmp_path, form, direction):
    """A map is a JSON object or list, or CSV; it may be written either way round."""
    write_name_based(tmp_path / "s", {"a": [1.0], "b": [2.0], "a/Adam": [3.0], "c,d": [4.0]})
    pairs = [("a", "b"), ("b", "a"), ("c,d", 'x"y')]
    file = tmp_path / "names"
    if direction == "back" and form in {"object", "pairs", "csv"}:
        pairs = [("q", "c,d"), ("r", "a")]
    written = [pair[::-1] for pair in pairs] if form == "turned" else pairs
    if form == "object":
        file.write_text(json.dumps(dict(pairs)))
    elif form == "pairs":
        file.write_text(json.dumps(pairs))
    elif form == "members":
        file.write_text(json.dumps([{"old": old, "new": new, "n": 1} for old, new in pairs]))
    else:
        quoted = [",".join('"' + one.replace('"', '""') + '"' for one in row) for row in written]
        head = {"csv": [], "header": ["old,new"], "turned": ["New, Old"]}[form]
        file.write_text("\n".join([*head, *quoted]) + "\n")
    result = run(tmp_path / "s", tmp_path / "d", maps=(str(file),))
    found = values(tmp_path / "d")
    if direction == "back" and form in {"object", "pairs", "csv"}:
        assert found == {"r": [1.0], "b": [2.0], "r/Adam": [3.0], "q": [4.0]}
        assert changes_of(result)["b"] == "kept as it is"
    else:
        assert found == {"b": [1.0], "a": [2.0], "b/Adam": [3.0], 'x"y': [4.0]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{",
        "[1]",
        "3",
        '{"a": 1}',
        '{"a": "b", "a": "c"}',
        '{"a": "x", "b": "x"}',
        "a,b,c\n",
        "a\n",
        "a,\n",
        "a,b\na,c\n",
        '[{"old": "a", "new": 3}]',
        '["ab"]',
        "[" * 9999,
    ],
)
def test_maps_that_make_no_sense(tf, tmp_path, text):
    write_name_based(tmp_path / "s", {"a": [1.0]})
    (tmp_path / "m").write_text(text)
    with pytest.raises(UsageError) as caught:
        run(tmp_path / "s", tmp_path / "d", maps=(str(tmp_path / "m"),))
    assert caught.value.id == "map-unreadable"


def test_names_of_a_map_that_do_not_exist(tf, tmp_path):
    write_name_based(tmp_path / "s", {"a": [1.0], "b": [2.0]})
    (tmp_path / "m").write_text("a,x\nnone,y\nnever,z\n")
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "d", maps=(str(tmp_path / "m"),))
    assert caught.value.id == "unmatched"
    assert "none" in caught.value.why
    assert "never" in caught.value.why
    result = run(tmp_path / "s", tmp_path / "d", maps=(str(tmp_path / "m"),), allow_unmatched=True)
    assert values(tmp_path / "d").keys() == {"x", "b"}
    assert changes_of(result)["b"] == "kept as it is"


def test_keep_and_drop(tf, tmp_path):
    names = ["bert/w", "bert/w/adam_m", "bert/w/adam_v", "cls/w", "cls/w/adam_m", "global_step"]
    write_name_based(tmp_path / "s", {name: [1.0] for name in names})
    run(tmp_path / "s", tmp_path / "a", drop=("cls/w",))
    assert values(tmp_path / "a").keys() == {*names[:3], "global_step"}
    run(tmp_path / "s", tmp_path / "b", keep=("bert/w", "global_step"))
    assert values(tmp_path / "b").keys() == {*names[:3], "global_step"}
    run(tmp_path / "s", tmp_path / "c", keep=("bert/*", "cls/*"), drop=("*/adam_v",))
    assert values(tmp_path / "c").keys() == set(names) - {"bert/w/adam_v", "global_step"}
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "e", drop=("*",))
    assert caught.value.id == "nothing-left"


def test_strip_optimizer_of_an_estimator(tf, corpus, tmp_path):
    """Slots of TF 1.6 and of Keras optimizers under TF 2.9; steps stay."""
    for name, most in (
        ("v2-widedeep-5steps/model.ckpt-13753", 25),
        ("v2-linear-part0-slots/model.ckpt-13753", 12),
        ("v2-taxi-tf29-estimator", 30),
    ):
        source = corpus / name
        if not source.is_dir() and not source.with_name(source.name + ".index").exists():
            source = source.parent
        to = tmp_path / name.partition("/")[0]
        result = run(source, to, strip_optimizer=True)
        found, before = values(to), values(result.source)
        assert "global_step" in found
        assert 0 < len(found) < most
        same(found, {key: before[key] for key in found})
        gone = before.keys() - found.keys()
        assert gone == changes_of(result).keys()
        assert all(any(word in key for word in ("Ftrl", "Adagrad")) for key in gone)


def test_averages_take_the_place_of_their_variables(tf, tmp_path):
    w = rows(tf)
    names = {
        "w": w,
        "w/Adam": w + 1,
        "w/ExponentialMovingAverage": w + 2,
        "only/ExponentialMovingAverage": w + 3,
        "b": w + 4,
    }
    write_name_based(tmp_path / "s", names)
    run(tmp_path / "s", tmp_path / "d", promote_ema=True)
    expected = {"w": w + 2, "w/Adam": w + 1, "only": w + 3, "b": w + 4}
    same(values(tmp_path / "d"), expected)
    run(tmp_path / "s", tmp_path / "e", promote_ema=True, strip_optimizer=True, renames=("w=v",))
    same(values(tmp_path / "e"), {"v": w + 2, "only": w + 3, "b": w + 4})


def test_averages_that_do_not_fit(tf, tmp_path):
    average = "w/ExponentialMovingAverage"
    write_name_based(tmp_path / "a", {"w": [1.0], average: [1.0, 2.0]})
    write_name_based(tmp_path / "b", {"w": [1.0], average: [1.0], average + "_1": [2.0]})
    write_name_based(tmp_path / "c", {"w": [1.0]})
    for name, error in (("a", "average-misfit"), ("b", "average-misfit"), ("c", "no-averages")):
        with pytest.raises(RefusedError) as caught:
            run(tmp_path / name, tmp_path / "d", promote_ema=True)
        assert caught.value.id == error


FLOATS = ["float64", "float32", "bfloat16", "float16"]


@pytest.mark.parametrize("to", FLOATS)
def test_casts_are_those_of_tensorflow(tf, tmp_path, to):
    bits = np.random.default_rng(3).integers(0, 2**64, 4000, dtype=np.uint64)
    given = {}
    for name in FLOATS:
        dtype = tf.as_dtype(name)
        given[name] = tf.constant(bits.view(dtype.as_numpy_dtype)[:4000].reshape(40, 100))
    others = {
        "int": tf.constant([1, 2], tf.int64),
        "bool": tf.constant([True]),
        "text": tf.constant(["a", "bc"]),
        "complex": tf.constant([1j]),
        "empty": tf.zeros([0, 3]),
        "scalar": tf.constant(1.1),
    }
    write_name_based(tmp_path / "s", {**given, **others})
    plan = run(tmp_path / "s", tmp_path / "d", cast=to, dry_run=True)
    result = run(tmp_path / "s", tmp_path / "d", cast=to)
    assert plan.changes == result.changes
    assert plan.warnings == result.warnings
    found = values(tmp_path / "d")
    for name, value in given.items():
        expected = tf.cast(value, tf.as_dtype(to)).numpy()
        with np.errstate(invalid="ignore"):
            numbers = ~np.isnan(value.numpy())
            assert np.isnan(found[name][~numbers]).all()
            # TensorFlow's kernels make subnormal numbers zero, and a copy must not.
            compared = numbers & (np.abs(value.numpy().astype(np.float64)) > 1e-30)
        np.testing.assert_array_equal(found[name][compared], expected[compared])
        assert compared.sum() > 1000
    for name in ("int", "bool", "complex"):
        assert found[name].tobytes() == others[name].numpy().tobytes()
    assert found["text"].tolist() == [b"a", b"bc"]
    assert found["empty"].shape == (0, 3)


def test_what_a_cast_loses_is_said(tf, tmp_path):
    values_given = {
        "w": [1.0, 1.0 + 2**-20, 1e6, float("inf"), float("nan"), 70000.0],
        "exact": [0.5, 2.0],
        "half": tf.constant([1.0], tf.float16),
    }
    write_name_based(tmp_path / "s", values_given)
    result = run(tmp_path / "s", tmp_path / "d", cast="float16")
    reasons = {change.variable: change.reason for change in result.changes}
    assert reasons == {
        "w": "1 of 6 values rounded, 2 of 6 values overflowed to inf",
        "exact": "nothing is lost",
    }
    assert [text for text in result.warnings if "overflowed" in text] == list(result.warnings)
    back = run(tmp_path / "d", tmp_path / "e", cast="float64", only=("ex*",))
    assert [(one.variable, one.reason) for one in back.changes] == [("exact", "exact")]
    assert values(tmp_path / "e")["w"].dtype == np.float16


def test_a_damaged_variable_is_not_cast(tf, tmp_path):
    write_name_based(tmp_path / "s", {"w": rows(tf)})
    data = tmp_path / "s.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[5] ^= 1
    data.write_bytes(content)
    with pytest.raises(CorruptError) as caught:
        run(tmp_path / "s", tmp_path / "d", cast="float64", check=False)
    assert caught.value.id == "checksum-mismatch"
    assert not list(tmp_path.glob("d.*"))


def test_the_v1_saver_restores_what_is_left(tf, tmp_path):
    """Trained in TensorFlow; stripped, averages promoted, renamed and cast; restored."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("old/weights", initializer=np.ones((3, 2), np.float32))
        b = v1.get_variable("old/biases", initializer=np.zeros(2, np.float32))
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum((tf.ones([4, 3]) @ w + b - 3.0) ** 2)
        train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        average = tf.train.ExponentialMovingAverage(0.5)
        with tf.control_dependencies([train]):
            train = average.apply([w])
        session.run(v1.global_variables_initializer())
        for _ in range(5):
            session.run(train)
        v1.train.Saver().save(session, str(tmp_path / "s"))
        averaged, bias = session.run([average.average(w), b])
    result = run(
        tmp_path / "s",
        tmp_path / "d",
        strip_optimizer=True,
        promote_ema=True,
        renames=("s#^old/#new/#", "s/weights/kernel/"),
        cast="float64",
    )
    assert any(".meta" in text for text in result.warnings)
    assert not (tmp_path / "d.meta").exists()
    with tf.Graph().as_default(), v1.Session() as session:
        kernel = v1.get_variable("new/kernel", [3, 2], tf.float64)
        biases = v1.get_variable("new/biases", [2], tf.float64)
        step = v1.train.get_or_create_global_step()
        v1.train.Saver().restore(session, str(tmp_path / "d"))
        found = session.run([kernel, biases, step])
    np.testing.assert_array_equal(found[0], averaged.astype(np.float64))
    np.testing.assert_array_equal(found[1], bias.astype(np.float64))
    assert found[2] == 5


def test_untouched_bytes_keep_their_checksums_and_places(tf, tmp_path):
    """A variable whose bytes are damaged can be renamed, and its damage stays visible."""
    write_name_based(tmp_path / "s", {"a": [1.0], "w": [2.0], "z": [3.0]})
    data = tmp_path / "s.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:4] + b"\0\0\0\1" + data.read_bytes()[8:])
    with pytest.raises(CkpttoolError) as caught:
        run(tmp_path / "s", tmp_path / "d", renames=("w=v",), check=False)
    assert caught.value.id == "written-wrong"
    assert (tmp_path / "d.data-00000-of-00001").read_bytes() == data.read_bytes()


def test_over_itself(tf, tmp_path):
    write_name_based(tmp_path / "s", {"w": [1.0], "w/Adam": [2.0]})
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "s", strip_optimizer=True)
    assert caught.value.id == "exists"
    run(tmp_path / "s", tmp_path / "s", strip_optimizer=True, overwrite=True)
    assert values(tmp_path / "s") == {"w": [1.0]}
    with pytest.raises(RefusedError) as caught:
        run(tmp_path / "s", tmp_path / "s", strip_optimizer=True, overwrite=True)
    assert caught.value.id == "no-optimizer"


def test_names_alone_can_be_changed_without_copying(run_cli, fixtures_dir, tmp_path):
    """With --link the data file is the source's own, and only the index is written."""
    source = tmp_path / "s"
    assert run_cli(["cp", fixtures_dir / "mlp-v1", source]).returncode == 0
    asked = ["edit", source, tmp_path / "d", "--rename", "s/weights/kernel/", "--link", "--verify"]
    done = run_cli(asked)
    assert done.returncode == 0, done.stderr
    one, other = (tmp_path / f"{name}.data-00000-of-00001" for name in "sd")
    assert one.samefile(other)
    listed = run_cli(["list", tmp_path / "d", "-q"]).stdout.split()
    assert "hidden/kernel/Adam" in listed
    done = run_cli([*asked[:2], tmp_path / "e", "--cast", "float64", "--link"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "e.data-00000-of-00001").stat().st_nlink == 1


@pytest.mark.parametrize("asked", [{}, {"only": ("a",)}, {"cast": "int8"}])
def test_wishes_that_make_no_sense(asked):
    with pytest.raises(UsageError):
        Edit(**asked)


def test_the_command(run_cli, fixtures_dir, tmp_path):
    asked = ["edit", fixtures_dir / "mlp-v1", tmp_path / "m", "--strip-optimizer", "--json"]
    plan = run_cli([*asked, "-n"])
    assert plan.returncode == 0, plan.stderr
    document = json.loads(plan.stdout)
    assert document["schema"] == "ckpttool.edit/1"
    assert len(document["data"]["changes"]) == 10
    assert list(tmp_path.iterdir()) == []
    done = json.loads(run_cli(asked).stdout)
    assert done["data"]["shards"] == document["data"]["shards"]
    again = run_cli(asked)
    assert again.returncode == 31
