"""The arguments of a fine-tuning: those of torchtune that the kubeflow SDK writes, and more."""

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

DATASET, MODEL, OUTPUT = "/workspace/dataset", "/workspace/model", "/workspace/output"

_ARGUMENTS, _LETTERS = 64, 2_000
_MLP = ("gate_proj", "up_proj", "down_proj")
_NAMES = {"output_proj": "o_proj"}
"""Modules that torchtune names otherwise than the models of transformers."""

_SOURCES = ("arrow", "csv", "json", "parquet", "text")


class OptionError(Exception):
    """An argument cannot be used; the message names it, its value and what is allowed."""


@dataclass(slots=True)
class Lora:
    """The settings of an adapter."""

    modules: tuple[str, ...] = ()
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    dora: bool = False
    mlp: bool = False

    @property
    def targets(self) -> list[str]:
        """Return the modules that the adapter is added to."""
        return [*self.modules, *(_MLP if self.mlp else ())]


@dataclass(slots=True)
class Options:
    """A fine-tuning; `lora` is None if all weights are trained."""

    dtype: str = "fp32"
    batch_size: int = 4
    epochs: int = 1
    learning_rate: float | None = None
    seed: int = 0
    source: str = "json"
    split: str = "train"
    data: str = DATASET
    system_prompt: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    lora: Lora | None = None


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text) if text.isdecimal() and len(text) < len(str(most)) + 1 else least - 1
        if not least <= value <= most:
            raise ValueError(f"{least} to {most} is allowed")
        return value

    return read


def _number(most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= most:
            raise ValueError(f"0 to {most:g} is allowed")
        return value

    return read


def _of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"allowed are: {', '.join(allowed)}")
        return text

    return read


def _switch(text: str) -> bool:
    return _of("true", "false")(text.lower()) == "true"


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.strip("[]").split(",") if name.strip())
    if not names or not all(name.isidentifier() for name in names):
        raise ValueError("a list such as [q_proj,v_proj] is allowed")
    return tuple(_NAMES.get(name, name) for name in names)


def _columns(text: str) -> dict[str, str]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("a dictionary such as {'input': 'question'} is allowed") from error
    pairs = value.items() if isinstance(value, dict) else ()
    if not pairs or not all(
        key in ("input", "output") and isinstance(name, str) for key, name in pairs
    ):
        raise ValueError("a dictionary with the keys 'input' and 'output' is allowed")
    return dict(pairs)


def _below_workspace(text: str) -> str:
    inside = text == DATASET or text.startswith(f"{DATASET}/")
    if not inside or ".." in text.split("/"):
        raise ValueError(f"a path below {DATASET} is allowed")
    return text


def _no(text: str) -> bool:
    if _switch(text):
        raise ValueError("only torchtune quantizes; use false, or one of its runtimes")
    return False


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "dtype": ("dtype", _of("bf16", "fp32")),
    "batch_size": ("batch_size", _whole(1, 100_000)),
    "epochs": ("epochs", _whole(1, 100_000)),
    "lr": ("learning_rate", _number(10.0)),
    "seed": ("seed", _whole(0, 2**31)),
    "dataset.source": ("source", _of(*_SOURCES)),
    "dataset.split": ("split", str),
    "dataset.data_dir": ("data", _below_workspace),
    "dataset.data_files": ("data", _below_workspace),
    "dataset.new_system_prompt": ("system_prompt", str),
    "dataset.column_map": ("columns", _columns),
}
_READ_LORA: dict[str, tuple[str, Callable[[str], Any]]] = {
    "model.lora_attn_modules": ("modules", _modules),
    "model.lora_rank": ("rank", _whole(1, 4_096)),
    "model.lora_alpha": ("alpha", _number(1e6)),
    "model.lora_dropout": ("dropout", _number(1.0)),
    "model.use_dora": ("dora", _switch),
    "model.apply_lora_to_mlp": ("mlp", _switch),
}
_WITHOUT_EFFECT = {
    "dataset": _of("torchtune.datasets.instruct_dataset"),
    "loss": _of("torchtune.modules.loss.CEWithChunkedOutputLoss"),
    "dataset.train_on_input": _of("False", "false"),
    "model.apply_lora_to_output": _no,
    "model.quantize_base": _no,
}
"""Arguments of torchtune with the one value that TRL has too."""


def parse_options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line.

    Raises:
        OptionError: an argument is unknown, or has a value that is not allowed.

    """
    options = Options()
    if len(arguments) > _ARGUMENTS:
        raise OptionError(f"at most {_ARGUMENTS} arguments are allowed")
    for argument in arguments:
        try:
            _apply(options, argument)
        except ValueError as error:
            raise OptionError(f"argument {argument[:100]!r}: {error}") from error
    return options


def _apply(options: Options, argument: str) -> None:
    name, separator, text = argument.partition("=")
    if len(argument) > _LETTERS:
        raise ValueError(f"at most {_LETTERS} characters are allowed")
    if separator and name in _READ:
        attribute, read = _READ[name]
        setattr(options, attribute, read(text))
    elif separator and name in _READ_LORA:
        attribute, read = _READ_LORA[name]
        options.lora = options.lora or Lora()
        setattr(options.lora, attribute, read(text))
    elif separator and name in _WITHOUT_EFFECT:
        _WITHOUT_EFFECT[name](text)
    else:
        known = sorted((*_READ, *_READ_LORA, *_WITHOUT_EFFECT))
        raise ValueError(f"NAME=VALUE is allowed with: {', '.join(known)}")
