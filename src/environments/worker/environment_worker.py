"""Plays environments of the user's own for adtrain, in a process of its own.

adtrain starts it as `python environment_worker.py SOCKET MODULE:FUNCTION`. It needs Python 3.9, numpy and gymnasium.
The function is `make_env(task, seed)`, which makes one environment, or `make_vec_env(tasks, seeds)`, which makes a
gymnasium.vector.VectorEnv; the module may name its tasks in a list TASKS. docs/own-environments.md describes both.

The protocol: this process first sends `hello`, a line of JSON. Everything after that is a message of eight bytes,
MESSAGE: what to do, which half of the environments, a number. Observations, actions and rewards are in a segment of shared
memory, which comes with LAYOUT together with a JSON text of the number's length. An answer repeats half and number;
instead of one, a fault is a line of JSON, and this process ends.
"""
import ctypes
import difflib
import faulthandler
import importlib
import inspect
import json
import mmap
import os
import re
import signal
import socket
import struct
import sys
import traceback

PROTOCOL = 1
MESSAGE = struct.Struct("<BBxxI")
LAYOUT, RESET, STEP, CLOSE, DONE = b"LRSCD"
OLDEST_PYTHON = (3, 9)
LONGEST_TRACEBACK = 20000  # characters
ADDRESS = re.compile("<.* at 0x[0-9a-f]")  # as Python writes objects that say nothing else of themselves
WORKER = os.getpid()

np = None  # numpy and gymnasium: loaded once it is known that they are there
gymnasium = None


class Fault(Exception):
    """What is reported to adtrain instead of an answer."""

    def __init__(self, kind, **content):
        super().__init__(kind)
        self.content = dict(content, kind=kind)


def raised(doing, place=None):
    """The exception that is being handled, as a fault: its traceback begins in the user's code."""
    error = sys.exc_info()[1]
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    lines = traceback.format_exception(type(error), error, own or error.__traceback__)
    text = "".join(lines)[-LONGEST_TRACEBACK:]
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    return Fault("exception", doing=doing, place=place, error=summary, traceback=text)


class Channel:
    """The socket to adtrain."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        os.register_at_fork(after_in_child=self.socket.close)  # else a child would keep it open when the worker has died

    def send_line(self, content):
        line = json.dumps(content) + "\n"
        self.socket.sendall(line.encode("utf-8", "replace"))

    def send_done(self, half, number):
        self.socket.sendall(MESSAGE.pack(DONE, half, number))

    def receive(self):
        """The next message and the file that came with it, or None. None alone where adtrain is gone."""
        data, files, _, _ = socket.recv_fds(self.socket, MESSAGE.size, 1)
        if len(data) < MESSAGE.size:
            data += self.receive_bytes(MESSAGE.size - len(data)) if data else b""
        if len(data) < MESSAGE.size:
            return None
        return MESSAGE.unpack(data), files[0] if files else None

    def receive_bytes(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                break
            data += part
        return data


def space_json(space):
    """What Minari's JSON says of a space, as a dictionary; of another kind of space its name and text."""
    kind = type(space).__name__
    if kind == "Discrete":
        return {"type": kind, "dtype": str(space.dtype), "start": int(space.start), "n": int(space.n)}
    if kind == "MultiDiscrete":
        start = getattr(space, "start", np.zeros_like(space.nvec))
        return {"type": kind, "dtype": str(space.dtype), "nvec": space.nvec.tolist(), "start": start.tolist()}
    if kind == "Box":
        return {"type": kind, "dtype": str(space.dtype), "shape": list(space.shape), "low": space.low.tolist(),
                "high": space.high.tolist()}
    return {"type": kind, "text": str(space)}


def without_bounds(space):
    """What must be the same for all tasks of what is observed."""
    described = space_json(space)
    described.pop("low", None)
    described.pop("high", None)
    return described


def as_array(value):
    """Of what cannot be one, such as lists of different lengths or a tensor on a GPU, an array of one object."""
    try:
        return np.asarray(value)
    except Exception:
        return np.empty((), object)


