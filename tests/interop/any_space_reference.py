"""Recomputes in Python what the C++ networks over tasks of any space give: predictions, loss and all gradients.

  python any_space_reference.py MODEL_DUMP_PROGRAM

Written for plain reading, in float64: one prefix of one row at a time, a step at a time. Blocks are model_reference.py's.
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

from model_reference import ComposedBlock, compare, dumped, norm_of, settings_of


class Kinks:
    """How near to 0 the inputs of ReLUs came, where slopes jump. Of one nearer than `NEAR` fp32 and float64 may find
    another sign, and so another gradient."""
    NEAR = 1e-6
    nearest = math.inf

    @classmethod
    def see(cls, x):
        sizes = x.detach().abs()
        cls.nearest = min(cls.nearest, torch.where(sizes > 0, sizes, math.inf).min().item())
        return x


def relu(x):
    return F.relu(Kinks.see(x))


def leaky_relu(x):
    return F.leaky_relu(Kinks.see(x))


def shape_of(space):
    if space["type"] == "Discrete":
        return []
    nested, shape = space.get("nvec"), []
    while isinstance(nested, list):
        shape.append(len(nested))
        nested = nested[0]
    return space.get("shape", shape)


def flat(nested):
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [nested]


def values_and_starts(space):
    """Of each number, in C order."""
    if space["type"] == "Discrete":
        return [space["n"]], [space["start"]]
    values = flat(space["nvec"])
    return values, flat(space.get("start", [0] * len(values)))


def cells_of(space, packed):
    """The array of cells' shape, and how many values each digit of a cell may take."""
    shape, (values, _) = shape_of(space), values_and_starts(space)
    if packed:
        return shape, packed
    if not shape:
        return [], values
    if len(shape) == 2 and len(set(values)) == 1:
        return shape, values[:1]
    return shape[:-1], [max(values[i::shape[-1]]) for i in range(shape[-1])]


def vintix_mlp(numbers, features):
    return nn.ModuleDict({"linear_1": nn.Linear(numbers, features), "norm_1": nn.LayerNorm(features),
                          "linear_2": nn.Linear(features, features), "norm_2": nn.LayerNorm(features)})


def through_mlp(part, x):
    for i in "12":
        x = part["norm_" + i](leaky_relu(part["linear_" + i](x)))
    return x


class Observation(nn.ModuleDict):
    def __init__(self, space, packed, chosen, block, features):
        super().__init__()
        self.is_box = space["type"] == "Box"
        if self.is_box:
            self.kind = ("mlp" if block == "vintix" else "linear") if chosen == "auto" else chosen
            numbers = math.prod(shape_of(space))
            self.update(vintix_mlp(numbers, features) if self.kind == "mlp" else {"linear": nn.Linear(numbers, features)})
            return
        self.shape, self.digits = cells_of(space, packed)
        self.packed, self.starts = packed, torch.tensor(values_and_starts(space)[1]).view(shape_of(space))
        grid = len(self.shape) == 2 and min(self.shape) >= 4
        self.kind = ("convolution" if block == "xland" and grid else "embedding") if chosen == "auto" else chosen
        count = math.prod(self.shape) * len(self.digits)
        each = features if count == 1 else 64
        for i, values in enumerate(self.digits):
            spare = 1 if self.kind == "convolution" and i == 0 else 0  # a row that no tile of the published data has
            self[f"embed_{i + 1}"] = nn.Embedding(values + spare, each)
        if self.kind == "convolution":
            for i, channels in enumerate([64 * len(self.digits), 32, 32]):
                self[f"convolution_{i + 1}"] = nn.Conv2d(channels, 32, 2)
            self["linear"] = nn.Linear(32 * (self.shape[0] - 3) * (self.shape[1] - 3), features)
        elif count > 1:
            self["linear"] = nn.Linear(64 * count, features)

    def digits_of_cell(self, number):
        """The numbers of a cell, and those that are packed in them."""
        if not self.packed:
            return number.reshape(-1).tolist()
        rest, digits = int(number), []
        for values in reversed(self.packed):
            rest, digit = divmod(rest, values)
            digits.append(digit)
        return digits[::-1]

    def forward(self, observation):
        if self.is_box:
            x = observation.double().flatten()
            return through_mlp(self, x) if self.kind == "mlp" else self["linear"](x)
        numbers = (observation - self.starts).reshape([math.prod(self.shape), -1])
        cells = [torch.cat([self[f"embed_{i + 1}"].weight[digit] for i, digit in enumerate(self.digits_of_cell(cell))])
                 for cell in numbers]
        x = torch.stack(cells)
        if self.kind == "convolution":
            x = x.view(*self.shape, -1).permute(2, 0, 1)
            for i in "123":
                x = relu(self["convolution_" + i](x))
        return self["linear"](x.flatten()) if "linear" in self else x.flatten()


