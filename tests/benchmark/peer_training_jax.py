"""Peer of `benchmark_step` on one GPU: the same model and batch in plain JAX, the whole step jitted.

Post-norm, causal, learned positions, one token a transition, the query last, loss at the last position; bf16 with
fp32 weights, a fixed batch on the GPU, AdamW (optax's where it is installed) and clipping. JAX shows no events of the
GPU, so times are the host's, over groups of steps. Prints one line of JSON.
"""
import argparse
import functools
import json
import math
import sys
import time

NO_GPU = 3  # exit code, as adtrain's
GRID, ACTIONS, FEATURES = 9, 5, 10
STEPS_A_GROUP = 10

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    print("peer_training_jax: skipped: JAX is not installed in this Python (benchmark.py --jax-python names another)",
          file=sys.stderr)
    sys.exit(NO_GPU)
try:
    import optax
except ImportError:
    optax = None


def adamw(rate=3e-4, beta1=0.9, beta2=0.99, epsilon=1e-8, decay=0.01, max_norm=1.0):
    """(init, update) as of optax: `update` returns what is added to the weights, and the next state."""
    if optax:
        return optax.chain(optax.clip_by_global_norm(max_norm),
                           optax.adamw(rate, beta1, beta2, epsilon, weight_decay=decay))
    each = jax.tree_util.tree_map

    def init(weights):
        return each(jnp.zeros_like, weights), each(jnp.zeros_like, weights), jnp.zeros(())

    def update(gradient, state, weights):
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree_util.tree_leaves(gradient)))
        clip = jnp.minimum(1, max_norm / (norm + 1e-6))
        count = state[2] + 1
        mean = each(lambda m, g: beta1 * m + (1 - beta1) * clip * g, state[0], gradient)
        square = each(lambda s, g: beta2 * s + (1 - beta2) * (clip * g) ** 2, state[1], gradient)

        def change(m, s, weight):
            root = jnp.sqrt(s / (1 - beta2**count)) + epsilon
            return -rate * (m / (1 - beta1**count) / root + decay * weight)

        return each(change, mean, square, weights), (mean, square, count)

    return argparse.Namespace(init=init, update=update)


def linear(key, inputs, outputs):
    return {"weight": jax.random.normal(key, (inputs, outputs)) * inputs**-0.5, "bias": jnp.zeros(outputs)}


def norm(width):
    return {"weight": jnp.ones(width), "bias": jnp.zeros(width)}


def initial_weights(shape):
    keys = iter(jax.random.split(jax.random.key(0), 5 + 4 * shape.layers))
    width = shape.width
    return {"context": linear(next(keys), FEATURES, width),
            "query": jax.random.normal(next(keys), (GRID * GRID, width)),
            "transition_type": jax.random.normal(next(keys), (width,)),
            "positions": 0.02 * jax.random.normal(next(keys), (shape.n_transit, width)),
            "head": linear(next(keys), width, ACTIONS),
            "blocks": [{"qkv": linear(next(keys), width, 3 * width), "out": linear(next(keys), width, width),
                        "up": linear(next(keys), width, 4 * width), "down": linear(next(keys), 4 * width, width),
                        "norm1": norm(width), "norm2": norm(width)} for _ in range(shape.layers)]}


def apply_linear(weights, x):
    return x @ weights["weight"].astype(x.dtype) + weights["bias"].astype(x.dtype)


def apply_norm(weights, x):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return (y * weights["weight"] + weights["bias"]).astype(x.dtype)


def dropout(key, x, rate):
    if rate == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0).astype(x.dtype)


def attend(key, queries, keys, values, shape):
    """(batch, tokens, heads, head size) each. cuDNN's kernel knows no dropout of weights."""
    if shape.attention == "cudnn":
        return jax.nn.dot_product_attention(queries, keys, values, is_causal=True, implementation="cudnn")
    tokens, head_size = queries.shape[1], queries.shape[3]
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys).astype(jnp.float32) * head_size**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
    weights = dropout(key, jax.nn.softmax(scores, -1).astype(queries.dtype), shape.dropout)
    return jnp.einsum("bhts,bshd->bthd", weights, values)


def block(weights, x, key, shape):
    keys = jax.random.split(key, 4)
    batch, tokens, width = x.shape
    qkv = apply_linear(weights["qkv"], x).reshape(batch, tokens, 3, shape.heads, width // shape.heads)
    read = attend(keys[0], qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], shape).reshape(x.shape)
    x = apply_norm(weights["norm1"], x + dropout(keys[1], apply_linear(weights["out"], read), shape.dropout))
    inner = jax.nn.gelu(apply_linear(weights["up"], x), approximate=False)
    change = apply_linear(weights["down"], dropout(keys[2], inner, shape.dropout))
    return apply_norm(weights["norm2"], x + dropout(keys[3], change, shape.dropout))


