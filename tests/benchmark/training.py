"""Which training is measured: models, scaling, and the command of each program in each case."""
import dataclasses
import pathlib
import re
import sys

from programs import Outcome

HERE = pathlib.Path(__file__).resolve().parent
STRONG_BATCHES = {"guide": [512, 4096], "large": [32], "gpt2": [32]}  # sequences, over all GPUs together
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
    gpt2 = case.model == "gpt2"
    for variant in options.variants:
        yield f"PyTorch {variant}", on_gpus(case.gpus, options.python, [
            options.python, HERE / "peer_training.py", *shape, "--network", "gpt2" if gpt2 else "post-norm", "--variants",
            variant])
    if case.gpus == 1 and not gpt2 and options.jax_python != "none":
        yield "JAX jit-bf16", [options.jax_python, HERE / "peer_training_jax.py", *shape]


@dataclasses.dataclass
class Line:
    """One program in one case."""
    case: Case
    name: str
    place: int  # 0 is adtrain, then come its peers as they were asked for
    command: list
    outcome: Outcome | None = None  # until it has run
    efficiency: float | None = None  # its sequences per second and GPU over those on one GPU in the same series
    against_best_peer: float | None = None  # our sequences per second over those of the fastest peer

    @property
    def ours(self):
        return self.place == 0

    def rate(self):
        return self.outcome.result["sequences_per_second"] if self.outcome and self.outcome.result else None


def planned_training(options):
    """All lines of the table, in its order."""
    lines = []
    for case in cases(options):
        commands = [("adtrain", our_command(case, options)), *(peer_commands(case, options) if options.peers else [])]
        lines += [Line(case, name, place, list(map(str, command))) for place, (name, command) in enumerate(commands)]
    return lines


def importance(line, gpus):
    """Sorts what runs first, as time may not suffice for all: the ends of weak scaling with the first peer; then
    adtrain and peer by peer, weak before strong scaling, one GPU and the most of them before what lies between."""
    strong, between = line.case.series != "weak", min(gpus) < line.case.gpus < max(gpus)
    at_last = strong or between or line.place > 1
    return at_last, line.place, strong, between


def measure_training(lines, options, runner):
    for line in sorted(lines, key=lambda line: importance(line, options.gpus)):
        title = f"{line.case.text()}: {line.name}"
        line.outcome = runner.run(title, line.command, kind=(line.case.model, line.name))


def compare(lines):
    """Sets what one line says of another: efficiency where one GPU was measured too, ours against the best peer."""
    alone = {(line.name, line.case.model, line.case.series): line.rate() for line in lines if line.case.gpus == 1}
    for line in lines:
        rate, rate_alone = line.rate(), alone.get((line.name, line.case.model, line.case.series))
        if rate and rate_alone:
            line.efficiency = rate / (line.case.gpus * rate_alone)
        peers = [peer.rate() for peer in lines if peer.case == line.case and not peer.ours and peer.rate()]
        if line.ours and rate and peers:
            line.against_best_peer = rate / max(peers)
