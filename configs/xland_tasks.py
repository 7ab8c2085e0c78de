"""XLand-MiniGrid's trivial rulesets for configs/run/xland.yaml: a goal and four or five objects in a room of 9 × 9 cells.

An agent sees 5 × 5 cells before it, and in no observation what pays: it has to find that out in context. XLand's benchmark of
this name is a file on a hub. Here rulesets are drawn as those were, each by its number alone: a goal, its objects and three
others, no rules. TASKS are for evaluations; xland_histories.py collects others.
"""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the GPU is adtrain's

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import xminigrid
from xminigrid.core.constants import NUM_ACTIONS, NUM_COLORS, NUM_TILES, Colors, Tiles
from xminigrid.core.rules import EmptyRule
from xminigrid.types import RuleSet

ENVIRONMENT_ID = "XLand-MiniGrid-R1-9x9"
FIRST_TEST_RULESET = 1_000_000
TASKS = [f"{ENVIRONMENT_ID} ruleset {FIRST_TEST_RULESET + i}" for i in range(1024)]

# Of xminigrid.core.goals: pick an object up; stand beside one, on any side or a certain one; put two beside each other, likewise.
HOLD, STAND_BESIDE, BRING_TOGETHER = [1], [3, 11, 12, 13, 14], [4, 7, 8, 9, 10]
OTHER_OBJECTS = 3
SHAPES = [Tiles.BALL, Tiles.SQUARE, Tiles.PYRAMID, Tiles.KEY, Tiles.STAR, Tiles.HEX, Tiles.GOAL]  # the last cannot be picked up
COLOURS = [Colors.RED, Colors.GREEN, Colors.BLUE, Colors.PURPLE, Colors.YELLOW, Colors.GREY, Colors.WHITE, Colors.BROWN,
           Colors.PINK, Colors.ORANGE]
OBJECTS = np.array([(shape, colour) for shape in SHAPES for colour in COLOURS], np.uint8)
MOVABLE = len(OBJECTS) - len(COLOURS)

environment, parameters = xminigrid.make(ENVIRONMENT_ID)


def rulesets(numbers):
    """The rulesets of these numbers, as one whose arrays have them along the first axis."""
    goals = np.zeros((len(numbers), 5), np.uint8)
    objects = np.zeros((len(numbers), 2 + OTHER_OBJECTS, 2), np.uint8)  # zeros: no object
    for i, number in enumerate(numbers):
        random = np.random.default_rng(number)
        goal = random.choice(HOLD + STAND_BESIDE + BRING_TOGETHER)
        needed = [random.integers(MOVABLE if goal in HOLD else len(OBJECTS))]
        if goal in BRING_TOGETHER:
            needed.append(random.integers(MOVABLE))
        others = random.choice(np.delete(np.arange(len(OBJECTS)), needed), OTHER_OBJECTS)
        goals[i, :1 + 2 * len(needed)] = [goal, *OBJECTS[needed].ravel()]
        objects[i, :len(needed) + OTHER_OBJECTS] = OBJECTS[[*needed, *others]]
    no_rules = np.tile(EmptyRule().encode(), (len(numbers), 1, 1))
    return RuleSet(goal=jnp.asarray(goals), rules=jnp.asarray(no_rules), init_tiles=jnp.asarray(objects))


def play(world, timestep, action):
    """One step: what it reached, and where it goes on, which after an episode's end is the beginning of the next."""
    reached = environment.step(world, timestep, action)
    fresh = environment.reset(world, jax.random.split(reached.state.key)[0])
    return reached, jax.tree.map(lambda new, old: jnp.where(reached.last(), new, old), fresh, reached)


reset_all = jax.jit(jax.vmap(environment.reset))
play_all = jax.jit(jax.vmap(play))


class Rooms(gym.vector.VectorEnv):
    """One room for each ruleset, all stepped at once, and as many more as make them a power of two and 16 at least.

    JAX compiles the environments anew for each number of rooms, which takes seconds of a core.
    """

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}

    def __init__(self, numbers):
        self.num_envs = len(numbers)
        self.single_observation_space = gym.spaces.MultiDiscrete(np.tile([NUM_TILES, NUM_COLORS], (5, 5, 1)))
        self.single_action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.more = max(16, 1 << (self.num_envs - 1).bit_length()) - self.num_envs
        self.worlds = parameters.replace(ruleset=rulesets([*numbers, *[numbers[0]] * self.more]))

    def filled(self, values):
        return np.append(values, np.zeros(self.more, values.dtype))

    def own(self, array):
        return np.asarray(array)[:self.num_envs]

    def reset(self, *, seed=None, options=None):
        if seed is None:
            seed = np.random.SeedSequence().generate_state(self.num_envs)
        keys = jax.vmap(jax.random.PRNGKey)(self.filled(np.asarray(seed)))
        self.timesteps = reset_all(self.worlds, keys)
        return self.own(self.timesteps.observation), {}

    def step(self, actions):
        reached, self.timesteps = play_all(self.worlds, self.timesteps, self.filled(actions))
        over, found = self.own(reached.last()), self.own(reached.discount) == 0
        return (self.own(self.timesteps.observation), self.own(reached.reward), found, over & ~found,
                {"final_obs": self.own(reached.observation), "_final_obs": over})


def make_vec_env(tasks, seeds):
    return Rooms([int(task.rsplit(" ", 1)[1]) for task in tasks])
