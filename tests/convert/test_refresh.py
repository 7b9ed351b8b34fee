"""`convert --like`: TensorFlow writes exports and checkpoints, and loads what we made of them."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.conversion.request import CheckSettings, Request
from ckpttool.errors import CorruptError, RefusedError, UnsafeError, UsageError
from ckpttool.formats.farmhash import fingerprint64
from ckpttool.formats.saved_model import parse_fingerprint
from ckpttool.ops.convert import ConvertResult, convert
from tests.support.command import RunCli

PATIENCE = 600.0


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras and TensorFlow warn of what they do themselves
        yield


def keras_model() -> Any:
    import keras

    return keras.Sequential(
        [
            keras.Input((6,), name="x"),
            keras.layers.Dense(5, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(3, name="head"),
        ],
        name="net",
    )


def write_keras(folder: Path) -> None:
    """An export, then a checkpoint of later values, and what the model computes with these."""
    import keras
    import tensorflow as tf

    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(64, 6)).astype("f4"), rng.normal(size=(64, 3)).astype("f4")
    model = keras_model()
    optimizer = keras.optimizers.Adam(0.1)
    model.compile(optimizer, "mse")
    model.export(str(folder / "export"), verbose=False)
    stale = model(x).numpy()
    model.fit(x, y, epochs=3, verbose=0)
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(str(folder / "run" / "ckpt"))
    model.save(str(folder / "model.keras"))
    tf.saved_model.save(model, str(folder / "trained"))
    np.savez(folder / "known.npz", x=x, y=model(x).numpy(), stale=stale)


def write_tf1(folder: Path) -> None:
    """TensorFlow 1: names, and Adam's slots in the checkpoint."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], "x")
        weights = v1.get_variable("dense/kernel", [4, 2])
        step = v1.train.get_or_create_global_step()
        out = tf.identity(x @ weights, "out")
        train = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(out**2), step)
        session.run(v1.global_variables_initializer())
        served = v1.train.Saver([weights])
        v1.saved_model.simple_save(session, str(folder / "all"), {"x": x}, {"out": out})
        builder = v1.saved_model.Builder(str(folder / "export"))
        info = v1.saved_model.predict_signature_def({"x": x}, {"out": out})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": info}, saver=served
        )
        builder.save()
        ones = np.ones((3, 4), "f4")
        for _ in range(3):
            session.run(train, {x: ones})
        v1.train.Saver().save(session, str(folder / "model.ckpt"), step)
        np.savez(folder / "known.npz", x=ones, y=session.run(out, {x: ones}))


