"""Reads a history file with h5py, as the Python projects do: checks its layout, plain or of a level of gzip, and its
values against a JSON dump."""

import json
import sys
import zlib

import h5py
import numpy as np

path, dump, level = sys.argv[1:]
with open(dump) as file:
    expected = json.load(file)
steps, streams = expected["steps"], expected["streams"]
shapes = {"states": (steps, streams, 2), "next_states": (steps, streams, 2)}
dtypes = {"dones": np.dtype(bool)}

with h5py.File(path, "r") as file:
    assert file.id.get_create_plist().get_version()[0] == 0, "superblock"
    assert list(file.keys()) == sorted(str(task) for task in range(len(expected["tasks"]))), list(file.keys())
    # Loaders index groups and data sets by name, and so pass over attributes; these say how the file came to be.
    attributes = {name: value.decode() for name, value in file.attrs.items()}
    content = attributes.pop("content_crc32")
    assert attributes == {"env": "darkroom", "horizon": "6", "tasks": str(len(expected["tasks"])),
                          "format_version": "1"}, attributes
    lines = ""
    for task, values in enumerate(expected["tasks"]):
        group = file[str(task)]
        assert not group.attrs
        assert set(group.keys()) == set(values), set(group.keys())
        for name, flat in values.items():
            dataset = group[name]
            assert dataset.dtype == dtypes.get(name, np.dtype("<i4")), (name, dataset.dtype)
            assert dataset.shape == shapes.get(name, (steps, streams)), (name, dataset.shape)
            assert dict(dataset.attrs) == {"crc32": zlib.crc32(dataset[()].tobytes())}, name
            if level == "0":
                assert dataset.chunks is None and dataset.compression is None, name
            else:
                assert dataset.compression == "gzip" and dataset.compression_opts == int(level), name
                assert dataset.shuffle and dataset.chunks[1:] == dataset.shape[1:], name
            np.testing.assert_array_equal(dataset[()].reshape(-1), flat, err_msg=f"{task}/{name}")
        for name in ("states", "actions", "rewards", "next_states", "dones", "compress_markers"):
            lines += f"{task}/{name} {group[name].attrs['crc32']:08x}\n"
    assert content == f"{zlib.crc32(lines.encode()):08x}", content
    stored = file["0/dones"].id.get_type()
    assert isinstance(stored, h5py.h5t.TypeEnumID) and stored.get_super() == h5py.h5t.STD_I8LE
    assert [stored.enum_nameof(value) for value in (0, 1)] == [b"FALSE", b"TRUE"]
print("read", len(expected["tasks"]), "tasks")
