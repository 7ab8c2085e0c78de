"""An agent that learns in context."""

import os

import numpy as np
from numpy.typing import ArrayLike

from .contexts import Context, context_of
from .errors import AdtrainError, ConfigurationError
from .network import Network
from .runs import Run
from .transitions import Transitions


class Agent:
    """Acts in n environments at once with frozen weights. What it learns of each is in that environment's context.

    Call `act`, step the environments, call `observe`, and so on across episodes: contexts persist, as in adtrain's
    evaluation. n is that of the first `act`. Not thread-safe.
    """

    def __init__(
        self,
        network: Network,
        *,
        seed: int = 0,
        greedy: bool = False,
        temperature: float = 1,
        forget_unrewarded: int | None = None,
        terminal_observation: bool = False,
    ):
        """`greedy`: takes the most probable action instead of drawing one, from a generator of `seed`.

        `temperature`: the logits are divided by it before an action is drawn.

        `forget_unrewarded`: empties a context without any reward after so many episodes in which nothing was earned. Not
        for networks with compressed context.

        `terminal_observation`: shows the network an episode's last observation as its last next state. Otherwise it is
        shown the state after the reset, which is what histories hold.
        """
        self.network = network
        self._generator = np.random.default_rng(seed)
        self._greedy = greedy
        self._temperature = temperature
        if forget_unrewarded is not None and network.options.use_compressed_context:
            raise AdtrainError("found forget_unrewarded with compressed context; expected None, or a network without it")
        self._forget_unrewarded = forget_unrewarded
        self._terminal_observation = terminal_observation
        self.reset()

    def reset(self) -> None:
        """Forgets everything, also how many environments there are. Random numbers go on."""
        self._context: Context | None = None
        self._states: np.ndarray | None = None  # in which the last actions were chosen
        self._step: tuple[Transitions, np.ndarray] | None = None  # what was observed since, and which episodes it ended

    def act(self, observations: ArrayLike) -> np.ndarray:
        """The actions, int64 (n), in these observations: cells (x, y), integers (n, 2) from 0 to grid_size − 1."""
        states = self._checked_states(observations, "observations")
        if self._context is None:
            self._context = context_of(self.network, len(states), self._forget_unrewarded)
        elif self._states is not None and len(states) != len(self._states):
            raise AdtrainError(
                f"found observations of {len(states)} environments; expected {len(self._states)}, as before: each has its "
                "context; call reset() to begin with others"
            )
        self._take_in(states)
        self._states = states
        return self._choose(self._context.ask(states))

    def observe(self, actions: ArrayLike, rewards: ArrayLike, next_observations: ArrayLike, dones: ArrayLike) -> None:
        """What the environments answered to the last `act`: each argument is of n environments, or one value for all.

        `actions`: those that were taken. `rewards`: finite; NaN would stay in the context for good. `dones`: whether the
        episode ended. There `next_observations` may be the episode's last observation or the first of the next episode, as
        environments differ: the next `act` tells the latter.
        """
        if self._states is None or self._step is not None:
            raise AdtrainError("observe() was called without a new act(); expected act, a step of the environments, observe")
        n = len(self._states)
        chosen = self._of_each(actions, "actions")
        actions_range = self.network.options.num_actions
        if not np.all((chosen >= 0) & (chosen < actions_range) & (chosen == np.floor(chosen))):
            raise AdtrainError(f"found actions {chosen}; expected integers from 0 to {actions_range - 1}")
        next_states = self._checked_states(next_observations, "next_observations")
        if len(next_states) != n:
            raise AdtrainError(f"found next_observations of {len(next_states)} environments; expected {n}")
        step = Transitions(
            self._states[:, None],
            chosen.astype(np.int32)[:, None],
            self._checked_rewards(rewards)[:, None],
            next_states[:, None],
        )
        self._step = step, self._of_each(dones, "dones").astype(bool)

    def _take_in(self, states: np.ndarray) -> None:
        """Completes the last step, whose next state is known now also where an episode ended, and appends it."""
        if self._step is None:
            return
        step, dones = self._step
        moved = np.any(step.next_states[:, 0] != states, axis=1)
        if np.any(moved & ~dones):
            row = int(np.flatnonzero(moved & ~dones)[0])
            raise AdtrainError(
                f"environment {row} was observed in {step.next_states[row, 0]} and acts from {states[row]}, in the same "
                "episode; expected the same observation, or dones[i] where an episode has ended"
            )
        if not self._terminal_observation:
            step.next_states[:, 0] = states
        assert self._context is not None
        self._context.append(step, dones)
        self._step = None

    def _choose(self, logits: np.ndarray) -> np.ndarray:
        if not np.all(np.isfinite(logits)):
            raise AdtrainError(
                "the network's action logits are not finite; its weights are broken: use an earlier checkpoint"
            )
        if self._greedy:
            return logits.argmax(1)
        weights = np.exp((logits.astype(np.float64) - logits.max(1, keepdims=True)) / self._temperature)
        below = np.cumsum(weights, axis=1)
        drawn = self._generator.random((len(logits), 1)) * below[:, -1:]
        return (drawn >= below[:, :-1]).sum(1)

    def _checked_states(self, observations: ArrayLike, name: str) -> np.ndarray:
        """int32 (n, 2), a copy."""
        found = np.asarray(observations)
        if found.ndim != 2 or found.shape[1] != 2 or len(found) == 0:
            raise AdtrainError(f"found {name} of shape {found.shape}; expected (environments, 2): the cell (x, y) of each")
        size = self.network.options.grid_size
        if not np.all((found >= 0) & (found < size) & (found == np.floor(found))):
            raise AdtrainError(
                f"found {name} from {found.min()} to {found.max()}; expected cells, integers from 0 to {size - 1}: the "
                f"network knows grids of {size} × {size}"
            )
        return found.astype(np.int32)

    def _checked_rewards(self, rewards: ArrayLike) -> np.ndarray:
        """float32 (n)."""
        found = self._of_each(rewards, "rewards")
        largest = np.finfo(np.float32).max
        if found.dtype.kind not in "biuf" or not np.all(np.abs(found.astype(np.float64)) <= largest):
            raise AdtrainError(f"found rewards {found}; expected finite numbers that float32 can hold, up to {largest:.2g}")
        return found.astype(np.float32)

    def _of_each(self, values: ArrayLike, name: str) -> np.ndarray:
        """One value an environment, (n)."""
        assert self._states is not None
        found, n = np.asarray(values), len(self._states)
        if found.shape not in ((), (n,)):
            raise AdtrainError(f"found {name} of shape {found.shape}; expected ({n},), one an environment")
        return np.broadcast_to(found, n)


def load(path: str | os.PathLike[str], *, seed: int = 0, greedy: bool | None = None) -> Agent:
    """An agent from a run's folder or one of its checkpoints (see Run), of the newest checkpoint that verifies.

    `greedy` is by default the run's `eval_sampling`. `eval_temperature`, `eval_forget_unrewarded` and
    `eval_terminal_observation` are the run's. Throws ConfigurationError where the run plans (planning_horizon), which
    the program adtrain alone does.
    """
    run = Run(path)
    if run.configuration.get("planning_horizon", 0) > 0:
        raise ConfigurationError(
            f"the configuration of {path} says planning_horizon: {run.configuration['planning_horizon']}; expected 0: agents "
            "of this package do not plan. `adtrain evaluate` does; a config.yaml with planning_horizon: 0 makes an agent "
            "that follows the policy"
        )
    if greedy is None:
        greedy = run.configuration.get("eval_sampling") == "greedy"
    return Agent(
        run.network(),
        seed=seed,
        greedy=greedy,
        temperature=run.configuration.get("eval_temperature", 1),
        forget_unrewarded=run.configuration.get("eval_forget_unrewarded"),
        terminal_observation=bool(run.configuration.get("eval_terminal_observation", False)),
    )
