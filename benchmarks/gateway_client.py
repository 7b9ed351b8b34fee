"""Reads rows of a gateway, in a process of its own: ``python -m benchmarks.gateway_client JOB``.

JOB is JSON: the interface and where it is, how many clients, and how many requests a second
they make; without a rate each asks as soon as it has its answer. Prints the seconds that
each answer took; those of a rate count from when the request was due, so that a gateway that
falls behind does not look quick.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from ckpttool.ps.gateway import messages

#: Reads rows from a position on, and says how many bytes came.
Read = Callable[[int], int]


def rest(address: str, token: str, name: str, rows: int) -> Read:
    """A client over HTTP, with one connection that stays open."""
    connection = http.client.HTTPConnection(address, timeout=60)
    headers = {"Authorization": f"Bearer {token}"}

    def read(start: int) -> int:
        connection.request(
            "GET", f"/v1/values?name={name}&index={start}:{start + rows}", None, headers
        )
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {data[:500]!r}")
        return len(data)

    return read


def rpc(address: str, token: str, name: str, rows: int) -> Read:
    """A client over gRPC, with a connection of its own."""
    channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
    call = channel.unary_stream(
        f"/{messages.SERVICE}/ReadVariable",
        messages.ReadVariableRequest.SerializeToString,
        messages.ReadPiece.FromString,
    )
    metadata = [("authorization", f"Bearer {token}")]

    def read(start: int) -> int:
        request = messages.ReadVariableRequest(name=name, index=f"{start}:{start + rows}")
        return sum(len(piece.data) for piece in call(request, metadata=metadata, timeout=60))

    return read


def at_a_rate(clients: list[Read], rate: float, seconds: float, last: int) -> list[float]:
    """Requests that come evenly, each taken by a client that is free."""
    free = list(clients)
    taken: list[float] = []
    begin = time.perf_counter() + 0.2

    def one(due: float) -> None:
        read = free.pop()
        read(random.randrange(last))
        taken.append(time.perf_counter() - due)
        free.append(read)

    with ThreadPoolExecutor(len(clients)) as pool:
        done = []
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            done.append(pool.submit(one, due))
        for future in done:
            future.result()
    return taken


def as_fast_as_can_be(clients: list[Read], seconds: float, last: int) -> list[float]:
    """Every client asks again when it has its answer."""
    taken: list[float] = []
    ready = threading.Barrier(len(clients))

    def loop(read: Read) -> None:
        ready.wait()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            read(random.randrange(last))
            taken.append(time.perf_counter() - began)

    with ThreadPoolExecutor(len(clients)) as pool:
        for future in [pool.submit(loop, read) for read in clients]:
            future.result()
    return taken


def main() -> None:
    """Do the job that the command line has."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    make = {"rest": rest, "grpc": rpc}[job["interface"]]
    clients = [
        make(job["address"], job["token"], job["name"], job["rows"]) for _ in range(job["clients"])
    ]
    for read in clients:  # connected, and everything imported
        read(0)
    began = time.perf_counter()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    last = job["height"] - job["rows"]
    if job["rate"]:
        taken = at_a_rate(clients, job["rate"], job["seconds"], last)
    else:
        taken = as_fast_as_can_be(clients, job["seconds"], last)
    json.dump({"taken": taken, "seconds": time.perf_counter() - began}, sys.stdout)


if __name__ == "__main__":
    main()
