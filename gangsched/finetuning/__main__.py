"""The program of a fine-tuning, one process for each rank of torchrun."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from gangsched.finetuning.options import MODEL, OUTPUT, OptionError, Options, parse_options

_LEARNING_RATES = {False: 2e-5, True: 2e-4}
"""The learning rates of TRL, by whether an adapter is trained."""


def main(arguments: list[str]) -> int:
    """Train and save; return the exit code."""
    try:
        # The SDK has no field for the learning rate: a patch of the variable sets it.
        rate = os.environ.get("LEARNING_RATE")
        options = parse_options([*([f"lr={rate}"] if rate else []), *arguments])
    except OptionError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    # Pickled weights may run code; weights in safetensors cannot.
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=dtype, use_safetensors=True)
    trainer = SFTTrainer(
        model=model,
        args=_settings(options),
        train_dataset=_examples(options),
        processing_class=tokenizer,
        peft_config=_adapter(options),
    )
    trainer.train()
    trainer.save_model(OUTPUT)
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, saved in {OUTPUT}", flush=True)  # noqa: T201
    return 0


def _settings(options: Options) -> Any:
    has_gpu = torch.cuda.is_available()
    rate = options.learning_rate or _LEARNING_RATES[options.lora is not None]
    return SFTConfig(
        output_dir=OUTPUT,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=rate,
        seed=options.seed,
        bf16=options.dtype == "bf16",
        use_cpu=not has_gpu,
        ddp_backend="nccl" if has_gpu else "gloo",
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        gradient_checkpointing=False,
    )


def _adapter(options: Options) -> Any:
    lora = options.lora
    if lora is None:
        return None
    return LoraConfig(
        task_type="CAUSAL_LM",
        target_modules=lora.targets or None,
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        use_dora=lora.dora,
    )


def _examples(options: Options) -> Dataset:
    """Return the examples with the columns prompt and completion, or text."""
    place = Path(options.data)
    while not place.exists() and place != place.parent:
        place = place.parent  # the SDK adds parts of the address of the store
    where = {"data_files": str(place)} if place.is_file() else {"data_dir": str(place)}
    # Each rank prepares the examples in a folder of its own.
    cache = f"/tmp/datasets-{os.environ.get('RANK', '0')}"  # noqa: S108
    data = load_dataset(options.source, split=options.split, cache_dir=cache, **where)
    asked = options.columns.get("input", "input")
    answered = options.columns.get("output", "output")
    if asked not in data.column_names or answered not in data.column_names:
        if "text" in data.column_names:
            return data.select_columns(["text"])
        raise SystemExit(
            f"the data set has the columns {', '.join(data.column_names)}; {asked!r} and "
            f"{answered!r}, or 'text', are needed: name them in column_map"
        )
    system = f"{options.system_prompt}\n" if options.system_prompt else ""
    return data.map(
        lambda row: {"prompt": f"{system}{row[asked]}", "completion": f" {row[answered]}"},
        remove_columns=data.column_names,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
