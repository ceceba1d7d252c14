"""A Hugging Face Trainer as a link of a chain: its own checkpoints, its own resuming; a callback ends it in time."""

import torch
from baton_chain import Link
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

STEPS = 400


class Sums(Dataset):
    """Sequences of numbers that grow by the same step: 256 of them, 16 tokens each."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(16) * (number % 7 + 1) + number
        return {"input_ids": tokens % 64, "labels": tokens % 64}


class EndInTime(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step % 10 == 0:
            print(f"step {state.global_step}", flush=True)
        if link.must_end():
            control.should_save = control.should_training_stop = True


set_seed(1)
with Link() as link:
    size = {"vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM"))
    options = TrainingArguments(
        link.folder, max_steps=STEPS, save_steps=50, save_total_limit=2, report_to="none", seed=1,
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, options, train_dataset=Sums(), callbacks=[EndInTime()])
    # The state of the trainer is what a checkpoint writes last: a folder without it is of a link that was killed.
    whole = [path.parent for path in link.folder.glob("checkpoint-*/trainer_state.json")]
    newest = max(whole, key=lambda path: int(path.name.partition("-")[2]), default=None)
    trainer.train(resume_from_checkpoint=newest and str(newest))
    if trainer.state.global_step < STEPS:
        link.ask_for_another()
