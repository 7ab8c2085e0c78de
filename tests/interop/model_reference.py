"""Recomputes in Python what the C++ models give: logits, loss and all gradients, for every variant.

  python model_reference.py MODEL_DUMP_PROGRAM

The modules below have the parameter names of the Python projects' checkpoints and load the C++ parameters strictly. They
are written for plain reading, in float64, and take one prefix of one history at a time: no batches, no padding, no masks
but the causal one. Loss at all positions is the sum over separate prefixes.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F
from torch import nn

GRID, ACTIONS, FEATURES, TOLERANCE = 9, 5, 10, 1e-5


def features(h):
    one_hot = F.one_hot(h["actions"].long(), ACTIONS).double()
    return torch.cat([h["states"].double(), one_hot, h["rewards"].double()[:, None], h["next_states"].double()], -1)


def state_index(state):
    return (state[..., 0] * GRID + state[..., 1]).long()


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight


class PreNormBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)
        self.attn = nn.ModuleDict({"attn": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        swiglu = {"w1": linear(width, 4 * width), "w2": linear(width, 4 * width), "w3": linear(4 * width, width)}
        self.mlp = nn.ModuleDict({"swiglu": nn.ModuleDict(swiglu)})

    def rotate(self, x):  # (tokens, size): element i turns with element i + size / 2
        tokens, size = x.shape
        turned = x.clone()
        for i in range(size // 2):
            angle = torch.arange(tokens) * 10000.0 ** (-2 * i / size)
            a, b = x[:, i], x[:, i + size // 2]
            turned[:, i] = a * angle.cos() - b * angle.sin()
            turned[:, i + size // 2] = b * angle.cos() + a * angle.sin()
        return turned

    def forward(self, x):
        tokens, width = x.shape
        size = width // self.heads
        fused = self.attn["attn"](self.norm_1(x))
        out = []
        for head in range(self.heads):
            q, k, v = fused[:, 3 * size * head:3 * size * (head + 1)].split(size, -1)
            scores = self.rotate(q) @ self.rotate(k).T / math.sqrt(size)
            hidden = torch.ones(tokens, tokens).triu(1).bool()
            out.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v)
        x = x + self.attn["proj"](torch.cat(out, -1))
        w = self.mlp["swiglu"]
        h = self.norm_2(x)
        return x + w["w3"](F.silu(w["w1"](h)) * w["w2"](h))


class PreNorm(nn.Module):
    def __init__(self, o):
        super().__init__()
        blocks = [PreNormBlock(o["width"], o["heads"]) for _ in range(o["layers"])]
        self.transformer = nn.ModuleDict({"blocks": nn.ModuleList(blocks)})
        self.embed_context = nn.Linear(FEATURES, o["width"])
        self.embed_query_state = nn.Embedding(GRID * GRID, o["width"])
        self.pred_action = nn.Linear(o["width"], ACTIONS)

    def forward(self, history, state):
        x = torch.cat([self.embed_context(features(history)), self.embed_query_state(state_index(state))[None]])
        for block in self.transformer["blocks"]:
            x = block(x)
        return self.pred_action(x[-1]), None


class PostNorm(nn.Module):
    def __init__(self, o):
        super().__init__()
        width = o["width"]
        layer = nn.TransformerEncoderLayer(width, o["heads"], 4 * width, 0.0, "gelu", batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, o["layers"])
        self.pos_embedding = nn.Parameter(torch.zeros(1, o["n_transit"], width))
        self.compress_start_token = nn.Parameter(torch.zeros(1, 1, width))
        self.compress_end_token = nn.Parameter(torch.zeros(1, 1, width))
        self.token_type_embedding = nn.Embedding(3, width)
        self.embed_context = nn.Linear(FEATURES, width)
        self.embed_query_state = nn.Embedding(GRID * GRID, width)
        self.pred_action = nn.Linear(width, ACTIONS)
        self.pred_token_type = nn.Linear(width, 3)

    def transitions(self, history):
        return self.embed_context(features(history)) + self.token_type_embedding.weight[0]

    def last(self, tokens, state):
        x = torch.cat(tokens + [self.embed_query_state(state_index(state))[None]])
        x = x[None] + self.pos_embedding[:, :len(x)]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        return self.transformer_encoder(x, mask=mask, is_causal=True)[0, -1]

    def forward(self, history, state):
        return self.pred_action(self.last([self.transitions(history)], state)), None


class Compressed(PostNorm):
    def forward(self, regions, state):
        """`regions`: histories of the region before, where there is one, and of the query's region."""
        start = self.compress_start_token[0] + self.token_type_embedding.weight[1]
        end = self.compress_end_token[0] + self.token_type_embedding.weight[2]
        *before, current = regions
        tokens = []
        for region in before:
            tokens += [start, self.transitions(region), end]
        read = self.last(tokens + [start, self.transitions(current)], state)
        return self.pred_action(read), self.pred_token_type(read)


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        tokens, width = x.shape
        heads = lambda y: y.view(tokens, self.heads, width // self.heads).transpose(0, 1)
        q, k, v = (heads(y) for y in self.attn["c_attn"](self.ln_1(x)).split(width, -1))
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](read.transpose(0, 1).reshape(tokens, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, o):
        super().__init__()
        width = o["width"]
        self.embed_state = nn.Embedding(GRID * GRID, width)
        self.embed_action = nn.Embedding(ACTIONS, width)
        self.embed_reward = nn.Linear(1, width)
        blocks = nn.ModuleList([Gpt2Block(width, o["heads"]) for _ in range(o["layers"])])
        positions = nn.Embedding(3 * (o["n_transit"] - 1) + 1, width)
        self.transformer = nn.ModuleDict({"wpe": positions, "h": blocks, "ln_f": nn.LayerNorm(width)})
        self.pred_action = nn.Linear(width, ACTIONS)

    def forward(self, history, state):
        tokens = []
        for s, a, r in zip(history["states"], history["actions"].long(), history["rewards"].double()):
            tokens += [self.embed_state(state_index(s)), self.embed_action(a), self.embed_reward(r[None])]
        x = torch.stack(tokens + [self.embed_state(state_index(state))])
        x = x + self.transformer["wpe"].weight[:len(x)]
        for block in self.transformer["h"]:
            x = block(x)
        return self.pred_action(self.transformer["ln_f"](x)[-1]), None


def norm_of(kind, width):
    return {"rms": RmsNorm, "layer": nn.LayerNorm}[kind](width)


class ComposedBlock(nn.Module):
    def __init__(self, o, s):
        super().__init__()
        width, norm = o["width"], s["tf_norm"]
        inner = s["tf_n_inner"] or 4 * width
        self.heads, self.kind = o["heads"], s["tf_positions"]
        in_attention, in_mlp = s["tf_bias"] != "none", s["tf_bias"] == "all"
        self.norm_1, self.norm_2 = norm_of(norm, width), norm_of(norm, width)
        self.attention = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width, bias=in_attention),
                                        "out": nn.Linear(width, width, bias=in_attention)})
        if s["tf_qk_norm"] == "on":
            for name in ("query_norm", "key_norm"):
                self.attention[name] = norm_of(norm, width // self.heads)
        self.mlp = nn.ModuleDict({"up": nn.Linear(width, inner, bias=in_mlp), "down": nn.Linear(inner, width, bias=in_mlp)})
        if s["tf_mlp"] == "swiglu":
            self.mlp["gate"] = nn.Linear(width, inner, bias=in_mlp)

    def read(self, head, q, k, v):
        if "query_norm" in self.attention:
            q, k = self.attention["query_norm"](q), self.attention["key_norm"](k)
        if self.kind == "rotary":
            q, k = PreNormBlock.rotate(None, q), PreNormBlock.rotate(None, k)
        out = []
        for i in range(len(q)):
            scores = k[:i + 1] @ q[i] / math.sqrt(q.shape[-1])
            if self.kind == "alibi":
                distance = i - torch.arange(i + 1)
                scores = scores - 2.0 ** (-8 * (head + 1) / self.heads) * distance
            out.append(scores.softmax(0) @ v[:i + 1])
        return torch.stack(out)

    def forward(self, x):
        size = x.shape[-1] // self.heads
        q, k, v = self.attention["qkv"](self.norm_1(x)).chunk(3, -1)
        part = lambda y, head: y[:, size * head:size * (head + 1)]
        heads = [self.read(head, part(q, head), part(k, head), part(v, head)) for head in range(self.heads)]
        x = x + self.attention["out"](torch.cat(heads, -1))
        h = self.norm_2(x)
        up = self.mlp["up"](h)
        return x + self.mlp["down"](F.silu(self.mlp["gate"](h)) * up if "gate" in self.mlp else F.gelu(up))


class Composed(nn.Module):
    """Of the pieces and tokens that the settings name."""

    def __init__(self, o):
        super().__init__()
        s = self.settings = o["settings"]
        width = o["width"]
        if s["token_layout"] == "previous":
            self.embed_coordinate, self.embed_action = nn.Embedding(2 * GRID, 64), nn.Embedding(ACTIONS, 64)
            self.embed_state, self.embed_token = nn.Linear(128, 64), nn.Linear(129, width)
            if s["first_step"] == "learned":
                self.first_action, self.first_reward = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(1))
        else:
            self.embed_context = nn.Linear(FEATURES, width)
            self.embed_query_state = nn.Embedding(GRID * GRID, width)
        if s["tf_positions"] == "learned":
            self.embed_position = nn.Embedding(o["n_transit"], width)
        self.blocks = nn.ModuleList([ComposedBlock(o, s) for _ in range(o["layers"])])
        if s["tf_final_norm"] == "on":
            self.final_norm = norm_of(s["tf_norm"], width)
        self.pred_action = nn.Linear(width, ACTIONS)

    def previous_tokens(self, history, state):
        """A token for each state: what was done and earned before it, and the state."""
        tokens = []
        action, reward = self.embed_action.weight[0], torch.zeros(1).double()
        if self.settings["first_step"] == "learned":
            action, reward = self.first_action, self.first_reward
        for i, (x, y) in enumerate([*history["states"].tolist(), state.tolist()]):
            if i > 0:
                action = self.embed_action.weight[int(history["actions"][i - 1])]
                reward = history["rewards"][i - 1:i].double()
            at = self.embed_state(torch.cat([self.embed_coordinate.weight[x], self.embed_coordinate.weight[GRID + y]]))
            tokens.append(self.embed_token(torch.cat([action, reward, at])))
        return torch.stack(tokens)

    def forward(self, history, state):
        if self.settings["token_layout"] == "previous":
            x = self.previous_tokens(history, state)
        else:
            x = torch.cat([self.embed_context(features(history)), self.embed_query_state(state_index(state))[None]])
        if self.settings["tf_positions"] == "learned":
            x = x + self.embed_position.weight[:len(x)]
        for block in self.blocks:
            x = block(x)
        if self.settings["tf_final_norm"] == "on":
            x = self.final_norm(x)
        return self.pred_action(x[-1]), None


