"""A SLURM cluster of virtual nodes on this one host: real munged, slurmctld and slurmd, while a test needs them.

Each node is a namespace of its own for processes, host name and mounts, so that it has its name, knows the others'
by its own /etc/hosts, and is gone with all its processes when the test ends. Nothing outside one temporary folder is
touched.
"""
import contextlib
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time

import small_run

DAEMONS = ("munged", "slurmctld", "slurmd")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
WITH_THE_TEST = ["setpriv", "--pdeathsig=KILL"]  # a daemon ends even where the test is killed
PRIVATE = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "--mount", "--uts"]

# A requeued job waits until its credential has expired, which takes two minutes by default.
CONFIGURATION = """
ClusterName=adtrain
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000,bf_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
TmpFS={folder}/%n/tmp
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n/slurmd.log
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MailProg=/bin/true
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeAddr={address} Port={port} CPUs=8 RealMemory=1000 Gres=gpu:8 State=UNKNOWN"


def obstacle():
    """Why this system does not let a cluster be started; None where it does."""
    if os.geteuid() != 0:
        return "SLURM's daemons and the namespaces of its virtual nodes need root"
    missing = [daemon for daemon in (*DAEMONS, "unshare", "setpriv") if shutil.which(daemon, path=_path()) is None]
    if missing:
        return f"{', '.join(missing)} not found; the packages slurm-wlm and munge have them"
    if subprocess.run([*PRIVATE, "true"], capture_output=True).returncode != 0:
        return "this system forbids namespaces for processes, host names and mounts"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "slurmd does not start without a cgroup file system at /sys/fs/cgroup, and none is mounted there"
    return None


class SlurmCluster:
    """Nodes n01, n02, … with eight cores and eight GPUs each, as far as SLURM believes.

    A context manager; entered, it can take jobs.
    """

    def __init__(self, nodes=2):
        self.nodes = [f"n{number:02}" for number in range(1, nodes + 1)]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="adtrain-slurm-"))
        self.environment = small_run.environment(PATH=_path(), SLURM_CONF=str(self.folder / "slurm.conf"))
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with self._stack:
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._write_files()
            self._start_munged()
            self._start("slurmctld", ["slurmctld", "-D", "-c"])
            for name in self.nodes:
                self._start_node(name)
            self._wait_until(lambda: self._states() == ["idle"] * len(self.nodes), "all nodes are idle")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def command(self, *command, check=True, **more_environment):
        """Runs one of SLURM's commands to its end; returns what it printed."""
        done = subprocess.run(list(map(str, command)), env=self.environment | more_environment, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with exit code {done.returncode}: {done.stdout}")
        return done.stdout

    def job(self, job):
        """What `scontrol show job` knows, by its names: JobState, ExitCode, Restarts, …"""
        return dict(re.findall(r"(\w+)=(\S*)", self.command("scontrol", "show", "job", "--oneliner", job)))

    def has_ended(self, job):
        return self.job(job)["JobState"] in ENDED

    def processes(self, job, program):
        """The job's processes that run this program or script: process id → its environment."""
        mine = {"SLURM_CONF": self.environment["SLURM_CONF"], "SLURM_JOB_ID": job}
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end while it is looked at
                words = _strings(folder / "cmdline")
                environment = dict(string.split("=", 1) for string in _strings(folder / "environ") if "=" in string)
                if program in [pathlib.Path(word).name for word in words[:2]] and mine.items() <= environment.items():
                    found[int(folder.name)] = environment
        return found

    def logs(self):
        """The last lines of all daemons, for the message of a test that fails."""
        files = [*sorted(self.folder.glob("*.log")), *sorted(self.folder.glob("*/slurmd.log"))]
        ends = ["\n".join(file.read_text(errors="replace").splitlines()[-15:]) for file in files]
        return "\n".join(f"--- {file}\n{end}" for file, end in zip(files, ends))

    def _write_files(self):
        self.folder.chmod(0o755)  # munge wants its socket to be within everybody's reach
        (self.folder / "munge").mkdir(mode=0o755)
        (self.folder / "state").mkdir()
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        ports = [small_run.free_port() for _ in range(1 + len(self.nodes))]
        addresses = [f"127.0.0.{number}" for number in range(2, 2 + len(self.nodes))]
        for name in self.nodes:
            (self.folder / name / "spool").mkdir(parents=True)
            (self.folder / name / "tmp").mkdir()
        hosts = [f"{address} {name}" for name, address in zip(self.nodes, addresses)]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        nodes = [NODE.format(name=name, address=address, port=port)
                 for name, address, port in zip(self.nodes, addresses, ports[1:])]
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname(), folder=self.folder, controller_port=ports[0], nodes="\n".join(nodes)))
        for number in range(8):  # files that stand where devices would
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-7]\n")

    def _start_munged(self):
        folder = self.folder / "munge"
        files = [f"--{kind}-file={folder}/{kind}" for kind in ("key", "pid", "log", "seed")]
        self._start("munged", ["munged", "--foreground", f"--socket={folder}/socket", *files])
        self._wait_until((folder / "socket").exists, "munged listens")

    def _start_node(self, name):
        # The shell is the node's first process: it inherits those whose parents have ended, and all end with it.
        script = 'hostname "$1" && mount --bind "$2/hosts" /etc/hosts || exit; slurmd -D -N "$1" & wait'
        self._start(name, [*PRIVATE, "bash", "-c", script, "bash", name, self.folder])

    def _start(self, name, command):
        log = self._stack.enter_context(open(self.folder / f"{name}.out.log", "w"))
        process = subprocess.Popen([*WITH_THE_TEST, *map(str, command)], env=self.environment, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        self._stack.callback(_end, process)

    def _states(self):
        return self.command("sinfo", "--noheader", "--Node", "--format=%T", check=False).split()

    def _wait_until(self, condition, what, timeout=30):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not seen within {timeout} s\n{self.logs()}")
            time.sleep(0.1)


def _end(process):
    process.kill()  # the processes of a node end with its first one
    process.wait()


def _strings(file):
    return file.read_bytes().decode(errors="replace").split("\0")


def _path():
    """Debian keeps daemons out of a user's path."""
    return os.environ["PATH"] + ":/usr/sbin:/sbin"
