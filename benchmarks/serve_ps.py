"""`python -m benchmarks.serve_ps`: every figure of parameter servers, in one table.

Two parameter servers, two workers and the training function's process, all on this machine.
Ends with 1 where a median misses its target. What is sent is counted on the loopback device,
which nothing else should use: `unshare --net sh -c 'ip link set lo up; python -m …'`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from benchmarks import gateway, ps_cluster, ps_live, ps_wire
from benchmarks.figures import Figure, show

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve_ps", description=__doc__)
    # The last one imports TensorFlow here, and a process with it is no good parent.
    parts: Mapping[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
        "cluster": lambda given: ps_cluster.figures(given.runs),
        "live": lambda given: ps_live.figures(given.snapshots, given.runs),
        "large": lambda _: ps_live.large(),
        "gateway": lambda given: gateway.figures(given.seconds),
        "wire": lambda given: ps_wire.figures(given.steps, given.seeds),
    }
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(parts)} [all]")
    parser.add_argument("--runs", type=int, default=3, help="of cluster; two more of live [3]")
    parser.add_argument("--snapshots", type=int, default=200, help="of a small model [200]")
    parser.add_argument("--seconds", type=float, default=10.0, help="of requests [10]")
    parser.add_argument("--steps", type=int, default=50, help="whose bytes are counted [50]")
    parser.add_argument("--seeds", type=int, default=10, help="trained in each mode [10]")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - parts.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    print(f"load before: {' '.join(f'{one:.1f}' for one in os.getloadavg())}", end="\n\n")
    chosen = [measure for name, measure in parts.items() if name in (given.parts or parts)]
    return int(show(chain.from_iterable(measure(given) for measure in chosen)))


if __name__ == "__main__":
    sys.exit(main())
