"""CartPole with other physics: 20 tasks for configs/run/cartpole.yaml, each a pole, a push and a gravity of its own.

The push moves the cart to the left or to the right as usual, or the other way round, which an agent sees in no observation:
it has to find out in context.
"""
import gymnasium as gym
import numpy as np

LENGTHS = [0.3, 0.5, 0.8, 1.2, 1.8]  # half of the pole's, in metres; usually 0.5
PUSHES = [10.0, -10.0, 15.0, -15.0]  # newtons
TASKS = [f"pole {length} push {push:+.0f}" for length in LENGTHS for push in PUSHES]


def make_env(task, seed):
    environment = gym.make("CartPole-v1", max_episode_steps=100)
    number = TASKS.index(task)
    physics = environment.unwrapped
    physics.length, physics.force_mag = LENGTHS[number // len(PUSHES)], PUSHES[number % len(PUSHES)]
    physics.polemass_length = physics.masspole * physics.length
    physics.gravity = float(np.random.default_rng(number).uniform(8, 12))
    return environment
