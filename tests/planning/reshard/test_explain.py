"""The numbers with which derived layouts are explained, as somebody last looked at them (in GOLDEN)."""

import re

import etplus
from etplus.planning.reshard.explain import explain
from etplus.planning.reshard.job import reshard
from etplus.planning.reshard.layout import Layout
from support import FIXTURES, ROOT

GOLDEN = ROOT / "tests" / "golden" / "reshard" / "explain.txt"
LAYOUTS = {
    "transformer_w32_d1__b16_t1": Layout(tp=2, pp=3, microbatches=4), "mlp_w128_d2__b8_t1": Layout(dp=2, zero=3),
    "conv_w8_d2__b8_t1": Layout(dp=2),
}  # fmt: skip


def shown() -> str:
    texts = []
    for name, layout in LAYOUTS.items():
        job = reshard(etplus.load(FIXTURES / "batches" / f"{name}.json.gz"), layout)
        texts.append(f"{name}: {' '.join(re.findall(r'[0-9]+', explain(job.derivation)))}\n")
    return "".join(texts)


def test_layouts_are_explained() -> None:
    assert shown() == GOLDEN.read_text()


if __name__ == "__main__":
    GOLDEN.write_text(shown())
