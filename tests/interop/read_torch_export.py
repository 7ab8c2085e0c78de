"""Reads an exported .pt file as Python does, and compares it with its checkpoint.

  python read_torch_export.py FILE.pt CHECKPOINT
"""
import json
import pathlib
import sys

import safetensors.torch
import torch

exported = torch.load(sys.argv[1], weights_only=True)
checkpoint = pathlib.Path(sys.argv[2])
manifest = json.loads((checkpoint / "manifest.json").read_text())
model = safetensors.torch.load_file(checkpoint / "model.safetensors")
optimizer = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")

assert exported.keys() == {"step", "model", "optimizer", "config", "adtrain"}, exported.keys()
assert type(exported["adtrain"]) is str
assert exported["step"] == manifest["step"]
assert exported["model"].keys() == model.keys()
assert all(torch.equal(exported["model"][name], tensor) for name, tensor in model.items())
assert torch.equal(exported["optimizer"]["step"], optimizer["step"])
for name in model:
    for moment in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(exported["optimizer"][moment][name], optimizer[f"{moment}.{name}"]), name

config = exported["config"]
assert type(config["tf_n_embd"]) is int and type(config["lr"]) is float and type(config["env"]) is str, config
assert type(config["use_compressed_context"]) is bool and 0 < config["lr"] < 1
lines = dict(line.split(": ", 1) for line in manifest["state"]["configuration"].splitlines() if ": " in line and "#" not in line)
assert config["tf_n_embd"] == int(lines["tf_n_embd"]) and config["lr"] == float(lines["lr"])

print(f"{len(model)} tensors, {len(config)} settings")
