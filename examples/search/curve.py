"""A stand-in for training: prints metrics as a trial does, a good learning rate does better."""

import argparse
import math
import time

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--dropout_rate", type=float, default=0.0)
parser.add_argument("--optimizer", default="adam")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--step_s", type=float, default=0.0)
given = parser.parse_args()

off = abs(math.log10(given.learning_rate) + 2) + given.dropout_rate + (given.optimizer == "sgd") / 2
for step in range(1, given.steps + 1):
    accuracy = (1 - math.exp(-step / 3)) / (1 + off)
    print(f"epoch={step} accuracy={accuracy:.4f} loss={1 - accuracy:.4f}", flush=True)
    time.sleep(given.step_s)