class Places:
    """Half of the environments, as rows of arrays in the shared segment."""

    def __init__(self, segment, described, observation_space, action_space):
        self.count = described["places"]

        def array(name, dtype, shape=()):
            return np.ndarray((self.count,) + tuple(shape), dtype, segment, described[name])

        self.task, self.seed = array("task", np.int64), array("seed", np.int64)
        self.action = array("action", action_space.dtype, action_space.shape)
        self.observation_shape = tuple(observation_space.shape)
        self.observation = array("observation", observation_space.dtype, self.observation_shape)
        self.final_observation = array("final_observation", observation_space.dtype, self.observation_shape)
        self.reward = array("reward", np.float64)
        self.terminated, self.truncated = array("terminated", np.bool_), array("truncated", np.bool_)
        self.cut = array("cut", np.bool_)
        """Whether adtrain ends the episode with this step; after it, whether it did and the environment did not."""
        self.convertible = {}
        """Types that were found to become the observation's without a change of kind: whether numbers may wrap around."""

    def expect(self, value, shape, doing, place):
        """The observation as an array of this shape and of a type that its space can hold."""
        row, dtype = as_array(value), self.observation.dtype
        if row.dtype not in self.convertible and row.dtype != object and np.can_cast(row.dtype, dtype, "same_kind"):
            are_whole = row.dtype.kind in "iu" and dtype.kind in "iu"
            self.convertible[row.dtype] = are_whole and not np.can_cast(row.dtype, dtype, "safe")
        if row.shape != shape or row.dtype not in self.convertible:
            found = type(value).__name__ if row.dtype == object else "shape %s, %s" % (row.shape, row.dtype)
            raise Fault("value", what="observation", doing=doing, place=place, found=found,
                        expected="shape %s, %s" % (shape, dtype))
        if self.convertible[row.dtype]:
            self.expect_to_fit(row, doing, place)
        return row

    def expect_to_fit(self, row, doing, place):
        """Throws Fault where a whole number would become another one in the space's narrower type."""
        dtype = self.observation.dtype
        wrong = np.argwhere(row.astype(dtype) != row)
        if len(wrong) == 0:
            return
        at = wrong[0].tolist()
        number = row[tuple(at)]
        if place is None:  # rows of all places
            place, at = at[0], at[1:]
        limits = np.iinfo(dtype)
        raise Fault("value", what="observation", doing=doing, place=place,
                    found="%d%s" % (number, " at %s" % at if at else ""),
                    expected="numbers that %s can hold, %d to %d" % (dtype, limits.min, limits.max))


def reward_of(value, doing, place):
    if type(value) is float:
        return value
    array = as_array(value)
    if array.ndim != 0 or array.dtype.kind not in "fiub":
        raise Fault("value", what="reward", doing=doing, place=place, found=repr(value)[:200], expected="one number")
    return float(value)


def are_flags(array):
    """Whether these are truth values, or numbers that stand for some: 0 and 1."""
    return array.dtype.kind == "b" or array.dtype.kind in "iuf" and bool(np.isin(array, (0, 1)).all())


def flag_of(value, what, doing, place):
    """Python finds truth in anything: None would go on with the episode, and any dictionary end it."""
    if type(value) is bool:
        return value
    array = as_array(value)
    if array.size != 1 or not are_flags(array):
        raise Fault("value", what=what, doing=doing, place=place, found=repr(value)[:200],
                    expected="one truth value: True, False, 0 or 1")
    return bool(array.item())


class Options(dict):
    """Options of a reset, which know whether anybody has looked into them. Whoever copies them looks, too."""
    were_read = False

    def __reduce_ex__(self, _):  # other processes do not know this class
        return dict, (dict(self),)


def reading(name):
    def read(self, *arguments):
        self.were_read = True
        return getattr(dict, name)(self, *arguments)
    return read


for name in ("__contains__", "__eq__", "__getitem__", "__iter__", "__or__", "__repr__", "__reversed__", "__ror__", "copy",
             "get", "items", "keys", "pop", "popitem", "setdefault", "values"):
    setattr(Options, name, reading(name))


class SingleEnvironments:
    """Environments of make_env, stepped one after the other."""

    def __init__(self, user, places):
        self.user, self.places, self.environments = user, places, []
        for place in range(places.count):
            try:
                environment = user.make(user.task(places.task[place]), int(places.seed[place]))
            except BaseException:
                raise raised(user.name, place) from None
            self.environments.append(environment)
            user.expect_spaces(environment, place)
        for place in range(places.count):
            self.reset(place, "reset", seed=int(places.seed[place]))

    def reset(self, place, doing, **options):
        try:
            observation, _ = self.environments[place].reset(**options)
        except BaseException:
            raise raised("reset", place) from None
        places = self.places
        places.observation[place] = places.expect(observation, places.observation_shape, doing, place)

    def step(self):
        places, shape = self.places, self.places.observation_shape
        actions, cut = list(places.action.copy()), places.cut.tolist()
        for place, environment in enumerate(self.environments):
            try:
                observation, reward, terminated, truncated, _ = environment.step(actions[place])
            except BaseException:
                raise raised("step", place) from None
            row = places.expect(observation, shape, "step", place)
            places.reward[place] = reward_of(reward, "step", place)
            terminated = flag_of(terminated, "terminated", "step", place)
            truncated = flag_of(truncated, "truncated", "step", place)
            places.terminated[place] = terminated
            ended = terminated or truncated
            places.cut[place] = cut[place] and not ended
            places.truncated[place] = truncated or places.cut[place]
            if ended or cut[place]:
                places.final_observation[place] = row
                self.reset(place, "reset")
            else:
                places.observation[place] = row

    def close(self):
        for environment in self.environments:
            environment.close()


