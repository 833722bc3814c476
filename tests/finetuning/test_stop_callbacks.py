"""The callbacks of examples/stopping, in the Trainers that they are for (`make llm`)."""

import contextlib
import importlib.util
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "stopping"
STEPS, ANNOUNCED = 12, 5

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _sigterm():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def example(name: str):
    """Import an example by its path: its name is that of a package."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def listening(callback, folder: Path, *, is_stopped: bool):
    """Have a callback read its notices from a folder; a stop follows its answer, or none."""

    def answered() -> None:
        if is_stopped:
            signal.raise_signal(signal.SIGTERM)
        (folder / "stop-at").write_text("")

    callback._stop._folder = folder
    callback._stop._answer = answered
    return callback


def announce(folder: Path) -> None:
    (folder / "stop-at").write_text((datetime.now(UTC) + timedelta(hours=1)).isoformat())


@pytest.mark.parametrize("is_stopped", [True, False])
def test_hugging_faces_trainer_saves_and_ends_or_goes_on(tmp_path, is_stopped):
    transformers = pytest.importorskip("transformers")
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels):
            return {"loss": ((self.layer(x) - labels) ** 2).mean()}

    class Announces(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == ANNOUNCED - 1 and not started_again:
                announce(tmp_path)

    def trainer(*callbacks):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"), max_steps=STEPS, per_device_train_batch_size=2,
            save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        data = [{"x": torch.ones(4), "labels": torch.zeros(1)} for _ in range(2 * STEPS)]
        return transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[*callbacks])

    started_again = False
    callback = listening(example("hugging_face").StopCallback(), tmp_path, is_stopped=is_stopped)
    first = trainer(Announces(), callback)
    first.train()
    assert first.state.global_step == (ANNOUNCED if is_stopped else STEPS)
    saved = tmp_path / "out" / f"checkpoint-{ANNOUNCED}"
    assert saved.is_dir()
    started_again = True
    second = trainer(Announces())
    second.train(resume_from_checkpoint=str(saved))
    assert second.state.global_step == STEPS


@pytest.mark.parametrize("is_stopped", [True, False])
def test_lightnings_trainer_saves_and_ends_or_goes_on(tmp_path, is_stopped):
    lightning = pytest.importorskip("lightning.pytorch")
    import torch

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.steps: list[int] = []

        def training_step(self, batch, at):
            self.steps.append(at)
            if at == ANNOUNCED - 1 and not started_again:
                announce(tmp_path)
            return (self.layer(batch) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trainer(*callbacks):
        return lightning.Trainer(
            max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
            default_root_dir=str(tmp_path),
        )  # fmt: skip

    data = torch.utils.data.DataLoader(torch.ones(2 * STEPS, 4), batch_size=2)
    path = str(tmp_path / "last.ckpt")
    started_again = False
    callback = listening(example("lightning").StopCallback(path), tmp_path, is_stopped=is_stopped)
    first = trainer(callback)
    ends = lightning.utilities.exceptions.SIGTERMException  # Lightning's own answer to SIGTERM
    with pytest.raises(ends) if is_stopped else contextlib.nullcontext():
        first.fit(Model(), data)
    assert first.global_step == (ANNOUNCED if is_stopped else STEPS)
    started_again, model = True, Model()
    second = trainer()
    second.fit(model, data, ckpt_path=path)
    assert second.global_step == STEPS
    assert len(model.steps) == STEPS - ANNOUNCED
