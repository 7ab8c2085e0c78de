"""Times adtrain against its peers on the GPUs of this machine, side by side, and prints a table.

  python3 tests/benchmark/benchmark.py                               both models, one GPU
  python3 tests/benchmark/benchmark.py --gpus 1,2,4 --output bench   weak and strong scaling; bench/results.json
  python3 tests/benchmark/benchmark.py --models guide --no-peers
  python3 tests/benchmark/benchmark.py --models none --evaluation runs/quickstart

README.md beside this file explains the figures. The exit code is 1 where a program of adtrain failed.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROJECT_PYTHON = ROOT / ".deps/venv/bin/python"  # where launch/setup.sh puts PyTorch, if the system has none
STRONG_BATCHES = {"guide": [512, 4096], "large": [32]}  # sequences, over all GPUs together
TORCH_VARIANTS = ["eager-bf16", "compiled-bf16", "graphs-bf16"]
EVALUATION_EPISODES = 500
SECONDS_TO_END = 5  # between asking a program to end and killing it


# --- programs -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    """What became of a program: the JSON that it printed, or the reason why there is none."""
    seconds: float  # by the wall clock, start-up included
    result: dict | None = None
    reason: str | None = None


def children_of(pid):
    """All processes below this one. Ranks under torchrun have process groups of their own."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, unvisited = [], [pid]
    while unvisited:
        below = children.get(unvisited.pop(), [])
        found += below
        unvisited += below
    return found


def end(process):
    """Ends the program with all that it has started."""
    below = children_of(process.pid)
    os.killpg(process.pid, signal.SIGTERM)  # torchrun passes it on
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        pass
    for kill, pid in [(os.killpg, process.pid)] + [(os.kill, pid) for pid in below]:
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def last_json(text):
    """The last line that is a JSON object, or the whole text as one."""
    for candidate in [*reversed(text.splitlines()), text]:
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def reason_in(errors):
    """The last line in which one of our programs says why it failed, else the last one before torchrun's own report."""
    noise = ("torch/distributed/run.py", "OMP_NUM_THREADS")  # torchrun's advice
    lines = [line.strip() for line in errors.splitlines()
             if re.search(r"\w", line) and not any(word in line for word in noise)]
    own = [line for line in lines if re.match(r"(adtrain|peer_\w+): ", line)]
    report = next((i for i, line in enumerate(lines) if "torch/distributed/elastic" in line), len(lines))
    said = own[-1:] or lines[:report][-1:] or lines[report:][:1] or ["no word on standard error"]
    return said[0]


def run(command, timeout):
    environment = os.environ | {"NCCL_NVLS_ENABLE": "0"}
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                       env=environment, start_new_session=True)
        except OSError as error:
            return Outcome(0.0, reason=f"{command[0]}: {error.strerror}")
        reason = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            reason = f"not done after {timeout:g} s (--timeout)"
        finally:
            if process.returncode is None:
                end(process)
        seconds = time.monotonic() - begin
        output.seek(0)
        errors.seek(0)
        if reason is None and code != 0:
            reason = f"exit code {code}: {reason_in(errors.read())}"
        result = None if reason else last_json(output.read())
        if reason is None and result is None:
            reason = "it ended well but printed no JSON"
        return Outcome(seconds, result, reason)


class Runner:
    """Runs each command once: a case that belongs to two series is not measured twice."""

    def __init__(self, timeout):
        self.timeout = timeout
        self.outcomes = {}

    def run(self, title, command):
        command = tuple(map(str, command))
        if command not in self.outcomes:
            print(f"  {title} …", end=" ", file=sys.stderr, flush=True)
            self.outcomes[command] = run(command, self.timeout)
            outcome = self.outcomes[command]
            print(outcome.reason or f"{outcome.seconds:.0f} s", file=sys.stderr, flush=True)
        return self.outcomes[command]


# --- training -------------------------------------------------------------------------------------


def values_of(config):
    """The plain `key: value` lines of a configuration file, as text."""
    lines = re.findall(r"^(\w+): *([^#\s]+)", config.read_text(), re.MULTILINE)
    return dict(lines)


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    series: str  # "weak", or "strong 4096": with the batch of all GPUs together
    gpus: int
    global_batch: int  # sequences

    def text(self):
        return f"{self.model}, {self.series}, {self.gpus} GPU{'s' if self.gpus > 1 else ''}"


def divides(gpus, batch):
    if batch % gpus:
        print(f"  left out: {batch} sequences do not divide over {gpus} GPUs", file=sys.stderr)
    return batch % gpus == 0


