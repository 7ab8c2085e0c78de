"""PPO's update in PyTorch with torch.distributions, in double precision: FOLDER

FOLDER/cases.json lists the cases, whose arrays are in FOLDER/NAME as float32. Writes what each update comes to: the first
loss and gradient, the parameters at the end, log-probabilities and entropies of the first minibatch.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributions

folder = Path(sys.argv[1])
torch.set_num_threads(1)


def array(name, *shape):
    return torch.tensor(np.fromfile(folder / name, np.float32).reshape(shape), dtype=torch.float64)


def distribution(case, numbers, log_deviations):
    """Whose log_prob and entropy are of whole actions."""
    if case["kind"] == "box":
        return distributions.Independent(distributions.Normal(numbers, log_deviations.exp()), 1)
    parts = [distributions.Categorical(logits=logits) for logits in numbers.split(case["values"], 1)]

    class Several:
        def log_prob(self, actions):
            return sum(part.log_prob(actions[:, i]) for i, part in enumerate(parts))

        def entropy(self):
            return sum(part.entropy() for part in parts)

    return Several()


def write(name, tensor):
    np.asarray(tensor.detach(), np.float64).tofile(folder / name)


for case in json.loads((folder / "cases.json").read_text()):
    name, features, units, outputs = case["name"], case["features"], case["units"], case["outputs"]
    flat = array(name + ".parameters", -1)
    place, parameters = 0, []

    def take(*shape):
        global place
        size = int(np.prod(shape))
        parameters.append(flat[place:place + size].reshape(shape).clone().requires_grad_(True))
        place += size
        return parameters[-1]

    def network(last):
        return [(take(units, features), take(units)), (take(units, units), take(units)), (take(last, units), take(last))]

    def forward(layers, x):
        for i, (weight, bias) in enumerate(layers):
            x = torch.nn.functional.linear(x, weight, bias)
            x = torch.tanh(x) if i < 2 else x
        return x

    policy = network(outputs)
    log_deviations = take(case["action_size"]) if case["kind"] == "box" else None
    value = network(1)
    count = case["samples"]
    observed, actions = array(name + ".features", count, features), array(name + ".actions", count, case["action_size"])
    old, advantages, targets = (array(f"{name}.{what}", count) for what in ("old", "advantages", "targets"))
    adam = torch.optim.Adam(parameters, lr=case["learning_rate"], eps=1e-5)
    for i, minibatch in enumerate(case["minibatches"]):
        chosen = torch.tensor(minibatch)
        spread = distribution(case, forward(policy, observed[chosen]), log_deviations)
        log_prob, entropy = spread.log_prob(actions[chosen]), spread.entropy()
        advantage = advantages[chosen]
        if len(minibatch) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = torch.exp(log_prob - old[chosen])
        clip = case["clip"]
        policy_loss = -torch.min(advantage * ratio, advantage * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
        value_loss = torch.nn.functional.mse_loss(forward(value, observed[chosen]).squeeze(1), targets[chosen])
        loss = policy_loss - case["entropy"] * entropy.mean() + case["value"] * value_loss
        adam.zero_grad()
        loss.backward()
        if i == 0:
            write(name + ".loss", loss.reshape(1))
            write(name + ".log_prob", log_prob)
            write(name + ".entropy", entropy)
            write(name + ".gradient", torch.cat([parameter.grad.flatten() for parameter in parameters]))
        torch.nn.utils.clip_grad_norm_(parameters, case["max_norm"])
        adam.step()
    write(name + ".end", torch.cat([parameter.flatten() for parameter in parameters]))
