"""The words of `--input`, `--output`, `--freeze-input` and `--model-arg`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.conversion.specs import (
    NamedValue,
    PortSpec,
    parse_named_value,
    parse_port,
    port_text,
)
from ckpttool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input", PortSpec("input", "input")),
        ("x:0", PortSpec("x", "x", 0)),
        ("a/b/Softmax:1", PortSpec("a/b/Softmax", "a/b/Softmax", 1)),
        ("image=x:0", PortSpec("image", "x", 0)),
        ("ids:int64[?,128]", PortSpec("ids", "ids", None, "int64", (None, 128))),
        ("x[2,3]", PortSpec("x", "x", shape=(2, 3))),
        ("n=x:0:float32[]", PortSpec("n", "x", 0, "float32", ())),
        ("x:float32[-1, None,?]", PortSpec("x", "x", None, "float32", (None, None, None))),
        ("x:bfloat16", PortSpec("x", "x", None, "bfloat16")),
    ],
)
def test_a_port(text: str, expected: PortSpec) -> None:
    assert parse_port(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x:", "=x", "x=", "x:float99", "x[1", "x[a]", "x[1.5]", "a=b=c", "x:0:1", "x[[1]]"]
)
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_port(text)
    assert caught.value.id == "port-spec"


@given(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_./-]{0,20}", fullmatch=True),
    st.sampled_from(["float32", "int64", "string"]),
    st.none() | st.lists(st.none() | st.integers(0, 9999), max_size=4).map(tuple),
)
def test_what_is_shown_can_be_given(
    name: str, dtype: str, shape: tuple[int | None, ...] | None
) -> None:
    assert parse_port(port_text(name, dtype, shape)) == PortSpec(name, name, None, dtype, shape)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("is_training=False", NamedValue("is_training", False)),
        ("on=true", NamedValue("on", True)),
        ("nothing=None", NamedValue("nothing", None)),
        ("keep_prob=1.0", NamedValue("keep_prob", 1.0)),
        ("sizes=[64,32]", NamedValue("sizes", [64, 32])),
        ("name=resnet", NamedValue("name", "resnet")),
        ("empty=", NamedValue("empty", "")),
        ("a=b=c", NamedValue("a", "b=c")),
    ],
)
def test_a_named_value(text: str, expected: NamedValue) -> None:
    found = parse_named_value("--freeze-input", text)
    assert found == expected
    assert type(found.value) is type(expected.value)


@pytest.mark.parametrize("text", ["x", "=1", ""])
def test_what_is_no_named_value(text: str) -> None:
    with pytest.raises(UsageError, match="--model-arg"):
        parse_named_value("--model-arg", text)
