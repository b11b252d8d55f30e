"""Redacted copies and linked traces have known fields only."""

import gzip
import itertools
import json
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from etplus import link
from etplus.converters import augment
from etplus.linker import generated
from etplus.schemas.inductor import graph_annotations
from etplus.schemas.kineto import event_args, input_args, kineto_decode
from etplus.schemas.known_fields import ARGUMENTS, FieldFilter, hashed_name, hashed_names, known_args
from etplus.schemas.redaction import known_header, redact
from etplus.schemas.text.files import Blob
from support import call, fixture_pair, plain, read_json, succeeds

_BY_FORM = {
    "hugging face": "hf_SECRET", "github fine-grained": "github_pat_SECRET_SECRET", "aws": "AKIAIOSFODNN7SECRET",
    "openai project": "sk-proj-SECRET-x", "slack bot": "xoxb-1234567890-SECRET", "google": "AIzaSECRET",
    "json web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiSECRET.SECRET",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIISECRET\nSECRET==\n-----END RSA PRIVATE KEY-----\n",
    "cut private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlSECRET\n",
}  # fmt: skip
"""Values that are known by what they look like."""
_IN_PLACE = {
    "azure signed url": "https://a.blob.core.windows.net/c/f.bin?sv=2022-11-02&sig=SECRET%3D&sp=r",
    "token as user": "git clone https://SECRET@github.com/a/b.git",
    "password of a database": "postgresql+psycopg2://alice:SECRET@db:5432/x",
    "curl": "curl -s -u alice:SECRET https://example.org",
    "header of curl": 'curl -H "Authorization: Bearer SECRET" https://example.org',
    "x-api-key": "GET / HTTP/1.1\r\nx-api-key: SECRET\r\nHost: example.org",
    "option=": "python train.py --lr=0.1 --token=SECRET --steps 5",
    "quoted option": "python train.py --hub-token 'SECRET' --lr 0.1",
    "export": "export WANDB_API_KEY=SECRET && python train.py",
    "netrc": "machine api.wandb.ai login user password SECRET",
    "yaml": "env:\n- name: HF_TOKEN\n  value: SECRET\n- name: LR\n  value: 1",
    "xml": "<server><password>SECRET</password></server>",
    "python": "{'HF_TOKEN': 'SECRET', 'LR': '0.1'}",
    "call": "connect(host='db', password='SECRET', port=1)",
    "slack webhook": "https://hooks.slack.com/services/T0A/B0A/SECRET",
    "nul": "python\0train.py\0--token\0SECRET\0--lr\0001",
    "lines": "LR=1\nHF_TOKEN=SECRET\nHOME=/root\n",
    "sentence": "the token is SECRET",
}
"""Texts with a secret in them, which is known by its place."""
_NAMES = ("HF_TOKEN", "MYSQL_PWD", "x-api-key", "Authorization", "dbPassword", "private key", "GITHUB_PAT_2")


class Escaped(str):
    """JSON text, not a string."""


def _behind_a_name(name: str, secret: str) -> dict[str, Any]:
    escaped = "".join(f"\\u{ord(c):04x}" if at % 2 else f"\\u{ord(c):04X}" for at, c in enumerate(name))
    return {
        "member": {name: secret}, "list": {name: [1, secret, {"x": secret}]}, "object": {name: {"a": [secret]}},
        "pairs": [["LR", "1"], [name, secret], ["HOME", "/root"]], "flat": ["LR", "1", name, secret],
        "name, value": [{"name": "LR", "value": "1"}, {"name": name, "value": secret}],
        "value within": {"name": name, "x": {"y": [1]}, "value": {"z": secret}},
        "in a string in a string": json.dumps({"env": json.dumps({"deep": {name: secret}})}),
        "escaped": Escaped(f'{{"{escaped}": "{secret}"}}'),
        "escaped in a string": Escaped(json.dumps(f'{{"{escaped}": "{secret}"}}')),
        "options": ["x", f"--{name}", secret, "--lr", "1"],
    }  # fmt: skip


_PLACES: dict[str, Callable[[str], str]] = {
    "environment": lambda text: f'{{"environment": {{"x": {text}}}, "traceEvents": []}}',
    "distributedInfo": lambda text: f'{{"distributedInfo": {{"rank": 0, "x": {text}}}, "traceEvents": []}}',
    "args": lambda text: f'{{"traceEvents": [{{"ph": "X", "name": "a", "ts": 1, "args": {{"x": {text}, "y": 2}}}}]}}',
    "after": lambda text: f'{{"nodes": [{{"id": 1}}], "x": [1, {text}, 2]}}',
}
_TEXT_PLACES: dict[str, Callable[[str], str]] = {
    "annotation": lambda text: f'{{"traceEvents": [{{"ph": "X", "cat": "user_annotation", "name": {text}, "ts": 1}}]}}',
    "attribute": lambda text: f'{{"nodes": [{{"id": 1, "attrs": [{{"name": "x", "type": "", "value": {text}}}]}}]}}',
    "key": lambda text: f'{{"schema": "1", {text}: 1, "nodes": []}}',
}


