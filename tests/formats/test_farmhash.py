"""FarmHash's fingerprint against TensorFlow's, and against what TensorFlow stored with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ckpttool.formats.farmhash import fingerprint64
from ckpttool.formats.saved_model import parse_fingerprint, patch_checkpoint_hash


def test_the_fingerprint_of_a_saved_model(fixtures_dir: Path) -> None:
    folder = fixtures_dir / "savedmodel"
    data = (folder / "fingerprint.pb").read_bytes()
    stored = parse_fingerprint(data, "fingerprint.pb")
    index = (folder / "variables" / "variables.index").read_bytes()
    assert fingerprint64(index) == stored.checkpoint_hash
    patched = parse_fingerprint(patch_checkpoint_hash(data, "fingerprint.pb", 2**64 - 1), "it")
    assert patched == stored._replace(checkpoint_hash=2**64 - 1)
    with_hash = patch_checkpoint_hash(data, "fingerprint.pb", stored.checkpoint_hash)
    assert sorted(with_hash) == sorted(data)  # the same fields, perhaps in another order


def test_every_length_as_tensorflow_hashes_it() -> None:
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(3)
    texts = [rng.bytes(size) for size in (*range(300), 4095, 4096, 4097, 70_000)]
    most = 2**63 - 1
    expected = tf.strings.to_hash_bucket_fast(tf.constant(texts), most).numpy()
    assert [fingerprint64(text) % most for text in texts] == expected.tolist()
