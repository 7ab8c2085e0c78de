"""Runs over several hosts, which are network namespaces here: torchrun, mpirun, and ranks that are placed by hand."""
import os
import signal
import subprocess
import time

import small_run
import virtual_hosts
from small_run import ADTRAIN, MPIRUN, TORCHRUN

LEAVE_SECONDS = 30  # in which every rank is gone after one has failed
UNENDING = ["--set", "train_timesteps=1000000", "--set", "eval_interval=0", "--set", "ckpt_interval=1000000"]
SHORT_PATIENCE = ["--set", "collective_timeout_seconds=5"]


class HostsWithADeadEndFirst(virtual_hosts.VirtualHosts):
    """The first host's name has two addresses: the first is of the network that connects nobody."""

    def __init__(self, count):
        super().__init__(count, dead_ends=True)

    def _hosts_file(self, own_number):
        path = super()._hosts_file(own_number)
        path.write_text(f"{virtual_hosts.DEAD_END}.1 h1\n{path.read_text()}")
        return path


class HostsWithIpv6Only(virtual_hosts.VirtualHosts):
    LAN = "fd97:"

    def _hosts_file(self, own_number):
        path = super()._hosts_file(own_number)
        path.write_text(path.read_text().replace(f"{virtual_hosts.LAN}.", f"{self.LAN}:"))
        return path

    def __enter__(self):
        super().__enter__()
        for number, host in enumerate(self, 1):
            for change in ("-4 address flush dev eth0", f"-6 address add {self.LAN}:{number}/64 dev eth0 nodad"):
                subprocess.run(host.inside(["ip", *change.split()], "/"), check=True, timeout=30)
        return self


class OnHosts(small_run.SmallRun):
    """The folder of the test is what all hosts see, as on a network file system."""

    def build_hosts(self, count, kind=virtual_hosts.VirtualHosts, **setting):
        self.hosts = self.enterContext(kind(count, **setting))
        return self.hosts

    def start_on(self, host, command, **environment):
        return self.start(host.inside(command, self.folder), **environment)

    def start_ranks(self, hosts, options=(), world_size=None, master="h1", environments=None):
        """As a job script without a launcher does it: a rank for each of `hosts`, in order."""
        started = []
        for rank, host in enumerate(hosts):
            place = {"RANK": rank, "WORLD_SIZE": world_size or len(hosts), "LOCAL_RANK": hosts[:rank].count(host),
                     "LOCAL_WORLD_SIZE": hosts.count(host), "MASTER_ADDR": master, "MASTER_PORT": 29400}
            more = environments[rank] if environments else {}
            started.append(self.start_on(host, [ADTRAIN, "small.yaml", *options],
                                         **{name: str(value) for name, value in (place | more).items()}))
        return started

    def start_torchrun(self, hosts, ranks_a_host, options=(), meet=None, **environment):
        """An agent on each host; `meet` has the options by which they find each other, given the host's number."""
        meet = meet or (lambda _: ["--rdzv-backend", "c10d", "--rdzv-endpoint", "h1:29400", "--rdzv-id", "test"])
        return [self.start_on(host, [TORCHRUN, "--nnodes", len(hosts), "--nproc-per-node", ranks_a_host,
                                     *meet(number), "--no-python", ADTRAIN, "small.yaml", *options], **environment)
                for number, host in enumerate(hosts)]

    def start_mpirun(self, slots, options=(), mpi_options=()):
        """From the first host; `slots` is how many ranks each host takes."""
        hostfile = self.folder / "hostfile"
        hostfile.write_text("".join(f"{host.name} slots={count}\n" for host, count in zip(self.hosts, slots)))
        lan = f"{virtual_hosts.LAN}.0/24"
        return self.start_on(self.hosts[0], [
            MPIRUN, "--hostfile", hostfile, "--mca", "plm_rsh_agent", self.hosts.launch_agent,
            "--mca", "oob_tcp_if_include", lan, "--mca", "btl_tcp_if_include", lan,
            *mpi_options, ADTRAIN, "small.yaml", *options])

    def finish_all(self, processes, timeout=90):
        begin = time.monotonic()
        return [small_run.finish(process, max(1, begin + timeout - time.monotonic()), begin) for process in processes]

    def assert_all_done(self, processes):
        for finished in self.finish_all(processes):
            self.assert_done(finished)

    def assert_ends(self, finished, code, *words, within=LEAVE_SECONDS):
        self.assertEqual(finished.code, code, finished.output)
        self.assertLess(finished.seconds, within * small_run.PATIENCE, finished.output)
        for word in words:
            self.assertIn(word, finished.output)

    def ranks_on(self, *hosts):
        return [process for host in hosts for process in host.processes("adtrain")]

    def wait_until_training(self):
        metrics = self.run_folder() / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, "the first step")


