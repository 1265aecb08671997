"""The folders of src/ keep to their rooms (docs: the folder map in README.md).

1. A room sees the headers of the rooms it may use and no others. Each room is asked with the very flags its own sources are
   compiled with: one translation unit per room checks `__has_include` for every header of every room, and one includes a
   forbidden header for real and must not compile.
2. The libraries behind the rooms stay in one folder each: nccl.h, gloo/, cuDNN, CUPTI with NVTX. Kernels are launched in `cuda` folders.

Usage: rooms_test.py SOURCE_FOLDER BUILD_FOLDER
"""
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

MAY_USE = {
    "core": set(),
    "ops": {"core"},
    "comm": {"core"},
    "model": {"core", "ops", "comm"},
    "parallel": {"core", "ops", "comm", "model"},
    "plan": {"core", "ops", "comm", "model", "parallel"},
    "train": {"core", "ops", "comm", "model", "parallel", "plan"},
}

FOLDERS = {
    r'#\s*include\s*[<"]nccl\.h[>"]': ["src/comm/nccl"],
    r'#\s*include\s*[<"]gloo/': ["src/comm/gloo"],
    r'#\s*include\s*[<"]cudnn': ["src/ops/cuda"],
    r"<<<": ["src/ops/cuda", "src/comm/p2p/cuda"],  # kernels: the `cuda` folder of a room
    r'#\s*include\s*[<"](cupti|nvtx3/)': ["src/parallel/cuda"],
}

problems = []


def fail(text):
    problems.append(text)


def compile_command(commands, source, room):
    """The compiler and the flags of the room's first C++ source, without that source and its output."""
    for entry in commands:
        file = Path(entry["file"])
        if file.suffix == ".cpp" and file.parent == source / "src" / room:
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
    sys.exit(f"rooms_test: no source of src/{room} in compile_commands.json")


def compiles(command, directory, code):
    run = subprocess.run(command + ["-fsyntax-only", "-x", "c++", "-"], input=code, text=True, cwd=directory, capture_output=True)
    return run.returncode == 0, run.stderr


def check_includes(source, build):
    commands = json.loads((build / "compile_commands.json").read_text())
    headers = {room: sorted(p.relative_to(source / "src").as_posix() for p in (source / "src" / room).glob("*.h")) for room in MAY_USE}
    for room, others in MAY_USE.items():
        command, directory = compile_command(commands, source, room)
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


def main():
    source, build = (Path(argument).resolve() for argument in sys.argv[1:3])
    check_includes(source, build)
    check_folders(source)
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
