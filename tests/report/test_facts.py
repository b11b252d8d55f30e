"""Texts of the timeline's details, by the page's own script in Node: labels, units, and what cannot be right."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
import pytest
from etplus.trace.comm_kernels import Comm
from support import ROOT, shared_trace

HTML = ROOT / "report" / "html"
CONFIG = {
    "grid": [292026, 1, 1], "block": [256, 1, 1], "context": 1, "registers per thread": 32, "shared memory": 231424,
    "blocks per SM": 9125.818359, "warps per SM": 73006.546875, "est. achieved occupancy %": 0,
}  # fmt: skip
EVENT = {
    "category": 0, "config": 0, "comm": 0, "dtype": 0, "flops": 3_000_000, "bytes": 3_000_000, "dur": 1000,
    "delay": 1500, "correlation": 7, "id": 8, "kineto_event": 9, "step": -1, "reason": 0, "link": -1, "captured": -1,
    "generated": -1, "module": -1, "phase": 0, "entry": -1,
}  # fmt: skip
DEVICE = {"peaks": {"float32": 2e12}, "memory_gb_s": 2000}


def facts(
    config: dict[str, Any], comm: dict[str, Any] | None = None, event: dict[str, Any] | None = None,
    generated: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Label to text of the facts of a device event."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    texts = {"categories": ["kernel"], "dtypes": ["float32"], "configs": [config], "comms": [comm or {}], "links": [],
             "evidence": {}, "captured": [], "reasons": [""], "steps": [],
             "modules": [], "phases": [""], "stacks": None,
             "generated": [generated or {"name": "", "lines": []}]}  # fmt: skip
    given = [event or EVENT, texts, {"device": 0, "stream": 7}, None, {"0": DEVICE}]
    script = [
        "globalThis.matchMedia = () => ({ matches: false });",
        *((HTML / name).read_text() for name in ("base.js", "facts.js")),
        f"const found = deviceFacts(...{orjson.dumps(given).decode()});",
        "console.log(JSON.stringify(Object.fromEntries(found.map((one) => [one.label, one.text]))));",
    ]
    done = subprocess.run([node, "-"], input="\n".join(script).encode(), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return orjson.loads(done.stdout)


def test_a_launch_in_its_units() -> None:
    said = facts(CONFIG)
    assert said["Grid"] == "292026 × 1 × 1" and said["Block"] == "256 × 1 × 1"
    assert said["Registers per thread"] == "32" and said["Shared memory of a block"] == "231 kB"
    assert said["Warps launched, by number of SMs"] == "73,007", "of the whole grid, not of those that run at a time"
    assert said["Blocks launched, by number of SMs"] == "9,126" and said["Occupancy, estimated"] == "< 0.5 %"
    assert "73006.546875" not in " ".join(said.values()) and said["Launch delay"] == "1.50 µs"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("est. achieved occupancy %", -100), ("est. achieved occupancy %", 140), ("warps per SM", -1),
        ("blocks per SM", "many"), ("registers per thread", 2**31), ("shared memory", -4), ("grid", [0, 1, 1]),
        ("block", [1.5]), ("grid", []), ("shared memory", None),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_left_out(key: str, value: Any) -> None:
    whole, rest = facts(CONFIG), facts(CONFIG | {key: value})
    assert len(whole) == len(rest) + 1 and all(whole[label] == text for label, text in rest.items())


def test_a_share_above_a_peak_is_explained() -> None:
    said = facts(CONFIG)  # 3 TFLOP/s of 2, 3 TB/s of 2
    for peak in ("bandwidth", "float32 peak"):
        assert said[f"Share of the {peak}"].startswith("150.0 % (more than the device can")
    below = facts(CONFIG, event=EVENT | {"dur": 2000})
    assert below["Share of the bandwidth"] == below["Share of the float32 peak"] == "75.0 %"


def test_a_communication_in_its_units() -> None:
    comm = Comm("allreduce", "float", 4_000_000, 4_000_000, 16_000_000, 4, "1", "default_pg", [0, 1, 2, 3], seq=3)
    said = facts(CONFIG, msgspec.to_builtins(comm))
    assert said["Communicated"] == "16.0 MB" and said["Elements in"] == "4,000,000" and said["Ranks"] == "0, 1, 2, 3"
    every: dict[str, Any] = {
        name: [1, 2] if name.endswith(("split", "ranks")) else 1 for name in Comm.__struct_fields__
    }
    every["inferred_messages"] = [{"collective": "send", "dst_rank": 1}, {"collective": "recv", "src_rank": 2}]
    assert facts({}, every)["Messages sent together (inferred)"] == "send 1, recv 2"
    assert len(facts({}, every)) == len(facts({})) + len(every)


def numbers_of(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in text.replace(",", "").split() if word.count(".") == 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu-kineto/h100_bert.json.gz", "gpu-kineto/alexnet.json.gz"])
def test_no_number_of_a_real_launch_has_more_than_three_digits_behind_the_point(name: str) -> None:
    from etplus.schemas.kineto.event_args import LAUNCH_ARGS
    from etplus.schemas.text.files import load

    events = orjson.loads(load(shared_trace(name)).data)["traceEvents"]
    launches = [one["args"] for one in events if one.get("cat") == "kernel"]
    for args in launches[:: max(1, len(launches) // 5)]:
        said = facts({key: args.get(key) for key in LAUNCH_ARGS})
        assert all(len(word.split(".")[1]) <= 3 for word in numbers_of(list(said.values())) if word[0].isdigit()), said


def test_cards_are_plain_english() -> None:
    text = (HTML / "job.js").read_text()
    assert "most less least" not in text and "between the ranks that compute most and least" in text


def test_a_generated_kernel_says_where_its_code_is_and_what_it_is_made_of() -> None:
    kernel = {
        "name": "triton_poi_fused_add_gelu_1", "region": "Torch-Compiled Region: 0/0", "backward": True, "handle": 7,
        "nodes": ["add", "gelu"], "kernel_file": "/tmp/ab/cab.py", "kernel_hash": "cab", "kernel_kwargs": "XBLOCK=8",
        "lines": ["net.py:3 (forward)", "net.py:4 (forward)"],
    }  # fmt: skip
    said = facts(CONFIG, event=EVENT | {"generated": 0}, generated=kernel)
    assert said["Compiled as"] == kernel["name"] and said["Fused of"] == "add, gelu"
    assert said["Compiled region"] == "Torch-Compiled Region: 0/0, backward, call 7"
    assert said["Source lines (fused)"] == "net.py:3 (forward); net.py:4 (forward)"
    assert (said["Kernel file"], said["Kernel hash"]) == ("/tmp/ab/cab.py", "cab")
    assert said["Kernel constants"] == "XBLOCK=8"
    plain = facts(CONFIG, event=EVENT | {"generated": 0}, generated={"name": "triton_0", "lines": ["net.py:3 (f)"]})
    assert plain["Compiled as"] == "triton_0" and "Source lines (fused)" not in plain
    assert not {"Compiled region", "Made of", "Kernel file"} & set(plain) and "Compiled as" not in facts(CONFIG)
