"""Checkpoints: which one is used, and its weights. docs/checkpoint-format.md describes the files."""

import dataclasses
import json
import pathlib
import re
import warnings
import zlib
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from .errors import CheckpointError

MANIFEST = "manifest.json"
_MODEL = "model.safetensors"
_FILES = (_MODEL, "optimizer.safetensors")
_FORMAT_VERSION = 1
_STEP = re.compile(r"step-(0|[1-9][0-9]*)")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was verified."""

    folder: pathlib.Path
    step: int
    """Optimizer steps taken."""
    weights: dict[str, np.ndarray]
    """float32, by the names of the Python projects' checkpoints."""


def read_checkpoint(folder: pathlib.Path) -> Checkpoint:
    """Reads one checkpoint. Throws CheckpointError where any of its files is missing or differs from the manifest."""
    manifest = _read_manifest(folder)
    _check_name(folder, manifest["step"])
    content = {name: _verified(folder, name, manifest) for name in _FILES}
    try:
        tensors = safetensors.numpy.load(content[_MODEL])
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{folder / _MODEL} is no safetensors file ({error}); use another checkpoint") from None
    weights = {name.removeprefix("module."): np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
    return Checkpoint(folder, manifest["step"], weights)


def newest_checkpoint(folder: pathlib.Path) -> Checkpoint:
    """The newest of a run that verifies, as `adtrain evaluate` chooses it. Warns of newer ones that do not.

    `folder`: the run's checkpoints/. Throws CheckpointError where there is none.
    """
    steps = sorted((int(found[1]), path) for path in folder.glob("step-*") if (found := _STEP.fullmatch(path.name)))
    reasons = []
    for _, path in reversed(steps):
        try:
            checkpoint = read_checkpoint(path)
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            warnings.warn(f"passed over a checkpoint: {reason}", stacklevel=2)
        return checkpoint
    if reasons:
        raise CheckpointError("\n  ".join([f"no usable checkpoint in {folder}:", *reasons]))
    raise CheckpointError(f"no checkpoint in {folder}; expected a folder step-N there: train first")


def _read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a complete checkpoint ({error.strerror}: {path.name}); expected a folder step-N that holds it"
        ) from None
    try:
        manifest = json.loads(text)
        if manifest["format_version"] != _FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {manifest['format_version']}; this package reads version {_FORMAT_VERSION}: use "
                "the adtrain that wrote it"
            )
        found = _checksum_of_manifest(text)
        if manifest["manifest_crc32"] != found:
            raise CheckpointError(
                f"{path} has the checksum {found}; it says {manifest['manifest_crc32']} itself: it is damaged, use another "
                "checkpoint"
            )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error!r}); expected the JSON that was written: use another checkpoint"
        ) from None
    return manifest


def _check_name(folder: pathlib.Path, step: int) -> None:
    """Throws CheckpointError where the folder, or what a link such as `latest` points to, has another step's name."""
    if not _STEP.fullmatch(folder.name):
        folder = folder.resolve()
    named = _STEP.fullmatch(folder.name)
    if named and int(named[1]) != step:
        raise CheckpointError(
            f"{folder} is named after step {named[1]}, and its {MANIFEST} says step {step}; expected the same step in both, "
            f"so it is not used: rename it back to step-{step}, or move it out of {folder.parent}"
        )


def _checksum_of_manifest(text: str) -> str:
    """CRC-32 of the manifest's JSON without its own checksum, keys sorted, no white space.

    Numbers with a fraction keep their digits as written: another program may write the same number otherwise.
    """
    manifest = json.loads(text, parse_float=lambda digits: f"\0{digits}\0")
    del manifest["manifest_crc32"]
    compact = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _checksum(compact.replace('"\\u0000', "").replace('\\u0000"', "").encode())


def _verified(folder: pathlib.Path, name: str, manifest: dict[str, Any]) -> bytes:
    path = folder / name
    listed = manifest["files"].get(name)
    if listed is None:
        raise CheckpointError(f"the {MANIFEST} of {folder} lists no {name}; it is no checkpoint of a training run")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{folder} is incomplete ({name}: {error.strerror}); use another checkpoint") from None
    if len(content) != listed["bytes"]:
        raise CheckpointError(
            f"{path} has {len(content)} bytes; the manifest says {listed['bytes']}: it was truncated or replaced"
        )
    if _checksum(content) != listed["crc32"]:
        raise CheckpointError(
            f"{path} has the checksum {_checksum(content)}; the manifest says {listed['crc32']}: its content is damaged"
        )
    return content


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"
