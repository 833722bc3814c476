"""Fine-tunes the model of /workspace/model with TRL, as the trainer of a TrainJob.

    torchrun -m gangsched.finetuning epochs=3 model.lora_attn_modules=[q_proj,v_proj]

It reads the arguments that BuiltinTrainer of the kubeflow SDK writes for torchtune. Without LoRA
arguments all weights are trained (SFT), with them an adapter of PEFT. The result is in
/workspace/output.
"""
