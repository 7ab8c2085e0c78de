"""Peer of `benchmark_step`: the same model and batch in PyTorch, as a user of the Python recipe would train it.

The model of the multi-GPU guide (post-norm, causal, learned positions, one token a transition, the query last, loss at
the last position), or GPT-2's blocks over three tokens a step with the loss at every state, on a fixed batch that lies
on the GPU, with AdamW and clipping. Under torchrun it is data-parallel
through DistributedDataParallel, one GPU a rank. Prints one line of JSON for each variant:

  eager-bf16     autocast
  compiled-bf16  torch.compile
  graphs-bf16    torch.compile, mode reduce-overhead: CUDA graphs
"""
import argparse
import gc
import json
import math
import os
import sys

NO_GPU = 3  # exit code, as adtrain's
GRID, ACTIONS, FEATURES = 9, 5, 10

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    print(f"peer_training: {error}; expected a Python with PyTorch: benchmark.py --python says which", file=sys.stderr)
    sys.exit(NO_GPU)

RANK, WORLD_SIZE, LOCAL_RANK = (int(os.environ.get(name, default)) for name, default in
                                (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))


class AlgorithmDistillation(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_context = nn.Linear(FEATURES, shape.width)
        self.embed_query = nn.Embedding(GRID * GRID, shape.width)
        self.transition_type = nn.Parameter(torch.randn(shape.width))
        self.positions = nn.Parameter(torch.randn(1, shape.n_transit, shape.width) * 0.02)
        block = nn.TransformerEncoderLayer(shape.width, shape.heads, 4 * shape.width, shape.dropout, "gelu",
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(block, shape.layers, enable_nested_tensor=False)
        self.head = nn.Linear(shape.width, ACTIONS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.n_transit))

    def forward(self, context, query, target):
        tokens = torch.cat([self.embed_context(context) + self.transition_type, self.embed_query(query)[:, None]], 1)
        read = self.encoder(tokens + self.positions, mask=self.mask, is_causal=True)[:, -1]
        return nn.functional.cross_entropy(self.head(read).float(), target)


    @staticmethod
    def fixed_batch(shape, device, random):
        context = torch.randn(shape.batch, shape.n_transit - 1, FEATURES, device=device, generator=random)
        query = torch.randint(0, GRID * GRID, (shape.batch,), device=device, generator=random)
        target = torch.randint(0, ACTIONS, (shape.batch,), device=device, generator=random)
        return context, query, target


class Gpt2Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.c_attn = nn.Linear(shape.width, 3 * shape.width)
        self.c_proj = nn.Linear(shape.width, shape.width)
        self.mlp = nn.Sequential(nn.Linear(shape.width, 4 * shape.width), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * shape.width, shape.width), nn.Dropout(shape.dropout))

    def forward(self, x):
        queries, keys, values = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                                 for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        read = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, dropout_p=self.dropout)
        x = x + nn.functional.dropout(self.c_proj(read.transpose(1, 2).flatten(2)), self.dropout)
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.states, self.actions = nn.Embedding(GRID * GRID, shape.width), nn.Embedding(ACTIONS, shape.width)
        self.rewards = nn.Linear(1, shape.width)
        self.positions = nn.Parameter(torch.randn(3 * shape.n_transit - 2, shape.width) * 0.02)
        self.blocks = nn.Sequential(nn.Dropout(shape.dropout), *(Gpt2Block(shape) for _ in range(shape.layers)))
        self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, ACTIONS)

    def forward(self, states, actions, rewards):
        of_states = self.states(states)
        steps = torch.stack([of_states[:, :-1], self.actions(actions[:, :-1]), self.rewards(rewards[..., None])], 2)
        read = self.blocks(torch.cat([steps.flatten(1, 2), of_states[:, -1:]], 1) + self.positions)[:, ::3]
        return nn.functional.cross_entropy(self.head(self.norm(read)).float().flatten(0, 1), actions.flatten())

    @staticmethod
    def fixed_batch(shape, device, random):
        sizes = (shape.batch, shape.n_transit)
        states = torch.randint(0, GRID * GRID, sizes, device=device, generator=random)
        actions = torch.randint(0, ACTIONS, sizes, device=device, generator=random)
        return states, actions, torch.randint(0, 2, (sizes[0], sizes[1] - 1), device=device, generator=random).float()


NETWORKS = {"post-norm": (AlgorithmDistillation, "loss at the last position"), "gpt2": (Gpt2, "loss at every position")}


