"""How long the evaluation in context takes."""
import dataclasses

from programs import Outcome
from training import HERE, values_of

EVALUATION_EPISODES = 500


@dataclasses.dataclass
class Evaluation:
    """One program's evaluation in context."""
    name: str
    ours: bool
    command: list
    outcome: Outcome
    start_up_seconds: float | None = None
    against_peer: float | None = None  # the peer's seconds after its start-up over ours

    def seconds(self):
        """Of the episodes alone."""
        if self.start_up_seconds is None or self.outcome.result is None:
            return None
        return self.outcome.seconds - self.start_up_seconds


def measure_ours_in_context(options, runner):
    """Start-up is what one episode takes."""
    def command(episodes):
        return [options.adtrain, "evaluate", options.evaluation, "--set", f"eval_episodes={episodes}", "--json"]

    alone = runner.run("evaluation: adtrain, one episode", command(1), "evaluation")
    if alone.result is None:
        return Evaluation("adtrain", True, list(map(str, command(1))), alone)
    whole = runner.run(f"evaluation: adtrain, {EVALUATION_EPISODES} episodes", command(EVALUATION_EPISODES),
                       "evaluation")
    return Evaluation("adtrain", True, list(map(str, command(EVALUATION_EPISODES))), whole, alone.seconds)


def measure_peer_in_context(environments, options, runner):
    values = values_of(options.evaluation / "config.yaml")
    command = [options.python, HERE / "peer_evaluation.py", "--width", values["tf_n_embd"], "--layers",
               values["tf_n_layer"], "--heads", values["tf_n_head"], "--n-transit", values["n_transit"], "--tasks",
               environments, "--episodes", EVALUATION_EPISODES]
    outcome = runner.run("evaluation: PyTorch eager", command, "evaluation by a peer")
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
