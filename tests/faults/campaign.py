"""Does faults to training runs, at random moments but from a seed, and explains how each of them ended.

Usage: campaign.py PLAIT [--seed N] [--faults N] [--jobs N] [--only NAME ...] [--batch N] [--table FILE] [--keep]

A chain is one run that is hurt, resumed, hurt again and so on until it has come to its last step. After each fault: it ended as
docs/failures.md says, no process and no temporary file is left, the checkpoints that it announced are there, and the next start
resumes from the newest of them. At the end of the chain the checkpoint and every logged loss equal, bit for bit, those of a run
that nobody touched.

Exit status 0 if everything was explained. Of what was not, the folder is kept and named, with the seed that does it again.
CI runs 300 faults; by hand more: campaign.py build/release/app/plait --seed $RANDOM --faults 3000
"""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS  # noqa: E402
from job import MODES, Job, Networks, Unexplained, available_modes, expect, ran, send, small_disks  # noqa: E402

STEPS = 240
SEED_OF_RUNS = 1234


class Campaign:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.modes = available_modes(sorted(MODES))
        self.lock = threading.Lock()
        self.left = arguments.faults
        self.outcomes = collections.Counter()  # by (fault, outcome)
        self.resumes = self.chains = 0
        self.later = collections.Counter()  # steps from the last logged when a signal had been sent to the one saved
        self.strangers = []
        self.unexplained = []

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def job(self, name, mode):
        return Job(self.arguments.plait, self.folder / name, mode, SEED_OF_RUNS, STEPS, self.arguments.batch)

    def reference(self, mode):
        """What nobody touched: the loss of each step, the validation losses, and the bytes of the last checkpoint."""
        job = self.job(f"reference-{mode.replace(' ', '-')}", mode)
        job.start()
        statuses = job.wait(120)
        if any(statuses):
            raise SystemExit(f"a run that nobody touches fails: {statuses}\n{job.output()}")
        result = losses_of(job), files_of(job)
        job.remove()
        return result

    def chain(self, number, references):
        """Faults to one run until it is done, or no faults are left; then it is let run to its end."""
        seed = f"{self.arguments.seed}/{number}"
        dice = random.Random(seed)
        mode = dice.choice(self.modes)
        job = self.job(f"chain-{number}", mode)
        name = "the start"
        history = []
        try:
            kept = 0  # the newest checkpoint that may not be lost
            while kept < STEPS:
                choices = {f: w for f, (w, _, needs, modes) in FAULTS.items()
                           if mode in modes and (kept or not needs) and (f != "a full disk" or job.disk.ready)
                           and (not self.arguments.only or f in self.arguments.only)}
                if not choices or not self.take():
                    break
                name = dice.choices(list(choices), list(choices.values()))[0]
                if kept == 0:
                    job.forget_run()  # nothing was kept, so it begins anew
                before = job.checkpoints()
                outcome = FAULTS[name][1](job, dice, kept)
                history.append(f"{name}: {outcome}")
                job.expect_nothing_left()
                output = job.output()
                resumed = re.search(r"^resumed .* after step (\d+)$", output, re.M)
                expect(not resumed or int(resumed[1]) == kept, f"resumed after step {resumed and resumed[1]}, not {kept}")
                there = job.checkpoints()
                for step in {*before, *job.announced()}:
                    expect(step in there or (len(there) >= 3 and step < there[0]),
                           f"the checkpoint of step {step} is gone; there are {there}")
                expect(kept <= max(job.checkpoints(), default=0), f"the checkpoint of step {kept} is gone")
                kept = max(job.checkpoints(), default=0)
                with self.lock:
                    self.outcomes[name, outcome] += 1
                    self.resumes += resumed is not None
                    self.later.update(job.later)
                    self.strangers += job.strangers
                job.later.clear()
                job.strangers.clear()
            name = "the end"
            if kept == 0:
                job.forget_run()
            if kept < STEPS:
                job.start(resume=job.run_dir if kept else None)
                statuses = job.wait(120)
                expect(not any(statuses), f"statuses {statuses}")
                job.expect_nothing_left()
            losses, files = references[mode]
            self.compare(job, losses, files)
            with self.lock:
                self.chains += 1
            job.remove()
        except Exception as error:
            send(job.processes(), signal.SIGKILL)
            job.release(keep=True)
            text = str(error) if isinstance(error, Unexplained) else traceback.format_exc()
            with self.lock:
                self.unexplained.append(f"{mode}, {name}: {text}\n  chain {number} of seed {self.arguments.seed}, kept in "
                                        f"{job.folder}\n  before: {'; '.join(history) or 'nothing'}\n"
                                        + "".join(f"  | {line}\n" for line in job.output().splitlines()[-12:]))

    @staticmethod
    def compare(job, losses, files):
        logged = losses_of(job)
        for step, (loss, validation) in losses.items():
            expect(step in logged, f"step {step} is not logged")
            expect(logged[step][0] == loss, f"step {step}: loss {logged[step][0]}, without faults {loss}")
            # An evaluation that a signal cut has no result.
            expect(logged[step][1] in (None, validation), f"step {step}: validation loss {logged[step][1]}, not {validation}")
        for name, data in files_of(job).items():
            expect(data == files[name], f"{name} of the last checkpoint differs from that of a run without faults")

    def run(self):
        for mode in MODES.keys() - set(self.modes):
            print(f"left out: {mode} (network namespaces cannot be made here: ip netns add, as root)")
        if not small_disks(self.folder):
            print("left out: a full disk (a small one cannot be made here: mount -t tmpfs, as root)")
        references = {mode: self.reference(mode) for mode in self.modes}
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            number = 0
            running = set()
            while self.left > 0 or running:
                while self.left > 0 and len(running) < self.arguments.jobs:
                    running.add(pool.submit(self.chain, number, references))
                    number += 1
                done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    future.result()

    def table(self):
        lines = ["| fault | how often | what became of it |", "| --- | --- | --- |"]
        for fault in FAULTS:
            rows = sorted((o, n) for (f, o), n in self.outcomes.items() if f == fault)
            if rows:
                lines.append(f"| {fault} | {sum(n for _, n in rows)} | " + "; ".join(f"{n} × {o}" for o, n in rows) + " |")
        return "\n".join(lines) + "\n"


