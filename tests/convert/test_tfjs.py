"""TensorFlow.js graph models: what is written computes the same in the real package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.errors import CkpttoolError, ConverterMissingError, UnsupportedError, UsageError
from tests.support.command import RunCli
from tests.support.converting import feed, open_program
from tests.support.node import node_modules
from tests.support.tfjs_results import close, run_js, write_js

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

# Keras and TensorFlow warn of what they do themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

FIXED = ("is_training=False", "keep_prob=1.0")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp-ref", {}),
    "conditional": ("conditional", {"freeze": FIXED}),
    "partitioned": ("partitioned", {"outputs": ["y"]}),
    "loop": ("loop", {"outputs": ["result"]}),
    "gelu": ("subclass/ckpt", {"model": "build.py:subclass", "inputs": ["x:float32[?,12]"]}),
    "recurrent": ("recurrent/ckpt", {"model": "build.py:recurrent"}),
    "embedding": (
        "embedding/ckpt",
        {"model": "build.py:Embedding", "signatures": ("serving_default",)},
    ),
    "head": ("embedding/ckpt", {"model": "build.py:Embedding", "signatures": ("head",)}),
}


@pytest.fixture(autouse=True)
def _in_the_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)


@pytest.fixture
def _node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTTOOL_NODE_MODULES", str(node_modules()))


def open_js(folder: Path) -> Any:
    from ckpttool.conversion.worker.run_tfjs import open_result

    return open_result(str(folder))


@pytest.mark.usefixtures("_node")
@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same_in_node(name: str, tmp_path: Path) -> None:
    """At two batch sizes. A recurrent network too: its loops, which no converter gets to run."""
    source, given = CASES[name]
    with open_program(source, **given) as program:
        written = write_js(program, tmp_path / "web")
        (function,) = program.functions
        runner = open_js(tmp_path / "web")
        for batch in (2, 3):
            feeds = feed(function, batch)
            close(run_js(runner, feeds), function.run(feeds))
        (signature,) = runner.signatures()
        assert [port.name for port in signature.inputs] == [
            port.name for port in written.signatures[0].inputs
        ]
        assert {port.name: port.dtype for port in signature.outputs} == {
            port.name: port.dtype for port in written.signatures[0].outputs
        }


@pytest.mark.usefixtures("_node")
@pytest.mark.parametrize(
    ("quantize", "tolerance", "size"),
    [("float16", 5e-4, 0.5), ("uint8", 2e-2, 0.25), ("uint16", 1e-4, 0.5)],
)
def test_quantised_weights(quantize: str, tolerance: float, size: float, tmp_path: Path) -> None:
    """As many bytes as were promised, and the numbers that they stand for."""
    with open_program("mlp-ref") as program:
        written = write_js(program, tmp_path / "web", quantize=quantize)
        assert written.facts["quantized_weights"] == 1
        stored = sum(path.stat().st_size for path in (tmp_path / "web").glob("*.bin"))
        assert stored == written.facts["weight_bytes"]
        assert stored == pytest.approx(784 * 200 * 4 * size, rel=0.01)
        feeds = feed(program.functions[0])
        found = run_js(open_js(tmp_path / "web"), feeds)
        close(found, program.functions[0].run(feeds), tolerance)


def test_few_weights_are_not_quantised_and_that_is_said(tmp_path: Path) -> None:
    with open_program("partitioned", outputs=["y"]) as program:
        written = write_js(program, tmp_path / "web", quantize="uint8")
    assert written.warnings == ("no weight is large enough to be stored as uint8",)


def test_our_own_source_reads_it(tmp_path: Path) -> None:
    with open_program("mlp-ref") as program:
        write_js(program, tmp_path / "web", shard_bytes=100_000)
    assert len(list((tmp_path / "web").glob("group1-shard*of7.bin"))) == 7
    with ckpttool.open(tmp_path / "web") as found, ckpttool.open("mlp-ref") as trained:
        assert (found.read("weights") == trained.read("weights")).all()


def test_the_same_conversion_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("recurrent", "gelu"):
        source, given = CASES[name]
        files = []
        with open_program(source, **given) as program:
            for copy in ("a", "b"):
                folder = tmp_path / f"{name}-{copy}"
                write_js(program, folder)
                files.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert files[0] == files[1]


def test_a_fixed_batch(tmp_path: Path) -> None:
    with open_program("mlp-ref") as program:
        written = write_js(program, tmp_path / "web", batch=4)
    assert written.signatures[0].inputs[0].shape == (4, 784)
    model = json.loads((tmp_path / "web" / "model.json").read_text())
    assert model["signature"]["inputs"]["input"]["tensorShape"]["dim"][0]["size"] == "4"


def test_several_outputs_have_names_in_javascript(tmp_path: Path) -> None:
    source, given = CASES["gelu"]
    with open_program(source, **given) as program:
        write_js(program, tmp_path / "web")
    model = json.loads((tmp_path / "web" / "model.json").read_text())
    keys = model["userDefinedMetadata"]["structuredOutputKeys"]
    assert keys == list(model["signature"]["outputs"])
    assert set(keys) == {"logits", "features"}


def refused(folder: Path, source: str, **given: Any) -> CkpttoolError:
    """The error of a conversion; nothing of the model stands."""
    with open_program(source, **given) as program, pytest.raises(CkpttoolError) as caught:
        write_js(program, folder)
    assert not (folder / "model.json").exists()
    return caught.value


def test_of_two_signatures_none_is_left_out_silently(tmp_path: Path) -> None:
    error = refused(tmp_path / "web", "embedding/ckpt", model="build.py:Embedding")
    assert isinstance(error, UsageError)
    assert error.id == "tfjs-signatures"
    assert "serving_default, head" in error.why


def test_tables_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path / "web", "words/ckpt", model="build.py:Words")
    assert isinstance(error, UnsupportedError)
    assert error.id == "stateful-graph"


def test_no_package_is_no_proof(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CKPTTOOL_NODE_MODULES", "NODE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_program(models / "mlp-ref") as program:
        write_js(program, tmp_path / "web")
    with pytest.raises(ConverterMissingError) as caught:
        open_js(tmp_path / "web")
    assert caught.value.id == "node-package"
    assert "npm install @tensorflow/tfjs" in caught.value.hint


def test_a_model_of_layers_is_not_run(fixtures_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"modelTopology": {"model_config": {}}}')
    with pytest.raises(UnsupportedError) as caught:
        open_js(tmp_path)
    assert caught.value.id == "tfjs-layers"


@pytest.mark.usefixtures("_node")
def test_a_page_that_lacks_its_weights_is_said_to_fail(tmp_path: Path) -> None:
    with open_program("mlp-ref") as program:
        write_js(program, tmp_path / "web")
    (tmp_path / "web" / "group1-shard1of1.bin").unlink()
    with pytest.raises(RuntimeError, match=r"group1-shard1of1\.bin"):
        open_js(tmp_path / "web")


@pytest.mark.usefixtures("_node")
def test_a_weight_file_outside_the_model_is_not_read(tmp_path: Path) -> None:
    with open_program("mlp-ref") as program:
        write_js(program, tmp_path / "web")
    path = tmp_path / "web" / "model.json"
    path.write_text(path.read_text().replace("group1-shard1of1.bin", "../secret.bin"))
    with pytest.raises(RuntimeError, match="outside"):
        open_js(tmp_path / "web")


def test_from_a_checkpoint_to_a_page_with_proof(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """USERS D36: proven by the real package; what is not what the checkpoint says is found out."""
    env = {"CKPTTOOL_NODE_MODULES": str(node_modules())}
    args = ["convert", str(models / "mlp-ref"), "web", "--to", "tfjs", "--json"]
    done = run_cli(
        [*args, "--quantize", "float16", "--require-check"], cwd=tmp_path, env=env, timeout=600
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert data["check"]["state"] == "passed"
    assert data["check"]["how"] == "run"
    report = json.loads(next(tmp_path.glob("web*.json")).read_text())
    assert "@tensorflow/tfjs" in json.dumps(report)
    (weights,) = (tmp_path / "web").glob("*.bin")
    weights.write_bytes(weights.read_bytes()[::-1])
    args += ["--quantize", "float16", "--check-only"]
    done = run_cli(args, cwd=tmp_path, env=env, timeout=600)
    assert json.loads(done.stdout)["data"]["check"]["state"] == "failed"


def test_without_node_it_is_not_proven_and_that_is_said(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    args = ["convert", str(models / "mlp-ref"), "web", "--to", "tfjs", "--json"]
    done = run_cli(args, cwd=tmp_path, env={"PATH": str(tmp_path)}, timeout=600)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["data"]["check"]["state"] == "not_run"
    assert "npm install" in answer["data"]["check"]["why"]
    assert (tmp_path / "web" / "model.json").exists()
