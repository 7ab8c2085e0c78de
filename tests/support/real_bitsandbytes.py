"""The real bitsandbytes as tests use it: on the CPU, quietly. Ends with 77 where it is not installed."""
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402

torch.compile = lambda function, **_: function  # the package compiles its fallbacks, which takes minutes

try:
    import bitsandbytes.functional as F
except ModuleNotFoundError as missing:
    print(f"no {missing.name} in {sys.executable}")
    sys.exit(77)
from bitsandbytes.nn import Linear8bitLt  # noqa: E402

__all__ = ["F", "Linear8bitLt", "torch"]
