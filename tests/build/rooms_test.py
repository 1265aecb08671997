"""The folders of src/ keep to their rooms (docs: the folder map in docs/architecture.md).

1. A room sees the headers of the rooms it may use and no others. Each room is asked with the very flags its own sources are
   compiled with: one translation unit per room checks `__has_include` for every header of every room, and one includes a
   forbidden header for real and must not compile.
2. The libraries behind the rooms stay in one folder each: nccl.h, gloo/, cuDNN, CUPTI with NVTX. Kernels are launched in `cuda` folders.
3. No room holds more than 15 % of the lines of src/, and no two folders of a room include each other.

Usage: rooms_test.py SOURCE_FOLDER BUILD_FOLDER
"""
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

# The rooms that each may use, and with them those that these may use.
USES = {
    "core": [],
    "config": ["core"],
    "ops": ["core"],
    "topology": ["core"],
    "comm": ["topology"],
    "model": ["ops", "config"],
    "parallel": ["model"],
    "plan": ["parallel", "topology"],
    "runtime": ["parallel", "comm"],
    "data": ["config"],
    "checkpoint": ["model"],
    "interop": ["checkpoint", "data", "parallel"],
    "site": ["plan", "data"],
    "launch": ["runtime", "site"],
    "train": ["launch", "interop"],
    "verify": ["train"],
    "bench": ["train"],
    "study": ["verify"],
}

# No room is so large that its name stops saying what is inside.
MOST_OF_SOURCES = 0.15

FOLDERS = {
    r'#\s*include\s*[<"]nccl\.h[>"]': ["src/comm/nccl"],
    r'#\s*include\s*[<"]gloo/': ["src/comm/gloo"],
    r'#\s*include\s*[<"]openssl/': ["src/comm/tcp"],
    r'#\s*include\s*[<"]cudnn': ["src/ops/cuda"],
    r"<<<": ["src/comm/p2p/cuda", "src/runtime/cuda"],  # kernels: the `cuda` folder of a room
    r"cudaLaunchKernel": ["src/ops/cuda"],  # the same; kernels_test.py says more
    r'#\s*include\s*[<"](cupti|nvtx3/)': ["src/runtime/cuda"],
}


def reachable(room):
    return set(USES[room]).union(*map(reachable, USES[room]))


MAY_USE = {room: reachable(room) for room in USES}

problems = []


def fail(text):
    problems.append(text)


def compile_command(commands, room):
    """The compiler and the flags of the room's first C++ unit (one source, or several), without that unit and its output."""
    for entry in commands:
        file = Path(entry["file"])
        if file.suffix in (".cpp", ".cxx") and f"/plait_{room}.dir/" in entry["command"]:
            words = shlex.split(entry["command"])
            words = words[words.index(next(w for w in words if re.search(r"(\+\+|clang|cc)[^/]*$", w) and "ccache" not in w)):]
            keep, skip = [], False
            for word in words:
                if skip:
                    skip = False
                elif word in ("-o", "-c", "-MF", "-MT"):
                    skip = True
                elif word not in ("-MD", "-MMD") and Path(word) != file:
                    keep.append(word)
            return keep, entry["directory"]
    sys.exit(f"rooms_test: no unit of src/{room} in compile_commands.json")


def compiles(command, directory, code):
    run = subprocess.run(command + ["-fsyntax-only", "-x", "c++", "-"], input=code, text=True, cwd=directory, capture_output=True)
    return run.returncode == 0, run.stderr


def check_includes(source, build):
    commands = json.loads((build / "compile_commands.json").read_text())
    headers = {room: sorted(p.relative_to(source / "src").as_posix() for p in (source / "src" / room).glob("*.h")) for room in MAY_USE}
    for room, others in MAY_USE.items():
        command, directory = compile_command(commands, room)
        code = ""
        for other, names in headers.items():
            visible = other == room or other in others
            for name in names:
                test = "!" if visible else ""
                code += f'#if {test}__has_include("{name}")\n#error {room} {"cannot" if visible else "can"} include {name}\n#endif\n'
        ok, errors = compiles(command, directory, code)
        if not ok:
            fail(errors)
        forbidden = [name for other, names in headers.items() if other != room and other not in others for name in names]
        if forbidden and compiles(command, directory, f'#include "{forbidden[-1]}"\n')[0]:
            fail(f"{room}: a file that includes {forbidden[-1]} compiles")
        if headers[room] and not compiles(command, directory, f'#include "{headers[room][0]}"\n')[0]:
            fail(f"{room}: a file that includes its own {headers[room][0]} does not compile, so this test proves nothing")
        print(f"{room}: {sum(map(len, headers.values()))} headers asked for, {len(forbidden)} of them forbidden")


def check_folders(source):
    for pattern, folders in FOLDERS.items():
        found = dict.fromkeys(folders, 0)
        for path in sorted(p for top in ("src", "app") for p in (source / top).rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh")):
            name = path.relative_to(source).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line):
                    folder = next((f for f in folders if name.startswith(f + "/")), None)
                    if folder:
                        found[folder] += 1
                    else:
                        fail(f"{name}:{number}: {line.strip()} belongs into {' or '.join(folders)}/")
        for folder, count in found.items():
            if count == 0:
                fail(f"nothing in {folder}/ matches {pattern}: the test looks for the wrong thing")
            print(f"{pattern}: {count} in {folder}/")


def check_sizes(source):
    lines = {room: sum(len(p.read_text().splitlines()) for p in (source / "src" / room).rglob("*.*")) for room in USES}
    strays = sorted(p.name for p in (source / "src").iterdir() if p.is_dir() and p.name not in USES)
    if strays:
        fail(f"src/ has folders that are no room of this test: {', '.join(strays)}")
    whole = sum(lines.values())
    for room, count in sorted(lines.items(), key=lambda entry: -entry[1]):
        print(f"{room}: {count} lines, {count / whole:.1%}")
        if count > MOST_OF_SOURCES * whole:
            fail(f"src/{room} holds {count / whole:.1%} of src/, more than {MOST_OF_SOURCES:.0%}: it is two rooms by now")


def check_arrows(source):
    """No file of a room includes, by whatever way, itself; nor does a folder inside a room."""
    includes = {}
    for path in sorted(p for p in (source / "src").rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh")):
        name = path.relative_to(source / "src").as_posix()
        includes[name] = [i for i in re.findall(r'#include "([^"]+)"', path.read_text())]
    folders = {}
    for name, used in includes.items():
        here = Path(name).parent.as_posix()
        for other in used:
            there = Path(other).parent.as_posix()
            if there != here:
                folders.setdefault(here, {}).setdefault(there, f"{name} includes {other}")
    for here, there in ((h, t) for h in folders for t in folders[h]):
        back = folders.get(there, {}).get(here)
        # A room's face may choose among its folders (communicator.cpp, the operations): one arrow each way is that.
        if back and here < there and not (there.startswith(here + "/") or here.startswith(there + "/")):
            fail(f"src/{here} and src/{there} know each other: {folders[here][there]}, {back}")


def main():
    source, build = (Path(argument).resolve() for argument in sys.argv[1:3])
    check_includes(source, build)
    check_folders(source)
    check_sizes(source)
    check_arrows(source)
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
