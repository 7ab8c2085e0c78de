"""Passes files between the safetensors package and ours, both ways. Argument: the program that copies one."""

import pathlib
import subprocess
import sys
import tempfile

import safetensors
import safetensors.torch
import torch

copy_program = sys.argv[1]
generator = torch.Generator().manual_seed(20)
types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.uint8, torch.bool]
shapes = [(), (1,), (0,), (3, 0, 2), (5,), (2, 3, 4)]


def random_tensor(dtype, shape):
    bits = torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator)
    return bits.to(dtype)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


tensors = {f"layer.{i}.{j}": random_tensor(dtype, shape) for i, dtype in enumerate(types) for j, shape in enumerate(shapes)}
tensors['odd "name"\n ü'] = random_tensor(torch.float32, (7,))
metadata = {"format": "pt", "note": 'quotes " and umlauts ü'}

with tempfile.TemporaryDirectory() as folder:
    theirs, ours = pathlib.Path(folder) / "theirs.safetensors", pathlib.Path(folder) / "ours.safetensors"
    safetensors.torch.save_file(tensors, theirs, metadata)
    subprocess.run([copy_program, theirs, ours], check=True)
    with safetensors.safe_open(ours, framework="pt") as file:
        assert file.metadata() == metadata, file.metadata()
    read = safetensors.torch.load_file(ours)
    assert read.keys() == tensors.keys()
    assert all(same(read[name], tensor) for name, tensor in tensors.items())

    # With one element size, both writers order alike and the files are equal to the byte.
    floats = {name: tensor for name, tensor in tensors.items() if tensor.dtype == torch.float32}
    safetensors.torch.save_file(floats, theirs, {"format": "pt"})
    subprocess.run([copy_program, theirs, ours], check=True)
    assert theirs.read_bytes() == ours.read_bytes()

    theirs.write_bytes(theirs.read_bytes()[:-1])
    refused = subprocess.run([copy_program, theirs, ours], capture_output=True, text=True)
    assert refused.returncode == 1 and "truncated" in refused.stderr, refused

print(f"{len(tensors)} tensors of {len(types)} types travelled both ways")
