"""Times rollouts of XLand-100B's baseline over full contexts of 4096 steps, in XLand-MiniGrid's own environments, on one GPU.

  python3 tests/benchmark/xland_rollouts.py build/release/bin/adtrain [FOLDER] [--workers 4] [--set key=value …]

The Python needs what configs/xland_requirements.txt lists. FOLDER (runs/xland_rollouts) gets histories of random actions in 32
rulesets, unless --histories names others, a run that has trained on them for some steps, and its evaluation, whose actions are
drawn. Prints lock-steps (a step of all environments) a second, what share of the time the workers stepped environments, and
what follows for the protocol of 500 episodes. The start of programs and JAX's compilation are not counted.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

from step_marks import Played

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "configs"
LONGEST_EPISODE = 243  # of XLand-MiniGrid in 9 × 9 cells
PROTOCOL_EPISODES = 500
GOAL_MINUTES = 50
FEWEST_STEPS = 100  # that are measured
RULESETS, HISTORY_WINDOWS = 32, 2


def write_histories(path, steps, seed=1):
    """Random actions in as many rulesets, none of them the evaluation's, in XLand-100B's layout."""
    import h5py
    import xland_tasks
    rooms, random = xland_tasks.Rooms(list(range(RULESETS))), np.random.default_rng(seed)
    columns = {"states": np.zeros((RULESETS, 1, steps, 5, 5), np.uint8), "actions": np.zeros((RULESETS, 1, steps), np.uint8),
               "rewards": np.zeros((RULESETS, 1, steps), np.float16), "dones": np.zeros((RULESETS, 1, steps), bool)}
    seen, _ = rooms.reset(seed=np.arange(RULESETS))
    for step in range(steps):
        columns["states"][:, 0, step] = seen[..., 0] * xland_tasks.NUM_COLORS + seen[..., 1]
        actions = random.integers(0, xland_tasks.NUM_ACTIONS, RULESETS)
        seen, rewards, terminated, truncated, _ = rooms.step(actions)
        for name, values in (("actions", actions), ("rewards", rewards), ("dones", terminated | truncated)):
            columns[name][:, 0, step] = values
    with h5py.File(path, "w") as file:
        for task in range(RULESETS):
            group = file.create_group(str(task))
            group.attrs.update({"env-id": xland_tasks.ENVIRONMENT_ID, "benchmark-id": "trivial-drawn", "ruleset-id": task})
            for name, values in columns.items():
                group.create_dataset(name, data=values[task])


def run(command, log, environment=None, seconds=None):
    """Runs to its end, or asks it to stop after so many seconds. Ends this program where it fails."""
    with log.open("w") as output:
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"{command[1]} was asked to stop after {seconds:.0f} s", flush=True)
            process.send_signal(signal.SIGTERM)
            process.wait()
            return
    if code != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {code}:\n{log.read_text()[-3000:]}")


def settings_of(pairs):
    return [part for pair in pairs for part in ("--set", pair)]


def report(played):
    window, last = played.window, played.steps - 1
    full = last - window
    print(f"{played.environments} environments in {len(played.processes)} workers took {played.steps} lock-steps")
    if full < FEWEST_STEPS:
        print(f"of them {max(full, 0)} with contexts of {window} steps; expected {FEWEST_STEPS}: raise --episodes or --limit")
        return
    quarters = [window * i // 4 for i in range(5)]
    growing = ", ".join(f"{played.milliseconds(begin, end):.2f} from {begin} to {end}"
                        for begin, end in zip(quarters, quarters[1:]))
    print(f"contexts grow: ms a lock-step {growing} steps")
    parts = np.linspace(window, last, 5).astype(int)
    spread = ", ".join(f"{played.milliseconds(begin, end):.2f}" for begin, end in zip(parts, parts[1:]))
    each = played.milliseconds(window, last)
    print(f"contexts full, {full} lock-steps in {played.seconds(window, last):.1f} s: {each:.3f} ms a lock-step "
          f"({spread} in the quarters), {1000 / each:.1f} lock-steps/s, "
          f"{played.environments * 1000 / each:.0f} environment steps/s")
    shares = played.stepping_shares(window, last)
    print(f"workers stepped environments {100 * min(shares):.1f}% to {100 * max(shares):.1f}% of that time")
    steps = played.environments * played.steps
    ended = played.episodes()
    print(f"all {played.steps} lock-steps took {played.seconds(0, last) / 60:.2f} minutes")
    print(f"{ended} episodes of {steps / max(ended, 1):.1f} steps on average, of which "
          f"{100 * played.found() / max(ended, 1):.1f}% reached the goal")
    most = PROTOCOL_EPISODES * LONGEST_EPISODE
    begin = played.seconds(0, window)
    seconds = begin + (most - window) * each / 1000
    print(f"{PROTOCOL_EPISODES} episodes of {LONGEST_EPISODE} steps, which no environment exceeds, are {most} lock-steps: "
          f"{begin:.1f} s for the first {window}, and {most - window} × {each:.3f} ms = {seconds - begin:.0f} s; together "
          f"{seconds / 60:.1f} minutes (goal {GOAL_MINUTES})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adtrain", type=pathlib.Path)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("runs/xland_rollouts"))
    parser.add_argument("--environments", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=40, help="of each environment")
    parser.add_argument("--window", type=int, default=4096, help="steps of a context")
    parser.add_argument("--histories", type=pathlib.Path, help="such as xland_histories.py collects; made of random actions")
    parser.add_argument("--train-steps", type=int, default=100)
    parser.add_argument("--limit", type=float, default=600, help="seconds in all, after which the evaluation is asked to stop")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="for training and evaluation")
    parser.add_argument("--set-evaluation", action="append", default=[], metavar="key=value")
    arguments = parser.parse_args()
    sys.path.append(str(CONFIGS))
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def done(what):
        print(f"{time.monotonic() - began:6.1f} s: {what}", flush=True)

    histories = arguments.histories or folder / "random.hdf5"
    if not histories.exists():
        write_histories(histories, HISTORY_WINDOWS * arguments.window)
        done(f"{RULESETS} histories of {HISTORY_WINDOWS * arguments.window} random actions")
    name = "baseline"
    if not (folder / name / "checkpoints" / "latest").exists():
        training = [f"run_name={name}", f"runs_dir={folder}", f"histories={histories}", f"n_transit={arguments.window}",
                    f"train_timesteps={arguments.train_steps}", f"num_warmup_steps={arguments.train_steps // 10}"]
        run([arguments.adtrain, "train", HERE / "xland.yaml", *settings_of(training + arguments.set)], folder / "train.log")
        done(f"{arguments.train_steps} optimizer steps")
    times = folder / "times"
    times.mkdir(exist_ok=True)
    for old in times.glob("*.marks"):
        old.unlink()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TIMED_WORKER": "xland_tasks:make_vec_env",
                                "TIMED_FOLDER": str(times.resolve())}
    evaluation = ["env_worker=timed_environments:make_vec_env", f"env_python={sys.executable}", "env_timeout=300",
                  f"env_workers={arguments.workers}", "eval_tasks=test", f"eval_task_limit={arguments.environments}",
                  f"eval_batch={arguments.environments}", f"eval_episodes={arguments.episodes}", "eval_repeats=1",
                  "eval_context=rolling"]
    run([arguments.adtrain, "evaluate", folder / name, *settings_of(evaluation + arguments.set + arguments.set_evaluation)],
        folder / "evaluate.log", environment, max(0.0, arguments.limit - (time.monotonic() - began)))
    done("the evaluation")
    report(Played(times, arguments.window))


if __name__ == "__main__":
    main()
