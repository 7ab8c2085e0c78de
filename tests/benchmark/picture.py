"""Draws efficiency over GPUs from a results.json of benchmark.py: `python3 picture.py FOLDER`, where it lies.

A panel for each model and kind of scaling, a line for each program: FOLDER/efficiency.svg and .png. Needs matplotlib.
"""
import json
import pathlib
import sys

STYLES = ["-", "--", ":"]  # of batches: there is one in weak scaling, and a few in strong


def series_measured(results):
    """{(model, kind): {(program, series): [(GPUs, efficiency), …]}}, of what ran on several numbers of GPUs."""
    panels = {}
    for line in results["lines"]:
        case = line.get("case")  # an evaluation has none
        if case and line["efficiency"] is not None:
            kind = case["series"].split()[0]
            of_panel = panels.setdefault((case["model"], kind), {})
            of_panel.setdefault((line["name"], case["series"]), []).append((case["gpus"], line["efficiency"]))
    several = {key: {name: sorted(points) for name, points in lines.items() if len(points) > 1}
               for key, lines in panels.items()}
    return {key: lines for key, lines in several.items() if lines}


def title_of(results):
    names = sorted({gpu["name"] for gpu in results["gpus"]})
    return f"Training efficiency over GPUs: {len(results['gpus'])} × {', '.join(names)}, {results['date'][:10]}"


def fill(axes, panel, lines, colours):
    from matplotlib.ticker import PercentFormatter

    model, kind = panel
    counts = sorted({gpus for points in lines.values() for gpus, _ in points})
    axes.plot(counts, [1] * len(counts), color="0.6", linewidth=1, label="ideal")
    styles = dict(zip(dict.fromkeys(series for _, series in lines), STYLES))
    for (program, series), points in lines.items():
        batch = series.removeprefix(kind)
        axes.plot(*zip(*points), styles[series], color=colours[program], marker="o", markersize=4,
                  linewidth=2.2 if program == "adtrain" else 1.4, label=f"{program}{batch and f',{batch} sequences'}")
        if program == "adtrain":
            axes.annotate(f"{points[-1][1]:.1%}", points[-1], xytext=(6, 0), textcoords="offset points", va="center",
                          fontsize=8, color=colours[program])
    axes.set_title(f"{model} model, {kind} scaling", fontsize=11)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, map(str, counts))
    axes.minorticks_off()
    axes.set_xlabel("GPUs")
    axes.set_ylabel("efficiency")
    lowest = min(efficiency for points in lines.values() for _, efficiency in points)
    axes.set_ylim(min(0.88, lowest - 0.05), 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(axis="y", color="0.92")
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(folder):
    """Returns a sentence: where the picture is, or why there is none."""
    results = json.loads((folder / "results.json").read_text())
    panels = series_measured(results)
    if not panels:
        return "no picture: no program ran well on several numbers of GPUs, one among them"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return (f"no picture, as there is no matplotlib: `{sys.executable} -m pip install matplotlib`, "
                f"then `{sys.executable} {pathlib.Path(__file__).resolve()} {folder}`")
    models, kinds = (list(dict.fromkeys(names)) for names in zip(*panels))
    programs = dict.fromkeys(program for lines in panels.values() for program, _ in lines)
    colours = dict(zip(programs, ("C0", "C1", "C2", "C4")))
    figure = Figure(figsize=(5.6 * len(models), 3.8 * len(kinds) + 0.4), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    figure.suptitle(title_of(results))
    grid = figure.subplots(len(kinds), len(models), squeeze=False)
    for row, kind in enumerate(kinds):
        for column, model in enumerate(models):
            if (model, kind) in panels:
                fill(grid[row][column], (model, kind), panels[model, kind], colours)
            else:
                grid[row][column].set_axis_off()
    for kind in ("svg", "png"):
        figure.savefig(folder / f"efficiency.{kind}", dpi=150)
    return f"picture: {folder / 'efficiency.png'} and .svg"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(draw(pathlib.Path(sys.argv[1])))
