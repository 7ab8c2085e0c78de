"""Collects learning histories of PPO in XLand-MiniGrid's trivial rulesets, for configs/run/xland.yaml.

    python3 configs/xland_histories.py --out histories/xland.hdf5 --rulesets 1024

Each ruleset is learnt from nothing by a recurrent PPO of its own, many of them at the same time, on a GPU where JAX has one.
With --explore-steps one agent first learns many rulesets at once without knowing in which it is, and each ruleset's PPO begins
with its weights. The file has XLand-100B's layout (docs/history-formats.md), and as there a ruleset is dropped whose return at
the end of learning is below 0.3.
"""
import argparse
import functools
import os
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "")  # any: xland_tasks would take the CPU

import flax.linen as nn
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax

import xland_tasks
from xland_tasks import NUM_ACTIONS, NUM_COLORS, NUM_TILES

CHUNK = 4096  # steps, as in XLand-100B
FIRST_EXPLORED_RULESET = 2_000_000


class Settings(NamedTuple):
    environments: int
    streams: int  # of them, whose histories are kept
    epochs: int
    minibatches: int
    learning_rate: float
    update_steps: int = 32  # between two updates
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    largest_gradient: float = 0.5

    def optimizer(self):
        return optax.chain(optax.clip_by_global_norm(self.largest_gradient), optax.adam(self.learning_rate))


class Seen(NamedTuple):
    """What an agent knows before it acts."""
    observation: jax.Array
    previous_action: jax.Array
    previous_reward: jax.Array
    begins: jax.Array  # an episode


class Step(NamedTuple):
    seen: Seen
    action: jax.Array
    log_probability: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


class Playing(NamedTuple):
    timestep: jax.Array
    seen: Seen
    memory: jax.Array
    key: jax.Array


class Learner(NamedTuple):
    weights: jax.Array
    moments: jax.Array
    playing: Playing


class Memory(nn.Module):
    """A GRU over time, the first axis, that forgets where an episode begins."""

    @functools.partial(nn.scan, variable_broadcast="params", split_rngs={"params": False})
    @nn.compact
    def __call__(self, memory, step):
        features, begins = step
        return nn.GRUCell(memory.shape[-1])(jnp.where(begins[:, None], 0.0, memory), features)


class Agent(nn.Module):
    """Policy and value. Arrays have the axes time and environment."""
    width: int = 64

    @nn.compact
    def __call__(self, memory, seen):
        cells = [jax.nn.one_hot(seen.observation[..., 0], NUM_TILES), jax.nn.one_hot(seen.observation[..., 1], NUM_COLORS)]
        cells = jnp.concatenate(cells, axis=-1)
        view = nn.relu(nn.Dense(self.width)(cells.reshape(*cells.shape[:2], -1)))
        past = [jax.nn.one_hot(seen.previous_action, NUM_ACTIONS), seen.previous_reward[..., None]]
        memory, features = Memory()(memory, (jnp.concatenate([view, *past], axis=-1), seen.begins))
        features = nn.relu(nn.Dense(self.width)(features))
        logits = nn.Dense(NUM_ACTIONS, kernel_init=nn.initializers.orthogonal(0.01))(features)
        return memory, jax.nn.log_softmax(logits), nn.Dense(1)(features)[..., 0]

    def now(self, weights, playing):
        """Memory after this moment, log-probabilities of actions, value."""
        memory, log_probabilities, value = self.apply(weights, playing.memory, jax.tree.map(lambda x: x[None], playing.seen))
        return memory, log_probabilities[0], value[0]


agent = Agent()


def advantages_of(settings, steps, last_value):
    """Generalised advantage estimation (Schulman et al., 2016)."""

    def backwards(carry, step):
        advantage, next_value = carry
        goes_on = settings.discount * (1.0 - step.done)
        surprise = step.reward + goes_on * next_value - step.value
        advantage = surprise + goes_on * settings.gae_lambda * advantage
        return (advantage, step.value), advantage

    return jax.lax.scan(backwards, (jnp.zeros_like(last_value), last_value), steps, reverse=True)[1]


def loss_of(weights, settings, memory, steps, advantages):
    """PPO's (Schulman et al., 2017)."""
    _, log_probabilities, values = agent.apply(weights, memory, steps.seen)
    taken = jnp.take_along_axis(log_probabilities, steps.action[..., None], axis=-1)[..., 0]
    ratio = jnp.exp(taken - steps.log_probability)
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - settings.clip_range, 1 + settings.clip_range)
    policy_loss = -jnp.minimum(ratio * scaled, clipped * scaled).mean()
    value_loss = jnp.square(values - (advantages + steps.value)).mean()
    entropy = -(jnp.exp(log_probabilities) * log_probabilities).sum(axis=-1).mean()
    return policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy


