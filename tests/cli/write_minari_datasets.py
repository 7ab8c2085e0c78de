"""Makes data sets with the minari package in ./minari (MINARI_DATASETS_PATH), or compares what was imported of them:
write | compare FILE TASK=NAME,NAME ...
"""

import os
import sys

import numpy as np

os.environ["MINARI_DATASETS_PATH"] = os.path.abspath("minari")
import gymnasium as gym
import h5py
import minari
from minari.data_collector import EpisodeBuffer


def episode(env, random, skill):
    """One of CartPole by a player of this skill, as minari.DataCollector buffers it."""
    observation, _ = env.reset(seed=int(random.integers(1 << 30)))
    observations, actions, rewards, terminations, truncations = [observation], [], [], [], []
    while not actions or not (terminations[-1] or truncations[-1]):
        good = int(observation[2] + observation[3] > 0)
        actions.append(good if random.random() < skill else int(random.integers(2)))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
        terminations.append(terminated)
        truncations.append(truncated)
    return EpisodeBuffer(observations=observations, actions=actions, rewards=rewards, terminations=terminations,
                         truncations=truncations)


def write():
    random = np.random.default_rng()
    env = gym.make("CartPole-v1", max_episode_steps=60)
    for name, skills in [("pole/rising-v0", np.linspace(0, 1, 30)), ("pole/other-v0", np.linspace(0, 1, 25)),
                         ("pole/falling-v0", np.linspace(1, 0, 20))]:
        minari.create_dataset_from_buffers(name, [episode(env, random, skill) for skill in skills], env=env,
                                           ref_min_score=20.0, ref_max_score=60.0)
    grid = gym.spaces.MultiDiscrete([[4, 3], [4, 3]], dtype=np.int8)
    force = gym.spaces.Box(-1, 1, (2,), np.float64)
    buffers = []
    for length in random.integers(1, 300, 9):  # some of more than a chunk
        buffers.append(EpisodeBuffer(observations=[grid.sample() for _ in range(length + 1)],
                                     actions=[force.sample() for _ in range(length)], rewards=list(random.normal(size=length)),
                                     terminations=[False] * length, truncations=[False] * length))
    minari.create_dataset_from_buffers("grid-v3", buffers, observation_space=grid, action_space=force)
    together = gym.spaces.Dict(position=grid, speed=force)
    minari.create_dataset_from_buffers(
        "together-v0", [EpisodeBuffer(observations={"position": [grid.sample()] * 2, "speed": [force.sample()] * 2},
                                      actions=[force.sample()], rewards=[1.0], terminations=[True], truncations=[False])],
        observation_space=together, action_space=force)


def compare(path, tasks):
    with h5py.File(path) as file:
        assert sorted(name for name in file) == sorted(task.split("=")[0] for task in tasks), list(file)
        for task in tasks:
            group, names = task.split("=")
            group = file[group]
            assert group.attrs["task"].decode() == names.split(",")[0]
            for stream, name in enumerate(names.split(",")):
                data = minari.load_dataset(name)
                episodes = list(data.iterate_episodes())
                steps = group["actions"].shape[1]
                columns = {"states": [episode.observations[:-1] for episode in episodes],
                           "actions": [episode.actions for episode in episodes],
                           "rewards": [episode.rewards.astype("f4") for episode in episodes],
                           "terminations": [episode.terminations for episode in episodes],
                           "truncations": [np.arange(len(episode)) == len(episode) - 1 if not episode.terminations[-1]
                                           else episode.truncations for episode in episodes]}
                for column, expected in columns.items():
                    expected = np.concatenate(expected)[:steps]
                    found = group[column][stream]
                    assert found.dtype == expected.dtype, (column, found.dtype, expected.dtype)
                    assert np.array_equal(found, expected), column


write() if sys.argv[1] == "write" else compare(sys.argv[2], sys.argv[3:])
