"""A conversion's own program, opened in the test's process: what the child would have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.job import Job
from ckpttool.conversion.origin import find_origin
from ckpttool.conversion.request import Request
from ckpttool.conversion.specs import parse_named_value, parse_port
from ckpttool.conversion.wire import decode, encode
from ckpttool.limits import Limits

if TYPE_CHECKING:
    from ckpttool.conversion.worker.program import Frozen, Function, Program

__all__ = ["feed", "job_of", "open_program", "request", "run_frozen"]


def request(source: str | Path, **given: Any) -> Request:
    """A request by the words of the command line: lists of texts for what is repeated."""
    plain = {"target": "savedmodel", "destination": "unused"} | given
    made = Request(
        str(source),
        **{
            name: value
            for name, value in plain.items()
            if name not in {"inputs", "outputs", "freeze"}
        },
    )
    return replace(
        made,
        inputs=tuple(map(parse_port, plain.get("inputs", ()))),
        outputs=tuple(map(parse_port, plain.get("outputs", ()))),
        freeze=tuple(parse_named_value("--freeze-input", one) for one in plain.get("freeze", ())),
    )


def job_of(asked: Request) -> Job:
    """The job that the child would get, as it would arrive."""
    return decode(Job, encode(Job(asked, find_origin(asked, Limits()), "unused")))


@contextmanager
def open_program(source: str | Path, **given: Any) -> Iterator[Program]:
    """The restored program of a request."""
    from ckpttool.conversion.worker.open_program import open_program as opening

    program = opening(job_of(request(source, **given)))
    try:
        yield program
    finally:
        program.close()


def feed(function: Function, batch: int = 2) -> dict[str, Any]:
    """Seeded inputs of a function."""
    from ckpttool.conversion.worker.feeds import make_feeds

    return make_feeds(function, batch, seed=0)


def run_frozen(frozen: Frozen, feeds: dict[str, Any]) -> dict[str, Any]:
    """What a frozen graph computes, weights that were left out fed."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(frozen.graph, name="")
    given = {port.tensor: feeds[port.name] for port in frozen.signature.inputs}
    given |= {f"{name}:0": weight.array() for name, weight in frozen.weights.items()}
    wanted = {port.name: port.tensor for port in frozen.signature.outputs}
    with tf.compat.v1.Session(graph=graph) as session:
        found: dict[str, Any] = session.run(wanted, given)
    return found
