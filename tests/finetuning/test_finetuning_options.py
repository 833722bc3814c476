"""The arguments of gangsched.finetuning: those that the SDK's BuiltinTrainer writes."""

import pytest

from gangsched.finetuning.options import Lora, OptionError, Options, parse_options


def test_without_arguments_all_weights_are_trained():
    assert parse_options([]) == Options()


def test_what_the_sdk_writes_is_read():
    from kubeflow.trainer.backends.kubernetes.utils import get_args_using_torchtune_config
    from kubeflow.trainer.types import types

    config = types.TorchTuneConfig(
        dtype=types.DataType.FP32,
        batch_size=2,
        epochs=3,
        loss=types.Loss.CEWithChunkedOutputLoss,
        peft_config=types.LoraConfig(
            apply_lora_to_mlp=True,
            apply_lora_to_output=False,
            lora_attn_modules=["q_proj", "output_proj"],
            lora_rank=4,
            lora_alpha=8,
            lora_dropout=0.1,
            quantize_base=False,
            use_dora=True,
        ),
        dataset_preprocess_config=types.TorchTuneInstructDataset(
            source=types.DataFormat.JSON,
            split="train[:90%]",
            train_on_input=False,
            new_system_prompt="Answer: briefly = well.",
            column_map={"input": "question", "output": "answer"},
        ),
    )
    dataset = types.HuggingFaceDatasetInitializer(storage_uri="hf://team/set/train.json")
    arguments = get_args_using_torchtune_config(config, types.Initializer(dataset=dataset))
    assert parse_options(arguments) == Options(
        batch_size=2,
        epochs=3,
        split="train[:90%]",
        data="/workspace/dataset/train.json",
        system_prompt="Answer: briefly = well.",
        columns={"input": "question", "output": "answer"},
        lora=Lora(("q_proj", "o_proj"), 4, 8.0, 0.1, dora=True, mlp=True),
    )


REFUSED = {
    "output_dir=/x": "NAME=VALUE is allowed with: batch_size, ",
    "epochs": "NAME=VALUE is allowed",
    "epochs=0": "1 to 100000 is allowed",
    "epochs=" + "9" * 1_000: "1 to 100000 is allowed",
    "epochs=-1": "1 to 100000 is allowed",
    "epochs=²": "1 to 100000 is allowed",
    "lr=nan": "0 to 10 is allowed",
    "lr=inf": "0 to 10 is allowed",
    "dtype=fp8": "allowed are: bf16, fp32",
    "dataset.source=xml": "allowed are: arrow, csv",
    "dataset.data_dir=/etc": "a path below /workspace/dataset",
    "dataset.data_dir=/workspace/dataset/../model": "a path below /workspace/dataset",
    "dataset.data_files=/workspace/datasets": "a path below /workspace/dataset",
    "dataset.column_map=__import__('os')": "a dictionary such as",
    "dataset.column_map=" + "[" * 1_500: "a dictionary such as",
    "dataset.column_map={'input': 1}": "with the keys 'input' and 'output'",
    "dataset.column_map={'x': 'y'}": "with the keys 'input' and 'output'",
    "dataset.new_system_prompt=" + "x" * 2_000: "at most 2000 characters",
    "dataset.train_on_input=True": "allowed are: False",
    "loss=mine.Loss": "allowed are: torchtune",
    "model.quantize_base=True": "only torchtune quantizes",
    "model.lora_attn_modules=[]": "a list such as",
    "model.lora_attn_modules=[q.*]": "a list such as",
    "model.lora_rank=0": "1 to 4096 is allowed",
    "model.use_dora=maybe": "allowed are: true, false",
}


@pytest.mark.parametrize("argument", REFUSED, ids=lambda argument: argument[:40])
def test_another_argument_is_named_with_what_is_allowed(argument):
    with pytest.raises(OptionError) as said:
        parse_options([argument])
    assert REFUSED[argument] in str(said.value)
    assert str(said.value).startswith(f"argument {argument[:100]!r}: ")


def test_an_adapter_may_be_added_to_the_mlp():
    options = parse_options(["model.lora_attn_modules=[v_proj]", "model.apply_lora_to_mlp=True"])
    assert options.lora.targets == ["v_proj", "gate_proj", "up_proj", "down_proj"]


def test_the_number_of_arguments_is_bounded():
    with pytest.raises(OptionError, match="at most 64 arguments"):
        parse_options(["epochs=1"] * 65)
