"""The faults: each is a function (job, random, step that it resumes after) that starts the job, hurts it, sees to it that it
ends, and returns how it ended, in words of docs/failures.md, or raises Unexplained. What it damages it puts back.
"""
import os
import re
import signal
import socket
import threading
import time

from job import STOPPED, TEXT, expect, send

SAVED = "stopped with a checkpoint of its last step (status 75)"
NOTHING_YET = "stopped before the run started, or before its first step: nothing to keep (status 75)"
NOTHING_NEW = "stopped before a new step, nothing lost (status 75)"
FINISHED = "had come to its end already (status 0)"
ENDED = "ended; earlier checkpoints are whole"
AT_ONCE = "ended at once; earlier checkpoints are whole"
WENT_ON = "went on as if nothing had been"
REFUSED = "the damaged checkpoint was refused by name, the one before offered (status 2)"
NONE_LEFT = "the damaged checkpoint was refused by name; there was no other (status 2)"
NO_ROOM = "ended, naming the file; earlier checkpoints are whole"
DATA = "ended, naming the data file"
DISAGREED = "refused on every rank, naming the key and both values (status 2)"
OWNED = "the second job was refused, naming the first (status 2), which went on and stopped with a checkpoint"
CUT = "the torn line was cut off on resuming"


def random_moment(job, random):
    """Lets the job run for a while: often in its start-up, sometimes until a step, or in a checkpoint or evaluation."""
    choice = random.random()
    if choice < 0.3:
        time.sleep(random.uniform(0.03, 0.3))
        return
    before = max(job.logged(), default=0)
    target = before + random.randint(1, 12)
    deadline = time.monotonic() + 30
    while not job.over() and time.monotonic() < deadline:
        if choice > 0.8 and any((job.run_dir / "checkpoints").glob(".tmp-*")):
            break  # while one is being written
        if max(job.logged(), default=0) >= target:
            break
        time.sleep(0.002)
    time.sleep(random.uniform(0, 0.02))


def ended_by_stop(job, statuses, resumed_at):
    """After one wish to stop."""
    output = job.output()
    if statuses == [0] * len(statuses):
        return FINISHED
    expect(all(s == STOPPED for s in statuses), f"statuses {statuses}")
    lines = re.findall(r"^(?:plait: )?stopped by signal .*$", output, re.M)  # before the start, plait says it as any message
    expect(len(lines) == 1, f"{len(lines)} lines say where it stopped: {lines}")
    expect("--resume" in lines[0] or "start again with" in lines[0], f"it does not say how to go on: {lines[0]}")
    if "nothing to keep" in lines[0]:
        expect(resumed_at == 0 or "before the start" in lines[0], "what was resumed is said to be nothing")
        return NOTHING_YET
    if "nothing is lost" in lines[0]:
        return NOTHING_NEW
    step = int(re.search(r"after step (\d+) of", lines[0])[1])
    expect(job.checkpoints() and job.checkpoints()[-1] == step, f"stopped after step {step}, has {job.checkpoints()}")
    last = max(job.logged())
    expect(last == step, f"step {last} was the last to run, step {step} was saved")
    if job.logged_before is not None:
        job.later.append(step - job.logged_before)
    return SAVED


def one_signal(number, whom):
    def fault(job, random, resumed_at):
        job.start(resume=job.run_dir if resumed_at else None)
        random_moment(job, random)
        early = not job.output()  # perhaps not even loaded
        if whom == "all":
            send(job.processes(), number)
        elif whom == "a rank":
            ranks = job.ranks()
            send([random.choice(ranks)] if ranks else [], number)
        else:
            send([p.pid for p in job.started], number)
        job.logged_before = max(job.logged(), default=None)
        statuses = job.wait()
        if early and -number in statuses:
            return AT_ONCE  # before main()
        return ended_by_stop(job, statuses, resumed_at)
    return fault


