"""MuJoCo's InvertedPendulum with other physics: 24 tasks for configs/run/pendulum.yaml, each a pole, a gear and a gravity of its own.

In half of the tasks the gear is negative: the motor pushes the cart the other way. No observation shows that, so an agent has
to find it out in context.
"""
import gymnasium as gym
import numpy as np

MASSES = [0.5, 1.0, 2.0, 4.0]  # of the pole, as a multiple of the usual one
GEARS = [100.0, -100.0, 70.0, -70.0, 150.0, -150.0]  # newtons per unit of the action; usually 100
TASKS = [f"mass {mass} gear {gear:+.0f}" for mass in MASSES for gear in GEARS]


def make_env(task, seed):
    environment = gym.make("InvertedPendulum-v5", max_episode_steps=100)
    number = TASKS.index(task)
    model = environment.unwrapped.model
    pole = model.body("pole").id
    model.body_mass[pole] *= MASSES[number // len(GEARS)]
    model.body_inertia[pole] *= MASSES[number // len(GEARS)]
    model.actuator_gear[0, 0] = GEARS[number % len(GEARS)]
    model.opt.gravity[2] = -np.random.default_rng(number).uniform(8, 12)
    return environment
