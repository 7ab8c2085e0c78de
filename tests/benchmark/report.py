"""What was measured, as tables for the eye and as JSON."""
import dataclasses
import datetime
import json
import pathlib
import shlex
import subprocess
import sys

from evaluation import EVALUATION_EPISODES


def figure(value, pattern, scale=1):
    return "" if value is None else pattern.format(scale * value)


TRAINING_COLUMNS = ["model", "series", "GPUs", "batch", "program", "ms a step", "p99 ms", "seq/s", "seq/s a GPU",
                    "efficiency", "MFU", "exposed", "data wait", "GiB", "vs best peer"]


def training_row(line):
    case = line.case
    row = [case.model, case.series, str(case.gpus), str(case.global_batch), line.name]
    result = line.outcome.result
    if result is None:
        return row + [line.outcome.reason]

    def share(key):
        return figure(result.get(key), "{:.1f}%", 100)

    return row + [
        figure(result["ms_median"], "{:.2f}"), figure(result["ms_p99"], "{:.2f}"),
        figure(result["sequences_per_second"], "{:.0f}"), figure(result["sequences_per_second_per_gpu"], "{:.0f}"),
        figure(line.efficiency, "{:.1f}%", 100), share("mfu"), share("exposed_communication_share"),
        share("data_wait_share"), figure(result["peak_memory_gib"], "{:.2f}"),
        figure(line.against_best_peer, "{:.2f}x")]


EVALUATION_COLUMNS = ["evaluation", "s with start-up", "start-up s", "s", "ms an episode", "vs peer"]


def evaluation_row(evaluation):
    if evaluation.outcome.result is None:
        return [evaluation.name, evaluation.outcome.reason]
    return [evaluation.name, figure(evaluation.outcome.seconds, "{:.2f}"),
            figure(evaluation.start_up_seconds, "{:.2f}"), figure(evaluation.seconds(), "{:.2f}"),
            figure(evaluation.seconds(), "{:.3f}", 1e3 / EVALUATION_EPISODES),
            figure(evaluation.against_peer, "{:.2f}x")]


def table(columns, rows, names):
    """Aligned text; the first `names` columns hold names and stand left. A row that is shorter ends with a reason."""
    whole = [columns] + [row for row in rows if len(row) == len(columns)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(columns))]
    for row in rows:
        widths[:names] = [max(width, len(cell)) for width, cell in zip(widths, row[:names])]

    def text(row):
        cells = [cell.ljust(width) if i < names or len(row) < len(columns) else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        return "  ".join(cells).rstrip()

    return "\n".join(map(text, [columns, *rows]))


def gpus_here():
    """Name and driver of each GPU, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = said.stdout.splitlines() if said.returncode == 0 else []
    return [dict(zip(("name", "driver"), line.split(", "))) for line in lines]


def write_results(options, gpus, lines):
    options.output.mkdir(parents=True, exist_ok=True)
    results = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "gpus": gpus,
               "command": shlex.join([pathlib.Path(sys.executable).name, *sys.argv]),
               "lines": [dataclasses.asdict(line) for line in lines]}
    path = options.output / "results.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def show(options, gpus, training, evaluation):
    names = sorted({f"{gpu['name']}, driver {gpu['driver']}" for gpu in gpus})
    print(f"\n{len(gpus)} GPUs: {'; '.join(names)}" if gpus else "\nnvidia-smi shows no GPU")
    if training:
        print("\n" + table(TRAINING_COLUMNS, list(map(training_row, training)), names=5))
    if evaluation:
        print("\n" + table(EVALUATION_COLUMNS, list(map(evaluation_row, evaluation)), names=1))
    print(f"\nall figures: {write_results(options, gpus, training + evaluation)}", flush=True)