def loss_of(weights, batch, key, shape):
    context = apply_linear(weights["context"], batch["context"].astype(jnp.bfloat16))
    context = context + weights["transition_type"].astype(jnp.bfloat16)
    query = weights["query"][batch["query"]].astype(jnp.bfloat16)[:, None]
    x = jnp.concatenate([context, query], 1) + weights["positions"].astype(jnp.bfloat16)
    for index, of_block in enumerate(weights["blocks"]):
        x = block(of_block, x, jax.random.fold_in(key, index), shape)
    likelihoods = jax.nn.log_softmax(apply_linear(weights["head"], x[:, -1]).astype(jnp.float32))
    return -jnp.take_along_axis(likelihoods, batch["target"][:, None], 1).mean()


def fixed_batch(shape):
    keys = jax.random.split(jax.random.key(1), 3)
    return {"context": jax.random.normal(keys[0], (shape.batch, shape.n_transit - 1, FEATURES)),
            "query": jax.random.randint(keys[1], (shape.batch,), 0, GRID * GRID),
            "target": jax.random.randint(keys[2], (shape.batch,), 0, ACTIONS)}


def measure(options):
    optimizer = adamw()
    batch = fixed_batch(options)
    weights = initial_weights(options)
    state = optimizer.init(weights)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(weights, state, number):
        key = jax.random.fold_in(jax.random.key(2), number)
        loss, gradient = jax.value_and_grad(loss_of)(weights, batch, key, options)
        change, state = optimizer.update(gradient, state, weights)
        return jax.tree_util.tree_map(jnp.add, weights, change), state, loss

    milliseconds = []
    for first in range(-options.warm_up, options.steps, STEPS_A_GROUP):
        begin = time.perf_counter()
        for number in range(first, first + STEPS_A_GROUP):
            weights, state, loss = step(weights, state, number + options.warm_up)
        loss.block_until_ready()
        if first >= 0:
            milliseconds.append(1e3 * (time.perf_counter() - begin) / STEPS_A_GROUP)
    if not math.isfinite(float(loss)):
        raise ArithmeticError(f"the loss is {float(loss)}; expected a finite number")
    return milliseconds, float(loss), sum(leaf.size for leaf in jax.tree_util.tree_leaves(weights))


def quantile(values, share):
    """By nearest rank, as benchmark_step."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def line_of(options, device, milliseconds, loss, parameters):
    ms_median = quantile(milliseconds, 0.5)
    sequences_per_second = round(1e3 * options.batch / ms_median, 3)
    memory = device.memory_stats() or {}
    in_attention = "" if options.attention == "xla" else " but in attention"
    return {
        "program": f"JAX {jax.__version__}", "variant": f"jit-bf16 ({options.attention} attention)",
        "gpu": device.device_kind, "optimizer": "optax" if optax else "own AdamW",
        "model": f"post-norm, width {options.width}, {options.layers} layers, {options.heads} heads, "
                 f"n_transit {options.n_transit}, loss at the last position, dropout {options.dropout:g}{in_attention}",
        "ranks": 1, "micro_batch": options.batch, "global_batch": options.batch, "precision": "bf16",
        "steps": options.steps, "clock": f"host, groups of {STEPS_A_GROUP} steps", "ms_median": round(ms_median, 6),
        "ms_p99": round(quantile(milliseconds, 0.99), 6), "sequences_per_second_per_gpu": sequences_per_second,
        "sequences_per_second": sequences_per_second,
        "peak_memory_gib": round(memory.get("peak_bytes_in_use", 0) / 2**30, 6), "parameters": parameters,
        "loss": round(loss, 6)}


def options_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 64), ("layers", 4), ("heads", 4), ("n-transit", 240), ("batch", 512),
                          ("steps", 200), ("warm-up", 20)):
        parser.add_argument(f"--{name}", type=int, default=default, help="default %(default)s")
    parser.add_argument("--dropout", type=float, default=0.1, help="default %(default)s")
    parser.add_argument("--attention", choices=["xla", "cudnn"], default="xla",
                        help="cudnn is a fused kernel without dropout of attention weights; default %(default)s")
    options = parser.parse_args()
    for name in ("steps", "warm_up"):  # whole groups
        setattr(options, name, max(1, math.ceil(getattr(options, name) / STEPS_A_GROUP)) * STEPS_A_GROUP)
    return options


def main():
    options = options_given()
    device = jax.devices()[0]
    if device.platform != "gpu":
        print("peer_training_jax: JAX finds no GPU; expected one, and JAX installed with CUDA", file=sys.stderr)
        return NO_GPU
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")  # the fast generator, as dropout wants it
    print(json.dumps(line_of(options, device, *measure(options))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
