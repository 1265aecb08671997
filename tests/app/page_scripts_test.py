#!/usr/bin/env python3
"""What pages send their reader to beside plait: scripts, and the workflow of docs/verify-in-ci.md.

1. Each scripts/NAME that README.md, CONTRIBUTING.md, docs/*.md or docs/examples/* names exists, and is executable unless it is data.
2. Each shell script in scripts/ is one that bash can read.
3. The options and keys of plait in scripts/cluster/* and docs/examples/*.yml are in `plait help` and docs/configuration.md, and
   the files of the repository that they name exist.
4. docs/examples/*.yml is YAML.

Usage: page_scripts_test.py SOURCE_FOLDER PLAIT
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from page_commands_test import Program, unknown_words  # noqa: E402

SCRIPT = re.compile(r"(?<![\w./-])scripts/[\w./-]*\w")
DATA = {".yaml", ".txt"}


def wrong_scripts(source, text):
    for name in sorted(set(SCRIPT.findall(text))):
        if not (source / name).exists():
            yield f"names {name}, which does not exist"
        elif not os.access(source / name, os.X_OK) and Path(name).suffix not in DATA:
            yield f"names {name}, which is not executable"


def wrong_shell(script):
    with script.open("rb") as file:
        if not re.match(rb"#!.*\b(ba)?sh\b", file.readline()):
            return
    done = subprocess.run(["bash", "-n", script], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        yield done.stderr


def commands_in(text):
    """Of a shell script or YAML: without comments, a line for each command, also for one that is a list."""
    text = re.sub(r"(^|\s)#.*", "", text).replace("\\\n", " ")
    return re.sub(r"\[(plait,.*)\]", lambda words: words[1].replace(",", " "), text)


def wrong_commands(source, program, keys, text):
    text = commands_in(text)
    yield from unknown_words(program, keys, text)
    for name in re.findall(r"(?<![\w./-])(?:configs|docs)/[\w./-]*\w", text):
        if not (source / name).exists():
            yield f"names {name}, which does not exist"


def wrong_yaml(program, file):
    """plait reads YAML first, and then says that these are no keys of its own."""
    status, said = program.run(f"plait plan '{file}'")
    if status != 2 or "unknown key" not in said:
        yield said


def check_this_test(source, program, keys):
    """What must be found is found."""
    bad = Path(program.folder) / "bad"
    bad.write_text("#!/usr/bin/env bash\nif true; then\n")
    assert list(wrong_scripts(source, "run scripts/no-such, then scripts/cluster/slurm.sh")) == [
        "names scripts/no-such, which does not exist"]
    assert list(wrong_shell(bad))
    lines = ["exec mpirun plait train \\\n --no-such x --set no.such=1  # --not-seen", "command: [plait, train, --no-such]",
             "  - run: build/app/plait verify docs/no-such.yaml --no-such"]
    assert [len(list(wrong_commands(source, program, keys, line))) for line in lines] == [2, 1, 2]
    bad.write_text("on: [push\n")
    assert list(wrong_yaml(program, bad))


def main():
    source, plait = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    keys = set(re.findall(r"^\| `([\w.]+)`", (source / "docs/configuration.md").read_text(), re.MULTILINE))
    examples = sorted((source / "docs/examples").iterdir())
    workflows = [file for file in examples if file.suffix == ".yml"]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        program = Program(plait, Path(folder))
        check_this_test(source, program, keys)
        for page in [source / "README.md", source / "CONTRIBUTING.md", *sorted((source / "docs").glob("*.md")), *examples]:
            found += [(page, problem) for problem in wrong_scripts(source, page.read_text())]
        for script in sorted(file for file in (source / "scripts").rglob("*") if file.is_file()):
            found += [(script, problem) for problem in wrong_shell(script)]
        for file in [*sorted((source / "scripts/cluster").iterdir()), *workflows]:
            found += [(file, problem) for problem in wrong_commands(source, program, keys, file.read_text())]
        for file in workflows:
            found += [(file, problem) for problem in wrong_yaml(program, file)]
    for file, problem in found:
        print(f"FAILED: {file.relative_to(source)}: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


main()
