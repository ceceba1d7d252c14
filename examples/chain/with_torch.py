"""A plain PyTorch loop as a link of a chain. The checkpoint holds the model, optimizer, random numbers and step."""

import torch
from baton_chain import Link
from torch import nn

STEPS = 2000

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = 0


def save() -> None:
    """Replace the checkpoint."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    with link.replacing("checkpoint.pt") as part:
        torch.save(state | {"random": torch.get_rng_state()}, part)


with Link() as link:
    saved = link.folder / "checkpoint.pt"
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        step = state["step"]
    while step < STEPS:
        inputs = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if link.should_save():
            save()
        if link.must_end():
            link.ask_for_another()
    save()  # a link that starts after the end of the work sees that nothing is left