def control_c(job, random, resumed_at):
    job.start(resume=job.run_dir if resumed_at else None, terminal=True)
    random_moment(job, random)
    early = not job.output()
    job.type_at_terminal(b"\x03")
    job.logged_before = max(job.logged(), default=None)
    statuses = job.wait()
    return AT_ONCE if early and -signal.SIGINT in statuses else ended_by_stop(job, statuses, resumed_at)


def second_signal(job, random, resumed_at):
    """Two wishes; the first may be granted in time."""
    job.start(resume=job.run_dir if resumed_at else None)
    random_moment(job, random)
    early = not job.output()
    send([p.pid for p in job.started], signal.SIGTERM)
    job.logged_before = max(job.logged(), default=None)
    time.sleep(random.choice([0, 0.01, 2]))
    send([p.pid for p in job.started], signal.SIGTERM)
    begun = time.monotonic()
    statuses = job.wait()
    expect(time.monotonic() - begun < 15, "took long to end at once")
    if -signal.SIGTERM in statuses:
        expect(early or "second signal" in job.output(), "does not say what ended it")
        return AT_ONCE
    return ended_by_stop(job, statuses, resumed_at)


def second_signal_to_the_stuck(job, random, resumed_at):
    """The ranks cannot agree where to stop, as one is stopped, until a second signal ends them."""
    job.start(resume=job.run_dir if resumed_at else None)
    random_moment(job, random)
    deadline = time.monotonic() + 30
    while not job.over() and not job.logged() and time.monotonic() < deadline:
        time.sleep(0.005)
    early = not job.output()  # perhaps not even loaded
    ranks = job.ranks()
    send([random.choice(ranks)] if ranks else [], signal.SIGSTOP)
    send([p.pid for p in job.started], signal.SIGTERM)
    time.sleep(2)  # well beyond same_wish (launch/stop_signals.h), however late the first one is taken
    send([p.pid for p in job.started], signal.SIGTERM)
    begun = time.monotonic()
    statuses = job.wait()
    if statuses == [0]:
        return FINISHED
    expect(time.monotonic() - begun < 15, "took long to end at once")
    if early and statuses != [-signal.SIGTERM]:
        return ended_by_stop(job, statuses, resumed_at)
    expect(statuses == [-signal.SIGTERM], f"statuses {statuses}")
    expect(early or "ended at once by a second signal" in job.output(), "does not say what ended it")
    return AT_ONCE


def killed(whom):
    def fault(job, random, resumed_at):
        job.start(resume=job.run_dir if resumed_at else None)
        random_moment(job, random)
        processes = job.ranks() if whom == "a rank" else [p.pid for p in job.started]
        victim = random.choice(processes) if processes else job.started[0].pid
        send([victim], signal.SIGKILL)
        statuses = job.wait()
        if all(s == 0 for s in statuses):
            return FINISHED
        expect(all(s in (0, 3, -signal.SIGKILL) for s in statuses), f"statuses {statuses}")
        # Whoever is left says whom it lost.
        if 3 in statuses:
            expect(re.search(r"rank \d", job.output()), "nobody is named")
        return ENDED
    return fault


