"""Times adtrain against its peers on the GPUs of this machine, side by side, and prints a table.

  python3 tests/benchmark/benchmark.py                               both models, one GPU
  python3 tests/benchmark/benchmark.py --gpus 1,2,4 --output bench   weak and strong scaling; bench/results.json
  python3 tests/benchmark/benchmark.py --gpus all --minutes 9        as launch/scaling.sh, on 1, 2, 4, … GPUs
  python3 tests/benchmark/benchmark.py --models guide --no-peers
  python3 tests/benchmark/benchmark.py --models none --evaluation runs/quickstart

README.md beside this file explains the figures. The exit code is 1 where a program of adtrain failed.
"""
import argparse
import math
import pathlib
import signal
import sys

from evaluation import EVALUATION_EPISODES, measure_evaluation
from picture import draw
from programs import Runner
from report import gpus_here, show
from training import HERE, TORCH_VARIANTS, compare, measure_training, planned_training

ROOT = HERE.parent.parent
PROJECT_PYTHON = ROOT / ".deps/venv/bin/python"  # where launch/setup.sh puts PyTorch, if the system has none


def powers_of_two_and(count):
    """Those below `count`, and itself: [1, 2, 4, 6] for 6."""
    return [2**power for power in range(count.bit_length()) if 2**power < count] + [count]


def gpu_counts(text):
    if text == "all":
        count = len(gpus_here())
        if count == 0:
            raise argparse.ArgumentTypeError("found no GPU here, as nvidia-smi says; expected at least one")
        return powers_of_two_and(count)
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
    add("--gpus", type=gpu_counts, default="1",
        help="how many, as in 1,2,4; all: 1, 2, 4, … and all; default %(default)s")
    add("--models", type=choices_among("guide", "large", "gpt2"), default="guide,large",
        help="of guide.yaml, large.yaml, gpt2.yaml, or none; default %(default)s")
    add("--scaling", type=choices_among("weak", "strong"), default="weak,strong",
        help="weak: the batch of each GPU is fixed; strong: that of all together; default %(default)s")
    add("--variants", type=choices_among(*TORCH_VARIANTS), default=",".join(TORCH_VARIANTS),
        help="of the PyTorch peer, the most important first; default %(default)s")
    add("--no-peers", dest="peers", action="store_false", help="adtrain alone")
    add("--steps", type=int, default=200, help="timed steps of each program; default %(default)s")
    add("--timeout", type=float, default=120, help="seconds that a program may take, start-up and compilation "
        "included; default %(default)g")
    add("--minutes", type=float, default=math.inf, help="for all programs together: the most important run first, and "
        "what would not fit in is left out; default: without limit")
    add("--evaluation", type=pathlib.Path, metavar="RUN_FOLDER",
        help=f"also time `adtrain evaluate` of this run over {EVALUATION_EPISODES} episodes; writes to folders in its evaluation/")
    add("--output", type=pathlib.Path, metavar="FOLDER", default=ROOT / "build/benchmark",
        help="results.json and, of several numbers of GPUs, efficiency.svg and .png go there; default build/benchmark")
    add("--program", type=pathlib.Path, default=ROOT / "build/release/bin/benchmark_step",
        help="default build/release/bin/benchmark_step")
    add("--adtrain", type=pathlib.Path, help="for --evaluation; default: beside --program")
    add("--python", default=str(PROJECT_PYTHON if PROJECT_PYTHON.exists() else sys.executable),
        help="with PyTorch, for the peers and for torchrun; default .deps/venv's, else the one that runs this")
    add("--jax-python", help="with JAX, for its peer, or none; default: --python")
    options = parser.parse_args()
    options.program = options.program.absolute()
    options.adtrain = (options.adtrain or options.program.with_name("adtrain")).absolute()
    options.jax_python = options.jax_python or options.python
    return options


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # programs are ended on the way out
    options = options_given()
    gpus = gpus_here()
    runner = Runner(options.timeout, 60 * options.minutes)
    planned, evaluation = planned_training(options), []
    try:
        measure_training(planned, options, runner)
        evaluation += measure_evaluation(options, runner)
    finally:  # who interrupts it sees what was measured until then
        training = [line for line in planned if line.outcome]
        compare(training)
        show(options, gpus, training, evaluation)
        if len(options.gpus) > 1:
            print(draw(options.output), flush=True)
    return 1 if any(line.ours and line.outcome.failed() for line in training + evaluation) else 0


if __name__ == "__main__":
    sys.exit(main())
