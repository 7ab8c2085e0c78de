"""Peer of `adtrain evaluate`: the in-context protocol as the Python projects run it, in eager PyTorch.

The model of the multi-GPU guide (post-norm, causal, learned positions, the query last) rolls out `--tasks` Darkroom goals
in lock-step: sampled actions, a window of the last n_transit - 1 transitions that lasts across episodes, the whole window
computed at every step. Weights are random: the time does not depend on them. Prints one line of JSON.
"""
import argparse
import json
import time

import numpy as np
import torch
from torch import nn

GRID, ACTIONS, HORIZON = 9, 5, 20
MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])


class Model(nn.Module):
    def __init__(self, width, layers, heads, length):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, length, width) * 0.02)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(block, layers)
        self.embed_context = nn.Linear(ACTIONS + 5, width)
        self.embed_query = nn.Embedding(GRID * GRID, width)
        self.head = nn.Linear(width, ACTIONS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, context, query):
        tokens = self.embed_query(query)[:, None]
        if context is not None:
            tokens = torch.cat([self.embed_context(context), tokens], 1)
        length = tokens.shape[1]
        x = tokens + self.positions[:, :length]
        x = self.encoder(x, mask=self.mask[:length, :length], is_causal=True)
        return self.head(x[:, -1])


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("width", 64), ("layers", 4), ("heads", 4), ("n-transit", 240), ("tasks", 8),
                          ("episodes", 500), ("warm-up", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    model = Model(options.width, options.layers, options.heads, options.n_transit).to(device).eval()
    random = np.random.default_rng(0)
    goals = random.integers(0, GRID, (options.tasks, 2))
    context, returns = None, []

    def episode():
        nonlocal context
        state = np.full((options.tasks, 2), 4)
        total = np.zeros(options.tasks)
        for step in range(HORIZON):
            query = torch.as_tensor(state[:, 0] * GRID + state[:, 1], device=device)
            logits = model(context, query)
            action = torch.multinomial(torch.softmax(logits, -1), 1)[:, 0].cpu().numpy()
            reached = np.clip(state + MOVES[action], 0, GRID - 1)
            reward = (reached == goals).all(1).astype(np.float32)
            total += reward
            transition = np.concatenate([state, np.eye(ACTIONS)[action], reward[:, None], reached], 1)
            seen = torch.as_tensor(transition, dtype=torch.float32, device=device)[:, None]
            context = seen if context is None else torch.cat([context, seen], 1)[:, -(options.n_transit - 1):]
            state = reached
        returns.append(total)

    with torch.no_grad():
        for _ in range(options.warm_up):
            episode()
        context = None
        returns.clear()
        begin = time.perf_counter()
        for _ in range(options.episodes):
            episode()
        seconds = time.perf_counter() - begin
    print(json.dumps({"peer": "PyTorch eager evaluation", "seconds": round(seconds, 3), "tasks": options.tasks,
                      "episodes": options.episodes, "ms_a_step": round(1e3 * seconds / (options.episodes * HORIZON), 4),
                      "mean_return": float(np.mean(returns))}))


if __name__ == "__main__":
    main()
