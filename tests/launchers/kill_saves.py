"""Kills a run at random moments of saving, and loses nothing:

    .deps/venv/bin/python tests/launchers/kill_saves.py 1000 [seed]

A small run saves after every step and is killed (SIGKILL) again and again; each start resumes what the one before left.
After each kill every folder under a final name must be whole, and none that the run has called saved may be lost. In
the end the weights must equal, byte for byte, those of a run that nobody has disturbed. In half of the starts each
operation on the file system takes some milliseconds longer, so that kills come between any two of them, also while an
older checkpoint is deleted.
"""
import dataclasses
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import small_run
from small_run import ADTRAIN

STEPS = 30
RUN = ["small.yaml", "--set", f"train_timesteps={STEPS}", "--set", "ckpt_interval=1", "--set", "eval_interval=0",
       "--set", "tf_dropout=0.1"]
FILES = ("model.safetensors", "optimizer.safetensors")
LONGEST = 120 * small_run.PATIENCE  # seconds to the first checkpoint of a start
KILL_WITHIN = {"plain": 0.03, "slow": 0.3}  # seconds after the first new checkpoint: some savings

SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#define SLOWLY(name, parameters, ...)                                                   \\
  int name parameters {                                                                 \\
    usleep(3000);                                                                       \\
    return ((int (*) parameters)dlsym(RTLD_NEXT, #name))(__VA_ARGS__);                  \\
  }
SLOWLY(fsync, (int file), file)
SLOWLY(mkdir, (const char *path, mode_t mode), path, mode)
SLOWLY(rename, (const char *from, const char *to), from, to)
SLOWLY(symlink, (const char *to, const char *path), to, path)
SLOWLY(unlink, (const char *path), path)
SLOWLY(unlinkat, (int folder, const char *path, int flags), folder, path, flags)
SLOWLY(rmdir, (const char *path), path)
SLOWLY(remove, (const char *path), path)
"""


class Lost(Exception):
    """A kill has done harm."""


@dataclasses.dataclass
class Tally:
    kills: int = 0
    while_saving: int = 0  # an unfinished folder, link or deletion was left
    runs: int = 0  # that came to their end after kills, with the right weights

    def __str__(self):
        return (f"{self.kills} kills, {self.while_saving} of them amid a saving or a deletion; "
                f"{self.runs} runs came to their end with the weights of the undisturbed one")


class KilledSaves:
    """A context manager: its folder goes with it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tally = Tally()

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="adtrain-kills-"))
        (self.folder / "small.yaml").write_text(small_run.CONFIG)
        self._finish(["collect", "small.yaml"])
        self._finish([*RUN, "--set", "run_name=undisturbed"])
        self.disks = {"plain": {}, "slow": {"LD_PRELOAD": small_run.preloadable(SLOW_DISK, self.folder)}}
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, times):
        """Raises Lost."""
        while self.tally.kills < times:
            shutil.rmtree(self.folder / "runs/killed", ignore_errors=True)
            ended, last_saved = False, 0
            while not ended and self.tally.kills < times:
                ended, output = self._start_and_kill(self.random.choice(list(self.disks)), last_saved)
                last_saved = self._check(output, last_saved)
            if not ended:
                output = self._finish([*RUN, "--set", "run_name=killed", "--resume"])
                self._check(output, last_saved)
            self._compare()
            self.tally.runs += 1
            print(self.tally, flush=True)

    @property
    def checkpoints(self):
        return self.folder / "runs/killed/checkpoints"

    def _steps(self):
        names = os.listdir(self.checkpoints) if self.checkpoints.exists() else []
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))

    def _start_and_kill(self, disk, last_saved):
        """Whether the run came to its end before it was killed, and what it wrote."""
        # A first run that is killed before its first checkpoint leaves nothing to resume.
        anew = ["--resume"] if self._steps() else ["--overwrite"]
        with open(self.folder / "output", "w+") as output:
            process = self._start([*RUN, "--set", "run_name=killed", *anew], disk, output)
            try:
                deadline = time.monotonic() + LONGEST
                while max(self._steps(), default=0) <= last_saved and process.poll() is None:
                    if time.monotonic() > deadline:
                        raise Lost(f"no checkpoint within {LONGEST} s of a start")
                    time.sleep(0.001)
                time.sleep(self.random.uniform(0, KILL_WITHIN[disk]))
                ended = process.poll() is not None
                process.kill()
                code = process.wait()
            finally:
                process.kill()
            output.seek(0)
            text = output.read()
        if ended and code != 0:
            raise Lost(f"a start ended with exit code {code}:\n{text}")
        self.tally.kills += not ended
        return ended, text

    def _check(self, output, last_saved):
        """The newest step that stands."""
        if "passed over a checkpoint" in output:
            raise Lost(f"a checkpoint was damaged:\n{output}")
        names = os.listdir(self.checkpoints)
        self.tally.while_saving += any(name.endswith(".tmp") for name in names)
        steps = self._steps()
        damaged = list(filter(None, (small_run.damage_of(self.checkpoints / f"step-{step}") for step in steps)))
        if damaged:
            raise Lost("; ".join(damaged))
        said = [int(step) for step in re.findall(r"saved the checkpoint of step (\d+)", output)]
        expected = max([last_saved, *said])
        if max(steps, default=0) < expected:
            raise Lost(f"step {expected} was saved, and the newest that stands is {max(steps, default=0)}")
        latest = self.checkpoints / "latest"
        if latest.is_symlink() and not latest.exists():
            raise Lost(f"the link latest leads to {os.readlink(latest)}, which is not there")
        return max(steps, default=0)

    def _compare(self):
        for name in FILES:
            killed, undisturbed = (self.folder / f"runs/{run}/checkpoints/step-{STEPS}" / name
                                   for run in ("killed", "undisturbed"))
            if killed.read_bytes() != undisturbed.read_bytes():
                raise Lost(f"{name} of the killed run is not that of the undisturbed one")

    def _start(self, arguments, disk, output):
        return subprocess.Popen([ADTRAIN, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output,
                                env=small_run.environment(**self.disks[disk]), stderr=subprocess.STDOUT)

    def _finish(self, arguments):
        done = subprocess.run([ADTRAIN, *arguments], cwd=self.folder, env=small_run.environment(), timeout=3 * LONGEST,
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise Lost(f"adtrain {' '.join(arguments)} ended with exit code {done.returncode}:\n{done.stdout}")
        return done.stdout


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    print(f"{kills} kills, seed {seed}", flush=True)
    begin = time.monotonic()
    with KilledSaves(seed) as killed:
        try:
            killed.kill(kills)
        except Lost as lost:
            sys.exit(f"LOST after {killed.tally}: {lost}")
    print(f"nothing was lost; {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
