"""Our header against the one numpy writes."""

from __future__ import annotations

import io

import numpy as np
import pytest

from ckpttool.formats import npy


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (10**6, 0, 5), (1,) * 30])
@pytest.mark.parametrize("descr", ["<f4", "|b1", "<c16", "|S12", "<u8"])
def test_byte_for_byte_as_numpy(shape: tuple[int, ...], descr: str) -> None:
    file = io.BytesIO()
    array = np.zeros(shape, descr)
    np.save(file, array)
    assert npy.header(descr, shape) == file.getvalue()[: -array.nbytes or None]
    assert len(npy.header(descr, shape)) % 64 == 0


def test_the_most_dimensions_a_checkpoint_can_have() -> None:
    text = npy.header("<f4", (2**62,) * 254)
    assert int.from_bytes(text[8:10], "little") + 10 == len(text)
