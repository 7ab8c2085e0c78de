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
    # A saved configuration names the pieces of a network that is composed of them, and has auto for others. Those of
    # earlier versions have none of these keys.
    token_layout: str = "auto"
    first_step: str = "zeros"
    tf_norm: str = "auto"
    tf_final_norm: str = "auto"
    tf_mlp: str = "auto"
    tf_positions: str = "auto"
    tf_qk_norm: str = "auto"
    tf_bias: str = "auto"
    dynamics: bool = False
    # Of tasks that are none of the grid families'.
    observation_space: Any = None

    @classmethod
    def of(cls, configuration: Configuration, path: pathlib.Path) -> "ModelOptions":
        """`path`: of the configuration, for errors."""
        fields = dataclasses.fields(cls)
        missing = [
            field.name for field in fields if field.default is dataclasses.MISSING and field.name not in configuration
        ]
        if missing:
            raise ConfigurationError(
                f"{path} has no {', '.join(missing)}; expected the config.yaml that adtrain writes into a run's folder, "
                "with every key: name that folder"
            )
        return cls(**{field.name: configuration[field.name] for field in fields if field.name in configuration})

    @property
    def compressed(self) -> bool:
        """Whether the context is kept in regions."""
        return self.model == "CompressedAD" or self.use_compressed_context

    @property
    def variant(self) -> str:
        """The network: pre_norm, post_norm, compressed, gpt2 or composed.

        Throws ConfigurationError for a plug-in's, and for those over tasks of other spaces than the grid families'.
        """
        if self.observation_space is not None:
            raise ConfigurationError(
                f"the configuration says observation_space: {self.observation_space}; expected a run of a grid family: "
                "networks over tasks of other spaces run in the program adtrain alone"
            )
        if self.model == "GPT2" or (self.model == "AD" and self.token_layout == "split"):
            return "gpt2"
        if self.model not in ("AD", "CompressedAD"):
            raise ConfigurationError(
                f"the configuration says model: {self.model}; expected AD, CompressedAD or GPT2: networks of plug-ins run "
                "in the program adtrain alone"
            )
        if self.compressed:
            return "compressed"
        if self.tf_norm != "auto":
            return "composed"
        return "post_norm" if self.transformer_block == "post_norm" else "pre_norm"

    @property
    def inner_width(self) -> int:
        """Of the MLP. Only the pre-norm block and composed ones have a choice."""
        chosen = self.tf_n_inner if self.variant in ("pre_norm", "composed") else None
        return chosen or 4 * self.tf_n_embd

    @property
    def transition_features(self) -> int:
        """Of a transition token: state (2), one-hot action, reward, next state (2)."""
        return self.num_actions + 5
