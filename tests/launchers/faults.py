"""What can break in a run, how a test makes it break, and what is expected then.

The run has STEPS steps and saves after every fifth. BEFORE is the last checkpoint that stands before anything breaks.
"""
import dataclasses
import errno
import fcntl
import os
import signal

STEPS = 20
BEFORE = 10
STRUCK = 1  # the rank at fault; of a single process it is 0
NONZERO, ANY = "not 0", "any"
OWN = "neither 0 nor 1"  # what the user can mend is no unexpected failure
SECONDS = 30  # in which all processes are gone, by default settings

# Rank 0 sleeps two seconds in each of these steps: the run is in their midst when something comes from outside.
LINGER = f"slow@0:{BEFORE + 2}-{BEFORE + 6}"

SEVERAL = ("mpirun", "torchrun", "adtrain launch", "SLURM")
LOCAL = ("none", "mpirun", "torchrun", "adtrain launch")
ALL = (*LOCAL, "SLURM")


@dataclasses.dataclass(frozen=True)
class Expected:
    """How a run ends. `code` is the rank's own, which a launcher may tell in its own way; `named` the rank that the
    block of every rank names, None where there is no failure, ANY where several are at fault alike."""

    code: object = NONZERO
    named: object = STRUCK
    seconds: float = SECONDS
    resumes: bool = True  # after it, --resume comes to the weights of an undisturbed run
    launcher_ends: bool = True  # by itself; else the test ends it when all ranks have gone


@dataclasses.dataclass(frozen=True)
class Fault:
    """`switch` is for ADTRAIN_FAULT, with {rank} for the one at fault; `strike`, given the run, is what a test does from
    outside as soon as the checkpoint BEFORE stands."""

    name: str
    expected: Expected
    switch: str = ""
    strike: object = None
    launchers: tuple = ALL
    settings: tuple = ()
    prepare: object = None  # given the folder, before the run starts
    mend: object = None  # given the run, before it is resumed
    otherwise: dict = dataclasses.field(default_factory=dict)  # launcher → Expected

    def expects(self, launcher):
        return self.otherwise.get(launcher, self.expected)


def send(number):
    return lambda run: run.signal(number)


def unwritable(folder):
    """Root may write into any folder; into a file nobody can put another."""
    (folder / "runs").write_text("in the place of the folder\n")


def fill_the_pipe(run):
    """Nobody reads the run's output any more, and there is no room for more of it; then a rank is killed."""
    run.stop_reading()
    descriptor = run.output_pipe
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(descriptor, b"." * size)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    os.kill(run.ranks()[STRUCK], signal.SIGKILL)


def close_the_output(run):
    run.close_output()


def unplug(run):
    run.hosts[1].unplug()


def plug_in(run):
    run.hosts[1].plug_in()


AT = f"@{{rank}}:{BEFORE + 2}"
NO_FAILURE = Expected(code=0, named=None)
STOPS = Expected(code=75, named=None)

FAULTS = [
    Fault("kill", Expected(code=137), switch="kill" + AT),
    # Nobody can tell a single process that leaves with 0 from one that is done, but by what it leaves undone.
    Fault("exit 0", Expected(), switch="exit0" + AT, otherwise={"none": Expected(code=0, named=None)}),
    Fault("exit 1", Expected(), switch="exit1" + AT),
    Fault("abort", Expected(code=134), switch="abort" + AT),
    Fault("segmentation fault", Expected(code=139), switch="segfault" + AT),
    Fault("stop (SIGSTOP)", Expected(), switch="stop" + AT, launchers=SEVERAL),
    Fault("exception", Expected(code=1), switch="throw" + AT),
    Fault("out of memory", Expected(code=OWN), switch="out_of_memory" + AT),
    Fault("loss not a number", Expected(code=6, named=ANY), switch="nan_loss" + AT),
    Fault("gradient not a number", Expected(code=6, named=ANY), switch="nan_gradient" + AT),
    Fault("no space, to the end", Expected(code=5, named=0), switch=f"no_space@0:{BEFORE + 2}-"),
    Fault("no space, for a while", NO_FAILURE, switch=f"no_space@0:{BEFORE + 5}"),
    Fault("read-only, to the end", Expected(code=5, named=0), switch=f"read_only@0:{BEFORE + 2}-"),
    Fault("unwritable at the start", Expected(code=OWN, named=ANY, resumes=False), prepare=unwritable),
    *(Fault(f"kill while saving: {moment}", Expected(code=137, named=0), switch=f"kill_in_save:{moment}@0:{BEFORE + 5}")
      for moment in ("folder", "tensors", "manifest", "renamed", "latest", "pruning")),
    Fault("slow rank", NO_FAILURE, switch="slow" + AT),
    # Each side of the cut finds the other silent; mpirun waits for its daemon on the lost host.
    Fault("lost network", Expected(code=ANY, named=ANY, launcher_ends=False), switch=LINGER, strike=unplug,
          mend=plug_in, launchers=("mpirun", "torchrun")),
    Fault("USR1", STOPS, switch=LINGER, strike=send(signal.SIGUSR1),
          otherwise={"SLURM": NO_FAILURE}),  # the job goes back to the queue and comes to its end
    # mpirun kills its ranks soon after it has passed the signal on; the others wait until the ranks have saved.
    Fault("TERM", STOPS, switch=LINGER, strike=send(signal.SIGTERM),
          otherwise={"mpirun": Expected(named=ANY), "torchrun": Expected(named=ANY), "SLURM": Expected(named=None)}),
    # mpirun and torchrun wait for ever to write into such a pipe themselves.
    Fault("full pipe, then kill", Expected(code=ANY, launcher_ends=False), switch=LINGER, strike=fill_the_pipe,
          launchers=("mpirun", "torchrun", "adtrain launch"), otherwise={"adtrain launch": Expected(code=137)}),
    Fault("closed output", Expected(code=ANY, named=ANY), switch=LINGER, strike=close_the_output, launchers=LOCAL,
          otherwise={"none": NO_FAILURE, "adtrain launch": NO_FAILURE}),
    Fault("clock goes back", NO_FAILURE, switch="clock_jump" + AT),
]
