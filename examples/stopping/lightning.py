"""A callback of Lightning that saves when the scheduler announces a stop.

trainer = Trainer(callbacks=[StopCallback("/checkpoints/last.ckpt")])
trainer.fit(model, ckpt_path="/checkpoints/last.ckpt")

If the stop comes, Lightning ends `fit` by a SIGTERMException of its own, after the checkpoint.
"""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from gangsched.torch import StopNotice


class StopCallback(Callback):
    """Has the Trainer save after the present batch, and end if the job is stopped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stop = StopNotice()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Write a checkpoint if a stop is announced, report it, and wait for the end."""
        if self._stop.after_step(lambda: trainer.save_checkpoint(self._path)):
            trainer.should_stop = True
