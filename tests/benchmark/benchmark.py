"""Times adtrain against its peers on the GPUs of this machine, side by side, and prints a table.

  python3 tests/benchmark/benchmark.py                               both models, one GPU
  python3 tests/benchmark/benchmark.py --gpus 1,2,4 --output bench   weak and strong scaling; bench/results.json
  python3 tests/benchmark/benchmark.py --models guide --no-peers
  python3 tests/benchmark/benchmark.py --models none --evaluation runs/quickstart

README.md beside this file explains the figures. The exit code is 1 where a program of adtrain failed.
"""
import argparse
import pathlib
import signal
import sys

from evaluation import EVALUATION_EPISODES, measure_evaluation
from programs import Runner
from report import gpus_here, show
from training import HERE, TORCH_VARIANTS, measure_training

ROOT = HERE.parent.parent
PROJECT_PYTHON = ROOT / ".deps/venv/bin/python"  # where launch/setup.sh puts PyTorch, if the system has none


def numbers(text):
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def choices_among(*allowed):
    def choices(text):
        chosen = [] if text == "none" else text.split(",")
        unknown = set(chosen) - set(allowed)
        if unknown:
            raise argparse.ArgumentTypeError(
                f"found {', '.join(sorted(unknown))}; expected {', '.join(allowed)} or none")
        return chosen

    return choices


def options_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--gpus", type=numbers, default="1", help="how many, in this order; default %(default)s")
    add("--models", type=choices_among("guide", "large"), default="guide,large",
        help="of guide.yaml, large.yaml, or none; default %(default)s")
    add("--scaling", type=choices_among("weak", "strong"), default="weak,strong",
        help="weak: the batch of each GPU is fixed; strong: that of all together; default %(default)s")
    add("--variants", type=choices_among(*TORCH_VARIANTS), default=",".join(TORCH_VARIANTS),
        help="of the PyTorch peer; default %(default)s")
    add("--no-peers", dest="peers", action="store_false", help="adtrain alone")
    add("--steps", type=int, default=200, help="timed steps of each program; default %(default)s")
    add("--timeout", type=float, default=120, help="seconds that a program may take, start-up and compilation "
        "included; default %(default)g")
    add("--evaluation", type=pathlib.Path, metavar="RUN_FOLDER",
        help=f"also time `adtrain evaluate` of this run over {EVALUATION_EPISODES} episodes; rewrites its evaluation/")
    add("--output", type=pathlib.Path, metavar="FOLDER", default=ROOT / "build/benchmark",
        help="results.json goes there; default build/benchmark")
    add("--program", type=pathlib.Path, default=ROOT / "build/release/bin/benchmark_step",
        help="default build/release/bin/benchmark_step")
    add("--adtrain", type=pathlib.Path, help="for --evaluation; default: beside --program")
    add("--python", default=str(PROJECT_PYTHON if PROJECT_PYTHON.exists() else sys.executable),
        help="with PyTorch, for the peers and for torchrun; default .deps/venv's, else the one that runs this")
    add("--jax-python", help="with JAX, for its peer; default: --python")
    options = parser.parse_args()
    options.program = options.program.absolute()
    options.adtrain = (options.adtrain or options.program.with_name("adtrain")).absolute()
    options.jax_python = options.jax_python or options.python
    return options


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # programs are ended on the way out
    options = options_given()
    gpus = gpus_here()
    runner = Runner(options.timeout)
    training, evaluation = [], []
    try:
        for line in measure_training(options, runner):
            training.append(line)
        evaluation += measure_evaluation(options, runner)
    finally:  # who interrupts it sees what was measured until then
        show(options, gpus, training, evaluation)
    return 1 if any(line.ours and line.outcome.result is None for line in training + evaluation) else 0


if __name__ == "__main__":
    sys.exit(main())
