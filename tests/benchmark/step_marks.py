"""What timed_environments.py writes of each step, and what it says of lock-steps, which all environments take together."""
import numpy as np

MARKS = np.dtype([("begin", float), ("end", float),  # seconds of the machine's monotonic clock
                  ("ended", np.int32), ("found", np.int32)])  # episodes, and those of them that were not truncated


class Played:
    """The marks of one evaluation, in `folder`. Lock-steps are counted from 0; the first `window` of them fill contexts."""

    def __init__(self, folder, window):
        files = {path: np.fromfile(path, MARKS) for path in sorted(folder.glob("*.marks"))}
        self.steps = min(map(len, files.values()), default=0)  # lock-steps that all took
        self.window = window
        self.marks = [marks[:self.steps] for marks in files.values()]
        self.environments = sum(int(path.stem.split("-")[2]) for path in files)
        self.processes = {}
        for path, marks in zip(files, self.marks):
            self.processes.setdefault(path.stem.split("-")[0], []).append(marks)

    def seconds(self, first, last):
        """Between the ends of two lock-steps, of the slowest worker."""
        return max(marks["end"][last] - marks["end"][first] for marks in self.marks)

    def milliseconds(self, first, last):
        """Of a lock-step, mean of those between two."""
        return 1000 * self.seconds(first, last) / (last - first)

    def stepping_shares(self, first, last):
        """What share of this time each process stepped environments."""
        shares = []
        for halves in self.processes.values():
            stepped = sum((marks["end"] - marks["begin"])[first + 1:last + 1].sum() for marks in halves)
            shares.append(stepped / self.seconds(first, last))
        return shares

    def episodes(self):
        return sum(int(marks["ended"].sum()) for marks in self.marks)

    def found(self):
        return sum(int(marks["found"].sum()) for marks in self.marks)
