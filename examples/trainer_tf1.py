"""A TensorFlow 1 trainer as many still run: variable scopes, a partitioner, a Saver.

It trains on the servers of a cluster that stands, and knows nothing of ckpttool but the
hook, which is optional. Start a cluster, a process of this for each worker, and attach::

    ckpttool serve-ps up --ps 2 --workers 2 --no-gateway --run-dir cluster
    python examples/trainer_tf1.py --cluster cluster/run.json --task 0 --checkpoints ck &
    python examples/trainer_tf1.py --cluster cluster/run.json --task 1 --checkpoints ck &
    ckpttool serve-ps attach --ps "$(jq -r '.cluster.ps[0]' cluster/run.json)" --names ck
    ckpttool convert ps://127.0.0.1:PORT export/1 --to savedmodel \
        --model examples/trainer_tf1.py:serve

``serve`` is the plain model, with the variables' names: exports are made with it.
"""

from __future__ import annotations

import argparse
import json

import tensorflow as tf

tf1 = tf.compat.v1
ROWS, WIDTH = 5000, 16


def build(workers: int, parts: int) -> tuple[tf.Operation, tf.Tensor]:
    """A toy recommender: two embeddings, one in parts, and a layer over them."""
    step = tf1.train.get_or_create_global_step()
    first = tf1.get_variable("first", [], tf.int64, initializer=tf1.zeros_initializer())
    last = tf1.get_variable("last", [], tf.int64, initializer=tf1.zeros_initializer())
    with tf1.variable_scope("model"):
        items = tf1.get_variable(
            "items", [ROWS, WIDTH], partitioner=tf1.fixed_size_partitioner(parts)
        )
        users = tf1.get_variable("users", [ROWS // 5, WIDTH])
        kernel = tf1.get_variable("kernel", [WIDTH, 1])
    with tf.control_dependencies([first.assign_add(1)]):
        item = tf.random.uniform([64], 0, ROWS, tf.int32)
        user = tf.random.uniform([64], 0, ROWS // 5, tf.int32)
        rows = tf1.nn.embedding_lookup(items, item, partition_strategy="div")
        score = tf.matmul(rows * tf1.nn.embedding_lookup(users, user), kernel)
        loss = tf.reduce_mean(tf.square(score - 1.0))
    train = tf1.train.AdagradOptimizer(0.05 / workers).minimize(loss, global_step=step)
    with tf.control_dependencies([train]):
        return tf.group(last.assign_add(1)), loss


class Scores(tf.Module):
    """What is served: the score of each pair of an item and a user."""

    def __init__(self) -> None:
        super().__init__()
        self.items = tf.Variable(tf.zeros([ROWS, WIDTH]), name="model/items")
        self.users = tf.Variable(tf.zeros([ROWS // 5, WIDTH]), name="model/users")
        self.kernel = tf.Variable(tf.zeros([WIDTH, 1]), name="model/kernel")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int32, name="item"),
            tf.TensorSpec([None], tf.int32, name="user"),
        ]
    )
    def __call__(self, item: tf.Tensor, user: tf.Tensor) -> tf.Tensor:
        pair = tf.gather(self.items, item) * tf.gather(self.users, user)
        return tf.matmul(pair, self.kernel)


def serve() -> tf.Module:
    """The plain model, with the names that the variables have in training."""
    return Scores()


def main() -> None:
    """Train until told otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", required=True, help="run.json of a cluster that stands")
    parser.add_argument("--task", type=int, required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--pause-hook", action="store_true")
    options = parser.parse_args()
    with open(options.cluster, encoding="utf-8") as file:
        cluster = json.load(file)["cluster"]
    workers = len(cluster["worker"])
    tf1.disable_eager_execution()
    here = f"/job:worker/task:{options.task}"
    with tf1.device(tf1.train.replica_device_setter(cluster=cluster, worker_device=here)):
        train, loss = build(workers, options.parts)
    hooks = [tf1.train.StopAtStepHook(last_step=options.steps)]
    if options.pause_hook:
        from ckpttool.ps import PauseHook

        hooks.append(PauseHook(options.task, workers))
    session = tf1.train.MonitoredTrainingSession(
        master=f"grpc://{cluster['worker'][options.task]}",
        is_chief=options.task == 0,
        hooks=hooks,
        checkpoint_dir=options.checkpoints if options.task == 0 else None,
        save_checkpoint_steps=200,
        log_step_count_steps=None,
        max_wait_secs=600,
        # Without it a session waits for every task, and one that is dead holds up all.
        config=tf1.ConfigProto(device_filters=["/job:ps", here]),
    )
    with session:
        while not session.should_stop():
            session.run([train, loss])


if __name__ == "__main__":
    main()
