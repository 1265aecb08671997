#!/usr/bin/env python3
"""Every `plait` command in a code block of README.md and docs/*.md runs as printed, in the order of its page.

It runs in a copy of the repository whose configurations are made small (SMALLER), so that what is a minute's training on the page
is a second's here. What a reader brings himself (CONFIG, DIR, tune.yaml, text/) is laid out first: PREPARED, BROUGHT. A
command that needs GPUs or minutes is in NOT_RUN with the reason; of those, and of all others, the options must be
in `plait help`, the keys in docs/configuration.md.

Usage: page_commands_test.py SOURCE_FOLDER PLAIT [PAGE ...]
"""
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OPTIONAL = re.compile(r"\s\[(--[^\]]*)\]")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


SMALL = "{layers: 2, hidden: 32, heads: 4, norm: rms_norm, mlp: swiglu, ffn: 64, position: rope, bias: false, qkv_bias: false}"
# Of a configuration: lines that begin so are replaced.
SMALLER = {
    "configs/quickstart.yaml": {"model:": f"model: {SMALL}", "  sequence_length:": "  sequence_length: 64",
                                "  global_batch:": "  global_batch: 4", "  train:": '  train: ["scripts/**"]',
                                "launch:": "launch: {ranks: auto, device: cpu}"},
    "docs/examples/my-text.yaml": {"model:": f"model: {SMALL}", "  steps:": "  steps: 30", "  sequence_length:": "  sequence_length: 32",
                                   "  global_batch:": "  global_batch: 4", "  micro_batch:": "  micro_batch: 2"},
    "docs/examples/bf16-moments.yaml": {"model:": f"model: {SMALL}", "  steps:": "  steps: 4", "  optimizer:": "  optimizer: {}"},
    "configs/studies/cpu.yaml": {"model:": "model: {layers: 4, hidden: 16, heads: 4, ffn: 32, vocab: 256}",
                                 "data:": "data: {tokenizer: random, sequence_length: 16}",
                                 "  measure:": "  measure: {steps: 2, warmup: 1, rounds: 2}",
                                 "  prune:": "  simulate: {gpus: [4, 8]}"},
    "configs/studies/isoflop.yaml": {"model:": f"model: {SMALL}", "  train:": '  train: ["docs/**"]',
                                     "  sequence_length:": "  sequence_length: 32", "  global_batch:": "  global_batch: 8",
                                     "  micro_batch:": "  micro_batch: 8",
                                     "  axes:": "  axes: {parameters: [4e3, 8e3, 16e3, 32e3], flops: [2e9, 4e9]}"},
}

JOB = f"""model: {SMALL}
data: {{train: ["text/**"], validation_fraction: 0.2, tokenizer: bytes, sequence_length: 32}}
train: {{steps: 4, global_batch: 4, micro_batch: 1}}
launch: {{device: cpu}}
"""
TUNE = """run: {name: tuned}
model: {from: DIR}
data: {train: ["chats/*.jsonl"], validation: [held-out.jsonl], chat_template: chatml, documents: separate, sequence_length: 64}
train: {steps: 3, global_batch: 2, micro_batch: 1}
launch: {device: cpu, ranks: 1}
"""

