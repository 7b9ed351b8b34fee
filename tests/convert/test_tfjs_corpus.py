"""Public models as TensorFlow.js models: every one of them agrees in node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.convert.test_corpus import GOOD
from tests.support.converting import feed, open_program
from tests.support.node import node_modules
from tests.support.tfjs_results import close, run_js, write_js

pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.mark.parametrize("source", GOOD)
def test_a_public_model(
    source: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTTOOL_NODE_MODULES", str(node_modules()))
    given: dict[str, Any] = dict(GOOD[source])
    if "saved_model" in source:
        given["signatures"] = ("serving_default",)  # a model has one
    with open_program(corpus / source, **given) as program:
        function = program.functions[0]
        write_js(program, tmp_path / "web")
        from ckpttool.conversion.worker.run_tfjs import open_result

        feeds = feed(function)
        found = run_js(open_result(str(tmp_path / "web")), feeds)
        close(found, function.run(feeds), 1e-4)
