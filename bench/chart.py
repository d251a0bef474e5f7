#!/usr/bin/env python3
"""Draws bench/chart.svg from the numbers of a run: bench/chart.py FILE.json [OUT.svg]"""

import json
import sys
from pathlib import Path

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 880, 170, 60, 18, 8, 56
SPACE = 30
SHARES = (480, WIDTH - 480 - SPACE)  # the first panel also holds the names

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 14px }
  .note { font-size: 11px; fill: #57606a }
  .ours { fill: #1f6feb } .floor { fill: #8c959f } .peer { fill: #d4a72c }
  .axis { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #8d96a0 } .axis { stroke: #3d444d }
    .ours { fill: #4493f8 } .floor { fill: #6e7681 } .peer { fill: #bb8009 }
  }
"""


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    document = json.loads(Path(sys.argv[1]).read_text())
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("chart.svg")
    rows = [(name, entry["median"]) for name, entry in document["servers"].items() if "median" in entry]
    width = document["plan"]["in_flight"]
    panels = [
        ("Time of one call, median (ms, less is better)", [(name, one["call_ms"]["p50"]) for name, one in rows], "{:.2f}"),
        (f"Calls per second, {width} in flight (more is better)", [(name, one["parallel_calls_per_s"]) for name, one in rows], "{:,.0f}"),
    ]
    about = document["about"]
    height = TOP + len(rows) * (BAR + GAP) + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
             f'aria-label="Countersign beside a minimal C server and other command servers">', f"<style>{STYLE}</style>"]
    for number, (title, values, form) in enumerate(panels):
        parts += panel(number * (SHARES[0] + SPACE), title, values, form, names=number == 0)
    parts.append(f'<text class="note" x="0" y="{height - 8}">echo hi over stdio, all servers in one run; '
                 f'{about["cpus"]} CPUs, Linux {about["kernel"].split("-")[0]}, {about["date"][:10]}, commit {about["commit"]}</text>')
    parts.append("</svg>")
    out.write_text("\n".join(parts) + "\n")


def panel(x, title, values, form, names):
    left = LEFT if names else 0
    room = SHARES[0 if names else 1] - left - RIGHT
    most = max(value for _, value in values)
    parts = [f'<text class="title" x="{x}" y="20">{title}</text>']
    x += left
    for row, (name, value) in enumerate(values):
        y = TOP + row * (BAR + GAP) - 18
        kind = "ours" if name.startswith("countersign") else "floor" if name.startswith("floor") else "peer"
        long = max(2, round(value / most * room))
        if names:
            parts.append(f'<text x="{x - 10}" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{long}" height="{BAR}" rx="2"/>')
        parts.append(f'<text x="{x + long + 6}" y="{y + 14}">{form.format(value)}</text>')
    bottom = TOP + len(values) * (BAR + GAP) - 18
    parts.append(f'<line class="axis" x1="{x}" y1="{TOP - 24}" x2="{x}" y2="{bottom}"/>')
    return parts


if __name__ == "__main__":
    main()
