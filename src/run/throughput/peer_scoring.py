"""A row of `adtrain throughput`: how fast PyTorch scores windows with a network of the same size, and what others make of it.

adtrain starts it; by hand, for a network of 330 M parameters:

    python3 peer_scoring.py --way accelerate --batch 16 --network \\
        '{"width": 1024, "layers": 26, "heads": 16, "inner": 4096, "tokens": 1024, "features": 11, "actions": 5}'

A pre-norm transformer, causal, with random weights and random windows, and without what adtrain's networks may have beside:
penalties of distance, rotary positions, norms of queries and keys. Ways: pytorch, on one GPU or the CPU; accelerate, over all
GPUs by device_map="balanced"; bitsandbytes_8bit and bitsandbytes_4bit (nf4), with its layers in the blocks. Prints the speed
as one line of JSON, and writes what `adtrain score --measure` writes to --output. Exit code 3: a package is missing.
"""
import argparse
import importlib
import json
import resource
import sys
import time

MISSING = 3
TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
NEEDED = {"pytorch": [], "accelerate": ["accelerate"], "bitsandbytes_8bit": ["bitsandbytes"],
          "bitsandbytes_4bit": ["bitsandbytes"]}


def end_as_missing(what):
    print(f"adtrain: {what}, or another --python", flush=True)
    sys.exit(MISSING)


def expect_all(way, device):
    """The packages of a way and a GPU, or the end of the program."""
    for package in ["torch", *NEEDED[way]]:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            end_as_missing(f"{sys.executable} has no package {package}; expected it there: {sys.executable} -m pip install "
                           f"{package}")
    if device == "cuda" and not sys.modules["torch"].cuda.is_available():
        end_as_missing(f"the package torch of {sys.executable} sees no GPU; expected one that is built for CUDA")


def network_of(shape):
    import torch
    from torch import nn
    from torch.nn import functional

    width, heads, inner = shape["width"], shape["heads"], shape["inner"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

        def forward(self, x):
            batch, tokens, _ = x.shape
            parts = self.qkv(self.norm_1(x)).view(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
            read = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(read.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(functional.gelu(self.up(self.norm_2(x))))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(shape["features"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, shape["actions"])

        def forward(self, x):
            x = self.embed(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x[:, -1]))

    torch.manual_seed(1)
    return Network()


def quantise(network, bits, dtype):
    """Puts bitsandbytes' linear layers into the blocks."""
    import bitsandbytes
    from torch import nn

    for block in network.blocks:
        for name, layer in list(block.named_children()):
            if not isinstance(layer, nn.Linear):
                continue
            sizes = (layer.in_features, layer.out_features)
            if bits == 8:
                made = bitsandbytes.nn.Linear8bitLt(*sizes, has_fp16_weights=False)
            else:
                made = bitsandbytes.nn.Linear4bit(*sizes, compute_dtype=dtype, quant_type="nf4")
            made.load_state_dict(layer.state_dict())
            setattr(block, name, made.to(dtype))


def balanced_over_all_gpus(network, dtype):
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    whole = {"no_split_module_classes": ["Block"], "dtype": dtype}
    memory = get_balanced_memory(network, **whole)
    return dispatch_model(network, infer_auto_device_map(network, max_memory=memory, **whole))


def placed(network, way, dtype, device):
    if way == "accelerate":
        return balanced_over_all_gpus(network, dtype)
    if way.startswith("bitsandbytes"):
        quantise(network, 8 if way.endswith("8bit") else 4, dtype)
    return network.to(device)


def memory_and_devices(device, way):
    """Bytes in use on the fullest GPU by all processes there, its bytes, the GPUs, and their name; without GPUs of this process."""
    import torch

    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0, [], "CPU"
    gpus = range(torch.cuda.device_count() if way == "accelerate" else 1)
    in_use = [(total - free, total) for free, total in map(torch.cuda.mem_get_info, gpus)]
    names = [str(getattr(torch.cuda.get_device_properties(gpu), "uuid", gpu)) for gpu in gpus]
    return *max(in_use), names, torch.cuda.get_device_name(0)


def measured(options):
    import torch

    dtype = getattr(torch, TYPES[options.precision])
    device = options.device
    shape = options.network
    with torch.inference_mode():
        network = placed(network_of(shape).to(dtype).eval(), options.way, dtype, device)
        windows = torch.randn(options.batch, shape["tokens"], shape["features"], dtype=dtype)

        def score_for(seconds):
            samples, began = 0, time.monotonic()
            while samples == 0 or time.monotonic() - began < seconds:
                network(windows.to(device, non_blocking=True)).float().cpu()
                samples += options.batch
            return samples, began, time.monotonic()

        score_for(min(options.seconds / 4, 5))
        samples, began, ended = score_for(options.seconds)
    peak, total, gpus, name = memory_and_devices(device, options.way)
    return {"samples": samples, "seconds": ended - began, "samples_per_second": samples / (ended - began),
            "batch": options.batch, "processes": 1, "device": name, "precision": options.precision, "gpus": gpus,
            "memory_peak_bytes": peak, "memory_total_bytes": total, "began": began, "ended": ended}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=NEEDED, required=True)
    parser.add_argument("--network", type=json.loads, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--precision", choices=TYPES, default="bf16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--output")
    options = parser.parse_args()
    expect_all(options.way, options.device)
    speed = measured(options)
    print(json.dumps(speed), flush=True)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(speed, file)


if __name__ == "__main__":
    main()
