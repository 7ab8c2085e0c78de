"""Writes a history file with h5py, as the Python projects do, from a JSON dump."""

import json
import sys

import h5py
import numpy as np

path, dump = sys.argv[1:]
with open(dump) as file:
    content = json.load(file)
steps, streams = content["steps"], content["streams"]
with h5py.File(path, "w-") as file:
    for task, values in enumerate(content["tasks"]):
        group = file.create_group(str(task))
        for name, flat in values.items():
            array = np.array(flat, dtype=bool if name == "dones" else np.int32)
            shape = (steps, streams, 2) if name.endswith("states") else (steps, streams)
            group.create_dataset(name, data=array.reshape(shape))
        group.create_dataset("optimal_actions", data=np.zeros((streams, steps), dtype=np.int32))
