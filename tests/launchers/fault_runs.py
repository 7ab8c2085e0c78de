"""One small run under each launcher, as fault_table.py breaks it: started, watched, brought to its end."""
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import faults
import slurm_cluster
import small_run
import virtual_hosts
from small_run import ADTRAIN, MPIRUN, TORCHRUN

RANKS = 3 if small_run.DEVICE == "cpu" else 2  # a GPU each
RUN = ["small.yaml", "--set", f"train_timesteps={faults.STEPS}", "--set", "ckpt_interval=5", "--set", "keep_checkpoints=2",
       "--set", "eval_interval=0", "--set", "tf_dropout=0.1"]
LONGEST = 120 * small_run.PATIENCE  # seconds that a test waits for a run before it calls it endless
FILES = ("model.safetensors", "optimizer.safetensors")


@dataclasses.dataclass
class Ended:
    code: int
    output: str
    seconds: float  # that it took
    endless: bool  # it had to be killed


class LocalRun:
    """A run on this host (or on virtual ones): its launcher is a process of ours."""

    def __init__(self, command, folder, struck, environment, hosts=None):
        self.struck = struck
        self.hosts = hosts
        self._folder = folder
        self._read, self.output_pipe = os.pipe()
        self._output = bytearray()
        self._reading = True
        self._process = subprocess.Popen(list(map(str, command)), cwd=folder, env=small_run.environment(**environment),
                                         stdin=subprocess.DEVNULL, stdout=self.output_pipe, stderr=subprocess.STDOUT,
                                         start_new_session=True)
        self._reader = threading.Thread(target=self._take_output, daemon=True)
        self._reader.start()

    def ranks(self):
        """{rank: process id}"""
        return small_run.rank_processes(self._folder) or {0: self._process.pid}

    def signal(self, number):
        """As a user does who wants to stop the run: mpirun and `adtrain launch` pass USR1 on, torchrun does not."""
        if number == signal.SIGUSR1 and self._process.args[0] == TORCHRUN:
            os.kill(self.ranks()[self.struck], number)
        else:
            self._process.send_signal(number)

    def stop_reading(self):
        self._reading = False
        os.write(self.output_pipe, b"\n")  # the reader wakes up
        self._reader.join()

    def close_output(self):
        self.stop_reading()
        os.close(self._read)
        os.close(self.output_pipe)
        self._read = self.output_pipe = None

    def alive(self):
        return self._process.poll() is None or bool(small_run.rank_processes(self._folder))

    def end(self, seconds, launcher_ends=True):
        """Waits for the end of all ranks, and of the launcher, so many seconds at most; then they are killed."""
        deadline = time.monotonic() + seconds
        alive = self.alive if launcher_ends else lambda: small_run.rank_processes(self._folder)
        while alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        seconds_taken, endless = time.monotonic() - deadline + seconds, bool(alive())
        for process in [*small_run.rank_processes(self._folder).values(), *[self._process.pid] * (self._process.poll() is None)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        code = self._process.wait()
        if self.output_pipe is not None:
            os.close(self.output_pipe)
            if self._reading:
                self._reader.join(5)
            os.close(self._read)
        return Ended(code if code >= 0 else 128 - code, self._output.decode(errors="replace"), seconds_taken, endless)

    def _take_output(self):
        while self._reading and (chunk := os.read(self._read, 65536)):
            self._output += chunk


class SlurmRun:
    """A job of two nodes with a rank each."""

    def __init__(self, cluster, folder, arguments, environment):
        self.struck = faults.STRUCK
        self._cluster = cluster
        self._folder = folder
        script = pathlib.Path(__file__).resolve().parents[2] / "launch/slurm/several_nodes.sbatch"
        options = ["--gpus-per-node=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=5", f"--chdir={folder}"]
        self._job = cluster.command("sbatch", "--parsable", *options, script, *arguments, ADTRAIN=ADTRAIN,
                                    **environment).strip()

    def signal(self, number):
        """A warning ahead of the time limit, or the end of the job by its owner."""
        self._cluster.command("scancel", *(["--signal=USR1"] if number == signal.SIGUSR1 else []), self._job)

    def alive(self):
        return not self._cluster.has_ended(self._job) or bool(self._cluster.processes(self._job, "adtrain"))

    def end(self, seconds, launcher_ends=True):  # a job ends with its ranks
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.2)
        seconds_taken, endless = time.monotonic() - deadline + seconds, self.alive()
        code, number = map(int, self._cluster.job(self._job)["ExitCode"].split(":"))
        self._cluster.command("scancel", "--signal=KILL", "--full", self._job, check=False)
        logs = [self._folder / f"adtrain-{self._job}.log", *sorted(self._folder.glob(f"adtrain-{self._job}/*.log"))]
        output = "\n".join(log.read_text(errors="replace") for log in logs if log.exists())
        return Ended(128 + number if number else code, output, seconds_taken, endless)


