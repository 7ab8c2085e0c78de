"""adtrain::DataParallel beside PyTorch's DistributedDataParallel, each case in a process of its own, as one table.

  python3 tests/benchmark/data_parallel.py --ranks 1,2          on GPUs: eager and captured, small and large batch
  python3 tests/benchmark/data_parallel.py --ranks 2 --modes eager --rows 32 --width 64 --layers 2 --steps 5    anywhere

Figures are milliseconds a step, medians: gradients (zeroing, forward, backward, all-reduce), and whole steps with the
optimizer. README.md beside this file explains them. The exit code is 1 where a program of adtrain failed.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import sys

from programs import Outcome, Runner
from report import figure, table
from training import HERE, on_gpus

COLUMNS = ["mode", "rows a rank", "ranks", "program", "gradients ms", "p99", "step ms", "p99", "loss"]
OURS = {"adtrain, torch::optim::AdamW": ["--optimizer", "torch"], "adtrain, FlatAdamW": ["--optimizer", "flat"]}
PEERS = {"PyTorch, foreach AdamW": [], "PyTorch, fused AdamW": ["--fused"]}


@dataclasses.dataclass
class Line:
    mode: str
    rows: int
    ranks: int
    name: str
    outcome: Outcome

    def cells(self):
        cells = [self.mode, str(self.rows), str(self.ranks), self.name]
        result = self.outcome.result
        if result is None:
            return cells + [self.outcome.reason]
        keys = ("gradients_ms_median", "gradients_ms_p99", "ms_median", "ms_p99")
        return cells + [figure(result[key], "{:.2f}") for key in keys] + [figure(result["loss"], "{:.4f}")]


def measure(options, runner):
    shape = ["--width", options.width, "--layers", options.layers, "--steps", options.steps]
    for mode in options.modes:
        for rows in options.rows:
            for ranks in options.ranks:
                case = [*shape, "--mode", mode, "--batch", rows]
                programs = {name: [options.program, *case, *more] for name, more in OURS.items()}
                for name, more in PEERS.items():
                    programs[name] = [options.python, HERE / "peer_data_parallel.py", *case, *more]
                for name, command in programs.items():
                    command = on_gpus(ranks, options.python, command)
                    yield Line(mode, rows, ranks, name, runner.run(f"{mode}, {rows}, {ranks}: {name}", command, name))


def whole_numbers(text):
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def modes(text):
    found = text.split(",")
    if set(found) - {"eager", "captured"}:
        raise argparse.ArgumentTypeError(f"found {text}; expected eager, captured or both")
    return found


def options_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ranks", type=whole_numbers, default="1", help="as in 1,2; a GPU each where there are so many; default %(default)s")
    add("--modes", type=modes, default="eager,captured", help="default %(default)s")
    add("--rows", type=whole_numbers, default="256,4096", help="of a rank's batch; default %(default)s")
    for name, default in (("width", 768), ("layers", 12), ("steps", 100)):
        add(f"--{name}", type=int, default=default, help="default %(default)s")
    add("--timeout", type=float, default=120, help="seconds for each program; default %(default)s")
    add("--output", type=pathlib.Path, help="a file for all figures, as JSON")
    add("--program", type=pathlib.Path, default=HERE.parent.parent / "build/release/bin/benchmark_data_parallel")
    add("--python", default=sys.executable, help="of torchrun and the peer; default %(default)s")
    return parser.parse_args()


def main():
    options = options_given()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun's, which says so at length
    lines = list(measure(options, Runner(options.timeout)))
    print("\n" + table(COLUMNS, [line.cells() for line in lines], names=4), flush=True)
    if options.output:
        options.output.write_text(json.dumps([dataclasses.asdict(line) for line in lines], indent=1) + "\n")
    return int(any(line.outcome.failed() and line.name in OURS for line in lines))


if __name__ == "__main__":
    sys.exit(main())
