"""TensorFlow's workers reduce gradients among themselves: MultiWorkerMirroredStrategy."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = strategy.cluster_resolver
tf.random.set_seed(7 + task.task_id)
features = tf.random.normal([256, 8])
targets = tf.reduce_sum(features, axis=1, keepdims=True)

with strategy.scope():
    weights = tf.Variable(tf.zeros([8, 1]), aggregation=tf.VariableAggregation.MEAN)


def learn() -> tf.Tensor:
    """Take one step on this worker's own data."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weights - targets) ** 2)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss


@tf.function
def step() -> tf.Tensor:
    """Take one step on all workers, and return the mean of their losses."""
    return strategy.reduce("mean", strategy.run(learn), axis=None)


for number in range(40):
    loss = float(step())
    if number % 10 == 9:
        print(f"step {number} loss {loss:.6f}", flush=True)
print(f"{task.task_type} {task.task_id} of {strategy.num_replicas_in_sync}: done", flush=True)
