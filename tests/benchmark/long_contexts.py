"""Times training steps at long contexts as `adtrain train` takes them, on one GPU, by plain operators and by kernels.

  python3 tests/benchmark/long_contexts.py build/release/bin/adtrain [FOLDER] [--network vintix] [--cases 4096:64,1024:256] [--set key=value ...]

FOLDER (runs/long_contexts) gets random histories of the shapes of XLand-100B or Vintix and one run for each case of
tokens:sequences of a step and each value of fused_kernels. Prints milliseconds a step: the median over reports after
the first third of the steps.
With --profile the last run of each case is profiled besides, and the table of its kernels printed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import h5py
import numpy as np

CASES = {"xland": "4096:64,1024:256", "vintix": "8192:16"}


def write_vintix(path, seed=1):
    """Columns of version 2, time first, as wide as Meta-World's in Vintix, with episodes of 100 steps."""
    tasks, steps = 8, 40000
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file.attrs["adtrain-format"] = 2
        for name, size in (("observation-space", 39), ("action-space", 4)):
            box = {"type": "Box", "dtype": "float32", "shape": [size], "low": [-10.0] * size, "high": [10.0] * size}
            file.attrs[name] = json.dumps(box)
        for task in range(tasks):
            group = file.create_group(str(task))
            group.attrs["task"] = f"task {task}"
            columns = {"states": random.standard_normal((steps, 1, 39), np.float32),
                       "actions": random.standard_normal((steps, 1, 4), np.float32),
                       "rewards": random.random((steps, 1), np.float32),
                       "dones": np.arange(1, steps + 1)[:, None] % 100 == 0}
            for name, content in columns.items():
                group.create_dataset(name, data=content)


def write_xland(path, seed=1):
    """Columns as in XLand-100B's file, stream first, with episodes of 100 steps."""
    tasks, steps = 32, 8192
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        for task in range(tasks):
            group = file.create_group(str(task))
            group.attrs["env-id"], group.attrs["benchmark-id"] = "XLand-MiniGrid-R1-9x9", "trivial-1m"
            group.attrs["ruleset-id"] = task
            columns = {"states": random.integers(0, 13 * 12, (1, steps, 5, 5), np.uint8),
                       "actions": random.integers(0, 6, (1, steps), np.uint8),
                       "rewards": (random.random((1, steps)) < 0.02).astype(np.float16),
                       "dones": np.arange(1, steps + 1)[None] % 100 == 0}
            for name, content in columns.items():
                group.create_dataset(name, data=content, chunks=(1, 4096, *content.shape[2:]))


def train(arguments, name, overrides):
    """The run's folder. The program's output goes to a file beside it."""
    settings = [f"run_name={name}", f"runs_dir={arguments.folder}", f"histories={arguments.histories}",
                *overrides, *arguments.set]
    config = pathlib.Path(__file__).with_name(f"{arguments.network}.yaml")
    command = [arguments.adtrain, "train", str(config), *(part for s in settings for part in ("--set", s))]
    log = arguments.folder / f"{name}.log"
    with log.open("w") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=arguments.timeout).returncode
    if code != 0:
        sys.exit(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-3000:]}")
    return arguments.folder / name


def milliseconds(run):
    reports = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    speeds = [report["steps_per_second"] for report in reports if report.get("steps_per_second")]
    return 1000 / statistics.median(speeds[len(speeds) // 3:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adtrain")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("runs/long_contexts"))
    parser.add_argument("--network", choices=CASES, default="xland")
    parser.add_argument("--cases", help=f"tokens:sequences, ...; {CASES}")
    parser.add_argument("--kernels", default="off,auto", help="values of fused_kernels")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="for all runs")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a run")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    arguments.histories = arguments.folder / f"{arguments.network}.hdf5"
    (write_vintix if arguments.network == "vintix" else write_xland)(arguments.histories)
    for tokens, sequences in (case.split(":") for case in (arguments.cases or CASES[arguments.network]).split(",")):
        for kernels in arguments.kernels.split(","):
            name = f"{arguments.network}_{tokens}_{sequences}_{kernels}"
            shape = [f"n_transit={tokens}", f"global_batch_size={sequences}", f"fused_kernels={kernels}"]
            print(f"{tokens} tokens x {sequences}, fused_kernels {kernels}: "
                  f"{milliseconds(train(arguments, name, shape)):.1f} ms a step", flush=True)
        if arguments.profile:
            profiled = train(arguments, name + "_profile", [*shape, "train_timesteps=30", "profile_steps=20-24"])
            print((profiled / "profile" / "steps_20-24.txt").read_text(), flush=True)


if __name__ == "__main__":
    main()
