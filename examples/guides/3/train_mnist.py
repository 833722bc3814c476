"""Training with a parameter server on digits; worker 0 hands out the steps.

TensorFlow 2 calls the task that hands out steps `chief`. The job has none, so worker 0 is the
chief, and the others are the workers.
"""

import json
import os
from pathlib import Path

given = json.loads(os.environ["TF_CONFIG"])
tasks, task = given["cluster"], given["task"]
chief, *others = tasks["worker"]
kind, index = task["type"], task["index"]
if kind == "worker":
    kind, index = ("worker", index - 1) if index else ("chief", 0)
cluster = {"chief": [chief], "worker": others, "ps": tasks["ps"]}
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})

import tensorflow as tf  # noqa: E402 -- reads TF_CONFIG
from sklearn.datasets import load_digits  # noqa: E402

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if kind != "chief":
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=kind, task_index=index, protocol="grpc"
    ).join()  # until the job is over

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([64, 10]))
images, labels = load_digits(return_X_y=True)
inputs = tf.constant(images / 16.0, tf.float32)
targets = tf.constant(labels, tf.int32)


@tf.function
def step() -> tf.Tensor:
    """Learn from all digits, on whichever worker is free."""
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, inputs @ weights)
        loss = tf.reduce_mean(losses)
    weights.assign_sub(0.5 * tape.gradient(loss, weights))
    return loss


for number in range(40):
    loss = coordinator.schedule(step)
    coordinator.join()
    if number % 10 == 9:
        print(f"step {number} loss {float(loss.fetch()):.4f}", flush=True)
Path("/output/weights.txt").write_text(str(weights.numpy().tolist()))
print(f"weights of {weights.device} saved", flush=True)
