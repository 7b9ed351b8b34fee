"""Keeps a cluster: what is started when, and what follows from each end.

One loop over channels, without threads and without TensorFlow. A worker that ends is started
again and nobody notices; a parameter server takes its variables with it, so all of them are
started anew and so is the host, which restores the last snapshot. How processes are started,
heard and ended is the affair of ``children`` and ``gateway_process``.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ckpttool.conversion.wire import encode
from ckpttool.errors import CkpttoolError, ClusterError
from ckpttool.ps.children import Children
from ckpttool.ps.cluster import TaskName
from ckpttool.ps.events import Event, StopSignal
from ckpttool.ps.gateway_process import GatewayProcess
from ckpttool.ps.live_protocol import SOCKET_NAME, error_of
from ckpttool.ps.plan import ClusterPlan
from ckpttool.ps.ports import free_ports, require_free
from ckpttool.ps.process import start_of
from ckpttool.ps.restarts import PATIENT, Restarts
from ckpttool.ps.run_dir import RunDirectory, RunState, State, TaskState
from ckpttool.ps.task import Task
from ckpttool.ps.timers import Timers

__all__ = ["Supervisor"]

_SERVER = "ckpttool.ps.runtime.server"
_HOST = TaskName("chief", 0)
#: Only a worker may have use of a GPU: the others would take its memory.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
#: How often other ports are tried when one was taken between the search and the start.
_TRIES = 5


class Supervisor:
    """One run of a cluster, from the first process to the last.

    Args:
        plan: what to start.
        run: its directory, prepared and locked by the caller.
        stop: when to stop.
        tell: called with every event.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        run: RunDirectory,
        stop: StopSignal,
        tell: Callable[[Event], None],
    ) -> None:
        self._plan = plan
        self._run = run
        self._stop = stop
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._timers = Timers()
        self._spec = plan.spec
        self._servers = [Task(name, run.log(str(name))) for name in plan.servers]
        self._host = None if plan.host is None else Task(_HOST, run.log(str(_HOST)))
        if self._host is not None:
            self._host.restarts = Restarts(PATIENT)
        self._gateway = None
        if plan.gateway is not None:
            self._gateway = GatewayProcess(plan.gateway, run.log("gateway"))
        self._gateway_gone = False
        self._children = Children(
            [*self._servers, *([] if self._host is None else [self._host])],
            self._selector,
            self._timers,
            run.log("fork-server"),
            can_start=self._start_waiting,
            said=self._task_says,
            ended=self._task_ended,
            tell=self._say,
        )
        self._port_tries = 0
        self._over = False
        self._state = RunState(
            state="starting",
            pid=os.getpid(),
            start=start_of(os.getpid()) or "",
            node=os.uname().nodename,
            created=time.time(),
            train=None if plan.host is None else plan.host.train,
            token_file=None if plan.gateway is None else plan.gateway.token_file,
        )

    def run(self) -> RunState:
        """Keep the cluster until it is over; returns what ``run.json`` says then.

        Raises:
            ClusterError: ids ``task-failing``, ``port-taken``, ``training-failed``,
                ``training-lost``, ``gateway-died``: it cannot go on.
            CkpttoolError: what the training function or the gateway failed with.
        """
        final: State = "failed"
        try:
            self._begin()
            while not (self._over or self._stop.stopped):
                for key, _ in self._selector.select(self._timers.wait()):
                    if self._selector.get_map().get(key.fd) is key:  # one before may end it
                        key.data()
                self._timers.run()
                self._publish()
            final = "stopped"
        except CkpttoolError as error:
            self._state = replace(self._state, error=error.as_dict())
            raise
        except BrokenPipeError:  # who listened is gone: `serve-ps up | head`
            final = "stopped"
            raise
        finally:
            self._end(final)
        return self._state

    # -- starting ------------------------------------------------------------------------

    def _begin(self) -> None:
        self._write(self._state)
        if self._spec is not None:
            for task in self._servers:
                require_free(self._spec.address(task.name).port, str(task.name))
        self._selector.register(self._stop, selectors.EVENT_READ, lambda: None)
        if self._plan.exit_after is not None:
            self._timers.after(self._plan.exit_after, self._finish)
        self._children.start()
        self._start_gateway()

    def _start_waiting(self) -> None:
        """Start every server that is not there, and the host when all are."""
        if not self._children.can_spawn:
            return  # this is called again when it is
        if self._spec is None:
            self._pick_ports()
        assert self._spec is not None
        for task in self._servers:
            if task.state == "waiting":
                job = {"jobs": self._spec.as_dict(), "job": task.name.job, "index": task.name.index}
                task.port = self._spec.address(task.name).port
                self._children.spawn(task, _SERVER, job, _NO_GPU if task.name.job == "ps" else {})
        host, plan = self._host, self._plan.host
        if host is None or plan is None or host.state != "waiting":
            return
        if all(task.state == "ready" for task in self._servers):
            setup = encode(plan.setup(self._spec))
            job = {"setup": setup, "attempt": host.restarts.total}
            self._children.spawn(host, plan.module, job, _NO_GPU)

    def _pick_ports(self) -> None:
        chief, *ports = free_ports(1 + len(self._servers))
        self._spec = spec = self._plan.on_ports(ports)
        if self._host is None:  # then somebody else's coordinator comes, and needs a port too
            config = spec.with_chief(f"127.0.0.1:{chief}").tf_config(_HOST)
            self._state = replace(self._state, tf_config=config)

    # -- what tasks say, and what follows from their ends ----------------------------------

    def _task_says(self, task: Task, message: Mapping[str, Any]) -> None:
        event = message["event"]
        if event == "ready":
            task.state = "ready"
            task.was_ready = True
            self._say("task-ready", f"{task.name} is ready", task)
            self._start_waiting()
        elif event == "done":
            task.state = "done"
            self._say("training-done", "the training function has returned", task)
            self._over = self._over or self._plan.exit_when_done
        elif event == "failed":
            task.failure = error_of(message["error"])
        elif event == "lost":
            self._say("training-lost", f"the training lost a server: {message['why']}", task)
        elif event == "failing":
            text = f"{message['what']}; more in {task.log}"
            self._tell(Event("live-failing", text, str(task.name), warns=True))
        elif event == "unused":
            text = f"of no effect: {message['options']}; the training does not use ctx.link for it"
            self._say("option-unused", text, task)

    def _task_ended(self, task: Task, how: str) -> None:
        self._say("task-ended", f"{task.name} has ended: {how}", task)
        if task is self._host:
            self._host_ended(task)
            return
        if task.failure is not None and not task.was_ready:
            self._port_was_taken(task, task.failure)
            return
        if task.name.job == "ps" and self._host is not None and self._host.child is not None:
            self._abandon_host(self._host)
        self._again(task, how, id="task-failing")

    def _host_ended(self, host: Task) -> None:
        if host.failure is not None:
            raise host.failure
        if host.state == "done":
            self._parameters_are_gone(host)
            return
        self._renew_servers()
        self._again(host, "it ended", id="training-lost")

    def _abandon_host(self, host: Task) -> None:
        """A coordinator that lost a parameter server cannot go on: end it, have a new one."""
        self._children.kill(host)
        if host.state == "done":  # it has trained all it should
            self._parameters_are_gone(host)
            return
        self._renew_servers()
        self._again(host, "a parameter server ended", id="training-lost")

    def _parameters_are_gone(self, host: Task) -> None:
        host.state = "ended"
        self._say("parameters-gone", "the trained parameters are no longer live", host)

    def _renew_servers(self) -> None:
        """Start the parameter servers anew that have variables of a coordinator that is gone.

        TensorFlow never gives them back (measured: one copy more at each restart, for good),
        and the next coordinator makes its own, out of the last snapshot.
        """
        for task in self._servers:
            if task.name.job == "ps" and task.child is not None:
                self._children.kill(task)
                task.state = "waiting"
                task.restarts.total += 1
        self._timers.after(0, self._start_waiting)

    def _again(self, task: Task, why: str, *, id: str) -> None:
        """Start a task again after a while, if that makes sense."""
        pause = task.restarts.after_end(time.monotonic())
        if pause is None:
            raise ClusterError(
                f"{task.name} ends again and again",
                why=f"{len(task.restarts.pauses) + 1} times; the last time: {why}",
                hint=f"its output is in {task.log}",
                id=id,
            )
        task.state = "restarting"

        def ready_to_start() -> None:
            task.state = "waiting"
            self._start_waiting()

        self._timers.after(pause, ready_to_start)

    def _port_was_taken(self, task: Task, error: CkpttoolError) -> None:
        """Somebody was quicker: other ports for all, where we choose them."""
        self._port_tries += 1
        if self._plan.spec is not None or self._port_tries > _TRIES:
            raise error
        self._say("port-taken", f"{error}; trying other ports", task)
        for other in self._servers:
            self._children.kill(other)
            other.state = "waiting"
        self._spec = None
        self._timers.after(0, self._start_waiting)

    # -- the gateway -----------------------------------------------------------------------

    def _start_gateway(self) -> None:
        gateway = self._gateway
        if gateway is not None:
            gateway.start()
            self._selector.register(gateway.fileno(), selectors.EVENT_READ, self._gateway_says)

    def _gateway_says(self) -> None:
        gateway = self._gateway
        assert gateway is not None
        if gateway.read():
            return
        self._selector.unregister(gateway.fileno())
        gateway.end()
        if not gateway.was_ready:
            raise gateway.silent()
        pause = gateway.restarts.after_end(time.monotonic())
        if pause is None:  # training is worth more than being looked at
            self._gateway_gone = True
            self._say("gateway-gone", "the gateway ends again and again, and is given up")
        else:
            self._say("gateway-ended", "the gateway has ended, and is started again")
            self._timers.after(pause, self._start_gateway)

    # -- the state, and the end ------------------------------------------------------------

    def _say(self, kind: str, text: str, task: Task | None = None) -> None:
        self._tell(Event(kind, text, None if task is None else str(task.name)))

    def _finish(self) -> None:
        self._over = True

    def _is_ready(self) -> bool:
        gateway = self._gateway is None or self._gateway_gone or self._gateway.rest is not None
        return gateway and all(
            task.state in {"ready", "done", "ended"} for task in self._children.tasks
        )

    def _publish(self) -> None:
        """Write ``run.json`` where something has changed."""
        gateway = self._gateway
        state = replace(
            self._state,
            state="ready" if self._is_ready() else "starting",
            tasks=(*(task.as_state() for task in self._children.tasks), *self._elsewhere()),
            cluster=None if self._spec is None else self._spec.as_dict(),
            gateway=None if gateway is None else gateway.rest,
            gateway_grpc=None if gateway is None else gateway.grpc,
        )
        if state == self._state:
            return
        became_ready = state.state == "ready" != self._state.state
        self._write(state)
        if became_ready:
            self._tell(Event("ready", "the cluster is ready", state=state))

    def _elsewhere(self) -> list[TaskState]:
        """The tasks of the cluster that other hosts start."""
        if self._plan.spec is None:
            return []
        ours = {task.name for task in self._children.tasks}
        return [
            TaskState(name.job, name.index, None, self._plan.spec.address(name).port, "elsewhere")
            for name in self._plan.spec.tasks
            if name not in ours
        ]

    def _write(self, state: RunState) -> None:
        self._state = state
        self._run.write(state)

    def _end(self, final: State) -> None:
        """End every process, and say so in ``run.json``, also where nobody listens any more."""
        stopping = replace(self._state, state="stopping" if final == "stopped" else final)
        over = replace(stopping, state=final, tasks=(), gateway=None, gateway_grpc=None)
        with ExitStack() as last:
            last.callback(self._write, over)
            last.callback(self._end_processes)
            self._say("stopping", "stopping")
            self._write(stopping)

    def _end_processes(self) -> None:
        self._children.let_end()
        if self._gateway is not None:
            self._gateway.end()
        self._children.close()
        self._selector.close()
        try:
            os.unlink(os.path.join(self._run.path, SOCKET_NAME))
        except OSError:
            pass  # there was none, or it is no longer ours