def planted() -> Iterator[tuple[str, str, str]]:
    draw, found = random.Random(0), dict[str, tuple[Any, str]]()
    secrets = ("".join(draw.choices(string.ascii_letters + string.digits, k=20)) + "7aZ" for _ in itertools.count())
    for (kind, text), hidden in zip((_BY_FORM | _IN_PLACE).items(), secrets, strict=False):
        text = text.replace("SECRET", hidden)
        escaped = Escaped('"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"')
        forms = (("", text), (", of a list", ["a", text]), (", escaped", escaped))
        found |= {f"{kind}{form}": (value, hidden) for form, value in forms}
    for name, hidden in zip(_NAMES, secrets, strict=False):
        found |= {f"{name}, {form}": (value, hidden) for form, value in _behind_a_name(name, hidden).items()}
    for at, (kind, (value, hidden)) in enumerate(found.items()):
        places = _PLACES | (_TEXT_PLACES if type(value) is str else {})
        place = sorted(places)[at % len(places)]
        yield f"{kind}; {place}", places[place](value if isinstance(value, Escaped) else json.dumps(value)), hidden


PAIR = "pairs/gpu_shaped_from_cpu"
SECRET = "fAk3-vAlu3"


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        for item in value.items() if isinstance(value, dict) else value:
            yield from texts_in(list(item) if isinstance(item, tuple) else item)
    elif isinstance(value, str):
        yield value
        try:
            inner = json.loads(value)
        except ValueError:
            return
        if isinstance(inner, (dict, list)):
            yield from texts_in(inner)


def test_no_planted_secret_is_let_through(tmp_path: Path) -> None:
    for what, text, secret in planted():
        assert secret in "\n".join(texts_in(json.loads(text))), what
        for names in (True,) if what.endswith("; annotation") else (False, True):
            redact(text.encode(), tmp_path / "copy.json", names=names)
            left = "\n".join(texts_in(read_json(tmp_path / "copy.json")))
            assert secret not in left, (what, left)


def with_secrets(document: dict[str, Any], value: Any = SECRET, key: str = "HF_TOKEN") -> dict[str, Any]:
    found = {**document, key: value}
    for name in ("distributedInfo", "deviceProperties"):
        if name in document or "traceEvents" in document:
            given = document.get(name) or ({"rank": 0} if name == "distributedInfo" else [{"id": 0}])
            found[name] = [*given, {"id": 1, key: value}] if isinstance(given, list) else {**given, key: value}
    for name in ("traceEvents", "nodes", "runtime", "unattached"):
        if name in document:
            found[name] = [with_unknown(record, value, key) for record in document[name]]
    if "etplus" in document:
        summary = document["etplus"]
        found["etplus"] = {**summary, key: value, "kineto": {**summary["kineto"], key: value}}
        found["etplus"]["link"] = {**summary["link"], key: value}
    return found


def with_unknown(record: dict[str, Any], value: Any, key: str) -> dict[str, Any]:
    found = {**record, key: value}
    if "args" in record:
        found["args"] = {**record["args"], key: value, "context": {key: value}}
    if "attrs" in record:
        found["attrs"] = [*record["attrs"], {"name": key, "type": "string", "value": value}]
    for side in ("inputs", "outputs"):
        if isinstance(record.get(side), dict):
            found[side] = {**record[side], key: value}
    return found


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    et, kineto = fixture_pair(PAIR)
    plus = tmp_path_factory.mktemp("plus") / "plus.json"
    link(et, kineto).write(plus)
    found = {name: read_json(path) for name, path in (("et", et), ("kineto", kineto), ("plus", plus))}
    for document in found.values():
        for key in ("traceEvents", "nodes", "runtime"):
            if key in document:
                document[key] = document[key][:3] + document[key][-3:]
    return found


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("key", [SECRET, "env", ""])
def test_no_unknown_member_is_kept(documents: dict[str, Any], tmp_path: Path, key: str, names: bool) -> None:
    for document in documents.values():
        for value in (SECRET, [1, [SECRET]], {"name": {SECRET: None, "rank": [SECRET]}}):
            redact(json.dumps(with_secrets(document, value, key)).encode(), tmp_path / "copy.json", names=names)
            text = (tmp_path / "copy.json").read_text()
            assert SECRET not in text and f'"{key}":' not in text.replace('": ', '":')


def test_linking_and_conversion_drop_unknown_members(tmp_path: Path) -> None:
    et, kineto = fixture_pair(PAIR)
    found = with_secrets(read_json(et))
    (tmp_path / "et.json").write_text(json.dumps({**found, "nodes": read_json(et)["nodes"]}))
    (tmp_path / "kineto.json").write_text(json.dumps(with_secrets(read_json(kineto))))
    link(et, kineto).write(tmp_path / "clean.json")
    link(tmp_path / "et.json", tmp_path / "kineto.json").write(tmp_path / "plus.json")
    assert SECRET.encode() not in (tmp_path / "plus.json").read_bytes()
    clean, plus = (read_json(tmp_path / name) for name in ("clean.json", "plus.json"))
    for before, after in zip(clean["nodes"], plus["nodes"], strict=True):
        if "args" in before:
            assert after["args"] == {key: value for key, value in before["args"].items() if key != "context"}
    foreign = tmp_path / "foreign.json"
    foreign.write_text(json.dumps({**with_secrets(plus), "nodes": plus["nodes"], "runtime": plus["runtime"]}))
    for name in ("x.0.et", "x.chrome.json"):
        succeeds("convert", foreign, "-o", tmp_path / name)
        assert SECRET.encode() not in (tmp_path / name).read_bytes(), name


