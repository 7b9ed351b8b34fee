"""Cluster specs: what is read, what is refused, what TensorFlow is told."""

from __future__ import annotations

import json

import pytest

from ckpttool.errors import CkpttoolError, RefusedError, UsageError
from ckpttool.ops.serve_ps.request import Task, Training, plan_task, plan_up, read_task
from ckpttool.ops.serve_ps.up import OPEN_PORTS, warnings_of
from ckpttool.ps.cluster import Address, ClusterSpec, TaskName, parse_address, parse_tf_config
from ckpttool.ps.setup import TrainSetup

SPEC = {"chief": ["h0:1"], "ps": ["h1:1", "h2:1"], "worker": ["h3:1"]}


def tf_config(task: object, cluster: object = SPEC) -> str:
    return json.dumps({"cluster": cluster, "task": task})


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:1", "localhost", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[::1]:22", "::1", 22),
        ("ps-0.ps.default.svc:2222", "ps-0.ps.default.svc", 2222),
    ],
)
def test_addresses(text, host, port) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":1",
        "host:0",
        "host:65536",
        "host:x",
        "::1:22",
        "host:\N{ARABIC-INDIC DIGIT ONE}",
        "[]:1",
    ],
)
def test_what_is_no_address(text) -> None:
    with pytest.raises(UsageError, match="is no address") as caught:
        parse_address(text)
    assert caught.value.id == "cluster-spec"


def test_port_0_is_one_where_any_will_do() -> None:
    assert parse_address("127.0.0.1:0", any_port=True).port == 0


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("example", False),
    ],
)
def test_what_is_of_this_machine_alone(host, expected) -> None:
    assert Address(host, 1).is_loopback is expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "names no jobs"),
        ({}, "names no jobs"),
        ("ps", "names no jobs"),
        ({"worker": ["a:1"]}, "no parameter server"),
        ({"ps": []}, "ps has no tasks"),
        ({"ps": ["a:1"], "wroker": ["b:1"]}, "no job 'wroker'"),
        ({"ps": ["a:1"], "evaluator": ["b:1"]}, "no job 'evaluator'"),
        ({"ps": ["a:1"], "worker": ["b:1", "a:1"]}, "ps-0 and worker-1 have the same address"),
        ({"ps": ["a:1"], "chief": ["b:1", "c:1"]}, "several chiefs"),
        ({"ps": "a:1"}, "no list of addresses"),
        ({"ps": [1]}, "no list of addresses"),
        ({"ps": {"0": "a:1", "2": "b:1"}}, "without a gap"),
    ],
)
def test_what_is_refused(data, words) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        ClusterSpec.parse(data)
    assert caught.value.id == "cluster-spec"


def test_tasks_come_in_one_order() -> None:
    spec = ClusterSpec.parse({"worker": {"1": "b:1", "0": "a:1"}, "ps": ["c:1"]})
    assert [str(task) for task in spec.tasks] == ["ps-0", "worker-0", "worker-1"]
    assert spec.jobs["worker"] == ("a:1", "b:1")


def test_tf_config_and_back() -> None:
    spec = ClusterSpec.parse(SPEC)
    for task in spec.tasks:
        assert parse_tf_config(spec.tf_config(task)) == (spec, task)


def test_tensorflow_takes_what_we_say(monkeypatch) -> None:
    tf = pytest.importorskip("tensorflow")
    spec = ClusterSpec.parse(SPEC)
    monkeypatch.setenv("TF_CONFIG", spec.tf_config(TaskName("ps", 1)))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == SPEC
    assert (resolver.task_type, resolver.task_id) == ("ps", 1)
    assert tf.train.ClusterSpec(spec.as_dict()).task_address("ps", 1) == "h2:1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        (json.dumps({"cluster": SPEC}), "which task"),
        (json.dumps(SPEC), "which task"),
        (tf_config({"type": "ps"}), "which task"),
        (tf_config({"type": "ps", "index": 2}), "no task ps-2"),
        (tf_config({"type": "ps", "index": -1}), "no task ps--1"),
        (tf_config({"type": "ps", "index": "x"}), "no task"),
        (tf_config({"type": "ps", "index": None}), "no task"),
        (tf_config({"type": "evaluator", "index": 0}), "no job 'evaluator'"),
    ],
)
def test_a_tf_config_that_is_refused(text, words) -> None:
    with pytest.raises(UsageError, match=words):
        parse_tf_config(text)