MODELS = {"pre_norm": PreNorm, "post_norm": PostNorm, "gpt2": Gpt2, "compressed": Compressed}
COMPOSED = ("xland", "vintix", "pre_norm_previous", "pre_norm_pieces", "xland_transition", "vintix_rotary",
            "xland_without_positions")
MODELS |= {name: Composed for name in COMPOSED}


def settings_of(section):
    """The settings as values: numbers, null and quoted texts are written as JSON does."""
    def value(text):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return {key: value(text) for key, text in section["settings"].items()}


def cut(row, first, end):
    return {name: row[name][first:end] for name in ("states", "actions", "rewards", "next_states")}


def plain_queries(row, everywhere):
    """(context, state, action) of each query."""
    length = len(row["actions"])
    for i in range(0 if everywhere else length - 1, length):
        yield cut(row, 0, i), row["states"][i], row["actions"][i]


def compressed_queries(row, everywhere):
    previous, current = int(row["previous"]), int(row["current"])
    before = [cut(row, 0, previous)] if previous else []
    for i in range(0 if everywhere else current, current + 1):
        regions = before + [cut(row, previous, previous + i)]
        if i < current:
            yield regions, row["states"][previous + i], row["actions"][previous + i]
        else:
            yield regions, row["query_state"], row["query_action"]


