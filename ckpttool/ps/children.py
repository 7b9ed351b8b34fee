"""The tasks of a cluster as processes: how they are started, heard and ended.

All go through a fork server, which may itself die and is then started anew. What follows
from what a task says, and from its end, is the supervisor's affair.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpttool.errors import ClusterError
from ckpttool.ps.channel import Inbox
from ckpttool.ps.fork_server import Child, ForkServer
from ckpttool.ps.restarts import Restarts
from ckpttool.ps.task import Task
from ckpttool.ps.timers import Timers

__all__ = ["Children"]

#: Seconds that children have to end themselves before they are killed.
_GRACE = 0.4


class Children:
    """The processes of tasks, in the supervisor's loop.

    Args:
        tasks: all that there are.
        selector, timers: the loop.
        log: the file of the fork server.
        can_start: called when ``spawn`` has a use, again after each fork server.
        said: called with a task and what it said.
        ended: called with a task that has no process any more, and how that ended.
        tell: called with the kind and the text of what happens to the fork server.

    Attributes:
        can_spawn: whether there is a fork server that has TensorFlow.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        selector: selectors.BaseSelector,
        timers: Timers,
        log: str,
        *,
        can_start: Callable[[], None],
        said: Callable[[Task, Mapping[str, Any]], None],
        ended: Callable[[Task, str], None],
        tell: Callable[[str, str], None],
    ) -> None:
        self.tasks = tasks
        self.can_spawn = False
        self._selector = selector
        self._timers = timers
        self._log = log
        self._can_start = can_start
        self._said = said
        self._ended = ended
        self._tell = tell
        self._server: ForkServer | None = None
        self._restarts = Restarts()

    def start(self) -> None:
        """Start the fork server; ``can_start`` is called when it has imported TensorFlow."""
        self._server = server = ForkServer(self._log)
        self._selector.register(server, selectors.EVENT_READ, lambda: self._server_says(server))

    def spawn(
        self, task: Task, module: str, job: Mapping[str, object], environment: Mapping[str, str]
    ) -> None:
        """Start the process of a task; see ``ForkServer.spawn``. Only while ``can_spawn``."""
        assert self._server is not None
        try:
            child = self._server.spawn(module, job, task.log, environment)
        except BrokenPipeError:
            return  # the server has ended, which its own channel is about to tell
        task.begins(child)
        self._selector.register(
            child.inbox, selectors.EVENT_READ, lambda: self._task_says(task, child)
        )

    def kill(self, task: Task) -> None:
        """End the process of a task, if it has one; ``ended`` is not called."""
        if task.child is not None:
            task.child.end()
            task.child.kill()
            self._forget(task)

    def let_end(self) -> None:
        """Tell all processes to end themselves, and wait for none."""
        for task in self.tasks:
            if task.child is not None:
                task.child.end()

    def close(self) -> None:
        """End all, by force those that do not end themselves, and the fork server."""
        self.let_end()
        children = [task.child for task in self.tasks if task.child is not None]
        if self._server is not None:
            self._server.end_children(children, _GRACE)
        for child in children:
            child.kill()
        if self._server is not None:
            self._server.close()
            self._server.wait(0.1)

    # -- the fork server -------------------------------------------------------------------

    def _server_says(self, server: ForkServer) -> None:
        for message in server.read():
            event = message["event"]
            if event == "ready":
                self.can_spawn = True
                self._tell("tensorflow-ready", "TensorFlow is imported")
                self._can_start()
            elif event == "closed":
                self._server_ended(server)
            else:
                for task in self.tasks:
                    if task.child is not None and task.child.number == message["number"]:
                        self._child_event(task, task.child, message)

    def _child_event(self, task: Task, child: Child, message: Mapping[str, Any]) -> None:
        if message["event"] == "started":
            child.pid = message["pid"]
        else:
            self._hear_the_rest(task)
            self._task_ended(task, f"exit code {message['code']}")

    def _server_ended(self, server: ForkServer) -> None:
        """Its children go on; another one is started for those that will be needed."""
        self._selector.unregister(server)
        server.close()
        server.wait(0)
        could_spawn, self.can_spawn, self._server = self.can_spawn, False, None
        pause = self._restarts.after_end(time.monotonic())
        if not could_spawn or pause is None:
            raise ClusterError(
                "the process that starts TensorFlow's tasks ended",
                why="TensorFlow could not be imported" if not could_spawn else "again and again",
                hint=f"its output is in {self._log}",
                id="fork-server-died",
            )
        self._tell("fork-server-ended", "the fork server ended; another one is started")
        for task in self.tasks:
            task.orphan = task.child is not None
        self._timers.after(pause, self.start)
        for task in self.tasks:
            if task.orphan and task.silent:
                self._task_ended(task, "it ended")

    # -- its children ----------------------------------------------------------------------

    def _task_says(self, task: Task, child: Child) -> bool:
        """Take the messages of a child; false when there are none."""
        messages = child.inbox.read()
        for message in messages:
            if message is Inbox.CLOSED:
                task.silent = True
                self._selector.unregister(child.inbox)
                if task.orphan:
                    self._task_ended(task, "it ended")
                return False
            self._said(task, message)
        return bool(messages)

    def _hear_the_rest(self, task: Task) -> None:
        """Hear what a child said last: its end may be told before."""
        while task.child is not None and not task.silent and self._task_says(task, task.child):
            pass

    def _task_ended(self, task: Task, how: str) -> None:
        self._forget(task)
        self._ended(task, how)

    def _forget(self, task: Task) -> None:
        """Its child is no longer ours."""
        child, task.child = task.child, None
        if child is not None:
            child.ended = True
            if not task.silent:
                self._selector.unregister(child.inbox)
            child.inbox.close()
