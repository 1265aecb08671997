"""A training job that faults are done to: started in any launch mode, watched, and looked at when it is over."""
import copy
import errno
import fcntl
import itertools
import json
import os
import pty
import re
import resource
import secrets
import shutil
import signal
import subprocess
import termios
import time
from pathlib import Path

STOPPED = 75

# A step takes some milliseconds; every step is logged. Layouts differ by what ranks exchange and who writes what.
CONFIG = """
run: {{name: run, dir: "{folder}/runs", seed: {seed}}}
model: {{layers: 2, hidden: 32, heads: 4, ffn: 64}}
data: {{train: ["{folder}/text.txt"], tokenizer: bytes, sequence_length: 16}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch: 2, eval_every: 25, eval_batches: 2}}
checkpoint: {{every: 20, keep: 3}}
log: {{every: 1, tensorboard: false}}
"""

MODES = {
    "one thread": {"launch.mode": "threads", "launch.ranks": 1},
    "threads": {"launch.mode": "threads", "launch.ranks": 2, "parallel.zero": 1},
    "processes": {"launch.mode": "processes", "launch.ranks": 2, "parallel.pipeline": 2, "parallel.data": 1},
    "external": {"launch.mode": "external", "launch.ranks": 2, "parallel.tensor": 2, "parallel.data": 1},
    # Two hosts: a network namespace for each rank, a cable, no shared directory but the run's.
    "two networks": {"launch.mode": "external", "launch.ranks": 2, "parallel.data": 2, "parallel.zero": 2,
                     "comm.interface": "cable", "comm.timeout_s": 4},
}
TEXT = "".join(f"line {i}: the quick brown fox jumps over the lazy dog\n" for i in range(400))
DISK_BYTES = 16 << 20


class Unexplained(Exception):
    """What the run did is not what the documentation says."""


def expect(condition, words):
    if not condition:
        raise Unexplained(words)