def test_a_task_of_a_file(tmp_path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"cluster": SPEC}))
    task = read_task(str(path), "worker", 0, {})
    assert task.name == TaskName("worker", 0)
    with pytest.raises(UsageError, match="no task worker-1"):
        read_task(str(path), "worker", 1, {})
    with pytest.raises(UsageError, match="which task"):
        read_task(str(path), "worker", None, {})
    path.write_text("no")
    with pytest.raises(UsageError, match="no JSON"):
        read_task(str(path), "worker", 0, {})


def test_a_task_of_tf_config_may_be_said_apart() -> None:
    """As Slurm does: one TF_CONFIG for all, the number from the launcher."""
    environment = {"TF_CONFIG": tf_config({"type": "ps", "index": 0})}
    assert read_task(None, None, None, environment).name == TaskName("ps", 0)
    assert read_task(None, None, 1, environment).name == TaskName("ps", 1)
    assert read_task(None, "worker", None, environment).name == TaskName("worker", 0)
    with pytest.raises(UsageError, match="no cluster is given"):
        read_task(None, "ps", 0, {})


def plan(spec: dict[str, list[str]], name: str, *, train: str | None = None, insecure=False):
    job, _, index = name.partition("-")
    training = None if train is None else Training(TrainSetup("/run", (), train, "/"))
    return plan_task(
        Task(ClusterSpec.parse(spec), TaskName(job, int(index))),
        training=training,
        gateway=None,
        insecure_cluster=insecure,
    )


def test_a_cluster_of_many_machines_has_to_be_asked_for() -> None:
    with pytest.raises(RefusedError) as caught:
        plan(SPEC, "ps-0")
    assert (caught.value.id, caught.value.exit_code) == ("cluster-open", 31)
    assert "--insecure-cluster" in caught.value.hint
    assert plan(SPEC, "ps-0", insecure=True).local == (TaskName("ps", 0),)
    assert plan({"ps": ["localhost:1"], "worker": ["127.0.0.1:2"]}, "ps-0").host is None


def test_the_chief_trains_and_nobody_else() -> None:
    with pytest.raises(UsageError, match="the chief has nothing to do"):
        plan(SPEC, "chief-0", insecure=True)
    with pytest.raises(UsageError, match="--train does not go with ps-0"):
        plan(SPEC, "ps-0", train="m:f", insecure=True)
    made = plan(SPEC, "chief-0", train="m:f", insecure=True)
    assert made.local == ()
    assert made.host is not None
    setup = made.host.setup(ClusterSpec.parse(SPEC))
    assert isinstance(setup, TrainSetup)
    assert setup.jobs == (("chief", ("h0:1",)), ("ps", ("h1:1", "h2:1")), ("worker", ("h3:1",)))


@pytest.mark.parametrize("train", ["train", ":f", "m:", "missing.py:f"])
def test_a_function_that_cannot_be_is_told_first(train, tmp_path) -> None:
    training = Training(TrainSetup(str(tmp_path), (), train, str(tmp_path)))
    with pytest.raises(UsageError) as caught:
        plan_up(ps=1, workers=1, training=training, gateway=None)
    assert caught.value.id == "train-function"


def test_warnings() -> None:
    spec = ClusterSpec.parse({"ps": ["127.0.0.1:1"], "worker": ["192.0.2.1:1"]})
    (_, not_ours) = warnings_of(Task(spec, TaskName("worker", 0)))
    assert "192.0.2.1 is no address of this machine" in not_ours
    quiet = ClusterSpec.parse({"ps": ["localhost:1"]})
    assert warnings_of(Task(quiet, TaskName("ps", 0))) == [OPEN_PORTS]
    nowhere = ClusterSpec.parse({"ps": ["no.such.host.invalid:1"]})
    with pytest.raises(CkpttoolError) as caught:
        warnings_of(Task(nowhere, TaskName("ps", 0)))
    assert (caught.value.id, caught.value.exit_code) == ("unknown-host", 61)