class VectorEnvironments:
    """A VectorEnv of make_vec_env, whatever its autoreset mode."""

    def __init__(self, user, places):
        self.user, self.places = user, places
        seeds = places.seed.tolist()
        try:
            self.environments = user.make([user.task(task) for task in places.task], seeds)
        except BaseException:
            raise raised(user.name) from None
        user.expect_spaces(self.environments, None)
        count = user.attribute(self.environments, "num_envs", None)
        if count != places.count:
            raise Fault("value", what="number of environments", doing=user.name, place=None, found=str(count),
                        expected=str(places.count))
        self.mode = self.autoreset_mode()
        places.observation[:] = self.observations(self.reset(seed=seeds), "reset")

    def autoreset_mode(self):
        """NextStep, SameStep or Disabled. Before Gymnasium 1.1 environments do not say it, and all have the same."""
        mode = self.user.attribute(self.environments, "metadata", None).get("autoreset_mode")
        if mode is None:
            return "SameStep" if gymnasium.__version__.startswith("0.") else "NextStep"
        return getattr(mode, "value", mode)

    def observations(self, found, doing):
        places = self.places
        return places.expect(found, (places.count,) + places.observation_shape, doing, None)

    def one_each(self, value, what, expected, fits):
        """An array of a number for each environment that holds what it should."""
        array = as_array(value)
        if array.shape != (self.places.count,) or not fits(array):
            raise Fault("value", what=what, doing="step", place=None,
                        found="%s of shape %s, %s: %s" % (type(value).__name__, array.shape, array.dtype,
                                                          repr(value)[:200]),
                        expected="shape (%d,), %s" % (self.places.count, expected))
        return array

    def flags(self, value, what):
        """One `False` is that of all: environments may never truncate."""
        return value if value is False else self.one_each(value, what, "bool, or numbers 0 and 1", are_flags)

    def reset(self, **options):
        try:
            return self.environments.reset(**options)[0]
        except BaseException:
            raise raised("reset") from None

    def reset_some(self, ended):
        """Starts new episodes at these places alone. Returns the observations of all places."""
        if ended.all():
            return self.observations(self.reset(), "reset")
        environment = self.environments.unwrapped
        of_gymnasium = (gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv)
        if self.mode != "Disabled" and not (hasattr(gymnasium.vector, "AutoresetMode")
                                            and isinstance(environment, of_gymnasium)):
            raise Fault("value", what="autoreset mode", doing="reset", place=int(np.flatnonzero(ended)[0]),
                        found="%s of %s, where episodes end at different times" % (self.mode, type(environment).__name__),
                        expected="one that resets single environments: SameStep without max_episode_steps below the "
                                 "environment's own limit, Disabled with reset_mask, or gymnasium's SyncVectorEnv")
        options = Options(reset_mask=ended.copy())
        fresh = self.observations(self.reset(options=options), "reset")
        if not options.were_read:
            self.expect_others_as_they_were(fresh, ended)
        return fresh

    def expect_others_as_they_were(self, fresh, ended):
        """Of a reset that cannot know which places it was for. Elsewhere nothing is said of what others observe."""
        last = self.places.final_observation  # of this step, at all places
        differs = (fresh.astype(last.dtype) != last).reshape(len(ended), -1).any(axis=1) & ~ended
        if differs.any():
            raise Fault("value", what="observation", doing="reset", place=int(np.flatnonzero(differs)[0]),
                        found="another one than before, as reset does not look at options['reset_mask'] and resets all",
                        expected="reset(options={'reset_mask': ...}) to leave the other environments as they are")

    def step(self):
        places = self.places
        try:
            found, rewards, terminated, truncated, info = self.environments.step(places.action.copy())
        except BaseException:
            raise raised("step") from None
        reached = self.observations(found, "step")
        places.reward[:] = self.one_each(rewards, "rewards", "float64", lambda array: array.dtype.kind in "fiub")
        places.terminated[:] = self.flags(terminated, "terminated")
        places.truncated[:] = self.flags(truncated, "truncated")
        ended = places.terminated | places.truncated
        places.cut &= ~ended
        places.truncated |= places.cut
        over = ended | places.cut
        if not over.any():
            places.observation[:] = reached
            return
        places.final_observation[:] = reached
        to_reset = over
        if self.mode == "SameStep":
            self.put_aside(ended, info)
            to_reset = places.cut.copy()
        if to_reset.any():
            fresh = self.reset_some(to_reset)
            reached = np.where(to_reset.reshape((-1,) + (1,) * len(places.observation_shape)), fresh, reached)
        places.observation[:] = reached

    def put_aside(self, ended, info):
        """The last observations of episodes, where the others are already those of the next."""
        last = info.get("final_obs", info.get("final_observation"))
        for place in np.flatnonzero(ended):
            if last is None:
                raise Fault("value", what="final_obs", doing="step", place=int(place), found="none in info",
                            expected="the last observation, as same-step autoreset gives it")
            row = self.places.expect(last[place], self.places.observation_shape, "step", int(place))
            self.places.final_observation[place] = row

    def close(self):
        self.environments.close()


