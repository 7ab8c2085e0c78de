"""Packages that only some functions need, imported where they are used."""

import importlib
from types import ModuleType

from .errors import MissingPackageError


def needed(module: str, package: str, purpose: str) -> ModuleType:
    """Imports `module`. `package`: its name in Python's registry. `purpose`: what needs it, to begin a sentence with."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # it is there, and lacks something itself
        raise MissingPackageError(
            f"{purpose} needs the Python package {package}, which is not installed: pip install {package}"
        ) from None
