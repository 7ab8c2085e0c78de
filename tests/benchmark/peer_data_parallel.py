"""Peer of `benchmark_data_parallel`: the same network, first values, batches and optimizer in PyTorch.

On one rank it is the plain network; on several, under torchrun, it is data-parallel through DistributedDataParallel,
one GPU a rank, or over Gloo on the CPU where there are too few GPUs. Prints one line of JSON. README.md explains the
figures.

  eager     the default
  captured  forward and backward pass, with what DistributedDataParallel communicates, as one CUDA graph: what
            https://pytorch.org/docs/stable/notes/cuda.html#usage-with-distributeddataparallel asks for
"""
import argparse
import contextlib
import gc
import json
import math
import os
import sys
import time

from peer_training import LOCAL_RANK, NO_GPU, RANK, WORLD_SIZE, greatest_over_ranks, quantile
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LEARNING_RATE = 3e-4
EAGER_STEPS_OF_DDP = 11  # before these it may not be captured


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Training:
    """Network, gradients and optimizer of one rank, and the halves of their step."""

    def __init__(self, options, device):
        torch.manual_seed(0)
        model = nn.Sequential(*(Block(options.width) for _ in range(options.layers))).to(device)
        self.parameters = list(model.parameters())
        self.network = model
        if WORLD_SIZE > 1:
            self.network = DistributedDataParallel(
                model, device_ids=[LOCAL_RANK] if device.type == "cuda" else None,
                gradient_as_bucket_view=not options.separate_gradients, broadcast_buffers=False)
        kind = {"fused": {"fused": True}, "loop": {"foreach": False}, "default": {}}[options.optimizer]
        self.optimizer = torch.optim.AdamW(self.parameters, LEARNING_RATE, **kind)
        torch.manual_seed(1 + RANK)
        self.inputs = torch.randn(options.batch, options.width, device=device)
        self.targets = torch.sin(2 * self.inputs)
        self.graph = None

    def capture(self):
        """From here on compute_gradients() replays. Gradients that are none are written by the graph, not added to."""
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self.forward_and_backward()
        self.graph = graph

    def compute_gradients(self):
        if self.graph:
            self.graph.replay()
        else:
            self.optimizer.zero_grad(set_to_none=True)
            self.forward_and_backward()

    def forward_and_backward(self):
        loss = nn.functional.mse_loss(self.network(self.inputs), self.targets)
        loss.backward()
        self.loss = loss.detach()

    def step(self):
        self.compute_gradients()
        self.optimizer.step()


class StepClock:
    """Marks at the boundaries of steps: CUDA's events, for which nothing waits, or on the CPU the host's clock."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"
        self.marks = []

    def mark(self):
        if self.on_gpu:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(1e3 * time.perf_counter())

    def milliseconds(self):
        if self.on_gpu:
            self.marks[-1].synchronize()
            return [begin.elapsed_time(end) for begin, end in zip(self.marks, self.marks[1:])]
        return [end - begin for begin, end in zip(self.marks, self.marks[1:])]


def time_steps(options, device, step):
    """Median and 99th percentile of the slowest rank, in milliseconds."""
    for _ in range(options.warm_up):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    if WORLD_SIZE > 1:
        dist.barrier()
    clock = StepClock(device)
    clock.mark()
    for _ in range(options.steps):
        step()
        clock.mark()
    mine = clock.milliseconds()
    return greatest_over_ranks([quantile(mine, 0.5), quantile(mine, 0.99)], device)


def mean_loss(training):
    loss = training.loss.double()
    if WORLD_SIZE > 1:
        dist.all_reduce(loss)
    loss = loss.item() / WORLD_SIZE
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss}; expected a finite number: take fewer --steps")
    return loss


def measure(options, device):
    training = Training(options, device)
    if options.mode == "captured":
        for _ in range(max(options.warm_up, EAGER_STEPS_OF_DDP)):
            training.compute_gradients()
        training.capture()
    gradients_median, gradients_p99 = time_steps(options, device, training.compute_gradients)
    median, p99 = time_steps(options, device, training.step)
    loss = mean_loss(training)
    rows_per_second = 1e3 * options.batch / median
    on_gpu = device.type == "cuda"
    return {
        "program": f"PyTorch {torch.__version__} " + ("DistributedDataParallel" if WORLD_SIZE > 1 else "alone"),
        "mode": options.mode, "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "communication": dist.get_backend() if WORLD_SIZE > 1 else "none", "ranks": WORLD_SIZE,
        "batch_per_rank": options.batch, "model": f"residual MLP, width {options.width}, {options.layers} layers",
        "parameters": sum(p.numel() for p in training.parameters),
        "precision": "fp32, products in tf32" if on_gpu else "fp32",
        "optimizer": f"torch.optim.AdamW, {options.optimizer}",
        "gradient_as_bucket_view": not options.separate_gradients,
        "warm_up": options.warm_up, "steps": options.steps,
        "gradients_ms_median": round(gradients_median, 6), "gradients_ms_p99": round(gradients_p99, 6),
        "ms_median": round(median, 6), "ms_p99": round(p99, 6),
        "rows_per_second_per_rank": round(rows_per_second, 3),
        "rows_per_second": round(rows_per_second * WORLD_SIZE, 3), "loss": round(loss, 6)}


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {value}; expected at least 1")
    return value


def options_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("eager", "captured"), default="eager", help="default %(default)s")
    for name, default in (("batch", 4096), ("width", 768), ("layers", 12), ("steps", 100), ("warm-up", 30)):
        parser.add_argument(f"--{name}", type=positive, default=default, help="default %(default)s")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--fused", dest="optimizer", action="store_const", const="fused", default="default",
                       help="AdamW in one kernel; the default is PyTorch's, foreach on GPUs")
    kinds.add_argument("--loop", dest="optimizer", action="store_const", const="loop",
                       help="AdamW parameter by parameter, as torch::optim::AdamW")
    parser.add_argument("--separate-gradients", action="store_true",
                        help="gradients that are no views of DistributedDataParallel's buckets, as is its default")
    return parser.parse_args()


def main():
    options = options_given()
    on_gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    captured = options.mode == "captured"
    if captured and not on_gpu:
        print("peer_data_parallel: found no GPU for each rank; expected one of its own for every rank, as --mode "
              "captured makes CUDA graphs", file=sys.stderr)
        return NO_GPU
    device = torch.device("cuda", LOCAL_RANK) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    if WORLD_SIZE > 1:
        if captured:
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    # What is captured may not be the default stream, and DistributedDataParallel is to be made on the same one.
    with torch.cuda.stream(torch.cuda.Stream()) if captured else contextlib.nullcontext():
        line = measure(options, device)
    if RANK == 0:
        print(json.dumps(line), flush=True)
    if WORLD_SIZE > 1:
        # DistributedDataParallel is a cycle that holds the group, whose threads abort if they outlive the interpreter.
        gc.collect()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