class Bench:
    """Runs of one launcher in a folder of its own, and the weights of one that nothing disturbs. A context manager."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.ranks = {"none": 1, "SLURM": 2}.get(launcher, RANKS)
        self.struck = 0 if launcher == "none" else faults.STRUCK
        self._hosts = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="adtrain-faults-"))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            (self.folder / "small.yaml").write_text(small_run.CONFIG)
            small_run.collect(self.folder)
            if self.launcher == "SLURM":
                self._cluster = stack.enter_context(slurm_cluster.SlurmCluster())
            self._references = {}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def start(self, *settings, **environment):
        arguments = [*RUN, *settings]
        if self.launcher == "SLURM":
            return SlurmRun(self._cluster, self.folder, arguments, environment)
        return LocalRun([*self.command(), *arguments], self.folder, self.struck, environment, self._hosts)

    def command(self):
        return {"none": [ADTRAIN],
                "mpirun": [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", self.ranks, ADTRAIN],
                "torchrun": [TORCHRUN, "--standalone", "--no-python", "--nproc-per-node", self.ranks, ADTRAIN],
                "adtrain launch": [ADTRAIN, "launch", "--nproc", self.ranks, "--logs", "logs"]}[self.launcher]

    def run_folder(self):
        return self.folder / "runs/small"

    def steps(self):
        folders = (self.run_folder() / "checkpoints").glob("step-*")
        return sorted(int(folder.name[5:]) for folder in folders if re.fullmatch(r"step-\d+", folder.name))

    def weights(self):
        return [(self.run_folder() / f"checkpoints/step-{faults.STEPS}" / name).read_bytes() for name in FILES]

    def reference(self):
        """Of a run that nothing disturbs."""
        if not self._references:
            ended = self.start("--overwrite").end(LONGEST)
            if ended.code != 0:
                raise RuntimeError(f"{self.launcher}: an undisturbed run ended with {ended.code}:\n{ended.output}")
            self._references["weights"] = self.weights()
            self.clear()
        return self._references["weights"]

    def clear(self):
        runs = self.folder / "runs"
        runs.unlink() if runs.is_file() else shutil.rmtree(runs, ignore_errors=True)
        shutil.rmtree(self.folder / "logs", ignore_errors=True)

    def words_of_ranks(self, ended):
        """What they have written, wherever the launcher has put it."""
        return "".join([ended.output, *(log.read_text(errors="replace") for log in self.folder.glob("logs/rank-*.log"))])


class HostsBench(Bench):
    """The same over two hosts, which are network namespaces: one rank on each."""

    def __init__(self, launcher):
        super().__init__(launcher)
        self.ranks = 2

    def __enter__(self):
        super().__enter__()
        with self._stack:
            self._hosts = self._stack.enter_context(virtual_hosts.VirtualHosts(2))
            self._stack = self._stack.pop_all()
        return self

    def command(self):
        first, second = self._hosts
        if self.launcher == "mpirun":
            lan = f"{virtual_hosts.LAN}.0/24"
            return first.inside([MPIRUN, "--host", "h1,h2", "--mca", "plm_rsh_agent", self._hosts.launch_agent,
                                 "--mca", "oob_tcp_if_include", lan, "--mca", "btl_tcp_if_include", lan, ADTRAIN], self.folder)
        agents = [" ".join(host.inside([TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
                                        "--rdzv-endpoint", "h1:29400", "--rdzv-id", "test", "--no-python", ADTRAIN,
                                        '"$@"'], self.folder)) for host in (first, second)]
        return ["bash", "-c", f"{agents[1]} & {agents[0]}; code=$?; wait; exit $code", "bash"]