def cases(options):
    for model in options.models:
        batch_a_gpu = int(values_of(HERE / f"{model}.yaml")["train_batch_size"])
        if "weak" in options.scaling:
            yield from (Case(model, "weak", gpus, gpus * batch_a_gpu) for gpus in options.gpus)
        if "strong" in options.scaling:
            for batch in STRONG_BATCHES[model]:
                yield from (Case(model, f"strong {batch}", gpus, batch)
                            for gpus in options.gpus if divides(gpus, batch))


def on_gpus(gpus, python, command):
    """The command as so many ranks. `-m torch.distributed.run` is torchrun."""
    if gpus == 1:
        return command
    return [python, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", gpus, *command]


def our_command(case, options):
    return on_gpus(case.gpus, options.python, [
        options.program, HERE / f"{case.model}.yaml", "--set", f"global_batch_size={case.global_batch}", "--steps",
        options.steps])


def peer_commands(case, options):
    """(name, command) of every peer that can run this case."""
    values = values_of(HERE / f"{case.model}.yaml")
    shape = ["--width", values["tf_n_embd"], "--layers", values["tf_n_layer"], "--heads", values["tf_n_head"],
             "--n-transit", values["n_transit"], "--dropout", values["tf_dropout"], "--batch",
             case.global_batch // case.gpus, "--steps", options.steps]
    for variant in options.variants:
        yield f"PyTorch {variant}", on_gpus(case.gpus, options.python, [
            options.python, HERE / "peer_training.py", *shape, "--variants", variant])
    if case.gpus == 1:
        yield "JAX jit-bf16", [options.jax_python, HERE / "peer_training_jax.py", *shape]


@dataclasses.dataclass
class Line:
    """One program in one case."""
    case: Case
    name: str
    ours: bool
    command: list
    outcome: Outcome
    efficiency: float | None = None  # its sequences per second and GPU over those on one GPU in the same series
    against_best_peer: float | None = None  # our sequences per second over those of the fastest peer

    def rate(self):
        return self.outcome.result["sequences_per_second"] if self.outcome.result else None


def measure_case(case, options, runner):
    commands = [("adtrain", our_command(case, options))]
    if options.peers:
        commands += peer_commands(case, options)
    lines = [Line(case, name, name == "adtrain", list(map(str, command)), runner.run(f"{case.text()}: {name}", command))
             for name, command in commands]
    rates = [line.rate() for line in lines if not line.ours and line.rate()]
    if rates and lines[0].rate():
        lines[0].against_best_peer = lines[0].rate() / max(rates)
    return lines


def compare_with_one_gpu(lines):
    alone = {(line.name, line.case.model, line.case.series): line.rate() for line in lines if line.case.gpus == 1}
    for line in lines:
        rate_alone = alone.get((line.name, line.case.model, line.case.series))
        if line.rate() and rate_alone:
            line.efficiency = line.rate() / (line.case.gpus * rate_alone)


def figure(value, pattern, scale=1):
    return "" if value is None else pattern.format(scale * value)


TRAINING_COLUMNS = ["model", "series", "GPUs", "batch", "program", "ms a step", "p99 ms", "seq/s", "seq/s a GPU",
                    "efficiency", "MFU", "exposed", "data wait", "GiB", "vs best peer"]


def training_row(line):
    case = line.case
    row = [case.model, case.series, str(case.gpus), str(case.global_batch), line.name]
    result = line.outcome.result
    if result is None:
        return row + [line.outcome.reason]

    def share(key):
        return figure(result.get(key), "{:.1f}%", 100)

    return row + [
        figure(result["ms_median"], "{:.2f}"), figure(result["ms_p99"], "{:.2f}"),
        figure(result["sequences_per_second"], "{:.0f}"), figure(result["sequences_per_second_per_gpu"], "{:.0f}"),
        figure(line.efficiency, "{:.1f}%", 100), share("mfu"), share("exposed_communication_share"),
        share("data_wait_share"), figure(result["peak_memory_gib"], "{:.2f}"),
        figure(line.against_best_peer, "{:.2f}x")]


def measure_training(options, runner):
    lines = [line for case in cases(options) for line in measure_case(case, options, runner)]
    compare_with_one_gpu(lines)
    return lines


# --- evaluation -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Evaluation:
    """One program's evaluation in context."""
    name: str
    ours: bool
    command: list
    outcome: Outcome
    start_up_seconds: float | None = None
    against_peer: float | None = None  # the peer's seconds behind its start-up over ours

    def seconds(self):
        """Of the episodes alone."""
        if self.start_up_seconds is None or self.outcome.result is None:
            return None
        return self.outcome.seconds - self.start_up_seconds


def measure_ours_in_context(options, runner):
    """Start-up is what one episode takes."""
    def command(episodes):
        return [options.adtrain, "evaluate", options.evaluation, "--set", f"eval_episodes={episodes}", "--json"]

    alone = runner.run("evaluation: adtrain, one episode", command(1))
    if alone.result is None:
        return Evaluation("adtrain", True, list(map(str, command(1))), alone)
    whole = runner.run(f"evaluation: adtrain, {EVALUATION_EPISODES} episodes", command(EVALUATION_EPISODES))
    return Evaluation("adtrain", True, list(map(str, command(EVALUATION_EPISODES))), whole, alone.seconds)


def measure_peer_in_context(environments, options, runner):
    values = values_of(options.evaluation / "config.yaml")
    command = [options.python, HERE / "peer_evaluation.py", "--width", values["tf_n_embd"], "--layers",
               values["tf_n_layer"], "--heads", values["tf_n_head"], "--n-transit", values["n_transit"], "--tasks",
               environments, "--episodes", EVALUATION_EPISODES]
    outcome = runner.run("evaluation: PyTorch eager", command)
    start_up = outcome.seconds - outcome.result["seconds"] if outcome.result else None
    return Evaluation("PyTorch eager", False, list(map(str, command)), outcome, start_up)


def environments_of(result):
    """How many the evaluation runs in lock-step."""
    return len(result["tasks"]) * result["repeats"]


def measure_evaluation(options, runner):
    if options.evaluation is None:
        return []
    ours = measure_ours_in_context(options, runner)
    if not options.peers or ours.outcome.result is None:
        return [ours]
    peer = measure_peer_in_context(environments_of(ours.outcome.result), options, runner)
    if peer.seconds():
        ours.against_peer = peer.seconds() / ours.seconds()
    return [ours, peer]


EVALUATION_COLUMNS = ["evaluation", "s with start-up", "start-up s", "s", "ms an episode", "vs peer"]


def evaluation_row(evaluation):
    if evaluation.outcome.result is None:
        return [evaluation.name, evaluation.outcome.reason]
    return [evaluation.name, figure(evaluation.outcome.seconds, "{:.2f}"),
            figure(evaluation.start_up_seconds, "{:.2f}"), figure(evaluation.seconds(), "{:.2f}"),
            figure(evaluation.seconds(), "{:.3f}", 1e3 / EVALUATION_EPISODES),
            figure(evaluation.against_peer, "{:.2f}x")]


# --- the report -----------------------------------------------------------------------------------


def table(columns, rows, names):
    """Aligned text; the first `names` columns hold names and stand left. A row that is shorter ends with a reason."""
    whole = [columns] + [row for row in rows if len(row) == len(columns)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(columns))]
    for row in rows:
        widths[:names] = [max(width, len(cell)) for width, cell in zip(widths, row[:names])]

    def text(row):
        cells = [cell.ljust(width) if i < names or len(row) < len(columns) else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        return "  ".join(cells).rstrip()

    return "\n".join(map(text, [columns, *rows]))


def gpus_here():
    """Name and driver of each GPU, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = said.stdout.splitlines() if said.returncode == 0 else []
    return [dict(zip(("name", "driver"), line.split(", "))) for line in lines]


def write_results(options, gpus, lines):
    options.output.mkdir(parents=True, exist_ok=True)
    results = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "gpus": gpus,
               "command": shlex.join([pathlib.Path(sys.executable).name, *sys.argv]),
               "lines": [dataclasses.asdict(line) for line in lines]}
    path = options.output / "results.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


# --- the command line -----------------------------------------------------------------------------


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
    training = measure_training(options, runner)
    evaluation = measure_evaluation(options, runner)
    names = sorted({f"{gpu['name']}, driver {gpu['driver']}" for gpu in gpus})
    print(f"\n{len(gpus)} GPUs: {'; '.join(names)}" if gpus else "\nnvidia-smi shows no GPU")
    if training:
        print("\n" + table(TRAINING_COLUMNS, list(map(training_row, training)), names=5))
    if evaluation:
        print("\n" + table(EVALUATION_COLUMNS, list(map(evaluation_row, evaluation)), names=1))
    print(f"\nall figures: {write_results(options, gpus, training + evaluation)}")
    return 1 if any(line.ours and line.outcome.result is None for line in training + evaluation) else 0


if __name__ == "__main__":
    sys.exit(main())
