"""What a roofline simulation of ASTRA-sim gets: work for every computation on the GPU, as known or as measured."""

from pathlib import Path

from etplus_files import cpu, etplus, gpu, step_by_hand, write_alone
from plain_chakra import COMP, PlainNode, read_plain
from simulator import read_set, schedule
from support import call, succeeds

BANDWIDTH, PEAK = 2000.0, 300_000.0
"""GB/s (bytes a ns) and FLOPs a ns."""


def runtime_ns(node: PlainNode) -> int:
    """`Workload::issue_comp`: a node without either attribute ends the simulation, and 0 FLOPs would take 0 / 0 s."""
    if node.type != COMP or node.value("is_cpu_op"):
        return node.micros * 1000
    (kind_of_ops, flops), (kind_of_size, size) = node.attributes["num_ops"], node.attributes["tensor_size"]
    assert (kind_of_ops, kind_of_size) == ("int64_val", "uint64_val") and flops > 0 and size > 0
    return int(flops / min(BANDWIDTH * flops / size, PEAK))


def test_known_work_and_measured_delays_take_their_time(tmp_path: Path) -> None:
    shape, kind = [1024, 1024], "Tensor(float)"
    tensor = [9, 9, 0, 1 << 20, 4, "cuda:0"]
    mm = cpu(3, "aten::mm", 0, 200, inputs=[tensor, tensor], input_shapes=[shape, shape], input_types=[kind, kind],
             outputs=[tensor], output_shapes=[shape], output_types=[kind])  # fmt: skip
    document = etplus([mm, gpu(10, "sgemm", 10, 90), cpu(4, "mystery", 210, 90), gpu(11, "unknown", 150, 30, parent=4)])
    write_alone(document, tmp_path, roofline=BANDWIDTH)
    written = read_plain(tmp_path / "t.0.et")[1]
    nodes = {node.name: node for node in written}
    assert (nodes["sgemm"].value("num_ops"), nodes["sgemm"].value("tensor_size")) == (2**31, 3 << 22)
    assert runtime_ns(nodes["sgemm"]) == int(2**31 / PEAK)
    assert abs(runtime_ns(nodes["unknown"]) - 30_000) <= 1
    delays = [node for node in written if node.name == "delay"]
    for node, expected in zip(delays, [10_000, 50_000, 120_000], strict=True):
        assert abs(runtime_ns(node) - expected) <= 1


def test_an_impossible_memory_bandwidth_is_refused(tmp_path: Path) -> None:
    step_by_hand().write(tmp_path / "in.json")
    words = ["convert", "in.json", "-o", "t", "--to", "astra-sim", "--replicate", "2"]
    succeeds(*words, "--roofline", "2000", cwd=tmp_path)
    for nodes in read_set(tmp_path / "t").ranks.values():
        assert len(schedule(nodes, runtime_ns)) == len(nodes)
    for wrong in ("0", "nan", "1e300"):
        done = call(*words, f"--roofline={wrong}", cwd=tmp_path)
        assert done.returncode == 2 and b"give the bandwidth of the device's memory in GB/s" in done.stderr
