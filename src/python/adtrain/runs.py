"""A run's folder."""

import os
import pathlib

from .checkpoints import MANIFEST, Checkpoint, newest_checkpoint, read_checkpoint
from .configuration import Configuration, ModelOptions, read_configuration
from .errors import AdtrainError, CheckpointError
from .evaluations import SUMMARY, Evaluation
from .metrics import Metrics
from .network import Network
from .variants import network_of

LATEST = "latest"
"""The link in `evaluation/` that points to the newest results."""


class Run:
    """What a training run left: its configuration, checkpoints, metrics and evaluations. The models of models/ are runs too.

    Nothing is kept: every call reads the files as they are then.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """`path`: a run's folder, such as runs/quickstart, or one of its checkpoints, runs/quickstart/checkpoints/step-1000.

        Throws CheckpointError where it is neither.
        """
        folder = pathlib.Path(path)
        self._chosen = folder if (folder / MANIFEST).exists() else None
        self.folder = folder.resolve().parents[1] if self._chosen else folder
        config = self.folder / "config.yaml"
        if not config.exists():
            raise CheckpointError(
                f"{path} is neither a run nor one of its checkpoints: there is no {config}; expected a folder such as "
                "runs/quickstart or runs/quickstart/checkpoints/step-1000"
            )
        self.configuration: Configuration = read_configuration(config)

    def checkpoint(self) -> Checkpoint:
        """The one that was named, else the newest that verifies."""
        if self._chosen:
            return read_checkpoint(self._chosen)
        return newest_checkpoint(self.folder / "checkpoints")

    def network(self) -> Network:
        """The checkpoint's network. Throws CheckpointError where the weights are not those of the configuration."""
        options = ModelOptions.of(self.configuration, self.folder / "config.yaml")
        return network_of(options, self.checkpoint().weights)

    def metrics(self) -> Metrics:
        """The figures that training recorded."""
        return Metrics.read(self.folder / "metrics.jsonl")

    def evaluations(self) -> list[Evaluation]:
        """All evaluations of the run, by the names of their folders.

        First those that an earlier adtrain put beside the run's other files.
        """
        return [Evaluation.read(folder) for folder in self._evaluation_folders()]

    def evaluation(self, name: str = LATEST) -> Evaluation:
        """The evaluation in the folder of that name, such as test-step-4000; the newest unless one is named.

        The link `evaluation/latest` tells which is the newest. Without it that is the folder `evaluation`, where an earlier
        adtrain put a run's first results, or the only evaluation. Throws AdtrainError where there is none, or where nothing
        tells which is the newest.
        """
        # Of equal names, the one in `evaluation/`.
        found = {folder.name: folder for folder in self._evaluation_folders()}
        chosen = self._newest_of(list(found)) if name == LATEST else name
        if chosen not in found:
            missing = "evaluation that is known to be the newest" if name == LATEST else f"evaluation '{name}'"
            choice = f"; or name one that it has: {', '.join(found)}" if found else ""
            raise AdtrainError(f"{self.folder} has no {missing}; evaluate it first: adtrain evaluate {self.folder}{choice}")
        return Evaluation.read(found[chosen])

    def _evaluation_folders(self) -> list[pathlib.Path]:
        folders = [*sorted(self.folder.glob("evaluation*")), *sorted(self.folder.glob("evaluation/*"))]
        finished = [folder for folder in folders if not folder.name.endswith("-incomplete")]
        return [folder for folder in finished if not folder.is_symlink() and (folder / SUMMARY).exists()]

    def _newest_of(self, names: list[str]) -> str:
        """Which of these evaluations is the newest; LATEST where nothing tells."""
        link = self.folder / "evaluation" / LATEST
        linked = pathlib.Path(os.readlink(link)).name if link.is_symlink() else ""
        if linked in names:
            return linked
        if "evaluation" in names:
            return "evaluation"
        return names[0] if len(names) == 1 else LATEST
