"""The memory of training by parts, as `adtrain estimate` computes and as a run measures it, side by side on one GPU.

    python3 tests/benchmark/memory.py build/release/bin/adtrain [--only NAME…] [--json FILE]

Ends with 1 where an estimate is off by more than a tenth of what was measured.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 12  # eager ones, the one that is captured, and some that replay it
TOLERANCE = 0.10
STOPPED = 75  # the exit code of a run that was stopped and can go on
GUIDE, LARGE = HERE / "guide.yaml", HERE / "large.yaml"

# name -> configuration, overrides
CONFIGURATIONS = {
    "guide, bf16": (GUIDE, {"train_batch_size": 16384}),
    "guide, bf16, all positions": (GUIDE, {"train_batch_size": 4096, "loss_positions": "all"}),
    "guide, fp32": (GUIDE, {"train_batch_size": 4096, "mixed_precision": "no"}),
    "guide, pre-norm, bf16": (GUIDE, {"train_batch_size": 16384, "transformer_block": "pre_norm"}),
    "guide, GPT-2, bf16": (GUIDE, {"train_batch_size": 2048, "model": "GPT2", "transformer_block": "gpt2"}),
    "guide, compressed context, bf16": (GUIDE, {"train_batch_size": 8192, "use_compressed_context": "true"}),
    "guide as shipped, bf16": (GUIDE, {}),
    "large, bf16": (LARGE, {}),
    "large, bf16, 128": (LARGE, {"train_batch_size": 128}),
    "large, fp16": (LARGE, {"train_batch_size": 64, "mixed_precision": "fp16"}),
    "large, fp32": (LARGE, {"train_batch_size": 16, "mixed_precision": "no"}),
    "large, pre-norm, bf16": (LARGE, {"train_batch_size": 64, "transformer_block": "pre_norm"}),
    "large, bf16, held-out loss": (LARGE, {"eval_interval": 6, "test_batch_size": 512}),
    "large, bf16, eager": (LARGE, {"train_batch_size": 64, "cuda_graph": "off"}),
}
COMMON = {"eval_interval": 0, "ckpt_interval": 1000000, "summary_interval": STEPS, "device": "cuda"}
EVERY = {"train_batch_size": 32, "loss_positions": "all"}
OF_PIECES = {**EVERY, "transformer_block": "vintix", "token_layout": "transition"}  # attention over two streams
for name, kept in (("", "none"), (", recompute: mlp", "mlp"), (", recompute: block", "block")):
    CONFIGURATIONS[f"large, bf16, every position{name}"] = (LARGE, {**EVERY, "recompute": kept})
    CONFIGURATIONS[f"large, vintix over transitions, every position{name}"] = (LARGE, {**OF_PIECES, "recompute": kept})
STREAMS = 20
SOURCE_STEPS = {GUIDE: 1000, LARGE: 2000}  # of a stream


class Failed(Exception):
    """A program ended with an error."""


def settings(config, overrides, folder):
    histories = {"n_stream": STREAMS, "train_n_stream": STREAMS, "traj_dir": folder / config.stem,
                 "total_source_timesteps": STREAMS * SOURCE_STEPS[config]}
    pairs = {**COMMON, **histories, "runs_dir": folder / "runs", **overrides}
    return [word for key, value in pairs.items() for word in ("--set", f"{key}={value}")]


def output_of(command, expected=(0,)):
    finished = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if finished.returncode not in expected:
        raise Failed(f"{finished.returncode}: {(finished.stdout + finished.stderr).strip()[-600:]}")
    return finished.stdout


def measured(program, config, overrides, folder):
    """Bytes by part at the last report, and the peak."""
    if not (folder / config.stem).exists():
        output_of([program, "collect", config, *settings(config, {}, folder)])
    training = settings(config, {**overrides, "run_name": "measured"}, folder)
    output_of([program, "train", config, *training, "--overwrite", "--stop-after", STEPS], (0, STOPPED))
    lines = (folder / "runs" / "measured" / "metrics.jsonl").read_text().splitlines()
    record = [record for record in map(json.loads, lines) if "memory_parts" in record][-1]
    return {name: ranks[0] for name, ranks in record["memory_parts"].items()}, record["peak_memory"][0]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--only", nargs="+", choices=list(CONFIGURATIONS), default=list(CONFIGURATIONS))
    arguments.add_argument("--json")
    given = arguments.parse_args()
    results, worst = {}, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name in given.only:
            config, overrides = CONFIGURATIONS[name]
            try:
                estimate = json.loads(output_of(
                    [given.program, "estimate", config, *settings(config, overrides, folder), "--gpus", "1", "--json"]))
                parts, peak = measured(given.program, config, overrides, folder)
            except Failed as failure:
                print(f"{name}: {failure}", flush=True)
                worst = 1.0
                continue
            total, computed = sum(parts.values()), estimate["total_bytes"]
            error = computed / total - 1
            worst = max(worst, abs(error))
            results[name] = {"measured": parts, "estimated": estimate["bytes"], "peak": peak}
            print(f"{name}, {estimate['train_batch_size']} sequences: measured {total / 1e9:.2f} GB "
                  f"(peak {peak / 1e9:.2f}), estimated {computed / 1e9:.2f} ({100 * error:+.1f}%)")
            for part, value in parts.items():
                print(f"    {part:<14}{value / 1e9:>9.3f}{estimate['bytes'][part] / 1e9:>9.3f}")
            sys.stdout.flush()
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1))
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
