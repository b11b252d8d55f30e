"""`--graph-capture` of trace-link, batch, analyze and report, as processes."""

import json
from pathlib import Path

import pytest
from captured import capture_events, encode, replay_events
from support import assert_valid, call, et_document, read_json, refused, succeeds

LAUNCHES = [("gemm", "aten::mm"), ("relu", "aten::relu")]
KERNELS = [(name, 7) for name, _ in LAUNCHES]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    replay, capture = tmp_path / "replay.json", tmp_path / "capture.json"
    replay.write_bytes(encode(replay_events([KERNELS, KERNELS], batch=4)))
    capture.write_bytes(encode(capture_events([LAUNCHES], sizes=[4])))
    return replay, capture


def test_link_and_report_give_graph_kernels_captured_operators(files: tuple[Path, Path], tmp_path: Path) -> None:
    replay, capture = files
    words = ["--graph-capture", capture, "-o", "out.json", "--json", "r.json"]
    done = succeeds("link", "--kineto-file", replay, *words, cwd=tmp_path)
    text = " ".join(done.stderr.decode().split())
    said = "graphs 4 of 4 kernels and copies of 2 graph launches linked to operators in the capture (4 certain)"
    assert said in text
    document = read_json(tmp_path / "out.json")
    assert_valid(document)
    ops = document["captured_graphs"]["ops"]
    names = [ops[node["captured_by"]["op"]]["name"] for node in document["nodes"] if "captured_by" in node]
    assert names == ["aten::mm", "aten::relu"] * 2
    assert read_json(tmp_path / "r.json")["captured_graphs"]["certain"] == 4
    done = call("report", replay, "--graph-capture", capture, "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and "aten::relu" in (tmp_path / "page.html").read_text()


def test_lost_kernels_and_bare_captures_are_no_bug(files: tuple[Path, Path], tmp_path: Path) -> None:
    replay, capture = files
    lost = [event for event in replay_events([KERNELS]) if event["cat"] != "kernel"]
    lost.append({**lost[0], "cat": "kernel", "args": {"device": 0, "stream": 7}})
    (tmp_path / "lost.json").write_bytes(encode(lost))
    bare = [event for event in capture_events([LAUNCHES]) if event["cat"] == "cuda_runtime"]
    bare.append({**bare[0], "cat": "cpu_op", "name": "aten::alone", "ts": 9e6, "tid": 9})
    (tmp_path / "bare.json").write_bytes(encode(bare))
    for trace, graphs, status in (("lost.json", capture, 0), (replay, "bare.json", 3)):
        done = call("link", trace, "--graph-capture", graphs, "-o", "out.json", cwd=tmp_path)
        assert done.returncode == status, done.stderr
        assert_valid(read_json(tmp_path / "out.json"))


def test_nothing_linked_is_said_and_is_no_success(files: tuple[Path, Path], tmp_path: Path) -> None:
    replay, _ = files
    other = tmp_path / "other.json"
    other.write_bytes(encode(capture_events([[("conv", "aten::conv2d"), ("bn", "aten::batch_norm")]])))
    done = call("link", "--kineto-file", replay, "--graph-capture", other, "-o", "out.json", cwd=tmp_path)
    assert done.returncode == 3
    assert b"0 of 4 kernels" in done.stderr and b"no captured" in done.stderr
    assert (tmp_path / "out.json").exists()


def test_analyze_takes_a_graph_capture_for_single_traces_only(files: tuple[Path, Path], tmp_path: Path) -> None:
    succeeds("analyze", files[0], "--graph-capture", files[1], "--json", "a.json", cwd=tmp_path)
    (trace,) = read_json(tmp_path / "a.json")["traces"]
    assert {row["op"] for row in trace["breakdown"]} == {"aten::mm", "aten::relu"}
    assert {row["modules"] for row in trace["breakdown"]} == {"nn.Module: Layer_0"}
    refused = call("analyze", files[0], "--summary", "--graph-capture", files[1])
    assert refused.returncode == 2 and b"--graph-capture applies to single traces only" in refused.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", encode(replay_events([KERNELS])), "no graph is captured in it"), ("x.json", b"nothing", "x.json"),
        ("missing.json", None, "missing.json"), ("d/notes.txt", b"nothing", "no Kineto trace among 1 files"),
        ("x.json", json.dumps(et_document([{"id": 3, "name": "run"}])).encode(), "x.json"),
    ],
)  # fmt: skip
def test_bad_captures_fail_with_one_line(
    files: tuple[Path, Path], tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / "given" / name
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    given = path.parent if name.startswith("d/") else path
    assert message in refused("link", "--kineto-file", files[0], "--graph-capture", given, "-o", tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
