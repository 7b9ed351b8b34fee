"""JSON that every reader accepts, whatever the values are."""

from __future__ import annotations

import json
import math
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.cli.jsontext import dumps, pieces
from ckpttool.cli.spool import Spool
from ckpttool.errors import NoSpaceError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def expected(value: object) -> object:
    """What a reader gets: NaN and infinities as null, lone surrogates replaced."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [expected(member) for member in value]
    if isinstance(value, dict):
        return {expected(key): expected(member) for key, member in value.items()}
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


@given(json_values)
def test_values_come_back(value: object) -> None:
    text = dumps(value)
    assert text.isascii()
    assert json.loads(text, parse_constant=pytest.fail) == expected(value)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("\udcff", "\ufffd"),
        ("a\udc80\udcffb", "a\ufffd\ufffdb"),
        ("😀\udcff", "😀\ufffd"),
        ("\\ud800", "\\ud800"),
        ("\\\udcff", "\\\ufffd"),
    ],
)
def test_bytes_that_are_not_utf8_become_replacement_characters(text: str, read: str) -> None:
    assert json.loads(dumps(text)) == read


def test_not_finite_is_null_at_any_depth() -> None:
    value = {"a": [float("nan"), (float("inf"), {"b": -float("inf")})], "c": 1.5}
    assert dumps(value) == '{"a": [null, [null, {"b": null}]], "c": 1.5}'


def test_an_iterator_is_streamed_as_an_array() -> None:
    data = {"source": "x", "rows": ({"n": n} for n in range(1201)), "none": iter(())}
    parts = list(pieces(data))
    assert json.loads("".join(parts)) == {
        "source": "x",
        "rows": [{"n": n} for n in range(1201)],
        "none": [],
    }
    assert max(map(len, parts)) < 10_000
    assert "".join(pieces({})) == "{}"


def test_streaming_takes_only_what_it_gives() -> None:
    assert "0, 1" in "".join(islice(pieces({"all": count()}), 2))


def test_spool_gives_back_what_it_got_also_from_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Spool(in_memory=10) as spool:
        for n in range(1000):
            spool.add(f"{n},")
        assert "".join(spool) == "".join(f"{n}," for n in range(1000))
    assert list(tmp_path.iterdir()) == []


def test_spool_says_where_space_is_missing(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setattr("tempfile.tempdir", str(gone))
    with Spool(in_memory=1) as spool, pytest.raises(NoSpaceError) as caught:
        spool.add("text")
    assert str(gone) in caught.value.what
    assert "TMPDIR" in caught.value.hint
