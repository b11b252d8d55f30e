"""Secrets are masked wherever they are in a text, and nothing else changes."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from etplus.schemas.text import secrets
from etplus.schemas.text.secrets import MASK, Masker, mask
from hypothesis import given
from hypothesis import strategies as st
from support import call, examples, fixture_pair, plain, read_json, run

FAKE = "fAk3-vAlu3"
HIDDEN: list[Any] = [
    {"env": {"HF_TOKEN": FAKE, "HOME": "/root"}},
    {"AWS_SECRET_ACCESS_KEY": FAKE},
    {"db.password": f'{FAKE}"\\ {FAKE}'},
    {"credentials": {"user": FAKE, "keys": [FAKE, 5, {"x": [FAKE]}]}, "after": "same"},
    {"OPENAI_API_KEY": [FAKE, FAKE]},
    ["A=b", f"WANDB_API_KEY={FAKE}", "C=d"],
    ["PRIVATE_KEY=" + f"{FAKE} and {FAKE}"],
    ["python", "train.py", "--hub-token", FAKE, "--lr", "0.1"],
    {"cmdline": f"python train.py --api-key={FAKE} --password {FAKE} --lr 0.1"},
    {"INFO": [f"{{'GH_TOKEN': '{FAKE}', 'other': 'same'}}"]},
    {"args": json.dumps({"deep": {"AUTH": FAKE, "other": 1}})},
    {"Authorization": f"Bearer {FAKE}", "header": f"Authorization: Bearer {FAKE}"},
    {"url": f"https://me:{FAKE}@example.org/x", "SESSION_COOKIE": FAKE},
]
KEPT: list[Any] = [
    {"num_tokens": 128, "use_auth_token": True, "TOKEN": None, "max_tokens": "512", "SECRET": ""},
    {"tokenizer": "bert", "TOKENIZERS_PARALLELISM": "false", "author": "me", "key": "value", "keys": ["a"]},
    {"name": "void token::kernel<float, secret_t>(int)", "cat": "kernel", "x": "authorize this"},
    {"name": "decode(num_tokens=12, prefix=4)", "url": "https://example.org/a:b"},
    {"pip": ["google-auth==2.1", "tokenizers==0.1"]},
    {"monkey": "see", "passed": "yes", "compass": 4},
]


def test_values_under_secret_names_are_masked_and_the_rest_is_kept() -> None:
    for document in HIDDEN:
        for options in ({}, {"indent": 1}, {"separators": (",", ":")}):
            text = json.dumps(document, **options).encode()
            masked, count = mask(text)
            assert FAKE.encode() not in masked and count, document
            assert mask(masked) == (masked, 0), "masking twice changes nothing more"
            before, after = json.dumps(document), json.dumps(json.loads(masked))
            assert before.count("same") == after.count("same") and before.count("0.1") == after.count("0.1")
    for document in KEPT:
        text = json.dumps(document).encode()
        assert mask(text) == (text, 0)


def test_a_member_is_replaced_by_itself_alone() -> None:
    text = b'{ "a":1 ,\n"MY_TOKEN" : "x\\"y" , "PASSWORD":12, "b" :[ "SECRET=z" ]}'
    assert mask(text)[0] == b'{ "a":1 ,\n"MY_TOKEN" : "***" , "PASSWORD":"***", "b" :[ "SECRET=***" ]}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", 'q"', "MY_PASSWORD", "key\\", "x"]), inner, max_size=3)
    ),
)


def expected(value: Any, hidden: bool = False) -> Any:
    """The same by the plain meaning of the rule, on decoded objects."""
    if isinstance(value, dict):
        return {key: expected(one, hidden or key == "MY_PASSWORD") for key, one in value.items()}
    if isinstance(value, list):
        return [expected(one, hidden) for one in value]
    if hidden and not isinstance(value, bool) and value not in (None, ""):
        return MASK.decode()
    return value


@examples(300)
@given(st.dictionaries(st.sampled_from(["b", "n"]), JSON, max_size=2), st.sampled_from([None, 1]))
def test_any_document_by_the_plain_rule(document: dict[str, Any], indent: int | None) -> None:
    wrapped = {"w": [document], "MY_PASSWORD": [document]}
    assert json.loads(mask(json.dumps(wrapped, indent=indent).encode())[0]) == expected(wrapped)


@pytest.mark.parametrize("block", [40, 300, 5000])
def test_blocks_may_end_anywhere(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(block)
    records = [rng.choice(HIDDEN + KEPT) for _ in range(200)]
    text = json.dumps({"traceEvents": [{"x": one, "y": 1} for one in records], "SECRETS": records}).encode()
    whole, masker = mask(text), Masker()
    monkeypatch.setattr(secrets, "_BLOCK", block)
    assert (b"".join(masker.pieces(text)), masker.count) == whole
    assert FAKE.encode() not in whole[0]


def test_hosts_users_and_paths_on_request() -> None:
    text = json.dumps({
        "hostname": "node17", "env": ["USER=alice", "MASTER_ADDR=node18"], "cwd": "/home/alice/job",
        "name": "/home/alice/job/train.py(12): forward", "win": "C:\\Users\\alice\\x.py", "kernel": "void a::b<4/2>",
    }).encode()  # fmt: skip
    assert mask(text) == (text, 0)

    def masked(**what: bool) -> str:
        return b"".join(Masker(**what).pieces(text)).decode()

    hosts, users, paths = masked(hosts=True), masked(users=True), masked(paths=True)
    assert "node1" not in hosts and "alice" in hosts
    assert "alice" not in users and "node17" in users and "/home/***/job/train.py(12): forward" in users
    assert (
        "/home" not in paths and "Users" not in paths and "***/train.py(12): forward" in paths and "USER=alice" in paths
    )
    for document in map(json.loads, (hosts, users, paths)):
        assert document["kernel"] == "void a::b<4/2>"


def with_secrets(path: Path, target: Path) -> Path:
    """A trace with made-up secrets in its header, before and behind its records."""
    document = read_json(path)
    key = "traceEvents" if "traceEvents" in document else "nodes"
    document.get("distributedInfo", {})["RDZV_TOKEN"] = FAKE
    document = {
        "environment": {"HF_TOKEN": FAKE}, "command": f"curl -u me:{FAKE} https://example.org",
        **{k: v for k, v in document.items() if k != key},
        key: document[key], "GH_TOKEN": FAKE, "deviceProperties": [{"id": 0, "name": "X", "api_key": FAKE}],
        "distributedInfo": {"rank": 0, "auth": {"token": FAKE}},
    }  # fmt: skip
    target.write_text(json.dumps(document))
    return target


def test_the_command_keeps_all_other_bytes(tmp_path: Path) -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    plus = tmp_path / "plus.json"
    assert call("link", "--et-file", et, "--kineto-file", kineto, "--output-file", plus).returncode == 0
    for source in (et, kineto, plus):
        out = tmp_path / "out.json.gz"
        done = call("redact", source, "-o", out)
        assert done.returncode == 0 and b"masked  0 values" in done.stderr
        assert gzip.decompress(out.read_bytes()) == plain(source)
        secret = with_secrets(source, tmp_path / "secret.json")
        done = call("redact", "-", "-o", out, "--hosts", input=gzip.compress(secret.read_bytes()))
        assert done.returncode == 0, done.stderr
        text = gzip.decompress(out.read_bytes()).decode()
        assert FAKE not in text and FAKE.encode() not in done.stderr
        assert json.loads(secret.read_text().replace(FAKE, "***")) == json.loads(text)
    assert run("etplus", "redact", et, "-o", tmp_path / "copy.json").returncode == 0
    assert (tmp_path / "copy.json").read_bytes() == plain(et)


def test_the_command_refuses_its_input_as_output_and_what_is_no_json(tmp_path: Path) -> None:
    (source := tmp_path / "a.json").write_bytes(b'{"nodes": []}')
    (other := tmp_path / "b.et").write_bytes(b"\x05\x0a\x030.1")
    (cut := tmp_path / "c.json.gz").write_bytes(gzip.compress(b'{"nodes": []}' * 99)[:-9])
    before = sorted(tmp_path.iterdir())
    for name, output, message in (
        (source, source, b"choose another"), (other, tmp_path / "x", b"not JSON"), (cut, tmp_path / "x", b"damaged"),
        (tmp_path / "none", tmp_path / "x", b"no such file"),
    ):  # fmt: skip
        done = call("redact", name, "-o", output)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and message in done.stderr, done.stderr
    assert source.read_bytes() == b'{"nodes": []}' and sorted(tmp_path.iterdir()) == before


def test_augment_masks_what_is_between_lists_of_records(tmp_path: Path) -> None:
    """Members of an ET+ may be in any order."""
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    plus, out = tmp_path / "plus.json", tmp_path / "out.json"
    assert call("link", "--et-file", et, "--kineto-file", kineto, "--output-file", plus).returncode == 0
    document = read_json(plus)
    nodes = document.pop("nodes")
    plus.write_text(
        json.dumps({**document, "environment": {"HF_TOKEN": FAKE, "x": f"ghp_{'7aZ' * 12}"}, "nodes": nodes})
    )
    done = call("augment", plus, out)
    assert done.returncode == 0 and b"2 values in the header" in done.stderr
    assert read_json(out)["environment"] == {"HF_TOKEN": "***", "x": "***"}


def test_no_output_carries_secrets_of_a_header_on(tmp_path: Path) -> None:
    et, kineto = (with_secrets(path, tmp_path / path.name[:-3]) for path in fixture_pair("pairs/gpu_shaped_from_cpu"))
    plus = tmp_path / "plus.json"
    done = call("link", "--et-file", et, "--kineto-file", kineto, "--output-file", plus)
    assert done.returncode == 0 and done.stderr.count(b"look like secrets and are masked in the output") == 2
    outputs = [plus]
    alone = tmp_path / "alone.json"
    assert call("link", "--kineto-file", kineto, "--output-file", alone).returncode == 0
    foreign = with_secrets(plus, tmp_path / "foreign.json")
    commands = [("augment", kineto), ("augment", foreign), ("report", kineto, "-o"), ("report", foreign, "-o")]
    suffixes = ["json", "json", "html", "html", "et", "pftrace", "chrome.json", "graphml"]
    commands += [("convert", foreign)] * 4
    for number, (command, suffix) in enumerate(zip(commands, suffixes, strict=True)):
        out = tmp_path / f"{number}.{suffix}"
        done = call(*command, out)
        assert done.returncode == 0, done.stderr
        if command[0] == "augment":
            assert b"look like secrets and are masked" in done.stderr
        outputs.append(out)
    for out in (*outputs, alone):
        assert FAKE.encode() not in out.read_bytes(), out.name
    assert b'"environment": {"HF_TOKEN": "***"}' in plus.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "db_password", "value": null}', '{"name": "db_password", "value": true, "x": "same"}',
        '{"name": "db_password", "value": "<fAk3-vAlu3>"}', '{"value": "<fAk3-vAlu3>", "name": "db_password"}',
        '{"value": "db_password", "data": "<fAk3-vAlu3>"}', '{"text": "db_password"}',
        '{"name": "db_password", "x": {"value": "same"}, "y": ["value"], "val": "<fAk3-vAlu3>"}',
        '{"x": {"name": "db_password", "value": "<fAk3-vAlu3>"}, "value": "same"}',
        '{"y": {"x": {}, "name": "db_password", "content": "<fAk3-vAlu3>"}}',
        '{"name": "db_password", "default": null, "value": "<fAk3-vAlu3>", "data": "<fAk3-vAlu4>"}',
        '[{"name": "db_password"}, {"value": "same"}]', '[{"value": "same"}, {"name": "db_password"}]',
    ],
)  # fmt: skip
def test_values_beside_names(text: str) -> None:
    """What is in <> is masked, as a member of the same object; the rest is kept."""
    hidden = text.count("<")
    masked, count = mask(text.replace("<", "").replace(">", "").encode())
    expected = re.sub("<.*?>", MASK if isinstance(MASK, str) else MASK.decode(), text)
    assert (masked.decode(), count) == (expected, hidden)
