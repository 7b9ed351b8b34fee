"""TensorFlow.js models in a browser, as a page loads them: over HTTP, with tfjs's own bundle."""

from __future__ import annotations

import http.server
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import visited
from tests.support.converting import feed, open_program
from tests.support.node import node_modules
from tests.support.tfjs_results import close, write_js

np = pytest.importorskip("numpy")
pytest.importorskip("tensorflow")

# Keras and TensorFlow warn of what they do themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

#: A browser on a busy machine takes its time.
PATIENCE = 300.0
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp-ref", {}),
    "gelu": ("subclass/ckpt", {"model": "build.py:subclass", "inputs": ["x:float32[?,12]"]}),
    "recurrent": ("recurrent/ckpt", {"model": "build.py:recurrent"}),
    "embedding": (
        "embedding/ckpt",
        {"model": "build.py:Embedding", "signatures": ("serving_default",)},
    ),
}
PAGE = """<!doctype html>
<script src="tf.min.js"></script>
<script>
async function run() {
  await tf.setBackend('cpu');
  const answer = {version: tf.version.tfjs, outputs: {}};
  for (const [name, feeds] of Object.entries(await (await fetch('feeds.json')).json())) {
    const model = await tf.loadGraphModel(`${name}/model.json`);
    const given = {};
    for (const [input, {values, shape, dtype}] of Object.entries(feeds)) {
      given[input] = tf.tensor(values, shape, dtype);
    }
    const names = Object.keys(model.modelSignature.outputs);
    const found = await model.executeAsync(given, names);
    answer.outputs[name] = {};
    for (const [at, tensor] of [found].flat().entries()) {
      answer.outputs[name][names[at]] = await tensor.array();
    }
  }
  return answer;
}
run().catch((error) => ({error: String(error.stack)})).then(
    (answer) => fetch('answer', {method: 'POST', body: JSON.stringify(answer)}));
</script>
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and takes the page's answer."""

    answers: queue.Queue[Any]

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.answers.put(json.loads(self.rfile.read(size)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """The URL of a folder on this machine alone, and what the page answers."""
    Handler.answers = queue.Queue()
    make = partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", Handler.answers
        finally:
            server.shutdown()
            thread.join()


def test_a_page_computes_the_same(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = node_modules() / "@tensorflow" / "tfjs" / "dist" / "tf.min.js"
    (tmp_path / "tf.min.js").write_bytes(bundle.read_bytes())
    (tmp_path / "index.html").write_text(PAGE)
    monkeypatch.chdir(models)
    feeds: dict[str, Any] = {}
    expected = {}
    for name, (source, given) in MODELS.items():
        with open_program(source, **given) as program:
            written = write_js(program, tmp_path / name, shard_bytes=200_000)
            arrays = feed(program.functions[0])
            expected[name] = program.functions[0].run(arrays)
            feeds[name] = {
                port.name: {
                    "values": arrays[port.name].ravel().tolist(),
                    "shape": list(arrays[port.name].shape),
                    "dtype": port.dtype,
                }
                for port in written.signatures[0].inputs
            }
    (tmp_path / "feeds.json").write_text(json.dumps(feeds))
    with served(tmp_path) as (url, answers), visited(url):
        answer = answers.get(timeout=PATIENCE)
    assert answer.get("error") is None
    assert answer["version"] == "4.22.0"
    for name, outputs in answer["outputs"].items():
        close({key: np.array(one, np.float32) for key, one in outputs.items()}, expected[name])
    assert set(answer["outputs"]) == set(MODELS)
