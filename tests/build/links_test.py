"""README.md, CONTRIBUTING.md and docs/*.md name only files that exist.

1. Every relative link leads to a file or folder, and where it has an anchor, to a heading of that page.
2. Every path in backticks or in a code block that begins with a folder of the repository (`src/core/`, `tests/fuzz`), or with a
   room and ends as a source does (`comm/p2p/link.h`), exists. `*`, NAME and ROOM stand for any name; at least one file must match.

Usage: links_test.py SOURCE_FOLDER
"""
import re
import sys
from pathlib import Path

FOLDERS = ("app", "cmake", "configs", "docs", "scripts", "src", "tests")
SOURCE = re.compile(r"\.(h|cpp|cu|cuh|py|csv)$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def anchors(page):
    """As GitHub makes them of headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", t) for t in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def wrong_link(root, page, target):
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or root not in (file, *file.parents):
        return f"links to {target}, which does not exist"
    if anchor and anchor not in anchors(file):
        return f"links to {target}, but {file.name} has no such heading"
    return None


def paths_in(root, code):
    rooms = [folder.name for folder in (root / "src").iterdir() if folder.is_dir()]
    for word in code.strip("`").split():
        word = word.strip("'\"(),;").rstrip(".:").split(":")[0].split("#")[0]
        first = word.split("/")[0]
        if "/" not in word or re.search(r"[<>{}$=|]|\.\.\.", word):
            continue
        if first in FOLDERS:
            yield word, root
        elif first in rooms and SOURCE.search(word):
            yield word, root / "src"


def problems_of(root, page, text):
    problems = [wrong_link(root, page, target) for target in LINK.findall(CODE.sub("", re.sub(r"\[`([^`]*)`\]", r"[\1]", text)))]
    for code in CODE.findall(text):
        problems += [f"names {word}, which does not exist" for word, base in paths_in(root, code)
                     if not any(base.glob(re.sub(r"NAME|ROOM", "*", word).rstrip("/")))]
    return [problem for problem in problems if problem]


def check_this_test(root):
    """What must be found is found."""
    page = root / "docs" / "page.md"
    wrong = {
        "[a](missing.md)": "missing.md",
        "[a](../README.md#no-such-heading)": "no-such-heading",
        "![picture](missing.svg)": "missing.svg",
        "[`code`](missing.md)": "missing.md",
        "see `src/core/missing.h`": "src/core/missing.h",
        "see `core/missing.h`": "core/missing.h",
        "`src/core/missing*`": "src/core/missing*",
        "`tests/core/NAME_missing.cpp`": "tests/core/NAME_missing.cpp",
        "```\nplait train configs/missing.yaml --set a=b\n```": "configs/missing.yaml",
    }
    for text, what in wrong.items():
        found = problems_of(root, page, text)
        if len(found) != 1 or what not in found[0]:
            sys.exit(f"links_test: {text!r} should give one problem with {what}, not {found}")
    right = "[a](architecture.md#the-folders) [b](https://example.org/src/x) `core/error.h` `src/config/*.cpp` `text/**` `1 / size`"
    if problems_of(root, page, right):
        sys.exit(f"links_test: finds {problems_of(root, page, right)} where nothing is wrong")


def main():
    root = Path(sys.argv[1]).resolve()
    check_this_test(root)
    pages = [root / "README.md", *root.glob("CONTRIBUTING.md"), *sorted((root / "docs").glob("*.md"))]
    problems = [f"{page.relative_to(root)} {problem}" for page in pages for problem in problems_of(root, page, page.read_text())]
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    print(f"{len(pages)} pages, {sum(len(LINK.findall(page.read_text())) for page in pages)} links")
    sys.exit(1 if problems else 0)


main()
