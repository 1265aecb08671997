"""scripts/draw-growth draws every point that was measured, labels every line, and measures nothing when told to draw.

Usage: draw_growth_test.py SOURCE_FOLDER
"""
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree
from pathlib import Path

panels = [{"GPT-2 1558M": {"8": [0.25, 60], "16": [2.7, 99], "64": [1.6, 111]},
           "GPT-3": {"64": [9, 1100], "128": [6, 630], "256": [4, 400]}},
          {"ranks of a stage alike": {"64": [0.03, 20], "128": [0.04, 20], "256": [0.04, 21]},
           "no two ranks alike": {"64": [0.08, 20], "128": [0.2, 24], "256": [0.4, 30]}}]
script = Path(sys.argv[1]) / "scripts" / "draw-growth"
with tempfile.TemporaryDirectory() as folder:
    measured = Path(folder) / "growth.json"
    measured.write_text(json.dumps(panels))
    good = subprocess.run([sys.executable, script, "--from", measured], capture_output=True, text=True, check=True)
    bad = subprocess.run([sys.executable, script], capture_output=True, text=True)

svg = "{http://www.w3.org/2000/svg}"
picture = tree.fromstring(good.stdout)
points = {t.text for t in picture.iter(svg + "title")}
measured = [(name, g, *point) for lines in panels for name, line in lines.items() for g, point in line.items()]
assert points == {f"{name}, {int(g):,} GPUs: {s:.2f} s, {mb:,} MB" for name, g, s, mb in measured}, points
texts = [t.text for t in picture.iter(svg + "text")]
assert all(texts.count(name) == 1 for lines in panels for name in lines), texts
# A later measurement is further right, a longer one further up.
line = [tuple(map(float, p.split(","))) for p in list(picture.iter(svg + "polyline"))[0].get("points").split()]
assert line[0][0] < line[1][0] < line[2][0] and line[1][1] < line[2][1] < line[0][1], line
assert "1,100 MB" in good.stderr, good.stderr
assert bad.returncode != 0 and "give a build folder" in bad.stderr, bad.stderr
