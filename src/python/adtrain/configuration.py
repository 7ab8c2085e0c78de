"""The resolved configuration of a run."""

import dataclasses
import json
import pathlib
import re
from typing import Any

from .errors import ConfigurationError

Configuration = dict[str, Any]

_LINE = re.compile(r"(\w+): (.*)")


def read_configuration(path: pathlib.Path) -> Configuration:
    """Reads the config.yaml that adtrain writes into a run's folder: one `key: value` a line.

    Such a file has neither includes nor nested values, and writes numbers, truth values, null and quoted texts as JSON does.
    So it needs no YAML reader. Throws ConfigurationError where a file is another.
    """
    configuration: Configuration = {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); expected a run's configuration") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigurationError(
                f"{path}:{number}: found {line!r}; expected `key: value`, as in the config.yaml that adtrain writes into a "
                "run's folder: name that folder"
            )
        configuration[found[1]] = _value(found[2])
    return configuration


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """What of a configuration defines the network."""

    model: str
    transformer_block: str
    tf_n_embd: int
    tf_n_layer: int
    tf_n_head: int
    tf_n_inner: int | None
    n_transit: int
    use_compressed_context: bool
    compress_interval: int
    grid_size: int
    num_actions: int

    @classmethod
    def of(cls, configuration: Configuration, path: pathlib.Path) -> "ModelOptions":
        """`path`: of the configuration, for errors."""
        names = [field.name for field in dataclasses.fields(cls)]
        missing = [name for name in names if name not in configuration]
        if missing:
            raise ConfigurationError(
                f"{path} has no {', '.join(missing)}; expected the config.yaml that adtrain writes into a run's folder, "
                "with every key: name that folder"
            )
        return cls(**{name: configuration[name] for name in names})

    @property
    def compressed(self) -> bool:
        """Whether the context is kept in regions."""
        return self.model == "CompressedAD" or self.use_compressed_context

    @property
    def variant(self) -> str:
        """The network: pre_norm, post_norm, compressed or gpt2. Throws ConfigurationError for a plug-in's."""
        if self.model == "GPT2":
            return "gpt2"
        if self.model not in ("AD", "CompressedAD"):
            raise ConfigurationError(
                f"the configuration says model: {self.model}; expected AD, CompressedAD or GPT2: networks of plug-ins run "
                "in the program adtrain alone"
            )
        if self.compressed:
            return "compressed"
        return "post_norm" if self.transformer_block == "post_norm" else "pre_norm"

    @property
    def inner_width(self) -> int:
        """Of the MLP. Only the pre-norm block has a choice."""
        chosen = self.tf_n_inner if self.variant == "pre_norm" else None
        return chosen or 4 * self.tf_n_embd

    @property
    def transition_features(self) -> int:
        """Of a transition token: state (2), one-hot action, reward, next state (2)."""
        return self.num_actions + 5
