"""Bytes that a step sends, and what rounding does to accuracy: a part of `benchmarks.serve_ps`.

One parameter server and one worker on loopback; bytes are those of the loopback device, which
nothing else should use. Accuracy: a student learns a teacher's ten classes, with the same
seeds in each mode.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.figures import Figure

__all__ = ["figures"]

#: 301,056 parameters.
ROWS, COLUMNS = 1344, 224
MODES: Mapping[str, tuple[str | None, str | None]] = {
    "float32": (None, None),
    "push int8": ("int8", None),
    "push int8, pull bf16": ("int8", "bf16"),
    "push int8, pull int8": ("int8", "int8"),
}


def figures(steps: int, seeds: int) -> Iterator[Figure]:
    """Bytes of so many steps, and the accuracy of trainings with so many seeds."""
    sent = _wire(steps)
    plain = sent["float32"]
    for mode, nbytes in sent.items():
        yield Figure(f"{mode}: bytes a step", nbytes)
    pushed = plain / 2
    push = pushed / (pushed - (plain - sent["push int8"]))
    both = plain / sent["push int8, pull bf16"]
    yield Figure("push int8: times less, of what is pushed", push, least=3.7)
    yield Figure("push int8, pull bf16: times less", both, least=2.5)
    means = []
    for mode in ("float32", "push int8, pull bf16"):
        means.append(100 * mean(_accuracy(seed, *MODES[mode]) for seed in range(seeds)))
        yield Figure(f"{mode}: mean accuracy of {seeds} seeds (%)", means[-1])
    yield Figure("difference of the two (points)", abs(means[0] - means[1]), most=0.5)


def _wire(steps: int) -> dict[str, float]:
    """Bytes a step in each mode, on the loopback device."""
    import tensorflow as tf  # before the fork: it is imported once

    cluster = {"ps": [f"127.0.0.1:{_port()}"], "worker": [f"127.0.0.1:{_port()}"]}
    children = [_server(tf, cluster, job) for job in cluster]
    try:
        return {mode: _bytes_a_step(tf, cluster, steps, *how) for mode, how in MODES.items()}
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _bytes_a_step(
    tf: Any, cluster: Mapping[str, list[str]], steps: int, push: str | None, pull: str | None
) -> float:
    from ckpttool.ps.runtime.compression import Link

    tf1 = tf.compat.v1
    link = Link(push, pull)  # type: ignore[arg-type]
    with tf.Graph().as_default():
        with tf1.device("/job:ps/task:0"):
            variable = tf1.get_variable("v", [ROWS, COLUMNS], use_resource=True)
        with tf1.device("/job:worker/task:0"):
            weights = link.pull(variable)
            x = tf1.random_normal([8, ROWS])
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)))
            (gradient,) = tf1.gradients(loss, [weights])
            gradient = link.push(gradient, variable)
        with tf1.device("/job:ps/task:0"):
            step = variable.assign_sub(0.01 * gradient, read_value=False)
        with tf1.Session(f"grpc://{cluster['worker'][0]}") as session:
            session.run(tf1.global_variables_initializer())
            for _ in range(5):
                session.run(step)
            before = _loopback()
            for _ in range(steps):
                session.run(step)
            return (_loopback() - before) / steps


def _accuracy(seed: int, push: str | None, pull: str | None) -> float:
    """Of a student of one hidden layer, after 1500 steps; every tensor goes through the link."""
    import numpy as np
    import tensorflow as tf

    from ckpttool.ps.runtime.compression import Link

    link = Link(push, pull)  # type: ignore[arg-type]
    random = np.random.default_rng(seed)
    teacher = [random.normal(size=shape).astype(np.float32) for shape in ((20, 32), (32, 10))]
    x = random.normal(size=(6000, 20)).astype(np.float32)
    y = np.argmax(np.tanh(x @ teacher[0]) @ teacher[1], axis=1)
    start = [0.2 * random.normal(size=shape).astype(np.float32) for shape in ((20, 64), (64, 10))]
    variables = [tf.Variable(value) for value in start]
    data, labels = tf.constant(x[:4000]), tf.constant(y[:4000])

    @tf.function  # type: ignore[untyped-decorator]
    def step(chosen: Any) -> None:
        weights = [link.pull(variable) for variable in variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = tf.matmul(tf.tanh(tf.matmul(tf.gather(data, chosen), weights[0])), weights[1])
            wanted = tf.gather(labels, chosen)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits)
            )
        for variable, gradient in zip(variables, tape.gradient(loss, weights), strict=True):
            variable.assign_sub(0.3 * link.push(gradient, variable))

    for _ in range(1500):
        step(tf.constant(random.integers(0, 4000, 64)))
    scores = np.tanh(x[4000:] @ variables[0].numpy()) @ variables[1].numpy()
    return float(np.mean(np.argmax(scores, axis=1) == y[4000:]))


def _server(tf: Any, cluster: Mapping[str, list[str]], job: str) -> int:
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        server = tf.distribute.Server(tf.train.ClusterSpec(dict(cluster)), job_name=job)
        server.join()
    return child


def _loopback() -> int:
    """Bytes that the loopback device has received."""
    lines = Path("/proc/net/dev").read_text("ascii").splitlines()
    (line,) = [line for line in lines if line.strip().startswith("lo:")]
    return int(line.split(":")[1].split()[0])


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
