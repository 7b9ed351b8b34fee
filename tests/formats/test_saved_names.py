from __future__ import annotations

import pytest

from ckpttool.formats.saved_names import saved_under

STEMS = {"t/.ATTRIBUTES/table", "i/.ATTRIBUTES/ITERATOR", "t/.ATTRIBUTES/ta"}


@pytest.mark.parametrize(
    ("key", "stem"),
    [
        ("t/.ATTRIBUTES/table-keys", "t/.ATTRIBUTES/table"),
        ("i/.ATTRIBUTES/ITERATOR_STATE", "i/.ATTRIBUTES/ITERATOR"),
        ("t/.ATTRIBUTES/tax", "t/.ATTRIBUTES/ta"),
        ("u/.ATTRIBUTES/table-keys", None),
        ("t/.ATTRIBUTES/t", None),
        ("table-keys", None),
        ("t/.ATTRIBUTES/", None),
    ],
)
def test_the_key_of_the_graph(key, stem):
    assert saved_under(key, STEMS) == stem