class SameTraining(OnHosts):
    """How ranks are spread over hosts changes no bit of what they learn."""

    references = {}  # by transport

    def reference(self, transport):
        """Weights of four ranks on one host."""
        if transport not in self.references:
            name = f"one-host-{transport}"
            options = ["--set", f"run_name={name}"]
            self.assert_all_done(self.start_ranks([self.hosts[0]] * 4, options) if transport == "gloo"
                                 else [self.start_mpirun([4], options)])
            self.references[transport] = self.weights(name=name)
        return self.references[transport]

    def test_torchrun_on_two_hosts_that_meet_by_c10d(self):
        hosts = self.build_hosts(2)
        self.collect()
        first, second = self.finish_all(self.start_torchrun(hosts, 2))
        self.assert_done(first)
        self.assert_done(second)
        self.assertIn("4 (2 on this host)", first.output)
        self.assertEqual(self.weights(), self.reference("gloo"))

    def test_torchrun_on_two_hosts_that_are_numbered(self):
        hosts = self.build_hosts(2)
        self.collect()
        self.assert_all_done(self.start_torchrun(
            hosts, 2, meet=lambda number: ["--node-rank", number, "--master-addr", "h1", "--master-port", 29400]))
        self.assertEqual(self.weights(), self.reference("gloo"))

    def test_torchrun_on_four_hosts(self):
        hosts = self.build_hosts(4)
        self.collect()
        self.assert_all_done(self.start_torchrun(hosts, 1))
        self.assertEqual(self.weights(), self.reference("gloo"))

    def test_mpirun_places_and_binds_ranks_as_it_is_told(self):
        self.build_hosts(2)
        self.collect()
        reference = self.reference("mpi")
        for name, slots, mpi_options, on_first_host in (
                ("in order", [2, 2], [], 2),
                ("in turns", [3, 3], ["-np", 4, "--map-by", "node", "--bind-to", "none"], 2),
                ("uneven", [3, 1], ["--bind-to", "none"], 3)):
            with self.subTest(name):
                finished, = self.finish_all([self.start_mpirun(slots, ["--overwrite"], mpi_options)])
                self.assert_done(finished)
                self.assertIn(f"4 ({on_first_host} on this host)", finished.output)
                self.assertEqual(self.weights(), reference)

    def test_mpirun_on_four_hosts(self):
        self.build_hosts(4)
        self.collect()
        self.assert_all_done([self.start_mpirun([1, 1, 1, 1])])
        self.assertEqual(self.weights(), self.reference("mpi"))


