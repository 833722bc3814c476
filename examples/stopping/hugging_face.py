"""A callback of Hugging Face's Trainer that saves when the scheduler announces a stop.

trainer = Trainer(..., callbacks=[StopCallback()])
trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
"""

from typing import Any

from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from gangsched.torch import StopNotice


class StopCallback(TrainerCallback):
    """Has the Trainer save after the present step, and end if the job is stopped."""

    def __init__(self) -> None:
        self._stop = StopNotice()
        self._saves = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Have a checkpoint written if a stop is announced."""
        self._saves = self._stop.is_announced()
        control.should_save = control.should_save or self._saves

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report the checkpoint, and wait for the end."""
        if self._saves:
            control.should_training_stop = self._stop.is_over()
