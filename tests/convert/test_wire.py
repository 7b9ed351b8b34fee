"""What crosses the process border arrives as it was."""

from __future__ import annotations

from ckpttool.conversion.job import Case, Job, Made, Origin
from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.request import CheckSettings, Request, Settings
from ckpttool.conversion.specs import NamedValue, PortSpec
from ckpttool.conversion.wire import decode, encode

SIGNATURE = Signature("serve", (Port("x", "float32", (None, 3), "x:0"),), (Port("y", "", None),))


def test_a_job() -> None:
    request = Request(
        "run/\udcff",
        "out",
        "savedmodel",
        model_args=(NamedValue("sizes", [1, {"a": None}]), NamedValue("flag", False)),
        inputs=(PortSpec("a", "b", 1, "int64", (None, 2)),),
        signatures=("one", "two"),
        settings=Settings("int8", batch=3),
        check=CheckSettings(False, tolerance=0.5),
        memory=2**40,
    )
    job = Job(request, Origin("graph", "g.pb", None, (SIGNATURE,), ("serve",)), "a/b", "cases")
    assert decode(Job, encode(job)) == job


def test_an_answer() -> None:
    made = Made(
        (SIGNATURE,),
        ("careful",),
        (Case("serve", 2, "c.npz"), Case("serve", None, "d.npz")),
        (SIGNATURE,),
        "because",
        {"restore": 0.5},
        {"opset": 18, "ops": ["Add"]},
        {"tensorflow": "2.21.0"},
    )
    assert decode(Made, encode(made)) == made