class Interfaces(OnHosts):
    """Hosts with two networks, of which one connects nobody."""

    def setUp(self):
        super().setUp()
        self.collect()

    def test_the_one_towards_the_master_is_found(self):
        self.assert_all_done(self.start_ranks(list(self.build_hosts(2, dead_ends=True))))

    def test_gloo_asks_for_it_where_the_host_names_itself_loopback(self):
        hosts = self.build_hosts(2, dead_ends=True, own_name_is_loopback=True)
        patience = ["--set", "rendezvous_timeout_seconds=8"]
        first, second = self.finish_all(self.start_ranks(list(hosts), patience))
        self.assert_ends(first, 3, "2 network interfaces (eth0, eth1)", "GLOO_SOCKET_IFNAME")
        self.assert_ends(second, 3)
        self.assert_all_done(self.start_ranks(list(hosts), environments=[{"GLOO_SOCKET_IFNAME": "eth0"}] * 2))

    def test_gloo_on_the_wrong_one_ends_within_the_deadline(self):
        hosts = self.build_hosts(2, dead_ends=True)
        patience = ["--set", "rendezvous_timeout_seconds=8"]
        wrong = {"GLOO_SOCKET_IFNAME": "eth1"}
        for finished in self.finish_all(self.start_ranks(list(hosts), patience, environments=[wrong] * 2)):
            self.assert_ends(finished, 3, "GLOO_SOCKET_IFNAME", "cannot connect", within=25)
        absent = {"GLOO_SOCKET_IFNAME": "ib0"}
        for finished in self.finish_all(self.start_ranks(list(hosts), patience, environments=[absent] * 2)):
            self.assert_ends(finished, 3, "ib0", within=15)

    def test_the_masters_name_may_mean_the_dead_end_first(self):
        hosts = self.build_hosts(2, HostsWithADeadEndFirst)
        patience = ["--set", "rendezvous_timeout_seconds=30"]
        self.assert_all_done(self.start_ranks(list(hosts), patience, environments=[{"GLOO_SOCKET_IFNAME": "eth0"}] * 2))

    def test_mpirun_takes_the_one_that_it_is_told(self):
        self.build_hosts(2, dead_ends=True)
        self.assert_all_done([self.start_mpirun([1, 1])])


class Meeting(OnHosts):
    """Hosts that do not come are named, and nobody waits longer than was asked for."""

    PATIENCE = ["--set", "rendezvous_timeout_seconds=8"]

    def test_the_master_cannot_be_reached(self):
        hosts = self.build_hosts(2)
        for master, why in (("h2", "refused"),  # there is the host, but rank 0 runs on the other
                            (f"{virtual_hosts.LAN}.9", "(No route to host|timed out)"), ("h9", "name")):
            with self.subTest(master):
                first, second = self.finish_all(self.start_ranks(list(hosts), self.PATIENCE, master=master))
                self.assert_ends(first, 3, f"{master}:29400", "for rank 1", within=20)
                self.assert_ends(second, 3, "Rank 1 of 2 did not reach rank 0", f"{master}:29400", within=20)
                self.assertRegex(second.output, why)

    def test_a_host_is_missing(self):
        hosts = self.build_hosts(2)
        first, second = self.finish_all(self.start_ranks([hosts[0]] * 2, self.PATIENCE, world_size=4))
        self.assert_ends(first, 3, "h1:29400", "ranks 2, 3", within=20)
        self.assert_ends(second, 3, "h1:29400", within=20)  # where it asks too late, it is told who knows: rank 0


CULPRIT = ("failed first", " on h2\n")  # the block that all output ends with