class UserModule:
    """What the user has written: how environments are made, and of which tasks."""

    def __init__(self, spec):
        module_name, _, self.name = spec.partition(":")
        try:
            module = importlib.import_module(module_name)
        except BaseException:
            raise raised("import") from None
        self.make = getattr(module, self.name, None)
        if not callable(self.make):
            names = [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]
            raise Fault("name", module=module.__name__, name=self.name, file=str(getattr(module, "__file__", "")),
                        nearest=(difflib.get_close_matches(self.name, names, 1) or [""])[0])
        self.tasks = getattr(module, "TASKS", None)
        self.names = self.task_names()
        self.is_vector = self.makes_vectors()
        self.observation_space = self.action_space = None

    def task_names(self):
        """By which runs and results know the tasks, so they must be the same in every process. None without TASKS."""
        if self.tasks is None:
            return None

        def refuse(found, expected):
            raise Fault("value", what="TASKS", doing="import", place=None, found=found, expected=expected)

        kind = type(self.tasks)
        is_list = hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
        if not is_list or isinstance(self.tasks, (str, bytes, dict)):
            refuse("%s %s" % ("an" if kind.__name__[0] in "aeiou" else "a", kind.__name__),
                   "a list of tasks, or what has tasks by numbers as a list has, such as a tuple or a range")
        try:
            names = [str(task) for task in self.tasks]
        except BaseException:
            raise raised("reading TASKS") from None
        if not names:
            refuse("none", "one task at least")
        numbers = {}
        for number, name in enumerate(names):
            if ADDRESS.search(name):
                refuse("%s as the name of task %d, with an address, which is another in every process"
                       % (name[:200], number),
                       "names that stay the same, since by them a run knows which tasks it was trained on: "
                       "give the tasks a __str__, or make them dataclasses, texts or numbers")
            first = numbers.setdefault(name, number)
            if first != number:
                refuse("%s as the name of task %d and of task %d" % (name[:200], first, number),
                       "another name, str(task), for each, since by them a run knows which tasks it was trained on")
        return names

    def makes_vectors(self):
        """Whether it takes tasks and seeds, and not one of each."""
        try:
            first = next(iter(inspect.signature(self.make).parameters), "")
        except (TypeError, ValueError):  # some built-in functions have no signature
            first = ""
        return first == "tasks" or self.name == "make_vec_env"

    def task(self, number):
        return int(number) if self.tasks is None else self.tasks[number]

    def find_spaces(self):
        """Makes an environment of the first task to see its spaces."""
        task = self.task(0)
        try:
            environment = self.make([task], [0]) if self.is_vector else self.make(task, 0)
            self.observation_space, self.action_space = self.spaces_of(environment, None)
            environment.close()
        except Fault:
            raise
        except BaseException:
            raise raised(self.name) from None

    def spaces_of(self, environment, place):
        """What is observed and done in it, or in each environment of a VectorEnv."""
        prefix = "single_" if self.is_vector else ""
        return tuple(self.attribute(environment, prefix + name, place) for name in ("observation_space", "action_space"))

    def attribute(self, environment, name, place):
        """What every environment has. Throws Fault where this is none, such as the None of a forgotten return."""
        try:
            return getattr(environment, name)
        except AttributeError as error:
            raise Fault("value", what="environment", doing=self.name, place=place,
                        found="%s (%s)" % (type(environment).__name__, str(error)[:200]),
                        expected="a gymnasium.vector.VectorEnv" if self.is_vector else "a gymnasium.Env") from None
        except BaseException:
            raise raised(self.name, place) from None

    def expect_spaces(self, environment, place):
        """Those of the first task. Bounds of observations may differ; by the action space adtrain draws and clips actions."""
        observation_space, action_space = self.spaces_of(environment, place)
        for what, found, expected, compared in (
                ("observation space", observation_space, self.observation_space, without_bounds),
                ("action space", action_space, self.action_space, space_json)):
            if found is not expected and compared(found) != compared(expected):
                raise Fault("value", what=what, doing=self.name, place=place, found=str(found)[:200],
                            expected="that of the first task, %s" % str(expected)[:200])

    def hello(self):
        return {"protocol": PROTOCOL, "observation_space": json.dumps(space_json(self.observation_space)),
                "action_space": json.dumps(space_json(self.action_space)), "vector": self.is_vector,
                "tasks": self.names,
                "python": "%d.%d.%d" % sys.version_info[:3], "numpy": np.__version__,
                "gymnasium": gymnasium.__version__}