def write_module(folder: Path) -> None:
    """Variables that nobody named, an asset, and a table that the asset fills."""
    import tensorflow as tf

    class Words(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            (folder / "words.txt").write_text("alpha\nbeta\n")
            self.words = tf.saved_model.Asset(str(folder / "words.txt"))
            self.left = tf.Variable(np.arange(4, dtype="f4").reshape(2, 2))
            self.right = tf.Variable(np.ones((2, 2), "f4"))
            self.anything = [tf.Variable([0.0]), tf.Variable([0.0, 1.0])]
            self.call = tf.function(self._call)

        def _call(self, x: Any) -> Any:
            return x @ self.left - x @ self.right

    module = Words()
    signature = module.call.get_concrete_function(tf.TensorSpec([None, 2], name="x"))
    tf.saved_model.save(module, str(folder / "export"), signatures=signature)
    module.left.assign_add(np.full((2, 2), 5, "f4"))
    module.right.assign(np.array([[2, 3], [4, 5]], "f4"))
    tf.train.Checkpoint(model=module).write(str(folder / "ckpt"))
    x = np.array([[1, 2]], "f4")
    np.savez(folder / "known.npz", x=x, y=module.call(x).numpy())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``keras``, ``tf1`` and ``module``: each an ``export``, later values, ``known.npz``."""
    pytest.importorskip("tensorflow")
    import keras

    folder = tmp_path_factory.mktemp("exports")
    with quietly():
        keras.utils.clear_session()  # names are counted from one, whatever ran before
        for name, write in (("keras", write_keras), ("tf1", write_tf1), ("module", write_module)):
            (folder / name).mkdir()
            write(folder / name)
    return folder


def refreshed(
    source: Path,
    export: Path,
    to: Path,
    maps: tuple[str, ...] = (),
    check: CheckSettings | None = None,
    *,
    overwrite: bool = False,
    dry_run: bool = False,
) -> ConvertResult:
    request = Request(
        str(source),
        str(to),
        "savedmodel",
        like=str(export),
        maps=maps,
        check=check or CheckSettings(),
        overwrite=overwrite,
    )
    return convert(request, dry_run=dry_run)


def outputs(export: Path, known: Path) -> tuple[np.ndarray, np.ndarray]:
    """What an export computes, and what it should."""
    import tensorflow as tf

    with np.load(known) as data:
        x, y = data["x"], data["y"]
    with quietly():
        function = tf.saved_model.load(str(export)).signatures["serving_default"]
        (name,) = function.structured_input_signature[1]
        (found,) = function(**{name: tf.constant(x)}).values()
    return found.numpy(), y


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("what", "source"), [("keras", "run"), ("tf1", "model.ckpt-3"), ("module", "ckpt")]
)
def test_d34_an_export_computes_what_was_trained_since(
    made: Path, tmp_path: Path, what: str, source: str
) -> None:
    folder = made / what
    result = refreshed(folder / source, folder / "export", tmp_path / "new")
    assert (result.check.state, result.check.how) == ("passed", "bytes")
    assert result.applied
    assert result.report is None
    assert result.warnings == ()
    found, known = outputs(tmp_path / "new", folder / "known.npz")
    np.testing.assert_array_equal(found, known)
    old, new = content(folder / "export"), content(tmp_path / "new")
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    data = "variables/variables.data-00000-of-00001"
    assert changed == {"variables/variables.index", data} | ({"fingerprint.pb"} & old.keys())
    assert [one.path for one in result.outputs] == sorted(str(tmp_path / "new" / n) for n in new)
    if "fingerprint.pb" in new:
        before, after = (
            parse_fingerprint(one["fingerprint.pb"], "fingerprint.pb") for one in (old, new)
        )
        assert after.checkpoint_hash == fingerprint64(new["variables/variables.index"])
        assert after == before._replace(checkpoint_hash=after.checkpoint_hash)


def test_by_name_and_never_by_place(made: Path, tmp_path: Path) -> None:
    """CONVERT 11: an export holds one variable under two keys, in two orders."""
    import tensorflow as tf

    refreshed(made / "keras" / "run", made / "keras" / "export", tmp_path / "new")
    old, new = (
        tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        for folder in (made / "keras" / "export", tmp_path / "new")
    )
    trained = tf.train.load_checkpoint(str(made / "keras" / "run"))
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    kernel = trained.get_tensor(f"optimizer/_trainable_variables/0{end}")
    mean = trained.get_tensor(f"model/_functional/_operations/2/moving_mean{end}")
    assert new.get_variable_to_shape_map() == old.get_variable_to_shape_map()
    values = {name: new.get_tensor(name) for name in new.get_variable_to_shape_map()}
    graph = values.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    assert graph == old.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    orders: dict[str, list[int]] = {"variables": [], "_all_variables": []}
    for expected in (kernel, mean):
        keys = [name for name, value in values.items() if np.array_equal(value, expected)]
        assert {key.partition("/")[0] for key in keys} == orders.keys()
        for key in keys:
            orders[key.split("/")[0]].append(int(key.split("/")[1]))
    assert orders["variables"] != orders["_all_variables"]


def test_every_source_has_values(made: Path, tmp_path: Path) -> None:
    """A Keras file and another export have the same variables, under names of their own."""
    folder = made / "keras"
    with np.load(folder / "known.npz") as data:
        assert not np.array_equal(data["stale"], data["y"])
    for name in ("model.keras", "trained"):
        refreshed(folder / name, folder / "export", tmp_path / name)
        found, known = outputs(tmp_path / name, folder / "known.npz")
        np.testing.assert_array_equal(found, known)


def test_what_is_not_served_may_be_missing(made: Path, tmp_path: Path) -> None:
    """The optimizer's counters are in the export, and not in a file of weights."""
    folder = made / "keras"
    weights = Request(str(folder / "run"), str(tmp_path / "w.npz"), "npz")
    convert(weights)
    result = refreshed(tmp_path / "w.npz", folder / "trained", tmp_path / "new")
    assert result.check.state == "passed"
    assert result.warnings == ()  # they have one name everywhere
    result = refreshed(folder / "model.keras", folder / "trained", tmp_path / "newer")
    assert any("not served" in one and "adam/" in one for one in result.warnings)


def test_one_variable_too_many_is_said_and_a_report_is_written_where_it_is_asked_for(
    made: Path, tmp_path: Path
) -> None:
    values = {"dense__kernel": np.ones((4, 2), "f4"), "more": np.ones(3, "f4")}
    source = write_variables(tmp_path, **values)
    report = tmp_path / "why.json"
    check = CheckSettings(report=str(report))
    result = refreshed(source, made / "tf1" / "export", tmp_path / "new", check=check)
    assert any(one.startswith("1 variable of the model is not in ") for one in result.warnings)
    assert result.report == str(report)
    said = json.loads(report.read_text())
    assert [one["path"] for one in said["result"]["files"]] == [one.path for one in result.outputs]
    assert {one["path"] for one in said["source"]["files"]} >= {f"{source}.index"}


def test_tensorflow_is_not_imported(made: Path, tmp_path: Path, run_cli: RunCli) -> None:
    args = ["convert", str(made / "keras" / "run"), str(tmp_path / "new"), "--to", "savedmodel"]
    result = run_cli(
        [*args, "--like", str(made / "keras" / "export"), "--json"],
        env={"PYTHONPROFILEIMPORTTIME": "1"},
    )
    assert result.returncode == 0, result.stderr
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "ckpttool.ops.convert_refresh" in imported
    assert not imported & {"tensorflow", "keras", "numpy"}
    data = json.loads(result.stdout)["data"]
    assert data["graph"] == str(made / "keras" / "export")
    assert data["check"] == {"state": "passed", "how": "bytes", "why": "", "metrics": {}}
    assert {one["name"] for one in data["signatures"]} >= {"serving_default"}


def test_check_run_executes_it_too(made: Path, tmp_path: Path, run_cli: RunCli) -> None:
    args = ["convert", str(made / "module" / "ckpt"), str(tmp_path / "new"), "--to", "savedmodel"]
    export = str(made / "module" / "export")
    result = run_cli([*args, "--like", export, "--check", "run", "--json"], timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    check = json.loads(result.stdout)["data"]["check"]
    assert (check["state"], check["how"]) == ("passed", "bytes")
    (figures,) = check["metrics"]["serving_default"].values()
    assert figures["nrmse"] == 0


def test_a_plan_writes_nothing(made: Path, tmp_path: Path) -> None:
    folder = made / "keras"
    result = refreshed(folder / "run", folder / "export", tmp_path / "new", dry_run=True)
    assert not result.applied
    assert result.check.state == "not_run"
    assert {one.name for one in result.signatures} >= {"serving_default"}
    assert list(tmp_path.iterdir()) == []


def test_every_few_minutes_in_its_own_place(made: Path, tmp_path: Path) -> None:
    """What a training loop does: the export that is served is the one that is refreshed."""
    export = tmp_path / "export"
    shutil.copytree(made / "keras" / "export", export)
    with pytest.raises(RefusedError) as refused:
        refreshed(made / "keras" / "run", export, export)
    assert refused.value.id == "exists"
    for _ in range(2):
        refreshed(made / "keras" / "run", export, export, overwrite=True)
        found, known = outputs(export, made / "keras" / "known.npz")
        np.testing.assert_array_equal(found, known)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def write_variables(folder: Path, **variables: np.ndarray) -> Path:
    """A checkpoint of TensorFlow 1 with these variables; ``__`` stands for a slash."""
    from tests.support import tf_write

    named: dict[str, Any] = {name.replace("__", "/"): value for name, value in variables.items()}
    tf_write.write_name_based(str(folder / "model.ckpt"), named)
    return folder / "model.ckpt"


def test_all_that_does_not_fit_is_listed(made: Path, tmp_path: Path) -> None:
    source = write_variables(
        tmp_path,
        net__hidden__kernel=np.zeros((6, 4), "f4"),
        net__hidden__bias=np.zeros(5, "f8"),
        net__norm__gamma=np.zeros(5, "f4"),
        net__norm__beta=np.zeros(5, "f4"),
        net__norm__moving_mean=np.zeros(5, "f4"),
        net__norm__moving_variance=np.zeros(5, "f4"),
    )
    with pytest.raises(RefusedError) as refused:
        refreshed(source, made / "keras" / "export", tmp_path / "new")
    assert refused.value.id == "refresh-unmatched"
    why = refused.value.why
    assert "2 without a value" in why
    assert "2 of another dtype or shape" in why
    assert "float32 [5,3]" in why
    assert "float32 [3]" in why
    assert "net/hidden/kernel float32 [6,4] and" in why
    assert "net/hidden/bias float64 [5] and" in why
    assert not (tmp_path / "new").exists()


def test_names_that_two_have_are_in_doubt(made: Path, tmp_path: Path) -> None:
    """Two variables of one name are no source for either, unless somebody says which."""
    import tensorflow as tf

    class Twins(tf.Module):  # type: ignore[misc]
        def __init__(self, first: float, second: float) -> None:
            super().__init__()
            self.list = [tf.Variable([first], name="w"), tf.Variable([second], name="w")]
            self.call = tf.function(lambda x: x * self.list[0] + self.list[1])

    twins = Twins(1.0, 2.0)
    signature = twins.call.get_concrete_function(tf.TensorSpec([None], name="x"))
    tf.saved_model.save(twins, str(tmp_path / "export"), signatures=signature)
    tf.train.Checkpoint(variables=Twins(3.0, 4.0).list).write(str(tmp_path / "ckpt"))
    with pytest.raises(RefusedError) as refused:
        refreshed(tmp_path / "ckpt", tmp_path / "export", tmp_path / "new")
    assert "2 without a value: list/0 float32 [1], list/1 float32 [1]" in refused.value.why
    (tmp_path / "map.csv").write_text("variables/0,list/0\nvariables/1,list/1\n")
    maps = (str(tmp_path / "map.csv"),)
    refreshed(tmp_path / "ckpt", tmp_path / "export", tmp_path / "new", maps)
    function = tf.saved_model.load(str(tmp_path / "new")).signatures["serving_default"]
    (found,) = function(x=tf.constant([10.0])).values()
    assert found.numpy().tolist() == [34.0]
    (tmp_path / "map.csv").write_text("variables/0,list/7\n")
    with pytest.raises(RefusedError, match="in neither"):
        refreshed(tmp_path / "ckpt", tmp_path / "export", tmp_path / "newer", maps)


def test_numbers_that_count_on_are_no_names(tmp_path: Path) -> None:
    """Keras counts ``dense`` through a session: ``dense_1`` here is another one there."""
    import keras
    import tensorflow as tf

    def build(*names: str) -> Any:
        layers = [keras.layers.Dense(2, name=name, use_bias=False) for name in names]
        return keras.Sequential([keras.Input((2,)), *layers], name="net")

    with quietly():
        build("dense", "dense_1").export(str(tmp_path / "export"), verbose=False)
        other = build("dense", "dense_1", "dense_2")
        tf.train.Checkpoint(model=other).write(str(tmp_path / "ckpt"))
    with pytest.raises(RefusedError, match="in doubt") as refused:
        refreshed(tmp_path / "ckpt", tmp_path / "export", tmp_path / "new")
    assert refused.value.id == "refresh-unmatched"


def damaged(source: Path, to: Path) -> Path:
    for path in source.parent.glob("*"):
        shutil.copy(path, to)
    data = next(to.glob("*.data-*"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    return to / source.name


def test_damage_does_not_get_into_an_export(made: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    source = damaged(made / "keras" / "run" / "ckpt-1", tmp_path / "run")
    with pytest.raises(CorruptError) as error:
        refreshed(source, made / "keras" / "trained", tmp_path / "new")
    assert error.value.id == "checksum-mismatch"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_link_in_an_export_is_not_followed(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "module" / "export", tmp_path / "export")
    (tmp_path / "secret").write_text("not for everybody")
    os.symlink(tmp_path / "secret", tmp_path / "export" / "assets" / "link")
    with pytest.raises(UnsafeError) as error:
        refreshed(made / "module" / "ckpt", tmp_path / "export", tmp_path / "new")
    assert error.value.id == "unsafe-link"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"like": "/nowhere"}, "like-no-export"),
        ({"target": "tflite"}, "target-setting"),
        ({"signatures": ("serve",)}, "target-setting"),
        ({"model": "build.py:build"}, "target-setting"),
        ({"check": CheckSettings(only=True)}, "target-setting"),
    ],
)
def test_options_that_a_finished_graph_has_no_use_for(
    made: Path, tmp_path: Path, change: dict[str, Any], id: str
) -> None:
    export = made / "keras" / "export"
    given = {"like": str(export), "target": "savedmodel"} | change
    to = export if id == "target-setting" and "check" in change else tmp_path / "new"
    with pytest.raises(UsageError) as refused:
        convert(Request(str(made / "keras" / "run"), str(to), **given))
    assert refused.value.id == id


def test_a_check_that_is_left_out_runs_nothing(made: Path, tmp_path: Path) -> None:
    check = CheckSettings(run=False, execute=True)
    with pytest.raises(UsageError) as refused:
        refreshed(made / "keras" / "run", made / "keras" / "export", tmp_path / "new", check=check)
    assert refused.value.id == "options-contradict"


def test_a_map_needs_an_export(made: Path, tmp_path: Path) -> None:
    request = Request(
        str(made / "keras" / "trained"), str(tmp_path / "x"), "savedmodel", maps=("map.csv",)
    )
    with pytest.raises(UsageError, match="--map"):
        convert(request)


def test_a_fingerprint_of_a_large_index_is_left_out(fixtures_dir: Path, tmp_path: Path) -> None:
    """Its hash would take longer than all the rest; TensorFlow needs none."""
    from tests.support import handmade

    export = tmp_path / "export"
    shutil.copytree(fixtures_dir / "savedmodel", export)
    shutil.rmtree(export / "variables")
    (export / "variables").mkdir()
    element = b"\0\0\0\0"
    crc = handmade.masked_crc(element)
    entries: dict[bytes, Any] = {
        blake2b(b"%d" % number, digest_size=64).hexdigest().encode() * 4: {
            "shape": (),
            "offset": 4 * number,
            "size": 4,
            "crc": crc,
        }
        for number in range(9_000)
    }
    handmade.write_bundle(export / "variables", "variables", entries, [element * 9_000])
    assert (export / "variables" / "variables.index").stat().st_size > 4 * 2**20
    result = refreshed(export, export, tmp_path / "new")
    assert result.check.state == "passed"
    assert any("fingerprint.pb" in one for one in result.warnings)
    assert not (tmp_path / "new" / "fingerprint.pb").exists()
    assert (export / "fingerprint.pb").exists()