def losses_of(job):
    return {step: (line["loss"], line.get("validation_loss")) for step, line in job.logged().items()}


def files_of(job):
    return {name: (job.checkpoint(STEPS) / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plait")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2, help="chains at a time")
    parser.add_argument("--only", nargs="+", choices=sorted(FAULTS), default=[])
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step: more for slower steps")
    parser.add_argument("--table", help="write the table of outcomes (Markdown) to this file")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    arguments = parser.parse_args()
    arguments.plait = str(Path(arguments.plait).resolve())
    # What is mounted goes with this process then, however it ends.
    if "PLAIT_FAULTS_MOUNTS" not in os.environ and ran("unshare", "-m", "true"):
        os.environ["PLAIT_FAULTS_MOUNTS"] = "its own"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    Networks.remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix="plait-faults-"))
    campaign = Campaign(arguments, folder)
    campaign.run()
    table = campaign.table()
    print(table)
    total = sum(campaign.outcomes.values())
    print(f"seed {arguments.seed}: {total} faults explained, {len(campaign.unexplained)} not; {campaign.resumes} resumes; "
          f"{campaign.chains} runs came to the end of a run without faults, bit for bit")
    if campaign.later:
        print("steps from the last one logged when a signal had been sent to the one saved: "
              + ", ".join(f"{steps} ({n} times)" for steps, n in sorted(campaign.later.items())))
    if campaign.strangers:
        ports, connections = (sum(counts) for counts in zip(*campaign.strangers))
        print(f"strangers found {ports} ports and connected {connections} times, in {len(campaign.strangers)} starts")
    for text in campaign.unexplained:
        print(f"UNEXPLAINED: {text}")
    if arguments.table:
        Path(arguments.table).write_text(table)
    if not campaign.unexplained and not arguments.keep:
        shutil.rmtree(folder)
    return 1 if campaign.unexplained or total < arguments.faults else 0


if __name__ == "__main__":
    sys.exit(main())
