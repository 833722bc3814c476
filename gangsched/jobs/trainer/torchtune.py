"""torchtune on Trainer's runtimes: the recipe, config and rendezvous after `tune run`.

Source: kubeflow/trainer v2.3, pkg/runtime/framework/plugins/torch/torchtune.go. The runtime's name
has the model (torchtune-llama3.2-1b), its command the paths of data, model and results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ENTRY = ["tune", "run"]

_MODELS = ("llama3_2/1B", "llama3_2/3B", "llama3_3/70B", "qwen2_5/1.5B")
_MANY_NODES = "llama3_3/70B"
_FIXED = (
    "output_dir",
    "tokenizer.path",
    "checkpointer.checkpoint_dir",
    "tokenizer.merges_file",
)
"""Options that the runtime sets, and that a job must not set."""

_SINGLE: Mapping[str, tuple[str, str]] = {
    "full": ("full_finetune_single_device", "_full_single_device"),
    "lora": ("lora_finetune_single_device", "_lora_single_device"),
    "qlora": ("lora_finetune_single_device", "_qlora_single_device"),
}
_SEVERAL: Mapping[str, tuple[str, str]] = {
    "full": ("full_finetune_distributed", "_full"),
    "lora": ("lora_finetune_distributed", "_lora"),
    "qlora": ("lora_finetune_distributed", "_qlora"),
}
_NODES = ("full_finetune_distributed", "_full_multinode")


@dataclass(frozen=True, slots=True)
class Tuning:
    """One fine-tuning; `processes` of a node are a number or auto, `arguments` are the user's."""

    runtime: str
    nodes: int
    processes: str
    gpus: int
    arguments: Sequence[str]

    @property
    def model(self) -> str:
        """Return the model in the form of torchtune's configs, or nothing."""
        parts = self.runtime.split("-")
        return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == 3 else ""

    @property
    def method(self) -> str:
        """Return full, lora or qlora; DoRA excludes QLoRA."""
        if self._is_on("model.quantize_base") and not self._is_on("model.use_dora"):
            return "qlora"
        is_lora = any("model.lora_attn_modules" in argument for argument in self.arguments)
        return "lora" if is_lora else "full"

    def recipe(self) -> tuple[str, str]:
        """Return torchtune's recipe and config."""
        single = self.nodes == 1 and (self.processes == "1" or self.gpus == 1)
        name, suffix = (_SINGLE if single else _SEVERAL)[self.method]
        if self.nodes > 1:
            name, suffix = _NODES
        return name, self.model + suffix

    def command(self, address: str, runtime_command: Sequence[str]) -> list[str]:
        """Return the complete command; nodes meet at `address`."""
        several = self.processes != "1" and (self.processes != "auto" or self.gpus > 1)
        endpoint = [f"--rdzv_endpoint={address}"] if self.nodes > 1 or several else []
        name, config = self.recipe()
        kept = [word for word in runtime_command if word.split("=", 1)[0] in _FIXED]
        return [*ENTRY, *endpoint, name, "--config", config, *kept]

    def error(self) -> str:
        """Return what torchtune does not support, field and value first, or nothing."""
        name = f"spec.runtimeRef.name {self.runtime!r}"
        if self.model not in _MODELS:
            return f"{name} names no model of torchtune; allowed are: {', '.join(_MODELS)}"
        nodes = f"spec.trainer.numNodes is {self.nodes}"
        if self.nodes > 1 and self.model != _MANY_NODES:
            return f"{nodes}; {self.model} is tuned on 1 node"
        if self.nodes > 1 and self.method != "full":
            return f"{nodes}; LoRA is tuned on 1 node"
        if self.method == "qlora" and self.model.startswith("qwen2_5/"):
            return f"{name}: there is no QLoRA of {self.model}; remove model.quantize_base"
        if self.method == "qlora" and self.model.startswith("llama3_2/") and not self._single():
            return (
                f"spec.trainer.numProcPerNode is {self.processes} with {self.gpus} GPUs; QLoRA of "
                f"{self.model} is tuned on 1 GPU"
            )
        for argument in self.arguments:
            if argument.split("=", 1)[0] in _FIXED:
                return f"spec.trainer.args has {argument!r}, which the runtime sets; remove it"
        return ""

    def _single(self) -> bool:
        return self.recipe()[1].endswith("_single_device")

    def _is_on(self, key: str) -> bool:
        pairs = (argument.partition("=") for argument in self.arguments)
        return any(key in name and value.strip().lower() == "true" for name, _, value in pairs)
