"""A trial: a network learns digits, and its metrics are printed as NAME=VALUE for each epoch."""

import argparse
import warnings

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.001)
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--num_layers", type=int, default=3)
parser.add_argument("--optimizer", default="adam")
parser.add_argument("--dropout_rate", type=float, default=0.2)
parser.add_argument("--epochs", type=int, default=6)
given = parser.parse_args()
warnings.filterwarnings("ignore")  # the iterations are few on purpose

images, labels = load_digits(return_X_y=True)
parts = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)
inputs, held_out, targets, expected = parts
model = MLPClassifier(
    hidden_layer_sizes=(32,) * given.num_layers,
    solver="sgd" if given.optimizer == "sgd" else "adam",  # it has no rmsprop
    alpha=given.dropout_rate / 100,  # nor dropout: the weights are kept small instead
    learning_rate_init=given.learning_rate,
    batch_size=given.batch_size,
    random_state=0,
)
for epoch in range(given.epochs):
    model.partial_fit(inputs, targets, classes=range(10))
    print(f"\nepoch {epoch + 1}")
    print(f"accuracy={model.score(inputs, targets):.4f}")
    print(f"loss={log_loss(targets, model.predict_proba(inputs)):.4f}")
    print(f"val_accuracy={model.score(held_out, expected):.4f}")
