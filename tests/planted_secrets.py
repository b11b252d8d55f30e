"""Secrets, made up, in every place in which traces have been seen to hold them or could."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

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
    """Forms of a name and its value."""
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
    "args": lambda text: (
        f'{{"traceEvents": [{{"ph": "X", "name": "aten::mm", "ts": 1, "args": {{"x": {text}, "y": 2}}}}]}}'
    ),
    "after": lambda text: f'{{"nodes": [{{"id": 1}}], "x": [1, {text}, 2]}}',
}
_TEXT_PLACES: dict[str, Callable[[str], str]] = {
    "annotation": lambda text: f'{{"traceEvents": [{{"ph": "X", "cat": "user_annotation", "name": {text}, "ts": 1}}]}}',
    "attribute": lambda text: (
        f'{{"nodes": [{{"id": 1, "attrs": [{{"name": "x", "type": "string", "value": {text}}}]}}]}}'
    ),
    "key": lambda text: f'{{"schema": "1", {text}: 1, "nodes": []}}',
}


def planted() -> Iterator[tuple[str, bytes, list[str]]]:
    """Documents, each with what and where its secrets are, and texts none of which may be left."""
    draw = random.Random(0)

    def secret() -> str:
        return "".join(draw.choices(string.ascii_letters + string.digits, k=20)) + "7aZ"

    found: dict[str, tuple[Any, str]] = {}
    for kind, text in (_BY_FORM | _IN_PLACE).items():
        hidden = secret()
        text = text.replace("SECRET", hidden)
        escaped = Escaped('"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"')
        found |= {
            kind: (text, hidden),
            f"{kind}, of a list": (["a", text], hidden),
            f"{kind}, escaped": (escaped, hidden),
        }
    for name in _NAMES:
        hidden = secret()
        found |= {f"{name}, {form}": (value, hidden) for form, value in _behind_a_name(name, hidden).items()}
    for at, (kind, (value, hidden)) in enumerate(found.items()):
        places = _PLACES | (_TEXT_PLACES if isinstance(value, str) and not isinstance(value, Escaped) else {})
        place = sorted(places)[at % len(places)]
        yield (
            f"{kind}; {place}",
            places[place](value if isinstance(value, Escaped) else json.dumps(value)).encode(),
            [hidden],
        )
