"""Draws the picture of the idea, docs/pictures/idea.svg: two traces are joined, and what drives from the result.

python docs/draw_idea.py
"""

from __future__ import annotations

from pathlib import Path

from draw_house import STYLE, TIP, box

WIDTH, HEIGHT = 900, 330
USES = (
    ("Analysis", "where the time goes, by line, module, kernel"),
    ("Replay", "critical path, what if, another network"),
    ("Prediction", "other sizes, devices, layouts"),
    ("Simulators", "ASTRA-sim and others, from Chakra traces"),
)
TITLE = (
    "PyTorch's Execution Trace and Kineto trace are joined into ET+, "
    "which drives analysis, replay, prediction and simulators"
)


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """An arrow."""
    return f'<line class="arrow" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def picture() -> str:
    """The drawing: inputs on the left, ET+ in the middle, uses on the right."""
    parts = [
        *box(10, 50, 240, 90, "Execution Trace", ("operators, tensors, callers", "no times, no GPU")),
        *box(10, 190, 240, 90, "Kineto trace", ("times, GPU kernels, Python stacks", "no tensors, no dependencies")),
        *box(330, 115, 190, 100, "ET+", ("one timed operator graph,", "each link proved or marked")),
        line(250, 95, 328, 148), line(250, 235, 328, 182),
    ]  # fmt: skip
    for number, (name, what) in enumerate(USES):
        top = 12 + 80 * number
        parts += [*box(600, top, 290, 62, name, (what,)), line(520, 165, 598, top + 31)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">'
    body = "\n".join(parts)
    return f"{head}\n<title>{TITLE}</title>\n<style>{STYLE}</style>\n<defs>{TIP}</defs>\n{body}\n</svg>\n"


if __name__ == "__main__":
    (Path(__file__).parent / "pictures" / "idea.svg").write_text(picture(), encoding="utf-8")
