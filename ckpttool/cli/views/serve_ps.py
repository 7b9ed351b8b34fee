"""How ``serve-ps`` looks: events while a cluster runs, its status, its end."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.conversion.wire import plain
from ckpttool.ops.serve_ps.status import DownResult, StatusResult
from ckpttool.policy.words import count
from ckpttool.ps.events import Event
from ckpttool.ps.run_dir import RunState

__all__ = ["DownView", "StatusView", "event_lines", "event_record"]


def event_record(event: Event) -> Mapping[str, object]:
    """An event as a line of ``--ndjson``."""
    record: dict[str, object] = {
        "type": "event",
        "kind": event.kind,
        "time": event.time,
        "text": event.text,
        "task": event.task,
    }
    if event.state is not None:
        record["gateway"] = event.state.gateway
        record["gateway_grpc"] = event.state.gateway_grpc
        record["cluster"] = event.state.cluster
        record["tf_config"] = event.state.tf_config
    return record


def event_lines(event: Event, run_dir: str) -> Iterator[str]:
    """An event as lines of text; when all is ready, where everything is."""
    yield f"{escape(event.text)}\n"
    if event.state is not None:
        yield from _where(event.state)
        yield f"  status    ckpttool serve-ps status {escape(shlex.quote(run_dir))}\n"


def _where(state: RunState) -> Iterator[str]:
    for job, addresses in (state.cluster or {}).items():
        yield f"  {job:<9} {escape(' '.join(addresses))}\n"
    if state.gateway:
        yield f"  gateway   {escape(state.gateway)}"
        yield f" (token: {escape(state.token_file)})\n" if state.token_file else "\n"
    if state.gateway_grpc:
        yield f"  grpc      {escape(state.gateway_grpc)}\n"
    if state.tf_config:
        yield f"  your own coordinator: export TF_CONFIG={escape(shlex.quote(state.tf_config))}\n"


class StatusView(View):
    """What runs, and where; exit code 1 where nothing does.

    ``over``: the cluster was ended as asked, and this is its last word.
    """

    command = "serve-ps-status"
    record_type = "event"

    def __init__(self, result: StatusResult, over: bool = False) -> None:
        self._result = result
        self._over = over

    @property
    def exit_code(self) -> int:
        return 0 if self._over or self._result.alive else 1

    @property
    def warnings(self) -> Sequence[str]:
        return self._result.warnings

    def data(self) -> Mapping[str, object]:
        result, state = self._result, self._result.state
        live = result.live or {}
        return {
            "directory": result.directory,
            "state": state.state,
            "pid": state.pid if result.standing == "running" else None,
            "step": live.get("step"),
            "rate": live.get("rate"),
            "losses": live.get("losses", {}),
            "train": state.train,
            "tasks": [plain(task) for task in state.tasks],
            "cluster": state.cluster,
            "tf_config": state.tf_config,
            "gateway": state.gateway,
            "gateway_grpc": state.gateway_grpc,
            "token_file": state.token_file,
            "snapshots": live.get("snapshots", []),
            "exports": live.get("exports", []),
            "error": state.error,
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        """None: events were printed when they happened."""
        yield from ()

    def summary(self) -> Mapping[str, object]:
        return {"state": self._result.state.state}

    def plain(self) -> Iterator[str]:
        state, live = self._result.state, self._result.live or {}
        yield from tab_lines([("state", state.state)])
        yield from tab_lines(
            [
                (f"{task.job}-{task.index}", task.state, _text(task.pid), _text(task.port))
                for task in state.tasks
            ]
        )
        rest = {"step": live.get("step"), "gateway": state.gateway, "grpc": state.gateway_grpc}
        yield from tab_lines([(name, str(it)) for name, it in rest.items() if it is not None])
        snapshots, exports = _records(live.get("snapshots")), _records(live.get("exports"))
        yield from tab_lines(
            ("snapshot", _text(one.get("step")), _text(one.get("prefix"))) for one in snapshots
        )
        yield from tab_lines(
            ("export", _text(one.get("state")), _text(one.get("path"))) for one in exports
        )

    def human(self, screen: Screen) -> Iterator[object]:
        result, state = self._result, self._result.state
        color = {"ready": "green", "failed": "red"}.get(state.state, "yellow")
        yield f"{screen.style(state.state, f'bold {color}')}  {escape(result.directory)}\n"
        if state.error:
            said = (str(state.error.get(part, "")) for part in ("message", "why"))
            yield from screen.text(escape(": ".join(said)))
        if state.tasks:
            yield "\n"
            yield from screen.table(
                [
                    Column("task"),
                    Column("state"),
                    Column("pid", align="right", drop=1),
                    Column("port", align="right"),
                    Column("restarts", align="right", drop=2),
                ],
                [
                    (
                        f"{task.job}-{task.index}",
                        task.state,
                        _text(task.pid),
                        _text(task.port),
                        str(task.restarts),
                    )
                    for task in state.tasks
                ],
            )
            yield "\n"
        if result.alive:
            yield from _where(state)
        if result.live is not None:
            yield from _live(result.live)


def _live(live: Mapping[str, Any]) -> Iterator[str]:
    """What the process with the parameters says of itself."""
    rate = f", {live['rate']:.1f} a second" if isinstance(live.get("rate"), int | float) else ""
    yield f"  step      {escape(_text(live.get('step')))}{rate}\n"
    losses = live.get("losses")
    for name, value in losses.items() if isinstance(losses, dict) else ():
        yield f"  {escape(str(name)):<9} {escape(_text(value))}\n"
    if isinstance(live.get("bytes"), int):
        yield f"  live      {count(live.get('variables', 0), 'variable')}, "
        yield f"{bytes_text(live['bytes'])}\n"
    snapshots = _records(live.get("snapshots"))
    if snapshots:
        last = snapshots[-1]
        yield f"  snapshots {len(snapshots)}, the last at step {escape(_text(last.get('step')))}: "
        yield f"{escape(str(last.get('prefix')))}\n"
    for export in _records(live.get("exports")):
        path, state = export.get("path"), export.get("state")
        yield f"  export    {escape(str(path))} ({escape(str(state))})\n"


def _records(value: object) -> list[Mapping[str, Any]]:
    """Of what another process says, what is a list of objects."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class DownView(View):
    """What was ended."""

    command = "serve-ps-down"

    def __init__(self, result: DownResult) -> None:
        self._result = result

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "directory": result.directory,
            "was_running": result.was_running,
            "pid": result.pid,
            "killed": result.killed,
            "seconds": result.seconds,
        }

    def plain(self) -> Iterator[str]:
        result = self._result
        directory = escape(result.directory)
        if not result.was_running:
            yield f"no cluster runs in {directory}\n"
        else:
            how = "killed" if result.killed else "ended"
            yield f"{how} the cluster in {directory} ({result.seconds:.1f} s)\n"


def _text(value: object) -> str:
    return "-" if value is None else str(value)
