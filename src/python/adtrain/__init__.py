"""Trained adtrain agents, their runs and learning histories, in Python with NumPy alone.

`load` gives an agent that learns in context; `Run` reads what a training run left; `Histories` and `HistoryWriter` read and
write files of learning histories, `write_histories` those of any space. `adtrain.callback` records them from Stable-Baselines3.
"""

from .agent import Agent, load
from .errors import AdtrainError, CheckpointError, ConfigurationError, HistoryError, MissingPackageError
from .evaluations import Evaluation
from .histories import Histories, History, HistoryWriter, history_name
from .metrics import Metrics
from .runs import Run
from .space_histories import write_histories

__version__ = "0.1.0"

__all__ = [
    "AdtrainError",
    "Agent",
    "CheckpointError",
    "ConfigurationError",
    "Evaluation",
    "Histories",
    "History",
    "HistoryError",
    "HistoryWriter",
    "Metrics",
    "MissingPackageError",
    "Run",
    "history_name",
    "load",
    "write_histories",
]