def begin(settings, rulesets, key, weights=None):
    """A learner in environments of these rulesets, one each, with these weights or new ones."""
    start, first, later = jax.random.split(key, 3)
    world = xland_tasks.parameters.replace(ruleset=rulesets)
    timestep = jax.vmap(xland_tasks.environment.reset)(world, jax.random.split(first, settings.environments))
    nothing = jnp.zeros(settings.environments)
    seen = Seen(timestep.observation, nothing.astype(jnp.int32), nothing, jnp.ones_like(nothing, bool))
    memory = jnp.zeros((settings.environments, agent.width))
    if weights is None:
        weights = agent.init(start, memory, jax.tree.map(lambda x: x[None], seen))
    return Learner(weights, settings.optimizer().init(weights), Playing(timestep, seen, memory, later))


def update(settings, rulesets, learner, _):
    """Plays `update_steps` steps and learns from them. Returns those of the kept streams."""
    world = xland_tasks.parameters.replace(ruleset=rulesets)

    def act(playing, _):
        key, draw = jax.random.split(playing.key)
        memory, log_probabilities, value = agent.now(learner.weights, playing)
        action = jax.random.categorical(draw, log_probabilities)
        taken = jnp.take_along_axis(log_probabilities, action[:, None], axis=-1)[:, 0]
        reached, timestep = jax.vmap(xland_tasks.play)(world, playing.timestep, action)
        done = reached.last()
        step = Step(playing.seen, action, taken, value, reached.reward, done)
        return Playing(timestep, Seen(timestep.observation, action, reached.reward, done), memory, key), step

    playing, steps = jax.lax.scan(act, learner.playing, None, settings.update_steps)
    advantages = advantages_of(settings, steps, agent.now(learner.weights, playing)[2])

    def minibatch(learnt, chosen):
        weights, moments = learnt
        some_steps, some_advantages = jax.tree.map(lambda x: x[:, chosen], (steps, advantages))
        gradients = jax.grad(loss_of)(weights, settings, learner.playing.memory[chosen], some_steps, some_advantages)
        change, moments = settings.optimizer().update(gradients, moments)
        return (optax.apply_updates(weights, change), moments), None

    key, shuffle = jax.random.split(playing.key)
    orders = jax.vmap(lambda k: jax.random.permutation(k, settings.environments))(jax.random.split(shuffle, settings.epochs))
    (weights, moments), _ = jax.lax.scan(minibatch, learner[:2], orders.reshape(settings.epochs * settings.minibatches, -1))
    return Learner(weights, moments, playing._replace(key=key)), jax.tree.map(lambda x: x[:, :settings.streams], steps)