class Worker:
    """Does what adtrain says until it says CLOSE, or is gone."""

    def __init__(self, channel, user):
        self.channel, self.user = channel, user
        self.halves, self.environments = [], []

    def run(self):
        while True:
            received = self.channel.receive()
            if received is None:
                break
            (kind, half, number), file = received
            if kind == LAYOUT:
                self.lay_out(json.loads(self.channel.receive_bytes(number)), file)
                continue
            if kind == RESET:
                self.close(half)
                kind_of_environments = VectorEnvironments if self.user.is_vector else SingleEnvironments
                self.environments[half] = kind_of_environments(self.user, self.halves[half])
            elif kind == STEP:
                self.environments[half].step()
            else:
                break
            self.channel.send_done(half, number)
        for half in range(len(self.environments)):
            self.close(half)

    def lay_out(self, layout, file):
        for half in range(len(self.environments)):
            self.close(half)
        segment = mmap.mmap(file, layout["bytes"])
        os.close(file)
        self.halves = [Places(segment, half, self.user.observation_space, self.user.action_space)
                       for half in layout["halves"]]
        self.environments = [None] * len(self.halves)

    def close(self, half):
        if self.environments[half] is None:
            return
        try:
            self.environments[half].close()
        except BaseException:  # what was played is played
            traceback.print_exc()
        self.environments[half] = None


def end_with_adtrain():
    """The kernel kills this process when adtrain ends. Signals that reach whole jobs are for adtrain to answer."""
    try:
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    except (OSError, AttributeError):
        pass  # the end of the socket is noticed all the same

    def leave_to_adtrain(number, _):
        if os.getpid() != WORKER:  # a process that an environment has started
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave_to_adtrain)


def close_inherited_files(channel):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != channel:
            try:
                os.close(int(name))
            except OSError:
                pass  # the folder that was listed


def load_packages():
    """Throws Fault where this Python lacks what the worker needs, with the command that installs it."""
    global np, gymnasium
    if sys.version_info < OLDEST_PYTHON:
        raise Fault("installation", message="%s is Python %d.%d; expected %d.%d or newer: set env_python to one, such as "
                    "env_python=python3.11" % ((sys.executable,) + tuple(sys.version_info[:2]) + OLDEST_PYTHON))
    for package in ("numpy", "gymnasium"):
        try:
            module = importlib.import_module(package)
        except ImportError as missing:
            raise Fault("installation", message="%s cannot import %s (%s); install it by %s -m pip install numpy gymnasium, "
                        "or set env_python to a Python that has it" % (sys.executable, package, missing, sys.executable))
        if package == "numpy":
            np = module
        else:
            gymnasium = module


def main():
    descriptor, spec = int(sys.argv[1]), sys.argv[2]
    close_inherited_files(descriptor)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    end_with_adtrain()
    sys.path[0] = os.getcwd()
    sys.stdout.reconfigure(line_buffering=True)
    channel = Channel(descriptor)
    try:
        load_packages()
        user = UserModule(spec)
        user.find_spaces()
        channel.send_line(user.hello())
        Worker(channel, user).run()
    except Fault as fault:
        channel.send_line({"fault": fault.content})
        sys.exit(1)
    except (BrokenPipeError, ConnectionResetError):
        pass  # adtrain is gone


if __name__ == "__main__":
    main()
