"""Which training is measured: models, scaling, and the command of each program in each case."""
import dataclasses
import pathlib
import re
import sys

from programs import Outcome

HERE = pathlib.Path(__file__).resolve().parent
STRONG_BATCHES = {"guide": [512, 4096], "large": [32]}  # sequences, over all GPUs together
TORCH_VARIANTS = ["eager-bf16", "compiled-bf16", "graphs-bf16"]


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


def measure_training(options, runner):
    """Lines as they come; `efficiency` is there where one GPU was measured before."""
    alone = {}
    for case in cases(options):
        for line in measure_case(case, options, runner):
            key = (line.name, case.model, case.series)
            if case.gpus == 1:
                alone[key] = line.rate()
            if line.rate() and alone.get(key):
                line.efficiency = line.rate() / (case.gpus * alone[key])
            yield line
