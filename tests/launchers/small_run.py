"""A run small enough for a test, started as a user starts it: by the program and the real launchers."""
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

# CTest sets these three to what the build found; by hand they are the release build's and those beside this Python.
ADTRAIN = os.environ.get("ADTRAIN") or str(pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/adtrain")
MPIRUN = os.environ.get("MPIRUN") or "mpirun"
TORCHRUN = os.environ.get("TORCHRUN") or str(pathlib.Path(sys.executable).parent / "torchrun")

DEVICE = os.environ.get("ADTRAIN_TEST_DEVICE", "cpu")  # or cuda: the ranks of a run, each on a GPU of its own
MOST_RANKS = 3  # of a test that runs on either device

SKIPPED = 77  # CTest's word for it

# So many times as long as in the release build may all take: CTest says it of builds with sanitizers.
PATIENCE = float(os.environ.get("ADTRAIN_TEST_PATIENCE", "1"))
# ThreadSanitizer's _exit flushes standard output, and hangs where nobody reads it.
ENDS_IN_A_FULL_PIPE = os.environ.get("ADTRAIN_TEST_SANITIZER") != "thread"

CONFIG = (pathlib.Path(__file__).parent.parent / "support/small.yaml").read_text().replace(
    "device: cpu", f"device: {DEVICE}")


def skip(reason):
    """Ends the test with a word for the reader of CTest's log."""
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


@dataclasses.dataclass
class Finished:
    code: int
    output: str  # standard output and error
    seconds: float


def environment(**more):
    """Of a user who is on a plain machine: nothing that a launcher around CTest has set."""
    launcher = ("OMPI_", "PMIX_", "SLURM", "TORCHELASTIC_", "MASTER_", "ACCELERATE_")
    own = {name: value for name, value in os.environ.items()
           if name == "OMPI_MCA_mca_base_env_list"  # of tests/sanitizers.sh
           or not name.startswith(launcher) and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    own |= {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if not (shutil.which("ssh") or shutil.which("rsh")):
        own["OMPI_MCA_plm_rsh_agent"] = "sh"  # without an agent mpirun does not start, or passes no signals on
    return own | more


def place(rank, ranks, port):
    """What a user without a launcher sets, on one host."""
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def free_port(locks=[]):
    """A port that is free and that no other test gets while this process lives: each locks a file of that name, as
    tests/support/ListeningPort.h does. The ports are none that the system gives to connections."""
    folder = pathlib.Path(tempfile.gettempdir()) / "adtrain-test-ports"
    folder.mkdir(exist_ok=True)
    for port in random.sample(range(25000, 32000), 1000):
        lock = os.open(folder / str(port), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as server:
                server.bind(("", port))
        except OSError:  # another test has it, or somebody else
            os.close(lock)
            continue
        locks.append(lock)
        return port
    raise RuntimeError("no port is free")


def damage_of(checkpoint):
    """What is wrong with a checkpoint's folder, by sizes and checksums of its manifest; None where nothing is."""
    try:
        files = json.loads((checkpoint / "manifest.json").read_text())["files"]
        for name, listed in files.items():
            content = (checkpoint / name).read_bytes()
            if len(content) != listed["bytes"] or f"{zlib.crc32(content):08x}" != listed["crc32"]:
                return f"{checkpoint.name}/{name} is not what the manifest says"
    except (OSError, ValueError, KeyError) as error:
        return f"{checkpoint.name} is not complete: {error!r}"
    return None if files else f"{checkpoint.name} has no files"


def rank_processes(folder):
    """{rank: process id} of the adtrain processes that were started in this folder."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if not (process / "cwd").resolve().is_relative_to(folder) or (process / "exe").resolve().name != "adtrain":
                continue
            variables = dict(line.partition("=")[::2] for line in (process / "environ").read_text().split("\0"))
        except OSError:  # it has just ended
            continue
        rank = variables.get("RANK", variables.get("OMPI_COMM_WORLD_RANK"))
        if rank is not None:
            found[int(rank)] = int(process.name)
    return found


def preloadable(source, folder):
    """Compiles C for LD_PRELOAD; returns the library's path."""
    folder = pathlib.Path(folder)
    (folder / "preload.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "preload.so", folder / "preload.c", "-ldl"], check=True)
    return str(folder / "preload.so")


def finish(process, timeout, begin=None):
    """Waits; a process that is late is killed with all it has started, and the output says so."""
    begin = begin or time.monotonic()
    timeout *= PATIENCE
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired as late:  # what a launcher started elsewhere holds the pipe
            output = (late.output or b"").decode(errors="replace")
        output += f"\n[killed by the test: not done after {timeout} s]"
    return Finished(process.returncode, output, time.monotonic() - begin)


def collect(folder, kept=[]):
    """The histories that small.yaml in this folder names: collected once in the life of this process, and copied after that."""
    if kept:
        shutil.copytree(kept[0].name, folder / "histories", dirs_exist_ok=True)
        return
    collected = subprocess.run([ADTRAIN, "collect", "small.yaml", "--set", "device=cpu"], cwd=folder, env=environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", timeout=120 * PATIENCE)
    if collected.returncode != 0:
        raise RuntimeError(f"the collection ended with {collected.returncode}:\n{collected.stdout}")
    kept.append(tempfile.TemporaryDirectory(prefix="adtrain-histories-"))  # it goes with this process
    shutil.copytree(folder / "histories", kept[0].name, dirs_exist_ok=True)


class SmallRun(unittest.TestCase):
    """Each test has a folder of its own with small.yaml and the histories that it trains on."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="adtrain-launchers-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "small.yaml").write_text(CONFIG)

    def start(self, command, **more_environment):
        """In the test's folder, in a process group of its own."""
        return subprocess.Popen(list(map(str, command)), cwd=self.folder, env=environment(**more_environment),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace", start_new_session=True)

    def run_command(self, command, timeout=120, **more_environment):
        return finish(self.start(command, **more_environment), timeout)

    def end(self, process):
        """Of a launcher and all of its ranks, whatever state they are in; `addCleanup` wants it for each that may be left."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        for rank in rank_processes(self.folder).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
        if process.stdout is None:
            process.wait()
        elif not process.stdout.closed:
            process.communicate()

    def collect(self):
        collect(self.folder)

    def run_folder(self, name="small"):
        return self.folder / "runs" / name

    def weights(self, step=20, name="small"):
        """The file's bytes: equal ones are equal weights."""
        return (self.run_folder(name) / "checkpoints" / f"step-{step}" / "model.safetensors").read_bytes()

    def words_of_ranks(self, finished):
        """What they have written, wherever the launcher has put it."""
        return "".join([finished.output, *(log.read_text() for log in self.folder.glob("logs/rank-*.log"))])

    def wait_for(self, condition, what, timeout=60):
        deadline = time.monotonic() + timeout * PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"{what}: not seen within {timeout * PATIENCE} s")
            time.sleep(0.1)

    def assert_within(self, limit, seconds):
        self.assertLess(seconds, limit * PATIENCE)

    def assert_done(self, finished):
        self.assertEqual(finished.code, 0, finished.output)


def main(ranks=MOST_RANKS):
    if DEVICE == "cuda":
        gpus = json.loads(subprocess.check_output([ADTRAIN, "env", "--json"]))["gpus"]
        if len(gpus) < ranks:
            skip(f"adtrain env sees {len(gpus)} GPUs, and {ranks} are needed, one a rank")
    unittest.main(verbosity=2)