def loss_of(actions, types, target, o):
    ends = int(target) < 0
    loss = torch.zeros((), dtype=torch.float64)
    if not ends:
        loss = loss + F.cross_entropy(actions, target.long(), label_smoothing=o["label_smoothing"])
    if types is not None:
        loss = loss + o["token_type_weight"] * F.cross_entropy(types, torch.tensor(2 if ends else 0))
    return loss


def compare(what, found, expected, least_scale=0.0):
    """`least_scale`: what errors are relative to where the largest value is smaller, for sums that may be near 0."""
    error = (found - expected).abs().max() / expected.abs().max().clamp_min(least_scale)
    print(f"{what:32} largest error / largest value: {error:.1e}")
    if not error < TOLERANCE:
        raise SystemExit(f"{what}: found\n{found}\nexpected\n{expected}")


def check(name, section, read):
    section = section | {"settings": settings_of(section)}
    model = MODELS[name](section).double()
    model.load_state_dict({key: read(entry).double() for key, entry in section["parameters"].items()}, strict=True)
    queries_of = compressed_queries if name == "compressed" else plain_queries
    for positions in ("last", "all"):
        found, actions, types = section[positions], [], []
        loss = torch.zeros((), dtype=torch.float64)
        batch = {key: read(entry) for key, entry in found["batch"].items()}
        for i in range(len(batch["actions"])):
            row = {key: values[i] for key, values in batch.items()}
            for context, state, target in queries_of(row, positions == "all"):
                a, t = model(context, state)
                actions.append(a)
                types.append(t)
                loss = loss + loss_of(a, t, target, section)
        model.zero_grad()
        loss.backward()
        parameters = dict(model.named_parameters())
        gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                              for p in (parameters[key] for key in section["order"])])
        assert found["targets"] == len(actions)
        compare(f"{name}, {positions}: actions", read(found["actions"]).flatten(0, 1), torch.stack(actions))
        if name == "compressed":
            compare(f"{name}, {positions}: token types", read(found["token_types"]).flatten(0, 1), torch.stack(types))
        compare(f"{name}, {positions}: loss", read(found["loss"]), loss)
        compare(f"{name}, {positions}: gradients", read(found["gradient"]), gradient)


def dumped(program):
    """What the program writes: its index, and a function that reads an entry's values."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True)
        index = json.loads(pathlib.Path(folder, "model.json").read_text())
        values = pathlib.Path(folder, "model.bin").read_bytes()

    def read(entry):
        count = math.prod(entry["shape"])
        array = numpy.frombuffer(values, entry["type"], count, entry["offset"])
        return torch.from_numpy(array.copy()).view(entry["shape"])

    return index, read


def main():
    torch.set_num_threads(1)
    index, read = dumped(sys.argv[1])
    of_grids = {name: section for name, section in index.items() if "spaces" not in section}
    assert of_grids.keys() == MODELS.keys()
    for name, section in of_grids.items():
        check(name, section, read)


if __name__ == "__main__":
    main()
