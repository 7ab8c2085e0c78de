"""Peer of `adtrain score` with large networks: windows through a network of the same size, in PyTorch.

A pre-norm transformer over windows of transitions, one token each, causal, bf16, random weights: on one GPU, and spread over
all by Hugging Face accelerate's `device_map="balanced"`, which lets one GPU work at a time; with --bitsandbytes also on one GPU
with bitsandbytes' 8 and 4 bits. For each batch size samples/s, and the time for 100 samples. Prints one line of JSON a row.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        heads = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        read = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(read.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Network(nn.Module):
    def __init__(self, width, layers, heads, features, actions):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, actions)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))


def with_weights_of(network, bits):
    """The same network with bitsandbytes' linear layers in its blocks."""
    import bitsandbytes

    for block in network.blocks:
        for name, layer in list(block.named_children()):
            if not isinstance(layer, nn.Linear):
                continue
            sizes = (layer.in_features, layer.out_features)
            if bits == 8:
                made = bitsandbytes.nn.Linear8bitLt(*sizes, has_fp16_weights=False)
            else:
                made = bitsandbytes.nn.Linear4bit(*sizes, compute_dtype=torch.bfloat16, quant_type="nf4")
            made.load_state_dict(layer.state_dict())
            setattr(block, name, made)
    return network


def balanced_over_all_gpus(network):
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    whole = {"no_split_module_classes": ["Block"], "dtype": torch.bfloat16}
    memory = get_balanced_memory(network, **whole)
    return dispatch_model(network, infer_auto_device_map(network, max_memory=memory, **whole))


@torch.inference_mode()
def measure(row, network, options, gpus):
    for batch in options.batches:
        windows = torch.randn(batch, options.n_transit, options.features, dtype=torch.bfloat16)

        def scored():
            return network(windows.to("cuda", non_blocking=True)).float().cpu()

        for _ in range(3):
            scored()
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            scored()
            count += batch
        speed = count / (time.perf_counter() - begin)
        print(json.dumps({"row": row, "batch": batch, "gpus": gpus, "samples_per_second": round(speed, 1),
                          "seconds_for_100": round(100 / speed, 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 1024), ("layers", 26), ("heads", 16), ("n-transit", 1024), ("features", 11),
                          ("actions", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--bitsandbytes", action="store_true")
    options = parser.parse_args()

    def network():
        torch.manual_seed(1)
        return Network(options.width, options.layers, options.heads, options.features, options.actions).bfloat16().eval()

    measure("bf16", network().cuda(), options, 1)
    if torch.cuda.device_count() > 1:
        measure("accelerate, balanced", balanced_over_all_gpus(network()), options, torch.cuda.device_count())
    if options.bitsandbytes:
        for bits in (8, 4):
            measure(f"bitsandbytes, {bits} bits", with_weights_of(network(), bits).cuda(), options, 1)


if __name__ == "__main__":
    main()
