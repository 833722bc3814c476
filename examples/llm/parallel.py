"""A small language model on all ranks of a job: FSDP2, and with `--tensor N` tensor parallelism.

N ranks of a node hold a slice of each layer (tensor parallel), and the ranks at the same place of
all nodes share its parameters, gradients and optimizer (FSDP2, fully_shard). One rank a GPU and
nccl, or gloo on CPUs.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional

WIDTH, HEADS, LAYERS, LENGTH, LETTERS = 32, 4, 2, 32, 128
PLAN = {
    "query": ColwiseParallel(),
    "key": ColwiseParallel(),
    "value": ColwiseParallel(),
    "output": RowwiseParallel(),
    "wider": ColwiseParallel(),
    "narrower": RowwiseParallel(),
}
"""Which rows or columns of a layer a rank has: heads of the attention, and parts of the MLP."""

TEXT = "the gang starts together or not at all, and its status says why. " * 40


class Block(nn.Module):
    """Attention and an MLP, with the heads that the rank has."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)
        self.wider, self.narrower = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, states: Tensor) -> Tensor:
        """Return the states after this block."""
        batch, length, _ = states.shape
        inputs = self.first(states)
        heads = [
            layer(inputs).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        states = states + self.output(mixed.transpose(1, 2).flatten(2))
        return states + self.narrower(functional.gelu(self.wider(self.second(states))))


class Model(nn.Module):
    """Predicts the next letter."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters: Tensor) -> Tensor:
        """Return a score of each letter for each place."""
        states = self.letters(letters) + self.places.weight
        for block in self.blocks:
            states = block(states)
        return self.head(states)


def main() -> None:
    """Train, and save the whole model on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    device = "cuda" if has_gpu else "cpu"
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shape = (ranks // options.tensor, options.tensor)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("data", "tensor"))

    torch.manual_seed(0)
    model = Model().to(device)
    whole = sum(parameter.numel() for parameter in model.parameters())
    for block in model.blocks:
        if options.tensor > 1:
            parallelize_module(block, mesh["tensor"], PLAN)
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    own = sum(parameter.to_local().numel() for parameter in model.parameters())

    # Ranks that share a batch draw the same one.
    draw = torch.Generator().manual_seed(mesh["data"].get_local_rank())
    data = torch.tensor(list(TEXT.encode()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(options.steps):
        starts = torch.randint(len(data) - LENGTH - 1, (8,), generator=draw)
        batch = torch.stack([data[at : at + LENGTH + 1] for at in starts]).to(device)
        scores = model(batch[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    saved = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    print(
        f"rank {rank} of {ranks} at {mesh.get_coordinate()} of {shape}: {own} of {whole} "
        f"parameters, loss {losses[0]:.3f} to {losses[-1]:.3f}",
        flush=True,
    )
    if rank == 0:
        torch.save(saved, "/tmp/model.pt")  # noqa: S108 - a pod's /tmp is its own
        print("saved", sum(value.numel() for value in saved.values()), "parameters", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