class Failures(OnHosts):
    """One rank on the second host fails: all others leave, the launchers too, and no process stays."""

    def setUp(self):
        super().setUp()
        self.build_hosts(2)
        self.collect()

    def strike(self, processes, what):
        """Does `what` to a rank on the second host in the midst of training; returns how the others end."""
        self.wait_until_training()
        victim = self.ranks_on(self.hosts[1])[-1]
        os.kill(victim, what)
        struck = time.monotonic()
        self.wait_for(lambda: not set(self.ranks_on(*self.hosts)) - {victim}, "the end of all others", LEAVE_SECONDS)
        if what == signal.SIGSTOP and victim in self.ranks_on(self.hosts[1]):
            os.kill(victim, signal.SIGKILL)  # torchrun would do so, but only 30 s after it has asked politely
        ended = self.finish_all(processes, timeout=LEAVE_SECONDS)
        self.assertLess(time.monotonic() - struck, LEAVE_SECONDS)
        self.assertEqual(self.ranks_on(*self.hosts), [])
        return ended

    def test_torchrun_ends_when_a_rank_is_killed(self):
        first, second = self.strike(self.start_torchrun(self.hosts, 2, UNENDING), signal.SIGKILL)
        self.assert_ends(first, 1, *CULPRIT, "exitcode  : 7", within=120)
        self.assert_ends(second, 1, "exitcode  : -9", within=120)

    def test_torchrun_ends_when_a_rank_hangs(self):
        first, second = self.strike(self.start_torchrun(self.hosts, 2, UNENDING + SHORT_PATIENCE), signal.SIGSTOP)
        self.assert_ends(first, 1, *CULPRIT, "has not been heard of", "exitcode  : 7", within=120)
        self.assert_ends(second, 1, within=120)

    def test_mpirun_ends_when_a_rank_is_killed(self):
        finished, = self.strike([self.start_mpirun([2, 2], UNENDING)], signal.SIGKILL)
        self.assert_ends(finished, 128 + signal.SIGKILL, *CULPRIT, "signal 9", within=120)

    def test_mpirun_ends_when_a_rank_hangs(self):
        finished, = self.strike([self.start_mpirun([2, 2], UNENDING + SHORT_PATIENCE)], signal.SIGSTOP)
        self.assert_ends(finished, 7, *CULPRIT, "has not been heard of", within=120)

    def test_a_rank_that_hangs_is_named_where_hosts_have_ipv6_only(self):
        self.build_hosts(2, HostsWithIpv6Only)
        first, second = self.strike(self.start_ranks([*self.hosts], UNENDING + SHORT_PATIENCE), signal.SIGSTOP)
        self.assertNotIn("cannot reach rank 0", second.output)
        self.assert_ends(first, 7, *CULPRIT, "has not been heard of", within=120)

    def test_ranks_end_when_a_host_drops_off_the_network(self):
        ranks = self.start_ranks([*self.hosts] * 2, UNENDING + SHORT_PATIENCE)
        self.wait_until_training()
        self.hosts[1].unplug()
        struck = time.monotonic()
        for finished in self.finish_all(ranks, timeout=LEAVE_SECONDS):
            self.assert_ends(finished, 7, "failed first", "has not been heard of", within=120)
        self.assertLess(time.monotonic() - struck, LEAVE_SECONDS)

    def test_mpirun_gives_the_code_of_the_rank_that_failed(self):
        self.hosts[1].hide(self.folder / "histories")
        finished, = self.finish_all([self.start_mpirun([2, 2])])
        self.assert_ends(finished, 4, *CULPRIT, "does not exist", "adtrain collect")


class Restarts(OnHosts):
    def test_torchrun_restarts_ranks_although_its_agents_count_differently(self):
        """One agent counts the restart that its rank causes. The other only sees that the group is to meet
        again: its rank, 0 here, is told of no restart, and must overwrite nothing."""
        hosts = self.build_hosts(2)
        self.collect()
        self.assert_all_done(self.start_ranks([hosts[0]] * 2, ["--set", "run_name=whole"]))
        meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "h1:29400", "--rdzv-id", "test",
                "--max-restarts", 1]
        processes = self.start_torchrun(hosts, 1, ["--overwrite"], meet=lambda _: meet,
                                        ADTRAIN_FAULT="slow@0:12-14")  # six seconds, in which rank 1 is killed
        checkpoints = self.run_folder() / "checkpoints"
        self.wait_for(lambda: any(checkpoints.glob("step-*")), "a checkpoint")
        os.kill(small_run.rank_processes(self.folder.resolve())[1], signal.SIGKILL)
        both = self.finish_all(processes, timeout=120)
        for finished in both:
            self.assert_done(finished)
        self.assertIn("resuming after step", "".join(finished.output for finished in both))
        self.assertEqual(self.weights(), self.weights(name="whole"))


if __name__ == "__main__":
    if reason := virtual_hosts.obstacle():
        small_run.skip(reason)
    small_run.main()
