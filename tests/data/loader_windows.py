"""Windows as the loaders of two published collections cut them, by slices of h5py and NumPy alone.

usage: loader_windows.py FORMAT PATH OUT LENGTH STRIDE EPISODE_STRIDE LAST_FRACTION REWARD_SCALE [FOLDER]

FORMAT: xland, vintix (PATH is a task's folder), or vintix_list (PATH is one of Vintix's lists, whose paths are relative to
FOLDER and whose own scales and strides count; windows are those of its tasks that are trained on, in its order).

OUT gets all windows, one after the other: observations, actions, rewards (float32), the action and the reward
before, and a byte a step that is 1 where an episode begins. OUT.json gets their number and, of Vintix, mean and
deviation of the observations."""
import json
import sys
from pathlib import Path

import h5py
import numpy as np

layout, path, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
length, stride, episode_stride = map(int, sys.argv[4:7])
last_fraction, reward_scale = map(float, sys.argv[7:9])
content, facts = [], {}


def put(observations, actions, rewards, action_before, reward_before, begins, scale=reward_scale):
    scaled = [np.asarray(values, np.float32) * np.float32(scale) for values in (rewards, reward_before)]
    for values in (observations, actions, scaled[0], action_before, scaled[1], begins.astype(np.uint8)):
        content.append(np.ascontiguousarray(values).tobytes())


def xland():
    """Segment k of a history starts at 1 + k * (length / 2)."""
    with h5py.File(path) as file:
        for task in sorted(file, key=int):
            group = file[task]
            streams, steps = group["rewards"].shape
            for stream in range(streams):
                columns = [group[name][stream] for name in ("states", "actions", "rewards", "dones")]
                states, actions, rewards, dones = columns
                for start in range(1, steps - length, stride):
                    end = start + length
                    put(states[start:end], actions[start:end], rewards[start:end], actions[start - 1],
                        rewards[start - 1], dones[start - 1:end - 1])


def vintix(folder=path, every=episode_stride, scale=reward_scale, share=(0, 1)):
    """length + 1 steps of every k-th episode of a share of them, of which the first only says what came before."""
    observed = []
    for name in sorted(folder.glob("*.h5")):
        with h5py.File(name) as file:
            groups = sorted(file, key=lambda group: int(group.split("-")[0]))
            columns = [np.concatenate([file[group][column][()] for group in groups])
                       for column in ("proprio_observation", "action", "reward", "step_num")]
        observations, actions, rewards, numbers = columns
        observed.append(observations)
        steps = len(rewards)
        firsts = [step for step in range(steps) if step == 0 or numbers[step] == 0]
        episodes = list(zip(firsts, firsts[1:] + [steps]))
        episodes = episodes[int(share[0] * len(episodes)):int(share[1] * len(episodes))][::every]
        kept = np.concatenate([np.arange(first, end) for first, end in episodes]) if episodes else np.arange(0)
        for start in range(0, len(kept) - (length + 1), stride):
            if kept[start] < (steps - 1) * (1 - last_fraction):
                continue
            before, window = kept[start], kept[start + 1:start + 1 + length]
            put(observations[window], actions[window], rewards[window], actions[before], rewards[before],
                numbers[window] == 0, scale)
    observed = np.concatenate(observed).astype(np.float64)
    facts["mean"] = observed.mean(axis=0).tolist()
    facts["deviation"] = (observed.std(axis=0, ddof=1) + 1e-6).tolist()


def vintix_list():
    import yaml
    for task in yaml.safe_load(path.read_text()).values():
        if task["type"] == "default":
            vintix(Path(sys.argv[9]) / task["path"], task["episode_sparsity"], task["reward_scale"],
                   task.get("episode_range", (0, 1)))


{"xland": xland, "vintix": vintix, "vintix_list": vintix_list}[layout]()
facts["windows"] = len(content) // 6
out.write_bytes(b"".join(content))
Path(f"{out}.json").write_text(json.dumps(facts))
