"""What was tried to break the sources other than checkpoints, and what each has to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.sources.registry import open_source
from tests.support.crafted_files import safetensors


def test_half_a_character_in_the_name_of_an_array(tmp_path: Path) -> None:
    """No name that cannot be written as UTF-8 comes out of JSON."""
    path = tmp_path / "x.safetensors"
    header = {"a\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    path.write_bytes(safetensors(header, b"1234"))
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(path))
    assert (caught.value.id, caught.value.exit_code) == ("json-malformed", 20)


def test_a_size_past_all_bounds_in_a_signature(tmp_path: Path) -> None:
    tensor = {"name": "x:0", "dtype": "DT_FLOAT", "tensorShape": {"dim": [{"size": "HUGE"}]}}
    model = {"weightsManifest": [], "signature": {"inputs": {"x": tensor}}}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model).replace('"HUGE"', "1e999"))
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(path))
    assert caught.value.id == "json-malformed"
