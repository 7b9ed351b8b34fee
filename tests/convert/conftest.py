"""Models for the tests of conversion, each written once a session."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.support import tf_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models of `tests/support/tf_models.py` and their code, `build.py`."""
    pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras and TensorFlow warn of what they do themselves
        tf_models.write_models(folder)
    return folder
