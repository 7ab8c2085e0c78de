"""Several hosts on one machine, as launchers see them: each has a name, a network and an /etc/hosts of its own.

    with VirtualHosts(2) as hosts:
        subprocess.run(hosts[0].inside(["ping", "-c1", "h2"], folder="/tmp"))

They share the file system, as a cluster shares a network file system, and the cores.
"""
import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

PROGRAMS = {"ip": "iproute2", "mount": "mount", "nsenter": "util-linux", "unshare": "util-linux",
            "hostname": "hostname"}  # and the Debian packages that they come from

# Keeps namespaces alive for as long as its standard input, a pipe from the test, is open: however the test ends, its
# hosts go with all that runs in them. Repeats, as a process may start another while it is being killed.
HOLDER = """
set -e
if [ $# -gt 0 ]; then
  hostname "$1"
  mount --bind "$2" /etc/hosts
fi
ip link set lo up
echo ready
cat > /dev/null
found=yes
while [ "$found" ]; do
  found=
  for process in /proc/[0-9]*; do
    if [ "$process" != /proc/$$ ] && [ "$process/ns/net" -ef /proc/$$/ns/net ]; then
      found=yes
      kill -KILL "${process#/proc/}" || true
    fi
  done 2> /dev/null
done
"""

# What mpirun runs in place of ssh: AGENT HOST WORD…, the words being a command for the shell over there.
LAUNCH_AGENT = """#!/bin/sh
case $1 in
{cases}
  *) echo "$1: no such host" >&2; exit 255 ;;
esac
shift
exec nsenter --target $holder {namespaces} -- sh -c "$*"
"""

NAMESPACES = ("--net", "--uts", "--mount")
LAN, DEAD_END = "10.97.0", "10.98.0"  # seen by nobody but the hosts


def obstacle():
    """Why this system does not let us build hosts; None where it does."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, and only root can make them"
    missing = [f"{program} ({package})" for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        return "hosts are made with programs that are not installed: " + ", ".join(missing)
    trial = "hostname h1 && mount --bind /etc/hosts /etc/hosts && ip link add type bridge && ip link add type veth"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", trial], capture_output=True, text=True, timeout=30)
    return f"this system forbids network namespaces: {tried.stderr.strip()}" if tried.returncode != 0 else None


class Holder:
    """A process whose namespaces we use; `name` and `hosts_file` are for those of a host."""

    def __init__(self, name=None, hosts_file=None):
        own = [name, hosts_file] if name else []
        self.process = subprocess.Popen(["unshare", *NAMESPACES, "sh", "-c", HOLDER, "sh", *map(str, own)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.close()
            raise RuntimeError(f"the namespaces of {name or 'the network'} could not be made")

    @property
    def pid(self):
        return self.process.pid

    def inside(self, command):
        return ["nsenter", "--target", str(self.pid), *NAMESPACES, "--", *map(str, command)]

    def ip(self, arguments):
        subprocess.run(self.inside(["ip", *shlex.split(arguments)]), check=True, timeout=30)

    def close(self):
        """Kills all that runs there."""
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


class VirtualHost:
    """One of several: `name` is known to the others, `eth0` leads to them; `eth1`, where there is one, nowhere."""

    def __init__(self, number, holder, network):
        self.name = f"h{number}"
        self.address = f"{LAN}.{number}"
        self._holder = holder
        self._network = network
        self._join("eth0", self.address)
        network.ip(f"link set {self.name}-eth0 master lan")

    def add_dead_end(self):
        """A second interface, up and with an address in one subnet with the others', but nobody is on its wire."""
        self._join("eth1", f"{DEAD_END}.{self.name[1:]}")

    def _join(self, interface, address):
        port = f"{self.name}-{interface}"
        self._network.ip(f"link add {port} type veth peer name {interface} netns {self._holder.pid}")
        self._network.ip(f"link set {port} up")
        self._holder.ip(f"address add {address}/24 dev {interface}")
        self._holder.ip(f"link set {interface} up")

    @property
    def pid(self):
        """Of the process that holds this host's namespaces."""
        return self._holder.pid

    def inside(self, command, folder):
        """The command line that runs `command` on this host, in `folder`."""
        return self._holder.inside(["env", "-C", folder, *command])

    def hide(self, folder):
        """On this host alone the folder is empty from now on."""
        subprocess.run(self._holder.inside(["mount", "-t", "tmpfs", "none", folder]), check=True, timeout=30)

    def unplug(self):
        """Pulls the cable: nobody is told, packets go nowhere."""
        self._network.ip(f"link set {self.name}-eth0 nomaster")

    def plug_in(self):
        """Puts the cable back."""
        self._network.ip(f"link set {self.name}-eth0 master lan")

    def processes(self, program):
        """Ids of the processes of this name that run here."""
        here = os.stat(f"/proc/{self.pid}/ns/net")
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (process / "comm").read_text().strip() == program and os.path.samestat(
                        here, os.stat(process / "ns/net")):
                    found.append(int(process.name))
            except OSError:
                pass  # it has ended meanwhile
        return sorted(found)


class VirtualHosts:
    """Hosts h1, h2, … on one switch, for as long as the context lasts.

    `dead_ends` gives each a second interface that leads nowhere. With `own_name_is_loopback` each takes its own name
    for 127.0.1.1, as Debian sets it up.
    """

    def __init__(self, count, dead_ends=False, own_name_is_loopback=False):
        self._count = count
        self._dead_ends = dead_ends
        self._own_name_is_loopback = own_name_is_loopback
        self._hosts = []

    def __enter__(self):
        with contextlib.ExitStack() as built:
            self._folder = pathlib.Path(built.enter_context(tempfile.TemporaryDirectory(prefix="adtrain-hosts-")))
            self._build(built)
            self._built = built.pop_all()
        return self

    def __exit__(self, *_):
        self._built.close()

    def __getitem__(self, index):
        return self._hosts[index]

    def __len__(self):
        return len(self._hosts)

    def _build(self, built):
        def hold(*of_a_host):
            return built.enter_context(contextlib.closing(Holder(*of_a_host)))

        network = hold()  # the switch, in a namespace of its own: the machine's network stays as it is
        network.ip("link add lan type bridge")
        network.ip("link set lan up")
        for number in range(1, self._count + 1):
            host = VirtualHost(number, hold(f"h{number}", self._hosts_file(number)), network)
            if self._dead_ends:
                host.add_dead_end()
            self._hosts.append(host)
        self._write_launch_agent()

    def _hosts_file(self, own_number):
        lines = ["127.0.0.1 localhost"]
        for number in range(1, self._count + 1):
            loopback = self._own_name_is_loopback and number == own_number
            lines.append(f"{'127.0.1.1' if loopback else f'{LAN}.{number}'} h{number}")
        path = self._folder / f"hosts-{own_number}"
        path.write_text("\n".join(lines) + "\n")
        return path

    @property
    def launch_agent(self):
        """For `mpirun --mca plm_rsh_agent`: it enters a host as ssh would."""
        return self._folder / "launch-agent"

    def _write_launch_agent(self):
        cases = "\n".join(f"  {host.name}) holder={host.pid} ;;" for host in self)
        self.launch_agent.write_text(LAUNCH_AGENT.format(cases=cases, namespaces=" ".join(NAMESPACES)))
        self.launch_agent.chmod(0o755)
