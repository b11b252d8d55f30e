"""Secrets of every kind, made up, in every place in which traces have been seen to hold them or could."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

Document = dict[str, Any]
_MIXED = string.ascii_letters + string.digits


class _Maker:
    """Texts that occur nowhere else; each has a digit and letters of both cases."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def text(self, length: int, signs: str = _MIXED) -> str:
        return "".join(self._draw.choices(signs, k=length - 3)) + "7aZ"

    def upper(self, length: int) -> str:
        return "".join(self._draw.choices(string.ascii_uppercase + string.digits, k=length))


def _by_form(make: _Maker) -> dict[str, str]:
    """Values that are known by what they look like."""
    return {
        "hugging face": f"hf_{make.text(34)}",
        "hugging face of letters": "hf_" + make.text(34, string.ascii_lowercase)[:-3],
        "github": f"ghp_{make.text(36)}",
        "github oauth": f"gho_{make.text(36)}",
        "github server": f"ghs_{make.text(36)}",
        "github fine-grained": f"github_pat_{make.text(22)}_{make.text(59)}",
        "aws": f"AKIA{make.upper(16)}",
        "aws temporary": f"ASIA{make.upper(16)}",
        "openai": f"sk-{make.text(48)}",
        "openai project": f"sk-proj-{make.text(20)}_{make.text(20)}-x",
        "anthropic": f"sk-ant-api03-{make.text(40)}-{make.text(20)}",
        "slack bot": f"xoxb-1234567890-{make.text(24)}",
        "slack user": f"xoxp-1234567890-{make.text(24)}",
        "gitlab": f"glpat-{make.text(20)}",
        "npm": f"npm_{make.text(36)}",
        "pypi": f"pypi-AgEIcHlwaS5vcmc{make.text(60)}",
        "google": f"AIza{make.text(35)}",
        "stripe": f"sk_live_{make.text(24)}",
        "json web token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{make.text(20)}.{make.text(43)}",
        "unsigned web token": f"eyJhbGciOiJub25lIn0.eyJzdWIi{make.text(20)}.",
        "private key": f"-----BEGIN RSA PRIVATE KEY-----\nMII{make.text(61)}\n{make.text(40)}==\n"
                       "-----END RSA PRIVATE KEY-----\n",
        "cut private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl{make.text(60)}\n",
    }  # fmt: skip