class Training:
    """One variant: network and optimizer, and a step of them."""

    def __init__(self, kind, shape, device):
        torch.manual_seed(0)
        self.replays = kind == "graphs"
        network, _ = NETWORKS[shape.network]
        self.batch = network.fixed_batch(shape, device, torch.Generator(device).manual_seed(RANK))
        model = network(shape).to(device)
        self.parameters = list(model.parameters())
        network = model
        if WORLD_SIZE > 1:
            network = DistributedDataParallel(model, device_ids=[LOCAL_RANK], gradient_as_bucket_view=True,
                                              broadcast_buffers=False, static_graph=self.replays)
        mode = {"eager": None, "compiled": "default", "graphs": "reduce-overhead"}[kind]
        self.network = torch.compile(network, mode=mode) if mode else network
        self.optimizer = torch.optim.AdamW(self.parameters, 3e-4, (0.9, 0.99), weight_decay=0.01,
                                           fused=True if mode else None)

    def step(self):
        if self.replays:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.network(*self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


def time_steps(training, count):
    """Milliseconds of each step, by CUDA's events at their boundaries; nothing waits in between. And the last loss."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    if WORLD_SIZE > 1:
        dist.barrier()
    marks[0].record()
    for mark in marks[1:]:
        loss = training.step()
        mark.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in zip(marks, marks[1:])], loss.item()


def quantile(values, share):
    """By nearest rank, as benchmark_step."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def greatest_over_ranks(values, device):
    values = torch.tensor(values, dtype=torch.float64, device=device)
    if WORLD_SIZE > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values.tolist()


def measure(variant, options, device):
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    kind, precision = variant.split("-")
    training = Training(kind, options, device)
    for _ in range(options.warm_up):
        training.step()
    milliseconds, loss = time_steps(training, options.steps)
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss}; expected a finite number")
    ms_median, ms_p99, allocated, reserved = greatest_over_ranks(
        [quantile(milliseconds, 0.5), quantile(milliseconds, 0.99), torch.cuda.max_memory_allocated() / 2**30,
         torch.cuda.max_memory_reserved() / 2**30], device)
    global_batch = WORLD_SIZE * options.batch
    return {
        "program": f"PyTorch {torch.__version__}", "variant": variant, "gpu": torch.cuda.get_device_name(),
        "model": f"{options.network}, width {options.width}, {options.layers} layers, {options.heads} heads, "
                 f"n_transit {options.n_transit}, {NETWORKS[options.network][1]}, dropout {options.dropout:g}",
        "ranks": WORLD_SIZE, "micro_batch": options.batch, "global_batch": global_batch, "precision": precision,
        "steps": options.steps, "ms_median": round(ms_median, 6), "ms_p99": round(ms_p99, 6),
        "sequences_per_second_per_gpu": round(1e3 * options.batch / ms_median, 3),
        "sequences_per_second": round(1e3 * global_batch / ms_median, 3), "peak_memory_gib": round(allocated, 6),
        "peak_reserved_gib": round(reserved, 6), "parameters": sum(p.numel() for p in training.parameters),
        "loss": round(loss, 6)}


def options_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 64), ("layers", 4), ("heads", 4), ("n-transit", 240), ("batch", 512),
                          ("steps", 200), ("warm-up", 30)):
        parser.add_argument(f"--{name}", type=int, default=default, help="default %(default)s")
    parser.add_argument("--network", choices=NETWORKS, default="post-norm", help="default %(default)s")
    parser.add_argument("--dropout", type=float, default=0.1, help="default %(default)s")
    parser.add_argument("--variants", default="eager-bf16,compiled-bf16,graphs-bf16", help="default %(default)s")
    return parser.parse_args()


def main():
    options = options_given()
    gpus = torch.cuda.device_count()
    if gpus <= LOCAL_RANK:
        print(f"peer_training: rank {RANK} finds {gpus} GPUs; expected one a rank", file=sys.stderr)
        return NO_GPU
    device = torch.device("cuda", LOCAL_RANK)
    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    if WORLD_SIZE > 1:
        dist.init_process_group("nccl", device_id=device)
    failed = False
    for variant in options.variants.split(","):
        try:
            line = measure(variant, options, device)
            if RANK == 0:
                print(json.dumps(line), flush=True)
        except Exception as error:  # whatever it is, the other variants go on
            failed = True
            text = " ".join(str(error).split())[:300]
            print(f"peer_training: {variant}: {type(error).__name__}: {text}", file=sys.stderr, flush=True)
            if WORLD_SIZE > 1:
                os._exit(1)  # other ranks may wait in a collective; the launcher ends them
    if WORLD_SIZE > 1:
        dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
