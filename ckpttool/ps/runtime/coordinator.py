"""The child that calls the user's training function, and serves what it trains.

Says how it went; what follows from that is the supervisor's affair.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.wire import decode
from ckpttool.conversion.worker.factory import load_function
from ckpttool.errors import CkpttoolError, ClusterError
from ckpttool.ps.channel import Channel
from ckpttool.ps.live_protocol import failure
from ckpttool.ps.setup import TrainSetup

if TYPE_CHECKING:
    from ckpttool.ps.runtime.context import TrainContext

__all__ = ["run"]

#: Steps after which every function has been traced that a training uses all the time.
_FIRST_STEPS = 20
_LOOK = 0.25
#: Of an exception's text, what goes into a message.
_TEXT = 1000


def run(job: dict[str, Any], channel: Channel) -> None:
    """Train. Tells ``ready``, then ``done``, ``lost`` or ``failed``; stays after ``done``.

    Also ``unused``, once, where an option does nothing in this training, and ``failing``, once,
    when a snapshot or an export fails.

    Args:
        job: ``setup`` (a ``TrainSetup``, encoded) and ``attempt`` (0; one more after each restart).
        channel: to the supervisor.
    """
    setup = decode(TrainSetup, job["setup"])
    os.chdir(setup.cwd)
    try:
        function = load_function(setup.train, "--train")
        from ckpttool.ps.runtime.context import TrainContext

        with TrainContext(setup, attempt=job["attempt"]) as context:
            context.tell_failure(lambda what: channel.send({"event": "failing", "what": what}))
            channel.send({"event": "ready"})
            with _watched(context, channel):
                function(context)
                context.finish()
            channel.send({"event": "done"})
            threading.Event().wait()  # what was trained stays readable
    except CkpttoolError as error:
        traceback.print_exc()
        channel.send({"event": "failed", **failure(error)})
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"[:_TEXT]
        if _is_lost(error):
            channel.send({"event": "lost", "why": text})
        else:
            channel.send({"event": "failed", **failure(_failed(setup.train, text))})
    sys.exit(1)


@contextmanager
def _watched(context: TrainContext, channel: Channel) -> Iterator[None]:
    """Tell, once, where tensors do not travel as was asked for: nothing else would show it.

    A function uses the link when it is traced, which is at its first step.
    """
    over = threading.Event()

    def watch() -> None:
        while context.steps < _FIRST_STEPS and not over.wait(_LOOK):
            pass
        unused = context.unused_compression
        if context.steps and unused:
            channel.send({"event": "unused", "options": " and ".join(unused)})

    thread = threading.Thread(target=watch, name="ckpttool-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_lost(error: BaseException) -> bool:
    """Whether a server of the cluster went away under the training.

    A coordinator cannot go on then, even when the server comes back ("Unable to find a
    context_id"); a new one can.
    """
    import tensorflow as tf

    kinds = (tf.errors.UnavailableError, tf.errors.AbortedError)
    return any(isinstance(one, kinds) for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _failed(train: str, why: str) -> ClusterError:
    return ClusterError(
        f"the training function {train} failed",
        why=why,
        hint="its traceback is in the log of the run directory: logs/chief-0.log",
        id="training-failed",
    )