def test_names_are_replaced_by_equal_hashes(tmp_path: Path) -> None:
    et, kineto = fixture_pair(PAIR)
    for path, name in ((et, "et.json"), (kineto, "kineto.json")):
        text = plain(path).replace(b'"ProfilerStep#', b'"secret model#', 1)
        (tmp_path / name).write_bytes(text)
        redact(tmp_path / name, tmp_path / f"clean.{name}", names=True)
        assert b"secret model" not in (tmp_path / f"clean.{name}").read_bytes()
    files = ([tmp_path / f"{prefix}{name}.json" for name in ("et", "kineto")] for prefix in ("", "clean."))
    plain_links, links = (link(*pair).report for pair in files)
    assert links.ops == plain_links.ops and links.gpu == plain_links.gpu
    assert hashed_name("a/b.py(3): step") == f"{hashed_name('a/b.py')}(3): {hashed_name('step')}"
    assert hashed_name(hashed_name("x")) == hashed_name("x") != hashed_name("y")


def test_arguments_that_readers_decode_are_kept() -> None:
    types = [
        kineto_decode._AnyArgs, event_args.GraphNodeArgs, event_args.SyncArgs, event_args._WorkArgs,
        input_args._InputArgs, graph_annotations._NodeArgs,
    ]  # fmt: skip
    names = {name for kind in types for name in kind.__struct_encode_fields__}
    names |= {*event_args.LAUNCH_ARGS, *kineto_decode.MEMORY_ARGUMENTS, *augment.ARGUMENTS, *generated._KERNEL_KEYS}
    names |= {name for name, _ in event_args._KERNEL_ARGS.values()}
    assert names <= ARGUMENTS


def test_unknown_arguments_and_header_fields_are_removed() -> None:
    assert known_args([b"null", b"[1]", b'{"a": 1}', b' {"grid" : [1]}']) == [b"null", b"{}", b"{}", b' {"grid" : [1]}']
    summary = {"by_category": {"kernel": 3, "HF_TOKEN": 3, "gpu_memcpy": "secret"}, "file": "a"}
    raw = msgspec.Raw(json.dumps({"link": {"kineto": summary}}).encode())
    kept = json.loads(bytes(FieldFilter().sections({"etplus": raw})["etplus"]))
    assert kept == {"link": {"kineto": {"by_category": {"kernel": 3}, "file": "a"}}}


def test_the_command_redacts_standard_input(tmp_path: Path) -> None:
    et, out = fixture_pair(PAIR)[0], tmp_path / "out.json.gz"
    secret = json.dumps(with_secrets(read_json(et))).encode()
    done = call("convert", "-", "--redact", "names", "-o", out, "--json", "-", input=gzip.compress(secret))
    assert done.returncode == 0 and json.loads(done.stdout)["changed"] > 0
    assert SECRET not in gzip.decompress(out.read_bytes()).decode()


def test_unknown_header_keys_alone_are_removed_before_reading() -> None:
    given = b'{"traceEvents": [{"ph": "X", "own": 1}], "HF_TOKEN": "x"}'
    found = known_header(Blob("x", given)).data
    assert b"HF_TOKEN" not in found and json.loads(found)["traceEvents"] == [{"ph": "X", "own": 1}]
    assert known_header(Blob("x", b"no trace")).data == b"no trace"


def test_free_texts_are_hashed_while_numbers_groups_and_structure_stay() -> None:
    assert hashed_name("nn.Module: Secret_3") == f"nn.Module: {hashed_name('Secret')}_3"
    assert hashed_names(["a", 3, ["b"]]) == [hashed_name("a"), 3, [hashed_name("b")]]
    for ph, name in (("M", hashed_name("secret")), ("X", "secret")):
        event = FieldFilter(names=True).event(json.dumps({"ph": ph, "name": "a", "args": {"name": "secret"}}).encode())
        assert json.loads(event)["args"]["name"] == name, "the name of a process, an argument of an event"
    groups = '[{"pg_name": "0", "pg_desc": "secret", "own": 1, "ranks": [0]}]'
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "args": {"Concrete Inputs": ["[1, 2.5]", "secret", groups]}}
    kept = json.loads(FieldFilter(names=True).event(json.dumps(event).encode()))["args"]["Concrete Inputs"]
    assert kept[:2] == ["[1, 2.5]", hashed_name("secret")]
    assert json.loads(kept[2]) == [{"pg_name": "0", "pg_desc": hashed_name("secret"), "ranks": [0]}]