def paused(job, random, resumed_at):
    """Stopped and let go on; then ended, as every fault leaves the job over."""
    job.start(resume=job.run_dir if resumed_at else None)
    random_moment(job, random)
    before = max(job.logged(), default=0)
    ranks = job.ranks()
    chosen = [random.choice(ranks)] if ranks else []
    send(chosen, signal.SIGSTOP)
    time.sleep(random.uniform(0.01, 0.2))
    send(chosen, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while not job.over() and max(job.logged(), default=0) < before + 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    if job.over():
        statuses = job.wait()
        expect(all(s == 0 for s in statuses), f"statuses {statuses}")
        return FINISHED
    expect(max(job.logged(), default=0) >= before + 2, "did not go on")
    job.kill()
    return WENT_ON


def damage(job, random, resumed_at):
    """A file of the newest checkpoint: a bit turned, cut off, emptied or gone."""
    newest = job.checkpoints()[-1]
    name = random.choice(["model.safetensors", "optimizer.safetensors", "state.json"])
    path = job.checkpoint(newest) / name
    kept = path.read_bytes()
    how = random.choice(["bit", "cut", "empty", "gone"])
    if how == "gone":
        path.unlink()
    else:
        data = bytearray(kept)
        if how == "bit":
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data if how == "bit" else data[:random.randrange(len(data))] if how == "cut" else b"")
    job.start(resume=job.run_dir)
    statuses = job.wait()
    output = job.output()
    what = f"{name} of step {newest}, {how}"
    if any(s != 2 for s in statuses):
        # What another run may have written: the others do not find out before they are told.
        expect(job.mode in FROM_OUTSIDE and set(statuses) <= {2, 3}, f"{what}: statuses {statuses}")
    expect(f"step-{newest:08}" in output, f"{what}: not named")
    older = re.search(r"newest good one before it is step (\d+); to take that one, give (\S+)", output)
    if older:
        expect(int(older[1]) in job.checkpoints(), f"{what}: offers step {older[1]}, has {job.checkpoints()}")
    else:
        expect("no good checkpoint before it" in output, f"{what}: does not say what is left")
    path.write_bytes(kept)
    return REFUSED if older else NONE_LEFT


def torn_log(job, random, resumed_at):
    """A crash while metrics.jsonl was written."""
    with open(job.run_dir / "metrics.jsonl", "ab") as file:
        file.write(b'{"step":' + str(10**6).encode()[:random.randint(0, 6)])
    job.start(resume=job.run_dir)
    deadline = time.monotonic() + 30
    while not job.over() and "resumed" not in job.output() and time.monotonic() < deadline:
        time.sleep(0.005)
    job.logged()  # reads every line
    send([p.pid for p in job.started], signal.SIGTERM)
    statuses = job.wait()
    expect(all(s in (0, STOPPED) for s in statuses), f"statuses {statuses}")
    return CUT


def all_ended(job, statuses, names):
    """By the fault, which one of the ranks at least names by `names`; nobody died of a signal."""
    expect(all(s in (2, 3) for s in statuses), f"statuses {statuses}")
    expect(re.search(names, job.output()), f"nobody says {names}")


def full_disk(job, random, resumed_at):
    job.start(resume=job.run_dir if resumed_at else None)
    random_moment(job, random)
    job.disk.fill(random.choice([0, 4096, random.randrange(1 << 20)]))
    statuses = job.wait()
    job.disk.free()
    if not any(statuses):
        return FINISHED
    all_ended(job, statuses, rf"{job.folder}.*No space left on device")
    return NO_ROOM


def may_not_grow(job, random, resumed_at):
    """ulimit -f: too little for a checkpoint, or for one of its files."""
    job.start(resume=job.run_dir if resumed_at else None, largest_file=random.randrange(60_000, 200_000))
    statuses = job.wait()
    all_ended(job, statuses, rf"{job.folder}.*File too large; raise the limit on the size of files \(ulimit -f\)")
    return NO_ROOM


