"""Which input or output of anyone's result is which of the source."""

from __future__ import annotations

from ckpttool.conversion.pairing import pair_ports, pair_signatures
from ckpttool.conversion.ports import Port, Signature


def port(
    name: str, dtype: str = "float32", shape: tuple[int | None, ...] | None = (None, 4)
) -> Port:
    return Port(name, dtype, shape)


def signature(name: str) -> Signature:
    return Signature(name, (), ())


def test_by_name_in_any_order() -> None:
    wanted, found = [port("a"), port("b")], [port("b"), port("a")]
    assert pair_ports(wanted, found).names == {"a": "a", "b": "b"}
    assert pair_ports(wanted, found).how == "name"


def test_what_converters_put_around_a_name() -> None:
    wanted = [port("a"), port("b")]
    for found in (["b:0", "a:0"], ["serving_default_b:0", "serving_default_a:0"]):
        pairing = pair_ports(wanted, [port(name) for name in found])
        assert pairing.names == {"a": found[1], "b": found[0]}
        assert pairing.how == "name"


def test_by_the_only_way_in_which_dtypes_and_shapes_fit() -> None:
    wanted = [port("ids", "int64", (None, 3)), port("image"), port("mask", "bool")]
    found = [port("x2", "bool"), port("x1", "int32", (1, 3)), port("x0", "float32")]
    pairing = pair_ports(wanted, found)
    assert pairing.names == {"ids": "x1", "image": "x0", "mask": "x2"}
    assert pairing.how == "dtype and shape"


def test_by_order_where_several_ways_would_fit() -> None:
    pairing = pair_ports([port("left"), port("right")], [port("Identity"), port("Identity_1")])
    assert pairing.names == {"left": "Identity", "right": "Identity_1"}
    assert pairing.how == "order"


def test_what_does_not_fit_stays_alone() -> None:
    pairing = pair_ports([port("a", shape=(None, 4))], [port("x", shape=(None, 5))])
    assert (pairing.names, pairing.left, pairing.over) == ({}, ["a"], ["x"])
    pairing = pair_ports([port("a"), port("b")], [port("b")])
    assert (pairing.names, pairing.left, pairing.over) == ({"b": "b"}, ["a"], [])
    pairing = pair_ports([port("a", "string")], [port("x", "float32")])
    assert pairing.left == ["a"]
    assert pair_ports([port("a", shape=None)], [port("x")]).names == {"a": "x"}
    assert pair_ports([port("a", shape=())], [port("x", shape=(1,))]).left == ["a"]


def test_no_name_belongs_to_two() -> None:
    pairing = pair_ports([port("x"), port("x:0")], [port("x"), port("y")])
    assert sorted(pairing.names.values()) == ["x", "y"]


def test_a_quantised_output_stands_for_real_numbers() -> None:
    assert pair_ports([port("logits")], [port("Identity", "int8")]).names == {"logits": "Identity"}


def test_signatures() -> None:
    wanted = [signature("serving_default"), signature("head")]
    assert pair_signatures(wanted, [signature("serving_default")]).left == ["head"]
    both = pair_signatures(
        wanted, [signature("head"), signature("x"), signature("serving_default")]
    )
    assert (both.left, both.over) == ([], ["x"])
    # ONNX names no signature: one is one.
    assert pair_signatures(wanted[:1], [signature("")]).names == {"serving_default": ""}
