"""Times training steps at long contexts as `adtrain train` takes them, on one GPU, by plain operators and by kernels.

  python3 tests/benchmark/long_contexts.py build/release/bin/adtrain [FOLDER] [--cases 4096:64,1024:256] [--set key=value ...]

FOLDER (runs/long_contexts) gets random histories of XLand-100B's shapes and one run for each case of tokens:sequences
and each value of fused_kernels. Prints milliseconds a step: the median over reports after the first third of the steps.
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

TASKS, STEPS = 32, 8192
CONFIG = pathlib.Path(__file__).with_name("xland.yaml")


def write_histories(path, seed=1):
    """Columns as in XLand-100B's file, stream first, with episodes of 100 steps."""
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        for task in range(TASKS):
            group = file.create_group(str(task))
            group.attrs["env-id"], group.attrs["benchmark-id"] = "XLand-MiniGrid-R1-9x9", "trivial-1m"
            group.attrs["ruleset-id"] = task
            columns = {"states": random.integers(0, 13 * 12, (1, STEPS, 5, 5), np.uint8),
                       "actions": random.integers(0, 6, (1, STEPS), np.uint8),
                       "rewards": (random.random((1, STEPS)) < 0.02).astype(np.float16),
                       "dones": np.arange(1, STEPS + 1)[None] % 100 == 0}
            for name, content in columns.items():
                group.create_dataset(name, data=content, chunks=(1, 4096, *content.shape[2:]))


def train(arguments, name, overrides):
    """The run's folder. The program's output goes to a file beside it."""
    settings = [f"run_name={name}", f"runs_dir={arguments.folder}", f"histories={arguments.folder / 'xland.hdf5'}",
                *overrides, *arguments.set]
    command = [arguments.adtrain, "train", str(CONFIG), *(part for s in settings for part in ("--set", s))]
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
    parser.add_argument("--cases", default="4096:64,1024:256", help="tokens:sequences, ...")
    parser.add_argument("--kernels", default="off,auto", help="values of fused_kernels")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="for all runs")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a run")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_histories(arguments.folder / "xland.hdf5")
    for tokens, sequences in (case.split(":") for case in arguments.cases.split(",")):
        for kernels in arguments.kernels.split(","):
            name = f"{tokens}_{sequences}_{kernels}"
            shape = [f"n_transit={tokens}", f"global_batch_size={sequences}", f"fused_kernels={kernels}"]
            print(f"{tokens} tokens x {sequences}, fused_kernels {kernels}: "
                  f"{milliseconds(train(arguments, name, shape)):.1f} ms a step", flush=True)
        if arguments.profile:
            profiled = train(arguments, name + "_profile", [*shape, "train_timesteps=30", "profile_steps=20-24"])
            print((profiled / "profile" / "steps_20-24.txt").read_text(), flush=True)


if __name__ == "__main__":
    main()