def explore(settings, steps):
    """The weights of one agent that has learnt as many rulesets as it has environments, all at once."""
    rulesets = xland_tasks.rulesets(range(FIRST_EXPLORED_RULESET, FIRST_EXPLORED_RULESET + settings.environments))
    settings = settings._replace(streams=settings.environments)  # all tell how it goes
    updates = steps // settings.update_steps
    updates_a_line = max(1, updates // 8)

    def some_updates(learner, line):
        learner, steps = jax.lax.scan(functools.partial(update, settings, rulesets), learner, None, updates_a_line)
        jax.debug.print(f"One agent in {settings.environments} rulesets: mean return {{found:.3f}} at step {{step}}",
                        found=mean_return(steps.reward, steps.done), step=(line + 1) * updates_a_line * settings.update_steps)
        return learner, None

    @jax.jit
    def all_updates(key):
        return jax.lax.scan(some_updates, begin(settings, rulesets, key), jnp.arange(updates // updates_a_line))[0].weights

    return all_updates(jax.random.PRNGKey(0))


def learn(settings, steps, weights, ruleset, key):
    """Learns one ruleset. Returns the steps of the streams that are kept, and the learnt policy's actions in them."""
    rulesets = jax.tree.map(lambda x: jnp.broadcast_to(x, (settings.environments, *x.shape)), ruleset)
    learner = begin(settings, rulesets, key, weights)
    memory = learner.playing.memory[:settings.streams]
    learner, kept = jax.lax.scan(functools.partial(update, settings, rulesets), learner, None, steps // settings.update_steps)

    def expert(memory, seen):
        memory, log_probabilities, _ = agent.apply(learner.weights, memory, seen)
        return memory, log_probabilities.argmax(axis=-1)

    _, expert_actions = jax.lax.scan(expert, memory, kept.seen)
    return jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), (kept, expert_actions))


def mean_return(rewards, dones):
    """Of the episodes that end here; only an episode's last step pays."""
    return rewards.sum() / jnp.maximum(dones.sum(), 1)


def write_task(file, number, steps, expert_actions):
    """Appends a group; arrays of steps have the axes step and stream."""
    group = file.create_group(str(len(file)))
    group.attrs.update({"env-id": xland_tasks.ENVIRONMENT_ID, "benchmark-id": "trivial-drawn", "ruleset-id": np.int64(number)})
    cells = steps.seen.observation
    columns = {"states": (cells[..., 0] * NUM_COLORS + cells[..., 1]).astype(np.uint8),
               "actions": steps.action.astype(np.uint8), "rewards": steps.reward.astype(np.float16),
               "dones": steps.done, "expert_actions": expert_actions.astype(np.uint8)}
    for name, column in columns.items():
        by_stream = np.swapaxes(column, 0, 1)
        chunk = (1, min(CHUNK, by_stream.shape[1]), *by_stream.shape[2:])
        group.create_dataset(name, data=by_stream, chunks=chunk, compression="gzip", compression_opts=4)


def collect(file, numbers, settings, steps, weights, at_once, least_return):
    learn_all = jax.jit(jax.vmap(functools.partial(learn, settings, steps), in_axes=(None, 0, 0)))
    began, tenth = time.monotonic(), steps // 10
    first_returns, last_returns = [], []

    def write(batch, played, expert_actions):
        played, expert_actions = jax.tree.map(np.asarray, (played, expert_actions))
        for i, number in enumerate(batch):
            task = jax.tree.map(lambda x: x[i], played)
            at_end = mean_return(task.reward[-tenth:], task.done[-tenth:])
            if at_end >= least_return:
                write_task(file, number, task, expert_actions[i])
                first_returns.append(mean_return(task.reward[:tenth], task.done[:tenth]))
                last_returns.append(at_end)
        print(f"{batch[-1] + 1} of {len(numbers)} rulesets in {time.monotonic() - began:.0f} s: {len(last_returns)} tasks kept"
              + (f", mean return {np.mean(first_returns):.3f} in the first tenth and {np.mean(last_returns):.3f} in the last"
                 if last_returns else ""), flush=True)

    learnt = None
    for first in range(0, len(numbers), at_once):
        batch = numbers[first:first + at_once]
        filled = [*batch, *[batch[0]] * (at_once - len(batch))]  # a batch of another size would be compiled anew
        keys = jnp.stack([jax.random.PRNGKey(number) for number in filled])
        next_learnt = learn_all(weights, xland_tasks.rulesets(filled), keys)  # JAX may go on with them during what follows
        if learnt is not None:
            write(*learnt)
        learnt = (batch, *next_learnt)
    write(*learnt)
    if not last_returns:
        raise SystemExit(f"No ruleset was learnt to a return of {least_return}: raise --steps, or lower --least-return.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("histories/xland.hdf5"))
    parser.add_argument("--rulesets", type=int, default=1024, help="0 … n - 1 are learnt")
    parser.add_argument("--environments", type=int, default=256, help="of each ruleset")
    parser.add_argument("--streams", type=int, default=16, help="of them, whose histories are kept")
    parser.add_argument("--steps", type=int, default=2560, help="of each environment")
    parser.add_argument("--at-once", type=int, default=256, help="rulesets that are learnt at the same time")
    parser.add_argument("--explored", type=int, default=8192, help="rulesets that one agent learns first, an environment each")
    parser.add_argument("--explore-steps", type=int, default=0, help="of each of these environments; 0: no such agent")
    parser.add_argument("--least-return", type=float, default=0.3, help="at the end of learning, for a task to be kept")
    parser.add_argument("--overwrite", action="store_true")
    given = parser.parse_args()
    explorer = Settings(given.explored, given.explored, epochs=1, minibatches=8, learning_rate=1e-3)
    settings = Settings(given.environments, given.streams, epochs=2, minibatches=4, learning_rate=2e-3)
    for name, value, least, multiple in (("rulesets", given.rulesets, 1, 1), ("streams", given.streams, 1, 1),
                                         ("environments", given.environments, given.streams, settings.minibatches),
                                         ("steps", given.steps, 10, settings.update_steps), ("at-once", given.at_once, 1, 1),
                                         ("explored", given.explored, 1, explorer.minibatches),
                                         ("explore-steps", given.explore_steps, 0, explorer.update_steps)):
        if value < least or value % multiple:
            parser.error(f"--{name} is {value}; expected a multiple of {multiple}, at least {least}")
    if given.rulesets > xland_tasks.FIRST_TEST_RULESET:
        parser.error(f"--rulesets is {given.rulesets}; from {xland_tasks.FIRST_TEST_RULESET} on they are the evaluation's")
    if given.out.exists() and not given.overwrite:
        parser.error(f"{given.out} exists already; name another by --out, or replace it with --overwrite")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    print(f"On {jax.devices()[0].device_kind}; the first lines come once the programs are compiled.", flush=True)
    weights = explore(explorer, given.explore_steps) if given.explore_steps else None
    unfinished = given.out.with_name(given.out.name + ".unfinished")
    with h5py.File(unfinished, "w") as file:
        at_once = min(given.at_once, given.rulesets)
        collect(file, range(given.rulesets), settings, given.steps, weights, at_once, given.least_return)
    unfinished.rename(given.out)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
