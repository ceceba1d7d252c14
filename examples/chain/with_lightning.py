"""A Lightning trainer as a link of a chain: ModelCheckpoint saves, and `ckpt_path` resumes, in the middle of an epoch.

`Link` comes before `fit`: Lightning then leaves USR1 to it, and does not requeue the job itself.
"""

from collections.abc import Iterator
from itertools import islice

import pytorch_lightning as pl
import torch
from baton_chain import Link
from torch import nn


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self.layers(inputs), inputs.sum(1, keepdim=True))

    def on_train_batch_end(self, *_: object) -> None:
        if self.global_step % 50 == 0:
            print(f"step {self.global_step}", flush=True)
        if link.must_end():
            self.trainer.save_checkpoint(last)
            link.ask_for_another()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Batches(torch.utils.data.DataLoader):
    """Batches shuffled anew in each epoch. Lightning saves and loads how many were given."""

    given = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        epoch, skipped = divmod(self.given, len(self))
        self.generator.manual_seed(epoch)
        for batch in islice(super().__iter__(), skipped, None):
            self.given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


pl.seed_everything(1, verbose=False)
with Link() as link:
    last = link.folder / "last.ckpt"
    saving = pl.callbacks.ModelCheckpoint(last.parent, last.stem, every_n_train_steps=100, enable_version_counter=False)
    trainer = pl.Trainer(max_epochs=40, callbacks=[saving], logger=False, enable_progress_bar=False)
    batches = Batches(torch.randn(2048, 8), 32, shuffle=True, generator=torch.Generator())
    trainer.fit(Net(), batches, ckpt_path=last if last.exists() else None)
