"""Maps that the real accelerate makes of networks of given sizes: JSON cases from standard input, JSON maps to standard output."""
import json
import logging
import sys

import torch
from accelerate import infer_auto_device_map
from accelerate.utils import get_balanced_memory
from torch import nn

logging.disable(logging.WARNING)


def layer(floats):
    module = nn.Module()
    module.weight = nn.Parameter(torch.empty(floats, device="meta"))
    return module


class Block(nn.Module):
    def __init__(self, layers):
        super().__init__()
        for number, floats in enumerate(layers):
            self.add_module(f"layer_{number}", layer(floats))


def network(case):
    model = nn.Module()
    model.embed = layer(case["embed"])
    model.blocks = nn.ModuleList(Block(case["block"]) for _ in range(case["blocks"]))
    model.head = layer(case["head"])
    if case["tied"]:
        model.head.weight = model.embed.weight
    return model


def device_of(name, found):
    fitting = [key for key in found if key == "" or name == key or name.startswith(key + ".")]
    return str(found[max(fitting, key=len)])


def map_of(case):
    model = network(case)
    limits = {int(device) if device.isdigit() else device: size for device, size in case["limits"].items()}
    if case["mode"] != "sequential":
        limits = get_balanced_memory(model, limits, ["Block"], low_zero=case["mode"] == "balanced_low_0")
    found = infer_auto_device_map(model, limits, ["Block"])
    names = ["embed", *(f"blocks.{number}" for number in range(case["blocks"])), "head"]
    return [device_of(name, found) for name in names]


json.dump([map_of(case) for case in json.load(sys.stdin)], sys.stdout)