# What a page's reader has, made by plait where plait makes it.
PREPARED = {
    "README.md": ["plait train configs/quickstart.yaml"],
    "docs/checkpoints.md": ["plait train job.yaml --set run.name=base --set train.steps=2000"],
    "docs/evaluation.md": ["plait train configs/quickstart.yaml --set train.steps=20"],
    "docs/planner.md": ["plait train job.yaml --set run.name=a", "plait train job.yaml --set run.name=b"],
    "docs/studies.md": ["plait study configs/studies/cpu.yaml --set run.name=main", "cp -r runs/main runs/change"],
}
# The reader's words for what he has: on a page, or on all.
BROUGHT = {
    "README.md": {"study CONFIG": "study configs/studies/cpu.yaml", "--slurm DIR": "--slurm $(mktemp -d)"},
    "docs/studies.md": {"CONFIG": "configs/studies/cpu.yaml", "--slurm DIR": "--slurm $(mktemp -d)", "DIR": "runs/study-cpu",
                        "OLD NEW": "runs/main runs/change"},
    "docs/checkpoints.md": {"tune.yaml": "job.yaml"},
    "docs/hosts.md": {"MASTER_PORT=29500": f"MASTER_PORT={free_port()}"},
    "docs/planner.md": {"CONFIG": "large.yaml"},
    "docs/scaling-laws.md": {"steps in 400 800 1600": "steps in 4 8 16"},
    "docs/schedules.md": {"CONFIG": "schedule.yaml"},
    "docs/topology.md": {"FILE": "tests/topology/topologies/dgx1v.txt", "host.json --replicate": "hgx.xml --replicate"},
    "": {"CONFIG": "job.yaml", "Qwen2.5-0.5B": "DIR"},
}
# A law of what is made so small may be refused; of two runs it always is.
STATUS = {"plait study fit runs ": {2}, "plait study fit ": {0, 1}}

GPUS, LONG = "needs GPUs, or minutes on CPUs", "minutes; a test of its own runs it"
NOT_RUN = {
    r"plait bench (step|p2p|collectives|ring|calibrate)\b": GPUS,
    r"torchrun |srun ": "needs the launcher",
    r"plait train configs/layouts/auto.yaml": "needs 64 GPUs",
    r"plait topo --measure": GPUS,
    r"plait study configs/studies/strong": GPUS,
    r"plait verify configs/verify/": LONG,
    r"plait data pack .*--document-token 151643": "needs the tokenizer of Qwen",
}


def commands(text):
    """Of a page's blocks: a line, or the whole block where a shell's loop is in it."""
    for language, block in BLOCK.findall(text):
        block = block.replace("\\\n", " ")
        if language:
            continue
        block = OPTIONAL.sub(r" \1", block)
        if re.search(r"^for .* do", block, re.MULTILINE):
            loop, end, rest = block.rpartition("\ndone")  # or a `wait` behind it
            yield loop + end + rest.partition("\nplait ")[0]
            yield from re.findall(r"^plait .*", rest, re.MULTILINE)
        else:
            yield from (line for line in block.splitlines() if re.match(r"(plait|torchrun|srun|mkdir|cp) ", line))


def brought(page, command):
    for what, own in [*BROUGHT.get(page, {}).items(), *BROUGHT[""].items()]:
        command = re.sub(rf"(?<![\w.]){re.escape(what)}\b", own, command)
    return command


def lay_out(source, folder):
    for name in ("src", "app", "docs", "scripts", "cmake", "configs"):
        shutil.copytree(source / name, folder / name)
    shutil.copytree(source / "tests/topology/topologies", folder / "tests/topology/topologies")
    for name in ("README.md", "CONTRIBUTING.md", "CMakeLists.txt"):
        shutil.copy(source / name, folder)
    for file, lines in SMALLER.items():
        text = (folder / file).read_text()
        for begin, line in lines.items():
            text, count = re.subn(rf"^{re.escape(begin)}.*$", lambda _: line, text, flags=re.MULTILINE)
            if count != 1:
                sys.exit(f"page_commands_test: {file} has {count} lines that begin with {begin!r}")
        (folder / file).write_text(text)
    shutil.copytree(source / "tests/app/finetune/base", folder / "DIR")
    shutil.copy(folder / "DIR/tokenizer.json", folder)
    for name in ("text", "other/more", "chats"):
        (folder / name).mkdir(parents=True)
    for place in ("text/a.txt", "other/more/b.txt"):
        shutil.copy(source / "README.md", folder / place)
    for place in ("chats/a.jsonl", "held-out.jsonl"):
        shutil.copy(source / "tests/data/chat/sums.jsonl", folder / place)
    shutil.copy(source / "tests/topology/topologies/nvswitch8.xml", folder / "hgx.xml")
    header = json.dumps({"tokens": {"dtype": "I32", "shape": [1, 4], "data_offsets": [0, 16]}}).encode()
    (folder / "t.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<4i", *b"text"))
    for name in ("job.yaml", "base.yaml", "my.yaml"):
        (folder / name).write_text(JOB)
    (folder / "large.yaml").write_text(JOB.replace("global_batch: 4", "global_batch: 1024"))
    (folder / "schedule.yaml").write_text(JOB + "parallel: {pipeline: 2, data: 1, schedule: planned}\n")
    (folder / "tune.yaml").write_text(TUNE)


