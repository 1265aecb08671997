"""The kernels of src/ops/cuda keep to what launch.h asks of them, so that one may begin while the one before it still runs.

1. Every kernel begins with await_previous_kernel() and let_next_kernel_begin(), and calls neither again.
2. Kernels are launched by launch() of launch.h alone.
3. Nothing says __restrict__ or __ldg: the compiler could move such a read to before the wait.

Usage: kernels_test.py SOURCE_FOLDER
"""
import re
import sys
from pathlib import Path

BEGINNING = "await_previous_kernel();let_next_kernel_begin();"
CALLS = re.compile(r"\b(await_previous_kernel|let_next_kernel_begin)\b")
LAUNCHES = re.compile(r"<<<|\bcu(da)?Launch(Cooperative)?Kernel\w*")  # cudaLaunchKernelEx and its kin
READS_THAT_MOVE = re.compile(r"\b__restrict(__)?\b|\b__ldg\b|\bld\.global\.nc\b")
HOME = "launch.h"


def code_of(text):
    """The same length, with blanks for comments and characters. Strings stay: asm is one."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])'", blank, text, flags=re.DOTALL)


def closing(code, opening):
    """Where the bracket at `opening` is closed."""
    pairs = {"(": ")", "{": "}"}
    depth = 0
    for at in range(opening, len(code)):
        depth += {code[opening]: 1, pairs[code[opening]]: -1}.get(code[at], 0)
        if depth == 0:
            return at
    raise ValueError(f"a {code[opening]} that is never closed")


def kernels_in(code):
    """Name, place and body of each kernel that is defined; the body is None where one is only declared."""
    for match in re.finditer(r"\b__global__\b", code):
        at = match.end()
        while True:
            name = re.compile(r"(\w+)\s*\(").search(code, at)
            if not name:
                raise ValueError("a __global__ without a function")
            end = closing(code, name.end() - 1)
            if name.group(1) not in ("__launch_bounds__", "__cluster_dims__", "__maxnreg__"):
                break
            at = end + 1
        rest = re.compile(r"\s*([{;])").match(code, end + 1)
        if not rest:
            raise ValueError(f"{name.group(1)} has neither body nor semicolon behind its parameters")
        body = code[rest.end():closing(code, rest.end() - 1)] if rest.group(1) == "{" else None
        yield name.group(1), match.start(), body


def problems_of(name, text):
    """What is wrong in one file, and how many kernels it defines."""
    code = code_of(text)
    line = lambda at: code.count("\n", 0, at) + 1
    problems, kernels = [], 0
    try:
        for kernel, at, body in kernels_in(code):
            if body is None:
                continue
            kernels += 1
            if not re.sub(r"\s", "", body).startswith(BEGINNING):
                problems.append(f"{name}:{line(at)}: {kernel} does not begin with await_previous_kernel(); let_next_kernel_begin();")
    except ValueError as error:
        problems.append(f"{name}: {error}")
    if name == HOME:
        if code.count("cudaLaunchKernelEx(") != 1 or len(LAUNCHES.findall(code)) != 1:
            problems.append(f"{name}: launches kernels in more places than one")
    else:
        problems += [f"{name}:{line(m.start())}: {m.group()} launches a kernel past launch()" for m in LAUNCHES.finditer(code)]
        calls = len(CALLS.findall(code))
        if calls != 2 * kernels:
            problems.append(f"{name}: {calls} calls that wait for other kernels or let them begin, in {kernels} kernels: two each")
    problems += [f"{name}:{line(m.start())}: {m.group()} lets a read move to before the wait" for m in READS_THAT_MOVE.finditer(code)]
    return problems, kernels


def check_this_test():
    """What must be found is found."""
    begin = "await_previous_kernel(); let_next_kernel_begin();"
    wrong = {
        "__global__ void k(int* x) { *x = 1; }": "does not begin",
        "__global__ void k(int* x) { let_next_kernel_begin(); await_previous_kernel(); }": "does not begin",
        "__global__ void k(int* x) { await_previous_kernel(); *x = 1; let_next_kernel_begin(); }": "does not begin",
        "__global__ void k(int* x) { if (!x) return; " + begin + " }": "does not begin",
        "__global__ void k(int* x) { if (x) " + begin + " }": "does not begin",
        "__global__ void k(int* x) { /* " + begin + " */ }": "does not begin",
        "template <int N>\n__global__ void __launch_bounds__(f(N), N < 3 ? 1 : 2)\n    k(void (*f)(int), int* x) { // " + begin + "\n}": "does not begin",
        "__global__ void k(int* x) { " + begin + " }\n__global__ void l(int* x) { *x = 1; }": "l does not begin",
        "__global__ void k(int* x) { " + begin + " await_previous_kernel(); }": "two each",
        "__device__ void f() { await_previous_kernel(); }": "two each",
        "__global__ void k(int* x) { " + begin + " if (*x > 0) {": "never closed",
        "#define KERNEL __global__ void\n": "without a function",
        "void f() { k<<<1, 2>>>(); }": "past launch()",
        "void f() { check(cudaLaunchKernelEx(&config, k, 1)); }": "past launch()",
        "void f() { check(cudaLaunchKernelExC(&config, k, list)); }": "past launch()",
        "void f() { check(cuLaunchKernel(k)); }": "past launch()",
        "void f() { check(cudaLaunchCooperativeKernel(k)); }": "past launch()",
        "__device__ int f(const int* __restrict__ x) { return *x; }": "before the wait",
        "__device__ int f(const int* x) { return __ldg(x); }": "before the wait",
        "asm(\"ld.global.nc.f32 %0, [%1];\" : \"=f\"(y) : \"l\"(x));": "before the wait",
    }
    for text, what in wrong.items():
        found, _ = problems_of("wrong.cu", text)
        if not any(what in problem for problem in found):
            sys.exit(f"kernels_test: {text!r} should be a problem with {what!r}, not {found}")
    if not problems_of(HOME, "check(cudaLaunchKernelEx(a)); check(cudaLaunchKernelEx(b));")[0]:
        sys.exit("kernels_test: a second launch in launch.h is not found")
    right = ("// __global__ and <<< in a comment\n__global__ void declared(int* x);\n"
             "template <int N>\n__global__ void __launch_bounds__(f(N), N < 3 ? 1 : 2)\n    k(void (*f)(int), int* x) {\n"
             "  await_previous_kernel();  // first\n  let_next_kernel_begin();\n  if (*x == '}') *x = 1;\n}\n"
             "void f(int* x) { launch(stream, {1, 2}, k<3>, nullptr, x); }")
    found = problems_of("right.cu", right)
    if found != ([], 1):
        sys.exit(f"kernels_test: finds {found} where nothing is wrong")


def main():
    check_this_test()
    folder = Path(sys.argv[1]).resolve() / "src" / "ops" / "cuda"
    problems, kernels = [], 0
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cuh", ".cpp", ".cu"))
    for path in files:
        of_file, count = problems_of(path.relative_to(folder).as_posix(), path.read_text())
        problems += of_file
        kernels += count
    if kernels == 0:
        problems.append(f"no kernel in {folder}: the test looks in the wrong place")
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    print(f"{kernels} kernels in {len(files)} files")
    sys.exit(1 if problems else 0)


main()
