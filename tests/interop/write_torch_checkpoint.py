"""Trains a reference network with torch's AdamW for three steps and saves it as the Python projects save theirs.

  python write_torch_checkpoint.py pre_norm|post_norm|gpt2|compressed FOLDER

FOLDER/trained.pt is the checkpoint. FOLDER/expected.safetensors has a batch, the network's logits on it, and the
parameters after the next optimizer step, which takes that batch's mean loss.
"""
import collections
import pathlib
import sys

import safetensors.torch
import torch
import torch.nn.functional as F

import model_reference as reference

WIDTH, LAYERS, HEADS, RATE, INTERVAL, ROWS = 16, 2, 2, 1e-2, 4, 6
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
compressed = name == "compressed"
n_transit = 12 if compressed else 9
length = 2 * INTERVAL if compressed else n_transit
torch.manual_seed(3)
torch.set_num_threads(1)


class CompressedOfHead(reference.Compressed):
    """The newest commit gives the query token type 0 in training."""

    def last(self, tokens, state):
        query = self.embed_query_state(reference.state_index(state)) + self.token_type_embedding.weight[0]
        x = torch.cat(tokens + [query[None]])
        x = x[None] + self.pos_embedding[:, :len(x)]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        return self.transformer_encoder(x, mask=mask, is_causal=True)[0, -1]


def random_batch():
    batch = {"states": torch.randint(9, (ROWS, length, 2)), "actions": torch.randint(5, (ROWS, length)),
             "rewards": torch.randint(2, (ROWS, length)).float(), "next_states": torch.randint(9, (ROWS, length, 2))}
    if compressed:
        batch |= {"previous": torch.tensor([0, INTERVAL] * (ROWS // 2)), "current": torch.tensor([1, 3, 0, INTERVAL, 2, 1]),
                  "query_state": torch.randint(9, (ROWS, 2)), "query_action": torch.tensor([1, 2, 0, -1, 4, 3])}
    return batch


def outputs(model, batch):
    """Logits of actions (ROWS, 5), and of token types or None, and the mean loss."""
    actions, types, loss = [], [], 0
    options = {"label_smoothing": 0.0, "token_type_weight": 1.0}
    queries_of = reference.compressed_queries if compressed else reference.plain_queries
    for i in range(ROWS):
        row = {key: values[i] for key, values in batch.items()}
        for context, state, target in queries_of(row, False):
            a, t = model(context, state)
            actions.append(a)
            types.append(t)
            loss = loss + reference.loss_of(a, t, target, options)
    return torch.stack(actions), torch.stack(types) if compressed else None, loss / ROWS


torch.set_default_dtype(torch.float64)
network = (CompressedOfHead if compressed else reference.MODELS[name])(
    {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "n_transit": n_transit})
for parameter in network.parameters():
    torch.nn.init.normal_(parameter, std=0.3)
optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)


def step(batch):
    optimizer.zero_grad()
    outputs(network, batch)[2].backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    schedule.step()


def in_float32(value):
    if isinstance(value, torch.Tensor):
        return value.detach().float()
    if isinstance(value, dict):
        return type(value)((key, in_float32(element)) for key, element in value.items())
    return value


for _ in range(3):
    step(random_batch())

# What is saved has single precision, and so the network goes on from there.
model = in_float32(network.state_dict())
network.load_state_dict({key: tensor.double() for key, tensor in model.items()})
state = in_float32(optimizer.state_dict())
prefix = {"pre_norm": "module.", "gpt2": "_orig_mod.module."}.get(name, "")
config = {
    "env": "darkroom", "model": {"gpt2": "GPT2"}.get(name, "AD"), "tf_n_embd": WIDTH, "tf_n_layer": LAYERS, "tf_n_head": HEADS,
    "tf_dropout": 0.0, "tf_attn_dropout": 0.0, "n_transit": n_transit, "lr": RATE, "beta1": 0.9, "beta2": 0.99,
    "weight_decay": 0.01, "train_timesteps": 1000, "train_batch_size": ROWS, "mixed_precision": "fp32",
    "use_compressed_context": compressed, "compress_interval": INTERVAL, "device": torch.device("cuda", 0),
    "log_dir": "./runs/AD-darkroom-seed0", "wandb": {"project": "ad"}, "grad_clip": 1.0,
}
saved = collections.OrderedDict((prefix + key, tensor) for key, tensor in model.items())
saved._metadata = network.state_dict()._metadata
torch.save({"step": 3, "config": config, "model": saved,
            "optimizer": state, "lr_sched": schedule.state_dict()}, folder / "trained.pt")

batch = random_batch()
actions, types, _ = outputs(network, batch)
expected = {f"batch.{key}": values.float() if key == "rewards" else values.int() for key, values in batch.items()}
expected["actions"] = actions.detach()
if compressed:
    expected["token_types"] = types.detach()
step(batch)
expected |= {f"after.{key}": parameter.detach().clone() for key, parameter in network.named_parameters()}
safetensors.torch.save_file(expected, folder / "expected.safetensors")
