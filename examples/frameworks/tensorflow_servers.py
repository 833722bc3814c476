"""TensorFlow's parameter server: a chief hands steps to workers, servers keep the weights."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    server.join()  # until the job is over

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([8, 1]))


@tf.function
def step() -> tf.Tensor:
    """Learn from a batch, on whichever worker is free."""
    features = tf.random.normal([256, 8])
    targets = tf.reduce_sum(features, axis=1, keepdims=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weights - targets) ** 2)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss


for number in range(40):
    loss = coordinator.schedule(step)
    coordinator.join()
    if number % 10 == 9:
        print(f"step {number} loss {float(loss.fetch()):.6f}", flush=True)
print(f"weights live on {weights.device}", flush=True)
