"""The installed tree is small, complete and can be moved.

Installs into a temporary folder, moves the tree somewhere else and checks there:
1. less than 47 MB in all;
2. no library path of any file names a build folder or the first place of installation;
3. with an empty environment, the loader finds every library in the tree, in glibc or in CUDA;
4. `bin/plait --help` runs.

Usage: install_tree_test.py CMAKE BUILD_FOLDER
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_BYTES = 47_000_000
GLIBC = re.compile(r"^(linux-vdso|ld-linux-.*|lib(c|m|dl|rt|pthread|util))\.so")
CUDA = re.compile(r"^lib(cudart|cublas|cublasLt|cudnn|nccl|cupti|nvrtc)\.so")
# libgloo takes these from the system where it has them (cmake/PlaitInstall.cmake says why), from the tree elsewhere.
SYSTEM_FIRST = re.compile(r"^lib(ibverbs|nl-3|nl-route-3|hiredis)\.so")
SEARCH_PATHS = {"$ORIGIN", "$ORIGIN/../lib", "/usr/lib/x86_64-linux-gnu:/usr/lib64:$ORIGIN"}


def output(*command):
    run = subprocess.run(command, env={}, text=True, capture_output=True)
    if run.returncode != 0:
        sys.exit(f"FAILED: {' '.join(map(str, command))} exited with {run.returncode}:\n{run.stdout}{run.stderr}")
    return run.stdout


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def main():
    cmake, build = sys.argv[1:3]
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        first, tree = Path(scratch) / "first", Path(scratch) / "moved" / "tree"
        subprocess.run([cmake, "--install", build, "--prefix", first, "--strip"], check=True, stdout=subprocess.DEVNULL)
        tree.parent.mkdir()
        shutil.move(first, tree)

        files = [p for p in sorted(tree.rglob("*")) if p.is_file() and not p.is_symlink()]
        total = sum(p.stat().st_size for p in files)
        for path in files:
            print(f"{path.stat().st_size:12,} {path.relative_to(tree)}")
        print(f"{total:12,} bytes in all")
        if total >= LIMIT_BYTES:
            problems.append(f"the tree has {total:,} bytes; the limit is {LIMIT_BYTES:,}")

        for path in filter(is_elf, files):
            name = path.relative_to(tree)
            search = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", output("/usr/bin/readelf", "-d", path))
            if any(paths not in SEARCH_PATHS for paths in search):
                problems.append(f"{name} searches {search}")
            # Of programs only: a library's own dependencies are looked up after, and among, those of the program.
            for line in output("/usr/bin/ldd", path).splitlines() if name.parts[0] == "bin" else ():
                library, _, where = line.strip().partition(" => ")
                library = Path(library.split()[0]).name
                where = where.split(" (")[0]
                if GLIBC.match(library) or CUDA.match(library) or "statically linked" in line:
                    continue
                if SYSTEM_FIRST.match(library) and where != "not found":
                    if not (tree / "lib" / library).exists():
                        problems.append(f"{name} needs {library}, which the tree lacks for systems without it")
                    continue
                if tree not in Path(where).resolve().parents:
                    problems.append(f"{name} takes {library} from {where or 'nowhere'}")

        if "train" not in output(tree / "bin" / "plait", "--help"):
            problems.append("bin/plait --help does not name the command train")
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
