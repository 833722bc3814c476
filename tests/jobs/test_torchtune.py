"""torchtune on Trainer's runtimes, row by row as in kubeflow/trainer v2.3."""

import pytest

from gangsched.jobs.trainer.runtimes import resolve
from gangsched.jobs.trainer.torchtune import ENTRY, Tuning

LORA = "model.lora_attn_modules=[q_proj,v_proj]"
QUANTIZED = "model.quantize_base=True"

RECIPES = {
    "one node, several GPUs": (1, "auto", 4, (), "full_finetune_distributed", "_full"),
    "one GPU": (1, "auto", 1, (), "full_finetune_single_device", "_full_single_device"),
    "one process": (1, "1", 4, (), "full_finetune_single_device", "_full_single_device"),
    "LoRA": (1, "auto", 2, (LORA,), "lora_finetune_distributed", "_lora"),
    "LoRA on one": (1, "1", 0, (LORA,), "lora_finetune_single_device", "_lora_single_device"),
    "QLoRA": (1, "2", 2, (LORA, QUANTIZED), "lora_finetune_distributed", "_qlora"),
    "QLoRA on one": (
        1,
        "auto",
        1,
        (LORA, QUANTIZED),
        "lora_finetune_single_device",
        "_qlora_single_device",
    ),
    "DoRA is no QLoRA": (
        1,
        "auto",
        2,
        (LORA, QUANTIZED, "model.use_dora=true"),
        "lora_finetune_distributed",
        "_lora",
    ),
    "not quantized": (
        1,
        "auto",
        2,
        (LORA, "model.quantize_base=False"),
        "lora_finetune_distributed",
        "_lora",
    ),
    "several nodes": (2, "auto", 8, (), "full_finetune_distributed", "_full_multinode"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_recipe_and_config(case):
    nodes, processes, gpus, arguments, recipe, suffix = RECIPES[case]
    tuning = Tuning("torchtune-llama3.3-70b", nodes, processes, gpus, arguments)
    assert tuning.recipe() == (recipe, f"llama3_3/70B{suffix}")


WRONG = {
    "a model that is not there": (("torchtune-gpt5-1t", 1, "auto", 1, ()), "names no model"),
    "too many nodes": (("torchtune-llama3.2-1b", 2, "auto", 1, ()), "numNodes is 2"),
    "LoRA on nodes": (("torchtune-llama3.3-70b", 2, "auto", 8, (LORA,)), "LoRA is tuned on 1"),
    "QLoRA of Qwen": (("torchtune-qwen2.5-1.5b", 1, "auto", 1, (QUANTIZED,)), "no QLoRA"),
    "QLoRA on several": (
        ("torchtune-llama3.2-1b", 1, "auto", 2, (QUANTIZED,)),
        "numProcPerNode is auto with 2 GPUs",
    ),
    "what the runtime says": (
        ("torchtune-llama3.2-1b", 1, "auto", 1, ("output_dir=/x",)),
        "spec.trainer.args has 'output_dir=/x'",
    ),
    "nothing": (("torchtune-llama3.2-1b", 1, "auto", 1, ("epochs=2",)), ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_torchtune_cannot_do_is_said(case):
    fields, words = WRONG[case]
    said = Tuning(*fields).error()
    assert words in said
    assert bool(said) == bool(words)


def test_the_whole_command_and_its_variables():
    container = {
        "name": "node",
        "command": ["tune", "run", "output_dir=/workspace/out", "tokenizer.path=/workspace/t"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    rjob = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    runtime = {
        "metadata": {"name": "torchtune-llama3.2-1b"},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [rjob]}},
        },
    }
    trainer = {
        "command": ENTRY,
        "args": ["epochs=1"],
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}},
    }
    job = {"metadata": {"name": "t"}, "spec": {"trainer": trainer}}
    made = resolve(job, runtime).jobset["spec"]["replicatedJobs"][0]
    (node,) = made["template"]["spec"]["template"]["spec"]["containers"]
    assert node["command"] == [
        "tune",
        "run",
        "--rdzv_endpoint=t-node-0-0.t:29500",
        "full_finetune_distributed",
        "--config",
        "llama3_2/1B_full",
        "output_dir=/workspace/out",
        "tokenizer.path=/workspace/t",
    ]
    assert node["args"] == ["epochs=1"]
    told = {one["name"] for one in node["env"]}
    assert told == {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"}
