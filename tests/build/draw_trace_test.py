"""scripts/draw-trace draws the slices and arrows of a small trace, and says so when a step is missing.

Usage: draw_trace_test.py SOURCE_FOLDER
"""
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree
from pathlib import Path


def slice_of(rank, row, kind, begin, end, micro_batch):
    return {"ph": "X", "pid": rank, "tid": row, "ts": begin, "dur": end - begin, "name": kind,
            "cat": "compute" if row == 0 else "communication", "args": {"step": 3, "kind": kind, "micro_batch": micro_batch, "chunk": 0}}


events = [{"ph": "M", "pid": r, "tid": t, "name": "thread_name", "args": {"name": n}} for r in (0, 1) for t, n in ((0, "compute"), (1, "send"))]
events += [slice_of(0, 0, "forward", 0, 1000, 0), slice_of(0, 0, "forward", 1010, 2000, 0),  # two blocks: one slice
           slice_of(0, 0, "forward", 2010, 3000, 1), slice_of(0, 1, "send_activation", 2000, 2100, 0),
           slice_of(1, 1, "receive_activation", 2000, 2100, 0), slice_of(1, 0, "forward", 2100, 4000, 0)]
events += [{"ph": "s", "id": "a", "pid": 0, "tid": 1, "ts": 2000}, {"ph": "f", "id": "a", "pid": 1, "tid": 1, "ts": 2100}]
script = Path(sys.argv[1]) / "scripts" / "draw-trace"
with tempfile.TemporaryDirectory() as folder:
    trace = Path(folder) / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    good = subprocess.run([sys.executable, script, trace], capture_output=True, text=True, check=True)
    bad = subprocess.run([sys.executable, script, trace, "--step", "9"], capture_output=True, text=True)

svg = "{http://www.w3.org/2000/svg}"
picture = tree.fromstring(good.stdout)
titles = sorted(t.text for t in picture.iter(svg + "title"))
assert titles == sorted(["forward micro-batch 0 chunk 0, 2.00 ms", "forward micro-batch 1 chunk 0, 0.99 ms", "send_activation micro-batch 0 chunk 0, 0.10 ms",
                         "receive_activation micro-batch 0 chunk 0, 0.10 ms", "forward micro-batch 0 chunk 0, 1.90 ms"]), titles
assert len(list(picture.iter(svg + "line"))) == 1
assert bad.returncode != 0 and "step 9 is not in the file" in bad.stderr, bad.stderr