class Program:
    """plait as a page's reader has it: in PATH, in a folder of its own, without this machine's calibrations."""

    def __init__(self, plait, folder):
        self.folder = folder
        self.helps = {}
        self.environment = {"PATH": f"{plait.parent}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "100",
                            "XDG_CACHE_HOME": str(folder / "cache"),
                            "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}

    def run(self, command):
        """Status, and what was said."""
        done = subprocess.run(["bash", "-ec", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True, errors="replace")
        return done.returncode, done.stdout

    def help(self, words):
        """Of the subcommand that `words` begin with: its name and its help."""
        for name in (" ".join(words[:2]), words[0]):
            if name not in self.helps:
                self.helps[name] = self.run(f"plait help {shlex.join(name.split(' '))}")
            status, text = self.helps[name]
            if status == 0:
                return name, text
        return words[0], ""


def unknown_words(program, keys, command):
    """Options and keys in `command` that plait does not have."""
    for part in re.findall(r"\bplait ([^;\n]*)", command):
        words = shlex.split(part, comments=True)
        named, known = program.help(words)
        for word, value in zip(words, [*words[1:], ""]):
            if word.startswith("--") and not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", known):
                yield f"plait {named} has no option {word}"
            if word == "--set" and value.split("=")[0] not in keys:
                yield f"there is no key {value.split('=')[0]}"


def problems_of(program, keys, page, text):
    for command in PREPARED.get(page, []):
        status, said = program.run(command)
        if status != 0:
            yield f"{command}: status {status}\n{said}"
    for command in commands(text):
        own = brought(page, command)
        unknown = list(unknown_words(program, keys, own))
        yield from (f"{command}\n  {what}" for what in unknown)
        if unknown or any(re.search(what, command) for what in NOT_RUN):
            continue
        expected = next((statuses for begin, statuses in STATUS.items() if own.startswith(begin)), {0})
        started = time.monotonic()
        status, said = program.run(own)
        print(f"{time.monotonic() - started:6.1f} s  {page}: {own.splitlines()[0][:90]}", flush=True)
        unseen = "&\n" in own and re.search(r"^plait: ", said, re.MULTILINE)  # a shell's `wait` has no status of what failed
        if status not in expected or unseen:
            yield f"{command}\n  as: {own}\n  status {status}, not one of {expected}\n{said}"


def main():
    source, plait = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    pages = [source / "README.md", *sorted((source / "docs").glob("*.md"))]
    all_commands = [command for page in pages for command in commands(page.read_text())]
    failures = [f"NOT_RUN names {what}, which no page has" for what in NOT_RUN
                if not any(re.search(what, command) for command in all_commands)]
    keys = set(re.findall(r"^\| `([\w.]+)`", (source / "docs/configuration.md").read_text(), re.MULTILINE))
    for page in pages:
        name = str(page.relative_to(source))
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            lay_out(source, Path(folder))
            program = Program(plait, Path(folder))
            failures += [f"{name}: {problem}" for problem in problems_of(program, keys, name, page.read_text())]
    for failure in failures:
        print("FAILED:", failure, file=sys.stderr)
    print(f"{len(all_commands)} commands on {len(pages)} pages, {len(failures)} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