def send(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def ran(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Networks:
    """Two network namespaces that a cable joins. Needs root; `ready` says whether it worked."""

    def __init__(self):
        number = next(Networks.numbers)
        self.names = [f"plait-faults-{os.getpid()}-{number}-{i}" for i in (0, 1)]
        self.ready = bool(shutil.which("ip")) and all(ran("ip", "netns", "add", name) for name in self.names)
        self.ready = self.ready and ran("ip", "link", "add", "cable", "netns", self.names[0], "type", "veth",
                                        "peer", "name", "cable", "netns", self.names[1])
        for i, name in enumerate(self.names):
            self.ready = (self.ready and ran("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "cable")
                          and ran("ip", "-n", name, "link", "set", "cable", "up")
                          and ran("ip", "-n", name, "link", "set", "lo", "up"))

    numbers = itertools.count()

    def plug(self, state):
        """`state`: up or down."""
        expect(ran("ip", "-n", self.names[0], "link", "set", "cable", state), "cannot change the cable")

    def slow(self, rate):
        """Lets that rate through from rank 0's end, as tc writes rates; None: all."""
        tc = ["ip", "netns", "exec", self.names[0], "tc", "qdisc"]
        done = (ran(*tc, "del", "dev", "cable", "root") if rate is None else
                ran(*tc, "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "10s"))
        expect(done, "cannot change the rate of the cable")

    def remove(self):
        for name in self.names:
            ran("ip", "netns", "del", name)

    @staticmethod
    def remove_leftovers():
        """What campaigns that were killed have left: the names say which process they were of."""
        for name in Path("/run/netns").glob("plait-faults-*"):
            if not Path("/proc", name.name.split("-")[2]).exists():
                ran("ip", "netns", "del", name.name)
                name.unlink(missing_ok=True)


class Disk:
    """A small disk of its own at `path`. Needs root; `ready` says whether it worked."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.ready = ran("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "plait-faults", str(path))

    def fill(self, room):
        """Until `room` bytes are left, at most."""
        with open(self.path / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 16))
            except OSError as error:
                expect(error.errno == errno.ENOSPC, f"cannot fill the disk: {error}")
            filler.truncate(max(0, filler.tell() - room))

    def free(self):
        (self.path / "filler").unlink()

    def remove(self):
        if self.ready:
            ran("umount", "-l", str(self.path))


def available_modes(modes):
    """Those of `modes` that this machine can start."""
    networks = Networks()
    networks.remove()
    return [mode for mode in modes if mode != "two networks" or networks.ready]


def small_disks(folder):
    """Whether jobs below `folder` get disks of their own."""
    disk = Disk(folder / "disk")
    disk.remove()
    return disk.ready


class Job:
    """One run directory in a folder of its own, and the processes that work on it."""

    def __init__(self, plait, folder, mode, seed, steps, batch):
        self.plait, self.folder, self.mode, self.steps = plait, Path(folder), mode, steps
        self.folder.mkdir(parents=True)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)
        self.disk = Disk(self.folder / "runs")
        self.networks = Networks() if mode == "two networks" else None
        (self.folder / "config.yaml").write_text(CONFIG.format(folder=self.folder, seed=seed, steps=steps, batch=batch))
        self.run_dir = self.folder / "runs" / "run"
        self.starts = itertools.count(1)
        self.logged_before = None  # the last step that was logged when a signal had been sent
        self.later = []            # by how many steps what was saved is later
        self.strangers = []        # of each stay: ports that were found, connections
        self.token = secrets.token_hex(16)
        self.started = []   # the processes that the campaign started, rank 0 first
        self.outputs = []
        self.terminal = None

    # --- running ---

    def start(self, resume=None, terminal=False, of_last_rank=(), largest_file=None):
        """Starts or resumes the run. `terminal`: with one, in its foreground; `of_last_rank`: arguments that only that one of
        several processes is given; `largest_file`: in bytes, that the job may write."""
        number = next(self.starts)
        command = [self.plait, "train", str(self.folder / "config.yaml")]
        settings = dict(MODES[self.mode])
        external = settings["launch.mode"] == "external"
        settings["launch.device"] = "cpu"
        settings.setdefault("comm.timeout_s", 20)
        if self.networks:
            settings["launch.rendezvous"] = f"tcp://10.78.0.1:{29500 + number}"
        elif external:
            settings["launch.rendezvous"] = self.folder / f"rendezvous-{number}"
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        if resume:
            command += ["--resume", str(resume)]

        def prepare():
            os.setsid()
            if largest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
            if terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.started, self.outputs = [], []
        size = settings["launch.ranks"] if external else 1
        for rank in range(size):
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("PLAIT_", "SLURM_", "OMPI_"))}
            environment["TMPDIR"] = str(self.temporary)
            if external:
                environment.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), PLAIT_TOKEN=self.token,
                                   TORCHELASTIC_RUN_ID=str(number))
            path = self.folder / f"output-{number}-{rank}"
            self.outputs.append(path)
            stdin = subprocess.DEVNULL
            if terminal:
                self.terminal, stdin = pty.openpty()
            with open(path, "w") as output:
                inside = ["ip", "netns", "exec", self.networks.names[rank]] if self.networks else []
                own = list(of_last_rank) if rank == size - 1 else []
                self.started.append(subprocess.Popen(inside + command + own, stdin=stdin, stdout=output, stderr=output, env=environment,
                                                     preexec_fn=prepare))
            if terminal:
                os.close(stdin)

    def another(self):
        """Another job that has the same run directory."""
        other = copy.copy(self)
        other.started, other.outputs = [], []
        return other

    def type_at_terminal(self, text):
        os.write(self.terminal, text)

    def ranks(self):
        """Process ids of the ranks; a job of threads is one process."""
        if self.mode != "processes":
            return [p.pid for p in self.started if p.poll() is None]
        return sorted(p for p in self.processes() if p != self.started[0].pid)

    def processes(self):
        """Whatever runs with this job's TMPDIR."""
        found = []
        marker = f"TMPDIR={self.temporary}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if marker in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def over(self):
        return all(p.poll() is not None for p in self.started)

    def wait(self, limit=60):
        """Exit statuses of what was started; a negative one is a signal."""
        deadline = time.monotonic() + limit
        while not self.over():
            if time.monotonic() > deadline:
                send(self.processes(), signal.SIGKILL)
                raise Unexplained(f"did not end within {limit} s")
            time.sleep(0.005)
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None
        return [p.returncode for p in self.started]

    def kill(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
        self.wait()

    def wait_for_step(self, step, limit=30):
        """Until the step is logged, or the job is over. Returns whether it is logged."""
        deadline = time.monotonic() + limit
        while not self.over() and max(self.logged(), default=0) < step and time.monotonic() < deadline:
            time.sleep(0.005)
        return max(self.logged(), default=0) >= step

    # --- looking ---

    def output(self):
        return "".join(path.read_text(errors="replace") for path in self.outputs)

    def logged(self):
        """Lines of metrics.jsonl by step, of the part that is whole."""
        path = self.run_dir / "metrics.jsonl"
        for last_try in (False, True):
            lines = {}
            try:
                text = path.read_text()
            except FileNotFoundError:
                return lines
            try:
                for number, line in enumerate(text.split("\n")[:-1], 1):
                    entry = json.loads(line)
                    expect(entry["step"] not in lines, f"step {entry['step']} is logged twice")
                    lines[entry["step"]] = entry
                return lines
            except json.JSONDecodeError:
                # A job that resumes may have cut the file while it was read.
                expect(not last_try, f"line {number} of metrics.jsonl is {line[:100]!r}, of {len(line)} characters")
                time.sleep(0.05)

    def checkpoints(self):
        """Steps of those that stand under their name."""
        folder = self.run_dir / "checkpoints"
        if not folder.is_dir():
            return []
        return sorted(int(p.name[5:]) for p in folder.iterdir() if re.fullmatch(r"step-\d{8}", p.name))

    def checkpoint(self, step):
        return self.run_dir / "checkpoints" / f"step-{step:08}"

    def announced(self):
        return [int(step) for step in re.findall(r"^checkpoint: .*/step-(\d{8})$", self.output(), re.M)]

    def expect_nothing_left(self):
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)  # ranks die with their launcher, which takes the kernel a moment
        expect(not left, f"processes are left: {left}")
        files = [str(p) for p in self.temporary.iterdir()]
        expect(not files, f"temporary files are left: {files}")

    def sockets(self):
        """Those of its processes, as /proc/net/tcp numbers them."""
        inodes = set()
        for process in [p.pid for p in self.started]:
            try:
                children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
                for one in [str(process), *children]:
                    links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{one}/fd")]
                    inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
            except OSError:
                pass  # it has ended, or the descriptor is closed
        return inodes

    def forget_run(self):
        """As if it had never been started."""
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def release(self, keep=False):
        """What the machine lent it. `keep`: with a copy of what is on its disk."""
        if keep and self.disk.ready:
            shutil.copytree(self.disk.path, self.folder / "runs-kept", dirs_exist_ok=True)
        self.disk.remove()
        if self.networks:
            self.networks.remove()

    def remove(self):
        self.release()
        shutil.rmtree(self.folder)