class Action(nn.ModuleDict):
    def __init__(self, space, block, features):
        super().__init__()
        self.is_box, self.vintix = space["type"] == "Box", block == "vintix"
        if self.is_box:
            numbers = math.prod(shape_of(space))
            self.update(vintix_mlp(numbers, features) if self.vintix else {"linear": nn.Linear(numbers, features)})
            return
        values, self.starts = values_and_starts(space)
        for i, count in enumerate(values):
            self[f"embed_{i + 1}"] = nn.Embedding(count, features)
        if self.vintix:
            self["linear"] = nn.Linear(features, features)

    def forward(self, action):
        if self.is_box:
            x = action.double().flatten()
            return through_mlp(self, x) if self.vintix else self["linear"](x)
        numbers = action.flatten().tolist()
        x = sum(self[f"embed_{i + 1}"].weight[number - start]
                for i, (number, start) in enumerate(zip(numbers, self.starts)))
        return leaky_relu(self["linear"](x)) if self.vintix else x


class Group(nn.Module):
    """What tasks of equal spaces have of their own: encoders, learned first steps and a head."""

    def __init__(self, o, spaces):
        super().__init__()
        s, self.space = o["settings"], spaces["action"]
        width, block = o["width"], s["transformer_block"]
        self.vintix = block == "vintix"
        features, of_reward = features_of(o)
        self.observation = Observation(spaces["observation"], spaces["packed_digits"], s["observation_encoder"], block, features)
        self.action = Action(self.space, block, features)
        if s["first_step"] == "learned":
            self.first_action = nn.Parameter(torch.zeros(features))
            self.first_reward = nn.Parameter(torch.zeros(of_reward))
        self.gaussian = s["action_head"] == "gaussian"
        if self.space["type"] == "Box":
            outputs = math.prod(shape_of(self.space)) * (2 if self.gaussian else 1)
        else:
            self.values, self.starts = values_and_starts(self.space)
            outputs = sum(self.values)
        if self.vintix:
            hidden = {f"hidden_{i}": nn.Linear(width, width) for i in (1, 2, 3)}
            self.pred_action = nn.ModuleDict(hidden | {"out": nn.Linear(width, outputs)})
        else:
            self.pred_action = nn.Linear(width, outputs)

    def head(self, x):
        if not self.vintix:
            return self.bounded(self.pred_action(x))
        for i in (1, 2, 3):
            x = leaky_relu(self.pred_action[f"hidden_{i}"](x))
        return self.bounded(self.pred_action["out"](x))

    def bounded(self, outputs):
        """Of a Gaussian head, logarithms of standard deviations between -5 and 5."""
        if not self.gaussian:
            return outputs
        mean, raw = outputs.chunk(2)
        return torch.cat([mean, 5 * (raw / 5).tanh()])

    def loss(self, prediction, action, label_smoothing):
        if self.gaussian:
            mean, logarithm = prediction.chunk(2)
            return -torch.distributions.Normal(mean, logarithm.exp()).log_prob(action.double().flatten()).sum()
        if self.space["type"] == "Box":
            return F.mse_loss(prediction, action.double().flatten())
        parts = zip(prediction.split(self.values), action.flatten().tolist(), self.starts)
        return sum(F.cross_entropy(logits, torch.tensor(number - start), label_smoothing=label_smoothing)
                   for logits, number, start in parts)


