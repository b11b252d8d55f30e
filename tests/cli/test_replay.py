"""`etplus replay` as a process: table, JSON, timelines, errors."""

from pathlib import Path

import orjson
import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.timeline.network_file import parse_network
from made_jobs import JOBS
from simulator import Network
from support import call, fixture_pair, read_json, refused


@pytest.fixture(scope="module")
def plus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ET+ file with GPU work."""
    path = tmp_path_factory.mktemp("replay") / "plus.json"
    link(*fixture_pair("pairs/gpu_shaped_from_cpu")).write(path)
    return path


def test_json_in_a_file_equals_json_that_is_printed(plus: Path, tmp_path: Path) -> None:
    changes = ("--what-if", "kernel*0.5", "--what-if", "cpu*0")
    done = call("replay", plus, "--json", tmp_path / "out.json", *changes)
    told = read_json(tmp_path / "out.json")
    assert done.returncode == 0 and b"at best" in done.stdout
    assert told["what_if"]["changes"] == ["kernel*0.5", "cpu*0"]
    assert told["what_if"]["after_ns"] == told["makespan_ns"]["predicted"] < told["what_if"]["before_ns"]
    assert max(told["bounds_ns"].values()) <= told["what_if"]["after_ns"]
    assert orjson.loads(call("replay", plus, "--json", "-", *changes).stdout) == told
    lanes = {lane["name"]: lane for lane in told["lanes"]}
    assert any(name.startswith("stream") for name in lanes) and any(name.startswith("thread") for name in lanes)


def test_a_chakra_file_replays_like_the_et_plus(plus: Path, tmp_path: Path) -> None:
    convert(str(plus), tmp_path / "x.0.et")
    one, other = (orjson.loads(call("replay", file, "--json", "-").stdout) for file in (plus, tmp_path / "x.0.et"))
    assert {**one, "files": 0} == {**other, "files": 0}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--what-if", "nonsense"], "unknown what-if 'nonsense'"),
        (["--rank-couple"], "at least two ranks"),
        (["--cross-validate", "x"], "a number from 0, a range like 0-19"),
        (["--steps", "x"], "a number from 0, a range like 0-19"),
        (["--cross-validate", "--what-if", "cpu*0"], "--cross-validate cannot be combined with --what-if"),
        (["--cross-validate", "--network", "bandwidth=25"], "--cross-validate cannot be combined with --what-if"),
        (["--json", "/dev/null/x.json"], "/dev/null"),
    ],
)
def test_wrong_usage_ends_in_one_line(plus: Path, arguments: list[str], problem: str) -> None:
    assert problem in refused("replay", plus, *arguments)


def test_what_cannot_be_replayed_ends_in_one_line(tmp_path: Path) -> None:
    et, _ = fixture_pair("demo/train_cpu")
    (tmp_path / "empty.json").write_bytes(b'{"schema": "1.0.3", "nodes": []}')
    for file in (et, tmp_path / "empty.json", tmp_path / "none.json"):
        refused("replay", file)


def test_ranks_on_another_network_take_the_true_time(tmp_path: Path) -> None:
    paths = JOBS["ddp"].write(tmp_path / "job", waits=True)
    spec = ("--network", "bandwidth=2.5,latency=5us")
    done = call("replay", tmp_path / "job", *spec, "--json", "-")
    told = orjson.loads(done.stdout)
    truth = JOBS["ddp"].makespan_ns(Network(2.5, 5000))
    assert done.returncode == 0 and len(told["files"]) == 4
    assert told["what_if"]["changes"] == ["network bandwidth=2.5,latency=5us"]
    file = tmp_path / "network.json"
    file.write_bytes(orjson.dumps(told["network"]))  # the network in the JSON is itself a network file
    assert parse_network(str(file)) == parse_network(spec[1])
    assert told["what_if"]["after_ns"] == told["makespan_ns"]["predicted"] == pytest.approx(truth, rel=0.001)
    assert told["what_if"]["before_ns"] == pytest.approx(told["makespan_ns"]["measured"], rel=0.001)
    assert any(note.startswith("36 communications estimated") for note in told["notes"])
    slower = orjson.loads(call("replay", tmp_path / "job", *spec, "--what-if", "comm*2", "--json", "-").stdout)
    assert slower["makespan_ns"]["predicted"] > truth and len(slower["what_if"]["changes"]) == 2
    alone = call("replay", paths[0][1], *spec)
    lines = alone.stdout.decode().splitlines()
    assert alone.returncode == 0 and max(map(len, lines)) <= 80
    assert " -> " in lines[0]


def test_networks_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    _, kineto = fixture_pair("demo/train_cpu")
    for network, says in (
        ("bandwidth=fast", b"network 'bandwidth=fast': the bandwidth must be positive; for example"),
        ("bandwidth=25", b"train_cpu.kineto.json.gz: no communication has a known kind, size and group"),
    ):
        done = call("replay", kineto, "--network", network, "-o", tmp_path / "out.txt")
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and says in done.stderr
    assert not list(tmp_path.iterdir())