def shrinking_data(job, random, resumed_at):
    job.start(resume=job.run_dir if resumed_at else None)
    before = max(job.logged(), default=0)
    job.wait_for_step(before + random.randint(1, 12))
    times = job.text.stat()
    os.truncate(job.text, random.choice([0, random.randrange(len(TEXT) // 2)]))
    statuses = job.wait()
    with open(job.text, "r+") as text:
        text.write(TEXT)
    os.utime(job.text, ns=(times.st_atime_ns, times.st_mtime_ns))
    if not any(statuses):
        return FINISHED
    all_ended(job, statuses, re.escape(str(job.text)))
    return DATA


GREETING = b"plait-1\0\1\0\0\0"
WORDS = [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000, GREETING, GREETING + b"c" * 32, GREETING + b"c" * 64, b"\0" * 8,
         (48).to_bytes(8, "little") + (3).to_bytes(8, "little") + b"\0" * 32]


def listening():
    """Ports of this machine that somebody listens at, each with what tells it from a later one of the same number."""
    ports = {}
    with open("/proc/net/tcp") as table:
        for line in table:
            fields = line.split()
            if fields[3] == "0A":
                ports[fields[9]] = int(fields[1].split(":")[1], 16)
    return ports


class Stranger:
    """Connects to every port that the job opens, and says what others might."""

    def __init__(self, job):
        self.job, self.sockets, self.ports, self.known = job, [], 0, set(listening())
        self.leaving = threading.Event()
        self.thread = threading.Thread(target=self.call)
        self.thread.start()

    def call(self):
        while not self.leaving.is_set():
            for listener, port in listening().items():
                if listener in self.known or listener not in self.job.sockets():
                    continue  # somebody else's
                self.known.add(listener)
                self.ports += 1
                for words in WORDS:
                    try:
                        connection = socket.create_connection(("127.0.0.1", port), 0.5)
                        connection.setblocking(False)
                        self.sockets.append(connection)
                        connection.send(words)
                    except OSError:
                        pass  # dropped already, or the port is closed
            time.sleep(0.0002)

    def leave(self):
        """Returns how many bytes it was told on the most talkative connection."""
        self.leaving.set()
        self.thread.join()
        most = 0
        for connection in self.sockets:
            told = 0
            try:
                while data := connection.recv(1 << 16):
                    told += len(data)
            except OSError:
                pass
            most = max(most, told)
            connection.close()
        return most


def stranger(job, random, resumed_at):
    somebody = Stranger(job)
    job.start(resume=job.run_dir if resumed_at else None)
    before = max(job.logged(), default=0)
    job.wait_for_step(before + random.randint(1, 4))
    told = somebody.leave()
    job.strangers.append((somebody.ports, len(somebody.sockets)))
    # A challenge: random bytes.
    expect(told <= 32, f"a stranger was told {told} bytes")
    send([p.pid for p in job.started], signal.SIGTERM)
    job.logged_before = max(job.logged(), default=None)
    return ended_by_stop(job, job.wait(), resumed_at)


def disagreeing_ranks(job, random, resumed_at):
    key, value = random.choice([("train.optimizer.lr", "0.5"), ("run.seed", "77"), ("train.global_batch", "16"),
                                ("train.clip", "0.3"), ("model.layers", "3"), ("data.sequence_length", "8"),
                                ("train.steps", "241"), ("parallel.schedule", "gpipe")])
    before = sorted(job.logged()), job.checkpoints()
    job.start(resume=job.run_dir if resumed_at else None, of_last_rank=["--set", f"{key}={value}"])
    statuses = job.wait()
    expect(set(statuses) == {2}, f"{key}={value}: statuses {statuses}")
    for path in job.outputs:
        expect(re.search(rf"{key}={value}: on rank 1, but \S+ on rank 0", path.read_text()), f"{key}={value} is not named")
    expect((sorted(job.logged()), job.checkpoints()) == before, "the run has changed")
    return DISAGREED


def second_owner(job, random, resumed_at):
    job.start(resume=job.run_dir if resumed_at else None)
    before = max(job.logged(), default=0)
    job.wait_for_step(before + random.randint(1, 12))
    other = job.another()
    other.start(resume=job.run_dir)
    refused = other.wait()
    # The run's last step was saved, and the first job is over or on its way out.
    nothing_left = set(refused) == {0} and "nothing to do" in other.output()
    if (nothing_left or job.over()) and not any(job.wait()):
        return FINISHED
    expect(2 in refused and set(refused) <= {2, 3}, f"statuses of the second job {refused}")
    said = other.output()
    expect(re.search(r"is in use by another job: process \d+ on \S+, since ", said), f"the second job says {said}")
    send([p.pid for p in job.started], signal.SIGTERM)
    job.logged_before = max(job.logged(), default=None)
    outcome = ended_by_stop(job, job.wait(), resumed_at)
    return OWNED if outcome == SAVED else outcome


def cut_cable(job, random, resumed_at):
    job.start(resume=job.run_dir if resumed_at else None)
    random_moment(job, random)
    job.networks.plug("down")
    statuses = job.wait()
    job.networks.plug("up")
    if not any(statuses):
        return FINISHED
    for rank, status in enumerate(statuses):  # one may have come to its end
        said = job.outputs[rank].read_text(errors="replace")
        if status == 2 and "comm.interface=cable: is a network interface of this host, but is down" in said:
            continue  # cut before it had looked for its address
        expect(status in (0, 3), f"statuses {statuses}")
        expect(status == 0 or re.search(rf"rank {1 - rank}\b.*(does not answer|not reached|did not call|no answer|is gone|lost"
                                        rf"|did not start|timed out|left)", said), f"rank {rank} does not name the other: {said}")
    return ENDED


def slow_cable(job, random, resumed_at):
    job.start(resume=job.run_dir if resumed_at else None)
    before = max(job.logged(), default=0)
    job.wait_for_step(before + 1)
    job.networks.slow(random.choice(["2mbit", "8mbit"]))
    time.sleep(random.uniform(0.1, 1))
    job.networks.slow(None)
    reached = max(job.logged(), default=0) + 2
    if not job.wait_for_step(reached):
        statuses = job.wait()
        expect(not any(statuses), f"statuses {statuses}")
        return FINISHED
    job.kill()
    return WENT_ON


# name: (weight, fault, needs a checkpoint, modes)
EVERY_MODE = ("one thread", "threads", "processes", "external", "two networks")
SEVERAL_PROCESSES = ("processes", "external", "two networks")
FROM_OUTSIDE = ("external", "two networks")
FAULTS = {
    "SIGINT": (2, one_signal(signal.SIGINT, "started"), False, EVERY_MODE),
    "SIGTERM": (2, one_signal(signal.SIGTERM, "started"), False, EVERY_MODE),
    "SIGUSR1": (2, one_signal(signal.SIGUSR1, "started"), False, EVERY_MODE),
    "SIGHUP": (1, one_signal(signal.SIGHUP, "started"), False, EVERY_MODE),
    "SIGTERM to one rank": (2, one_signal(signal.SIGTERM, "a rank"), False, SEVERAL_PROCESSES),
    "SIGUSR1 to every process": (2, one_signal(signal.SIGUSR1, "all"), False, SEVERAL_PROCESSES),
    "Ctrl-C at a terminal": (2, control_c, False, ("one thread", "threads", "processes")),
    "two signals": (2, second_signal, False, EVERY_MODE),
    "two signals, a rank is stopped": (1, second_signal_to_the_stuck, False, ("processes",)),
    "kill -9 of what was started": (3, killed("started"), False, EVERY_MODE),
    "kill -9 of a rank": (3, killed("a rank"), False, SEVERAL_PROCESSES),
    "a rank is paused": (1, paused, False, SEVERAL_PROCESSES),
    "a damaged checkpoint": (3, damage, True, EVERY_MODE),
    "a torn line in metrics.jsonl": (1, torn_log, True, EVERY_MODE),
    "a full disk": (2, full_disk, False, EVERY_MODE),
    "ulimit -f": (2, may_not_grow, False, EVERY_MODE),
    "data that shrinks": (2, shrinking_data, False, EVERY_MODE),
    "a stranger at every port": (2, stranger, False, ("threads", "processes", "external")),
    "ranks that disagree": (3, disagreeing_ranks, False, FROM_OUTSIDE),
    "a second owner": (2, second_owner, True, EVERY_MODE),
    "a cut cable": (4, cut_cable, False, ("two networks",)),
    "a slow cable": (3, slow_cable, False, ("two networks",)),
}
