"""Prints the CMake package folder of this interpreter's libtorch, if it is a CUDA build of 2.11 or newer; else exits 1.

It reads torch's version file and does not import torch, which would take seconds.
"""
import importlib.util
import pathlib
import runpy
import sys

torch = importlib.util.find_spec("torch")
if torch is None or torch.origin is None:
    sys.exit(1)
folder = pathlib.Path(torch.origin).parent
about = runpy.run_path(str(folder / "version.py"))
version = tuple(int(part) for part in about["__version__"].split("+")[0].split(".")[:2])
if about.get("cuda") is None or version < (2, 11):
    sys.exit(1)
print(folder / "share" / "cmake" / "Torch")
