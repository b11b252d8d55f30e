"""Networks as files: what is written is read back, JSON and YAML are alike, wrong fields are named."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.schemas.comm_types import SEND
from etplus.timeline import Network, parse_network
from etplus.timeline.network_description import Efficiency, NetworkLevel
from etplus.timeline.network_file import _spread, described, network_dict, network_schema, read_network, write_networks
from support import ROOT, refused

WHOLE = Network(
    2.5, 20_000.0, "direct",
    efficiency=(Efficiency(SEND, 0, 1.1, 1.0, 1.3), Efficiency(Type.ALL_GATHER, 65536, 1.3, 1.0, 1.5)),
    levels=(NetworkLevel(4, 300.0, 1000.0, "ring", "node"), NetworkLevel(16, 50.0, topology="ring")),
)  # fmt: skip


def test_a_written_network_is_read_back_equal(tmp_path: Path) -> None:
    write_networks({"a": described(WHOLE), "b": described(Network(1.0))}, tmp_path / "two.json")
    assert parse_network(f"{tmp_path / 'two.json'}#a") == WHOLE
    (tmp_path / "one.json").write_text(json.dumps(network_dict(WHOLE)))
    assert read_network(tmp_path / "one.json") == WHOLE
    (tmp_path / "one.yml").write_text(pytest.importorskip("yaml").safe_dump(network_dict(WHOLE)))
    assert parse_network(str(tmp_path / "one.yml")) == WHOLE


def test_the_published_schema_is_that_of_the_code(tmp_path: Path) -> None:
    published = json.loads((ROOT / "schemas" / "network.schema.json").read_bytes())
    assert published == json.loads(json.dumps(network_schema()))
    valid = jsonschema_rs.Draft202012Validator(published).is_valid
    write_networks({"a": described(WHOLE)}, tmp_path / "some.json")
    for document in (network_dict(WHOLE), json.loads((tmp_path / "some.json").read_bytes())):
        assert valid(document)
    assert not valid({"bandwidth": "fast"}) and not valid({"bandwidht": 1})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"bandwidht": 1}, "bandwidht"), ({"bandwidth": -1}, "$.bandwidth"), ({}, "bandwidth"), ("{", "bad.json"),
        ({"bandwidth": 1, "algorithm": "star"}, "$.algorithm"),
        ({"bandwidth": 1, "levels": [{"ranks": 4, "bandwidth": 2}, {"ranks": 6, "bandwidth": 1}]}, "$.levels[1]"),
        (
            {"bandwidth": 1, "levels": [{"ranks": 4, "bandwidth": 2, "topology": "ring", "algorithm": "direct"}]},
            "$.levels[0].algorithm",
        ),
        ({"bandwidth": 1, "algorithm": "ring", "library": "nccl"}, "`library`"),
        ({"bandwidth": 1, "kinds": [{"kind": "gossip"}]}, "$.kinds[0].kind"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_in_one_line(given: Any, named: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(given if isinstance(given, str) else json.dumps(given))
    assert named in refused("replay", "absent.json", "--network", file)


def test_a_communication_takes_the_links_between_its_ranks() -> None:
    assert WHOLE.transfer_ns(Type.ALL_GATHER, 300, range(4)) == 3 * 1001
    assert WHOLE.transfer_ns(Type.ALL_GATHER, 1 << 20, range(4)) == round(1.3 * 3 * (1000 + (1 << 20) / 300))
    assert WHOLE.transfer_ns(SEND, 3000, (0, 3)) == round(1.1 * (10 + 1000))
    assert WHOLE.transfer_ns(SEND, 2500, (3, 16)) == round(1.1 * (1000 + 20_000))
    assert [of.ranks for of in WHOLE.spans((0, 1, 2, 4, 20))] == [3, 2, 2]


def test_four_of_five_ratios_are_within_their_limits() -> None:
    assert _spread([(float(k), float(100 * k)) for k in range(1, 21)]) == pytest.approx((10.5, 204.5, 18.955))


def test_on_a_ring_a_step_takes_the_latency_of_each_link_on_its_way() -> None:
    levels = (NetworkLevel(2, 1e6), NetworkLevel(16, 1.0, 1000.0, topology="ring"))
    network = Network(1.0, 9.0, levels=levels)
    assert network.transfer_ns(SEND, 100, (0, 6)) == 100 + 3000
    assert network.transfer_ns(SEND, 100, (14, 1)) == 100 + 1000
    assert network.transfer_ns(SEND, 100, (0, 16)) == 109
    gathered = [network.transfer_ns(Type.ALL_GATHER, 100, ranks) for ranks in ((0, 2, 4, 6), (0, 4, 8, 12), (2, 12))]
    assert gathered == [3 * (100 + 3000), 3 * (100 + 2000), 100 + 3000]
    assert network.transfer_ns(Type.ALL_GATHER, 0, tuple(range(0, 16, 2))) == 7 * 1000