def features_of(o):
    """Of an observation and an action, and of a reward."""
    return ((o["width"] - 2) // 2, 2) if o["settings"]["transformer_block"] == "vintix" else (64, 1)


class AnySpace(nn.Module):
    """One or several groups; what is not of a group is shared."""

    def __init__(self, o, groups):
        super().__init__()
        s = self.settings = o["settings"]
        width = o["width"]
        self.vintix = s["transformer_block"] == "vintix"
        features, of_reward = features_of(o)
        self.groups = nn.ModuleDict({spaces["group"] or "only": Group(o, spaces) for spaces in groups})
        self.single = len(groups) == 1
        if self.vintix:
            self.reward = nn.ModuleDict({"linear": nn.Linear(1, 2)})
        else:
            self.embed_token = nn.Linear(2 * features + of_reward, width)
        if s["tf_positions"] == "learned":
            self.embed_position = nn.Embedding(o["n_transit"], width)
        self.blocks = nn.ModuleList([ComposedBlock(o, s) for _ in range(o["layers"])])
        if s["tf_final_norm"] == "on":
            self.final_norm = norm_of(s["tf_norm"], width)

    def name_here(self, name):
        """A single group's parameters have no prefix in the program."""
        of_group = name.split(".")[0] in ("observation", "action", "first_action", "first_reward", "pred_action")
        return f"groups.only.{name}" if self.single and of_group else name

    def token(self, group, row, t):
        observation = row["states"][t]
        if "state_mean" in row:
            observation = (observation.double() - row["state_mean"].double()) / row["state_deviation"].double()
        action = group.action(row["actions"][t - 1] if t > 0 else row["before_action"])
        reward = (row["rewards"][t - 1] if t > 0 else row["before_reward"]).double().view(1)
        if self.vintix:
            reward = leaky_relu(self.reward["linear"](reward))
        if self.settings["first_step"] == "learned" and row["begins"][t]:
            action, reward = group.first_action, group.first_reward
        observation = group.observation(observation)
        if self.vintix:
            return torch.cat([observation, action, reward])
        return self.embed_token(torch.cat([action, reward, observation]))

    def forward(self, group, row, length):
        """The prediction at the last of the first `length` steps of a row of this group."""
        x = torch.stack([self.token(group, row, t) for t in range(length)])
        if self.settings["tf_positions"] == "learned":
            x = x + self.embed_position.weight[:length]
        for block in self.blocks:
            x = block(x)
        x = x[-1]
        if self.settings["tf_final_norm"] == "on":
            x = self.final_norm(x)
        return group.head(x)


def check(name, section, read):
    section = section | {"settings": settings_of(section)}
    model = AnySpace(section, section["spaces"]).double()
    model.load_state_dict({model.name_here(key): read(entry).double() for key, entry in section["parameters"].items()},
                          strict=True)
    for positions in ("last", "all"):
        found, targets = section[positions], 0
        loss = torch.zeros((), dtype=torch.float64)
        parts = found.get("parts", [found])
        assert len(parts) == len(section["spaces"])
        for part in parts:
            group, predictions = list(model.groups.values())[part["group"]], []
            batch = {key: read(entry) for key, entry in part["batch"].items()}
            rows, steps = batch["rewards"].shape
            for i in range(rows):
                row = {key: values[i] for key, values in batch.items()}
                for t in range(0 if positions == "all" else steps - 1, steps):
                    predictions.append(model(group, row, t + 1))
                    loss = loss + group.loss(predictions[-1], row["actions"][t], section["label_smoothing"])
            targets += len(predictions)
            compare(f"{name}, {positions}, group {part['group']}: actions", read(part["actions"]).flatten(0, 1),
                    torch.stack(predictions))
        model.zero_grad()
        loss.backward()
        parameters = dict(model.named_parameters())
        gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                              for p in (parameters[model.name_here(key)] for key in section["order"])])
        assert found["targets"] == targets
        compare(f"{name}, {positions}: loss", read(found["loss"]), loss, least_scale=targets)
        compare(f"{name}, {positions}: gradients", read(found["gradient"]), gradient)


def main():
    torch.set_num_threads(1)
    index, read = dumped(sys.argv[1])
    of_any_space = {name: section for name, section in index.items() if "spaces" in section}
    assert of_any_space
    assert any(len(section["spaces"]) > 1 for section in of_any_space.values())
    for name, section in of_any_space.items():
        for left in (2, 1, 0):
            Kinks.nearest = math.inf
            try:
                check(name, section, read)
                break
            except SystemExit:
                if left == 0 or Kinks.nearest > Kinks.NEAR:
                    raise
            print(f"{name}: a ReLU read {Kinks.nearest:.1e}, so near to 0 that gradients may differ; with new numbers again")
            index, read = dumped(sys.argv[1])
            section = index[name]


if __name__ == "__main__":
    main()
