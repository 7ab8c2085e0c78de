"""Times the products of one block in training, in bf16 and in fp8 with the casts that fp8 needs, by PyTorch on one GPU.

  python3 tests/benchmark/fp8_products.py [--rows 131072] [--width 1024] [--layers 20]

Products in fp8 are cuBLASLt's (torch._scaled_mm), with one scale a tensor: values and weights in e4m3, gradients in e5m2.
They read both operands along the summed dimension, so values and gradients are cast as they lie and transposed, by
compiled kernels. The largest magnitudes, of which scales are made, are a pass of their own.
"""
import argparse

import torch

LARGEST = 440.0  # of e4m3, with some room
E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


def milliseconds(function, runs=10):
    for _ in range(3):
        function()
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    for _ in range(runs):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / runs


def caster(kind):
    """x -> x in fp8, as it lies and transposed."""
    def cast(x, scale):
        small = (x.float() * scale).clamp(-LARGEST, LARGEST).to(kind)
        return small, small.t().contiguous()
    return torch.compile(cast, dynamic=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=131072, help="tokens of a step")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=20)
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    rows, width = options.rows, options.width
    one = torch.ones((), device="cuda")
    to_e4, to_e5 = caster(E4), caster(E5)
    largest = torch.compile(lambda x: x.abs().amax().float(), dynamic=False)
    total = dict.fromkeys(("bf16", "fp8", "casts", "largest magnitudes"), 0.0)
    for name, n_in, n_out in (("qkv", width, 3 * width), ("out", width, width), ("up", width, 4 * width),
                              ("down", 4 * width, width)):
        def random(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        x, weight, gradient = random(rows, n_in), random(n_out, n_in), random(rows, n_out)
        (x8, x8t), (g8, g8t), (w8, w8t) = to_e4(x, one), to_e5(gradient, one), to_e4(weight, one)

        def product(a, b, fast):
            return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)
        found = {
            "bf16": [milliseconds(lambda: x @ weight.t()), milliseconds(lambda: gradient @ weight),
                     milliseconds(lambda: gradient.t() @ x)],
            "fp8": [milliseconds(lambda: product(x8, w8, True)), milliseconds(lambda: product(g8, w8t, False)),
                    milliseconds(lambda: product(g8t, x8t, False))],
            "casts": [milliseconds(lambda: to_e4(x, one)), milliseconds(lambda: to_e5(gradient, one))],
            "largest magnitudes": [milliseconds(lambda: largest(x)), milliseconds(lambda: largest(gradient))]}
        print(f"{name}:", "; ".join(f"{what} {' '.join(f'{ms:.3f}' for ms in times)}" for what, times in found.items()),
              "ms", flush=True)
        for what, times in found.items():
            total[what] += options.layers * sum(times)
    print(f"{options.layers} layers:", ", ".join(f"{what} {ms:.1f} ms" for what, ms in total.items()))


main()
