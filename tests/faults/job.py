"""A training job that faults are done to: started in any launch mode, watched, and looked at when it is over."""
import fcntl
import json
import os
import pty
import re
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
comm: {{timeout_s: 20}}
log: {{every: 1, tensorboard: false}}
"""

MODES = {
    "one thread": {"launch.mode": "threads", "launch.ranks": 1},
    "threads": {"launch.mode": "threads", "launch.ranks": 2, "parallel.zero": 1},
    "processes": {"launch.mode": "processes", "launch.ranks": 2, "parallel.pipeline": 2, "parallel.data": 1},
    "external": {"launch.mode": "external", "launch.ranks": 2, "parallel.tensor": 2, "parallel.data": 1},
}


class Unexplained(Exception):
    """What the run did is not what the documentation says."""


def expect(condition, words):
    if not condition:
        raise Unexplained(words)


class Job:
    """One run directory in a folder of its own, and the processes that work on it."""

    def __init__(self, plait, folder, mode, seed, steps, batch):
        self.plait, self.folder, self.mode, self.steps = plait, Path(folder), mode, steps
        self.folder.mkdir(parents=True)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        with open(self.folder / "text.txt", "w") as text:
            for i in range(400):
                text.write(f"line {i}: the quick brown fox jumps over the lazy dog\n")
        (self.folder / "config.yaml").write_text(CONFIG.format(folder=self.folder, seed=seed, steps=steps, batch=batch))
        self.run_dir = self.folder / "runs" / "run"
        self.starts = 0
        self.logged_before = None  # the last step that was logged when a signal had been sent
        self.later = []            # by how many steps what was saved is later
        self.started = []   # the processes that the campaign started, rank 0 first
        self.outputs = []
        self.terminal = None

    # --- running ---

    def start(self, resume=None, terminal=False):
        """Starts or resumes the run. `terminal`: with one, in its foreground."""
        self.starts += 1
        command = [self.plait, "train", str(self.folder / "config.yaml")]
        settings = dict(MODES[self.mode])
        external = settings["launch.mode"] == "external"
        settings["launch.device"] = "cpu"
        if external:
            rendezvous = self.folder / f"rendezvous-{self.starts}"
            rendezvous.mkdir(mode=0o700)
            settings["launch.rendezvous"] = rendezvous
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        if resume:
            command += ["--resume", str(resume)]

        def prepare():
            os.setsid()
            if terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.started, self.outputs = [], []
        for rank in range(settings["launch.ranks"] if external else 1):
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("PLAIT_", "SLURM_", "OMPI_"))}
            environment["TMPDIR"] = str(self.temporary)
            if external:
                environment.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
            path = self.folder / f"output-{self.starts}-{rank}"
            self.outputs.append(path)
            stdin = subprocess.DEVNULL
            if terminal:
                self.terminal, stdin = pty.openpty()
            with open(path, "w") as output:
                self.started.append(subprocess.Popen(command, stdin=stdin, stdout=output, stderr=output, env=environment,
                                                     preexec_fn=prepare))
            if terminal:
                os.close(stdin)

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
                for process in self.processes():
                    os.kill(process, signal.SIGKILL)
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

    # --- looking ---

    def output(self):
        return "".join(path.read_text(errors="replace") for path in self.outputs)

    def logged(self):
        """Lines of metrics.jsonl by step, of the part that is whole."""
        lines = {}
        try:
            text = (self.run_dir / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return lines
        for line in text.split("\n")[:-1]:
            entry = json.loads(line)
            expect(entry["step"] not in lines, f"step {entry['step']} is logged twice")
            lines[entry["step"]] = entry
        return lines

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

    def remove(self):
        shutil.rmtree(self.folder)