def _in_place(make: _Maker) -> dict[str, tuple[str, str]]:
    """Texts with a secret in them, which is known by its place; and the secret."""
    texts: dict[str, tuple[str, str]] = {}

    def add(kind: str, text: str, secret: str | None = None) -> None:
        secret = secret or make.text(14)
        texts[kind] = text.replace("SECRET", secret), secret

    add("azure signed url", "https://a.blob.core.windows.net/c/f.bin?sv=2022-11-02&se=2026-01-01&sig=SECRET%3D&sp=r")
    add("aws signed url", "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=SECRET")
    add("google signed url", "https://storage.googleapis.com/b/o?X-Goog-Expires=9&X-Goog-Signature=SECRET&x=1")
    add("security token of a url", "https://b.s3.amazonaws.com/k?X-Amz-Security-Token=SECRET&X-Amz-Expires=9")
    add("token as user", "git clone https://SECRET@github.com/a/b.git")
    add("token as user and nothing", "https://SECRET:@pypi.example.org/simple")
    add("token as user and x-oauth-basic", "https://SECRET:x-oauth-basic@github.com/a/b", make.text(24))
    add("password of a url", "https://alice:SECRET@example.org/x")
    add("password of a database", "postgresql+psycopg2://alice:SECRET@db:5432/x")
    add("password without user", "redis://:SECRET@cache:6379/0")
    add("password with @ and /", "amqp://alice:SECRET@mq/x", f"{make.text(6)}@{make.text(6)}/{make.text(6)}")
    add("curl", "curl -s -u alice:SECRET https://example.org")
    add("curl in one", "curl -ualice:SECRET https://example.org")
    add("curl --user", "/usr/bin/curl --user 'alice:SECRET' https://example.org")
    add("header of curl", 'curl -H "Authorization: Bearer SECRET" https://example.org')
    add("basic", "Authorization: Basic SECRET==")
    add("digest", 'authorization: Digest username="alice", response="x", nonce=SECRET')
    add("x-api-key", "GET / HTTP/1.1\r\nx-api-key: SECRET\r\nHost: example.org")
    add("private-token", "PRIVATE-TOKEN: SECRET")
    add("cookie", "Cookie: session=abc; id=SECRET; theme=dark")
    add("name: value", "db password: SECRET")
    add("api key: value", "API key: SECRET")
    add("option", "python train.py --api-key SECRET --lr 0.1")
    add("option=", "python train.py --lr=0.1 --token=SECRET --steps 5")
    add("quoted option", "python train.py --hub-token 'SECRET' --lr 0.1")
    add("option of -", "java -jar x.jar -password SECRET")
    add("blanks", "python train.py --password SECRET --lr 0.1", f"{make.text(6)} {make.text(6)} {make.text(6)}")
    add("variable with blanks", "WORLD_SIZE=2 DB_PASSWORD=SECRET LR=0.1", f"{make.text(6)} {make.text(6)}")
    add("export", "export WANDB_API_KEY=SECRET && python train.py")
    add("setenv", "setenv WANDB_API_KEY SECRET")
    add("shell", "docker run -e HF_TOKEN=SECRET -e X=1 image")
    add("declare", 'declare -x HF_TOKEN="SECRET"')
    add("powershell", "$env:HF_TOKEN = 'SECRET'")
    add("quoted variable", "HF_TOKEN='SECRET' python train.py")
    add("sshpass", "sshpass -p SECRET ssh alice@host")
    add("netrc", "machine api.wandb.ai login user password SECRET")
    add("npmrc", "//registry.npmjs.org/:_authToken=SECRET")
    add("aws file", "[default]\naws_access_key_id = x\naws_secret_access_key = SECRET\nregion = eu")
    add("azure connection", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=SECRET==;EndpointSuffix=x")
    add("sql connection", "Server=db;User Id=a;Password=SECRET;Database=x")
    add("yaml", "env:\n- name: HF_TOKEN\n  value: SECRET\n- name: LR\n  value: 1")
    add("xml", "<server><password>SECRET</password></server>")
    add("python", "{'HF_TOKEN': 'SECRET', 'LR': '0.1'}")
    add("python bytes", "{b'HF_TOKEN': b'SECRET'}")
    add("python list", "['train.py', '--api-key', 'SECRET', '--lr', '1']")
    add("python lists of names", "[('LR', '1'), ('GH_TOKEN', 'SECRET')]")
    add("python in brackets", "{'api_keys': ['SECRET', 'x']}")
    add("call", "connect(host='db', password='SECRET', port=1)")
    add("call unquoted", "connect(host=db, password=SECRET, port=1)")
    add("slack webhook", "https://hooks.slack.com/services/T0A/B0A/SECRET")
    add("discord webhook", "https://discord.com/api/webhooks/1234567890/SECRET")
    add("teams webhook", "https://acme.webhook.office.com/webhookb2/SECRET@x/IncomingWebhook/y/z")
    add("sentry", "SENTRY_DSN=https://SECRET@o1.ingest.sentry.io/1")
    add("nul", "python\0train.py\0--token\0SECRET\0--lr\0001")
    add("environ", "LR=1\0HF_TOKEN=SECRET\0HOME=/root\0")
    add("lines", "LR=1\nHF_TOKEN=SECRET\nHOME=/root\n", f'it\'s "{make.text(6)}" {make.text(6)}')
    add("docker", "docker login -u me -p SECRET registry.example.org")
    add("mysql", "mysql -u root -pSECRET db")
    add("table", "WANDB_API_KEY\tSECRET\nLR\t1")
    add("sentence", "the token is SECRET")
    add("os.environ", "os.environ['HF_TOKEN'] = 'SECRET'")
    add("double quotes of os.environ", 'os.environ["HF_TOKEN"] = "SECRET"')
    add("continued", "x --token \\\n SECRET")
    add("yaml of lines", "password: |\n  SECRET\nlr: 1")
    add("attributes", '<add key="ApiKey" value="SECRET"/>')
    return texts


_NAMES = (
    "HF_TOKEN", "MYSQL_PWD", "SMTP_PASS", "GITHUB_PAT", "STRIPE_KEY", "SENTRY_DSN", "CLIENT_SECRET", "DB_PASSWORD",
    "JWT", "APP_JWT", "SLACK_WEBHOOK_URL", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE_KEY", "x-api-key",
    "Authorization", "dbPassword", "apiKey", "accessToken", "db.password", "PGPASSWORD", "REDIS_AUTH", "SESSION_COOKIE",
    "CREDENTIALS", "private key", "ssh-private-key", "jupyter_token", "bearer", "token", "password", "GITHUB_PAT_2",
    "DEPLOY_KEY_PROD", "db_pass", "pat", "pwd", "pass", "user_pwd", "service_dsn",
)  # fmt: skip


def _behind_a_name(name: str, secret: str) -> dict[str, Any]:
    """Forms of a name and its value."""
    escaped = "".join(f"\\u{ord(c):04x}" if at % 2 else f"\\u{ord(c):04X}" for at, c in enumerate(name))
    forms: dict[str, Any] = {
        "member": {name: secret}, "list": {name: [1, secret, {"x": secret}]}, "object": {name: {"a": [secret]}},
        "pair": [name, secret], "pairs": [["LR", "1"], [name, secret], ["HOME", "/root"]],
        "name, value": [{"name": "LR", "value": "1"}, {"name": name, "value": secret}],
        "value, name": {"value": secret, "key": name},
        "value within": {"name": name, "x": {"y": [1]}, "value": {"z": secret}},
        "in a string": json.dumps({"env": {name: secret, "LR": 1}}), "indented": json.dumps([{name: secret}], indent=1),
        "in a string in a string": json.dumps({"env": json.dumps({"deep": {name: secret}})}),
        "pair in a string": json.dumps([{"name": name, "value": secret}]), "python": repr({name: secret, "LR": 1}),
        "escaped": Escaped(f'{{"{escaped}": "{secret}"}}'), "escaped pair": Escaped(f'["{escaped}", "{secret}"]'),
        "escaped in a string": Escaped(json.dumps(f'{{"{escaped}": "{secret}"}}')),
    }  # fmt: skip
    if name in ("pat", "pwd", "pass"):  # which may be something else
        forms = {form: value for form, value in forms.items() if form not in ("list", "object", "value within")}
    if not name.islower():
        forms["flat"] = ["LR", "1", name, secret]
    if " " not in name and len(name) > 6:
        forms |= {
            "variable": f"{name}={secret}",
            "text": f"LR=1 {name}={secret} HOME=/root",
            "header": f"{name}: {secret}",
        }
        forms |= {"option": f"x --{name} {secret} --lr 1", "option=": ["x", f"--{name}={secret}", "--lr=1"]}
        forms |= {
            "options": ["x", f"--{name}", secret, "--lr", "1"],
            "escaped variable": Escaped(f'"{escaped}={secret}"'),
        }
    return forms


class Escaped(str):
    """JSON text, not a string."""


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


def planted(seed: int = 0) -> Iterator[tuple[str, bytes, list[str]]]:
    """Documents, each with what and where its secrets are, and texts none of which may be left."""
    make = _Maker(seed)
    found: dict[str, tuple[Any, str]] = {}
    for kind, secret in _by_form(make).items():
        forms = {
            "alone": secret,
            "in words": f"see {secret} there",
            "quoted": f"x='{secret}'",
            "of a list": ["a", secret],
        }
        found |= {f"{kind}, {form}": (value, secret) for form, value in forms.items()}
        found[f"{kind}, in a string"] = (json.dumps({"x": secret}), secret)
        found[f"{kind}, escaped"] = (Escaped('"' + "".join(f"\\u{ord(c):04x}" for c in secret) + '"'), secret)
    for kind, (text, secret) in _in_place(make).items():
        found |= {kind: (text, secret), f"{kind}, of a list": (["a", text], secret)}
        found |= {
            f"{kind}, in a string": (json.dumps({"x": text}), secret),
            f"{kind}, after a word": (f"run: {text}", secret),
        }
    for name in _NAMES:
        secret = make.text(14)
        found |= {f"{name}, {form}": (value, secret) for form, value in _behind_a_name(name, secret).items()}
    secret = make.text(14)
    found["curl of a list"] = (["curl", "-s", "-u", f"alice:{secret}", "https://example.org"], secret)
    lines = ["-----BEGIN PRIVATE KEY-----", f"MII{secret}{secret}", f"{secret}==", "-----END PRIVATE KEY-----", "after"]
    found["lines of a key"] = (lines, secret)
    for kind, (value, secret) in found.items():
        places = _PLACES | (_TEXT_PLACES if isinstance(value, str) and not isinstance(value, Escaped) else {})
        for place, make_text in places.items():
            text = make_text(value if isinstance(value, Escaped) else json.dumps(value))
            yield f"{kind}; {place}", text.encode(), _parts(secret)


def _parts(secret: str) -> list[str]:
    """What may not be left: the words of a secret, and of its lines."""
    return [word for word in secret.replace('"', " ").replace("@", " ").split() if len(word) > 5 and "---" not in word
            and word not in ("PRIVATE",)]  # fmt: skip


INNOCENT: tuple[Any, ...] = (
    {"num_tokens": 128, "tokens": "12", "pad_token_id": 0, "pad_token": "<pad>", "eos_token": "</s>"},
    {"max_tokens": "64", "query_key": "a1", "keys": ["a"], "key": "value", "past_key_values": [1, 2]},
    {"key_cache": "bf16", "value_cache": "bf16"},
    {"cache_key": "f3a9c0d1e2b4a5968778695a4b3c2d1e", "kernel_hash": "cq4w7zk3xgdj", "dispatch_key": "AutogradCPU"},
    {"pg_name": "0", "pg_desc": "default_pg", "tokenizer": "bert", "author": "me", "PWD": "/root/x", "OLDPWD": "/root"},
    {"TOKENIZERS_PARALLELISM": "false", "forward_pass": "first", "compass": "north", "path": "a.b", "SSH_AUTH": ""},
    ["key_cache", "value_cache"], ["query", "key", "value"], ["tokens", "hidden"], ["google", "auth", "transport"],
    ["aten::mm", "token", "float"], ["docker", "run", "-u", "1000:1000", "image"],
    {"name": "rf_id", "type": "uint64", "value": 12}, {"name": "key", "value": "float"},
    {"name": "num_tokens", "value": "5"},
    "void token::kernel<float, secret_t, (auth)2>(int, KeyPolicy const*)", "Memcpy HtoD (Pageable -> Device)",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwd",
    "vllm/v1/worker/gpu_input_batch.py(443): update_req_spec_token_ids", "inspect.py(2501): _signature_from_callable",
    "torch/_inductor/codecache.py(574): compute_cache_key", "nn.Module: TokenEmbedding_0", "AuthMiddleware: dispatch",
    "PyCodeCache.load_by_key_path_data: compile_id=0/0", "secrets.py: choice", "decode(num_tokens=12, prefix=4)",
    "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None) -> Tensor",
    "token generation", "the token is generated", "token, then 12 more", "user login -p", "token routing 4x2",
    "Basic transformer", "basic attention", "## forward_pass: 3 ##", "bearer of news",
    ["pat", ["x1y2z3w4"], {"pwd": []}],
    "triton_poi_fused__to_copy_add_mul_native_layer_norm_0", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x16",
    "hf_rotary_embedding_kernel", "npm_config_cache", "hf_device_map", "task-sk-learn", "ASIA",
    "pypi-simple-repository", "<eval_with_key>.50(4): forward",
    "google-auth==2.40.3", "PyJWT==2.3.0", "tokenizers==0.21.2", "oauthlib @ file:///tmp/x", "Vendor ID: AuthenticAMD",
    "Vulnerability Spec store bypass:      Mitigation; Speculative Store Bypass disabled",
    "https://example.org:8080/a@b", "https://github.com/a/b@main", "ssh://git@github.com/a/b", "tcp://10.0.0.1:29500",
    "git+https://github.com/huggingface/transformers.git@3f5c8a1b2c4d", "https://pypi.org/simple?code=200",
    "docker run --user 1000:1000 image", "curl -s https://example.org", "eyJ", "dapi", "\u0048ello", "a:\\b", "x://y",
)  # fmt: skip
"""What looks like a secret and is none; all of it stays, byte for byte."""
