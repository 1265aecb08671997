"""Axes of a mesh are rows of one table (src/core/axis.h), and everything else asks the table by property.

A new axis must not send its author through the house: so no file of src/ or app/ spells an axis, as `Axis::NAME`, as the text
"NAME" or as the key parallel.NAME in a text, but those listed here, each with its reason. Comments may.

Usage: axes_test.py SOURCE_FOLDER
"""
import re
import sys
from pathlib import Path

TABLE = "src/core/axis.h"

# What a file may spell beside the table, and why.
SAME_WORD = "the word means something else there"
MAY_SPELL = {
    # Keys about an axis.
    "src/config/config.h": "the meaning of keys that are about an axis",
    "src/config/suggestion.cpp": "names that other programs have for the keys",
    "src/plan/calibration.cpp": "the key that the tables of segment times have",
    # `data` and `tensor` that are no axes.
    "app/data_command.cpp": SAME_WORD,
    "src/train/evaluation.cpp": SAME_WORD,
    "src/train/job.cpp": SAME_WORD,
    "src/train/sample_record.cpp": SAME_WORD,
    "src/verify/findings.h": SAME_WORD,
    "src/verify/report.cpp": SAME_WORD,
}
# The section `data` of a configuration, and examples for how a key is set.
OTHER_MEANINGS = re.compile(r'k\.section\("data"|--set parallel\.\w+=')


def axes_of(table):
    names = re.search(r"enum class Axis \{([^}]*)\}", table)
    return [name.strip() for name in names.group(1).split(",")] if names else []


def spellings(names, text):
    """(line, what is spelled) for each axis that the text names outside comments."""
    any_name = "|".join(names)
    spelled = re.compile(rf'Axis::(?:{any_name})\b|"(?:{any_name})"|\bparallel\.(?:{any_name})\b')
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'("(?:[^"\\]|\\.)*")|//.*', lambda m: m.group(1) or "", line)
        for match in spelled.finditer(OTHER_MEANINGS.sub("", code)):
            yield number, match.group()


def main(source):
    names = axes_of((source / TABLE).read_text())
    if not names:
        sys.exit(f"axes_test: {TABLE} has no `enum class Axis`")
    # The search itself: it must find what it is for, and leave comments alone.
    sample = "x[Axis::%s] = 1;  // Axis::%s\nset(\"parallel.%s=2\");\n" % ((names[0],) * 3)
    if [line for line, _ in spellings(names, sample)] != [1, 2]:
        sys.exit("axes_test: finds no axis where there is one")
    problems = []
    for folder in ("src", "app"):
        for file in sorted((source / folder).rglob("*")):
            path = file.relative_to(source).as_posix()
            if file.suffix not in (".h", ".cpp", ".cu", ".cuh") or path == TABLE or path in MAY_SPELL:
                continue
            problems += [f"{path}:{line}: {what}" for line, what in spellings(names, file.read_text())]
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"axes_test: {len(problems)} places spell an axis: ask {TABLE} by property (splits, communicates, way) instead")


main(Path(sys.argv[1]))
