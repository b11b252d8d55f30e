"""Draw docs/pictures/idea.svg. The picture shows how two traces become ET+ and which programs use ET+. It is narrow
enough for a phone.

python docs/draw_idea.py
"""

from __future__ import annotations

from draw_house import HERE, box, svg

SIDE, GAP, EDGE = 200, 20, 10
USES = (
    ("Analysis", ("time by line, module, kernel",)),
    ("Replay", ("critical path, what-ifs, networks",)),
    ("Prediction", ("other sizes, devices, layouts",)),
    ("Simulators", ("ASTRA-sim, from Chakra traces",)),
)
TITLE = "An Execution Trace and a Kineto trace become ET+, which analysis, replay, prediction and simulators use"


def picture() -> str:
    right = EDGE + SIDE + GAP
    parts = [
        *box(EDGE, 10, SIDE, 84, "Execution Trace", ("operators, tensors, callers", "no times, no GPU")),
        *box(right, 10, SIDE, 84, "Kineto trace", ("times, GPU kernels, stacks", "no tensors or dependencies")),
        *box(EDGE + 90, 134, 240, 84, "ET+", ("one timed operator graph,", "each link certain or marked")),
    ]
    parts += [arrow(EDGE + 100, 94, 190, 132), arrow(right + 100, 94, 250, 132)]
    for number, (name, lines) in enumerate(USES):
        left, top = (EDGE, right)[number % 2], 258 + 78 * (number // 2)
        parts += box(left, top, SIDE, 62, name, lines)
    parts += [arrow(190, 218, EDGE + 100, 256), arrow(250, 218, right + 100, 256)]
    return svg(2 * SIDE + GAP + 2 * EDGE, 408, TITLE, parts)


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<line class="arrow" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


if __name__ == "__main__":
    (HERE / "pictures" / "idea.svg").write_text(picture(), encoding="utf-8")
