"""Which names of variables, keys and options are those of secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache


class Secrecy(IntEnum):
    """What a name says of its value."""

    NONE = 0
    MAYBE = 1
    """A secret if it looks like one: `semantic_key`, `pass`."""
    SURE = 2


_LONG = (
    b"TOKEN", b"SECRET", b"PASS", b"CREDENTIAL", b"COOKIE", b"AUTH", b"KEY", b"PWD", b"DSN", b"JWT", b"WEBHOOK",
    b"BEARER", b"SIGNATURE",
)  # fmt: skip
_SHORT = (b"PAT", b"PW")
"""Only as words of their own: paths and patterns are everywhere."""
_SUSPICIOUS = rb"(?:" + b"|".join((*_LONG, *(one + rb"(?![A-Z])" for one in _SHORT))) + rb")"
_AROUND = (b"_", b"-", b".", b" ", b'"', b"'"), (b"_", b"-", b".", b" ", b'"', b"'", b"=", b":", b"\\", b"1", b"2")
_HINTS = (*_LONG, *(before + one + after for before in _AROUND[0] for one in _SHORT for after in _AROUND[1]))
"""In capitals: one of them is in every name that `secrecy` knows, with the quotes or sign around it."""

_SURE = re.compile(
    r"secret|passwo?r?d|passphrase|passwd|credential|cookie|auth(?!or(?!i))|webhook|x[-_](?:amz|goog)[-_]signature"
    r"|(?:api|access|private|signing|encryption|license|ssh|account|storage|shared|master|service|subscription|client"
    r"|deploy|hmac)[ _.-]?key(?![bw])"
    r"|(?:db|pg|sql|ssh|root|user|admin|redis|smtp|ftp|mail|ldap|proxy)(?:pass|pwd|pw)$",
    re.IGNORECASE,
)
_NO_NAME = re.compile(rb"[\n{}\"=*]")
_LONGEST_NAME = 256
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_FILE = re.compile(r"\.(?:py|pyc|c|cc|cpp|cu|cuh|h|hpp|so|js|json|md|rs|go|yaml|yml|txt|toml)$", re.IGNORECASE)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MANNERS = _set(
    "prod production dev development test staging old new raw value val b64 base64 rw ro read write main default "
    "primary secondary str string plain"
)
"""What may follow the word that says that it is a secret."""

_TOKEN_OF_ACCESS = _set(
    "access api auth bearer refresh session secret csrf xsrf id hf hub huggingface gh github gl gitlab bot user "
    "personal deploy registry npm pypi vault slack discord wandb jupyter kaggle openai anthropic aws azure gcp "
    "google security service account oauth sas login device push telegram sentry"
)
_TOKEN_OF_TEXT = _set(
    "pad eos bos unk mask cls sep eot image img audio video vision special stop start end begin first last next "
    "prev previous num n max min total avg mean per prompt input output generated decoded sampled draft target "
    "accepted all top out in sub text word query key src dst source sink seq sequence batch think new cached "
    "prefill decode context sort by permute dispatch routed expert padding completion reasoning"
)
_OF_TOKENS = _set(
    "id ids type types count counts len length lengths num number idx index indices emb embed embedding "
    "embeddings dim dims size sizes mask per ratio limit budget dispatch dispatcher permute permutation unpermute "
    "drop dropout shift mixer mixing level wise usage throughput rate s sec second seconds list map pos position "
    "positions prob probs logit logits logprob logprobs merge merging pruning choice classification group groups "
    "kernel parallel parallelism sampler stream block blocks offset offsets prefix start end window table pool to"
)
_OTHER_KEYS = _set(
    "cache primary foreign sort partition public group hash dict graph query value routing lookup unique map "
    "index item config object past attention attn dispatch event trace metric sample row column data by kernel "
    "code semantic compute cmp get"
)
_OTHER_PASSES = _set(
    "forward backward fwd bwd first second third last final single multi one two three per each next graph fx "
    "fusion opt optimization optimizer compile compiler post pre grad low high band by custom inductor joint "
    "split dce cse lowering transform analysis render prefill decode training train eval inference warmup dry "
    "full num model"
)


@lru_cache(1 << 14)
def secrecy(name: bytes) -> Secrecy:
    """What a name says of its value, whatever separates its words.

    Example:
        >>> [secrecy(name).name for name in (b"HF_TOKEN", b"x-api-key", b"dbPassword", b"num_tokens", b"semanticKey")]
        ['SURE', 'SURE', 'SURE', 'NONE', 'NONE']
    """
    if re.search(_SUSPICIOUS, name, re.IGNORECASE) is None or _NO_NAME.search(name) or len(name) > _LONGEST_NAME:
        return Secrecy.NONE
    text = name.decode("utf-8", "replace")
    if _FILE.search(text):
        return Secrecy.NONE
    if _SURE.search(text):
        return Secrecy.SURE
    words = [word.lower() for word in _WORD.findall(text)]
    of_tokens = max((at for at, word in enumerate(words) if word.endswith(("token", "tokens"))), default=-1)
    if of_tokens >= 0:
        return _of_a_token(words[:of_tokens], words[of_tokens], words[of_tokens + 1 :])
    if "jwt" in words or words[-1:] == ["bearer"]:
        return Secrecy.SURE
    while words and (words[-1] in _MANNERS or words[-1].isdecimal()):
        words.pop()
    return _of_its_end(words, variable=text.upper() == text)


def _of_a_token(before: list[str], word: str, after: list[str]) -> Secrecy:
    of_access = before[-1:] != [] and before[-1] in _TOKEN_OF_ACCESS
    if not _OF_TOKENS.isdisjoint(after) or word not in ("token", "tokens"):
        short = word.removesuffix("s").removesuffix("token")
        return Secrecy.SURE if not after and short in _TOKEN_OF_ACCESS else Secrecy.NONE
    if of_access:
        return Secrecy.SURE
    of_text = word == "tokens" or not _TOKEN_OF_TEXT.isdisjoint(before[-1:])
    return Secrecy.NONE if of_text else Secrecy.SURE


def _of_its_end(words: list[str], *, variable: bool) -> Secrecy:
    """By the last word, of a name without words that say nothing.

    Args:
        variable: it is in capitals, as variables of an environment are.
    """
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    if last == "dsn":
        return Secrecy.SURE
    if last in ("pwd", "pw"):
        return Secrecy.SURE if before not in ("", "old") else Secrecy.MAYBE
    if last == "pass":
        return Secrecy.MAYBE if not before else Secrecy.NONE if before in _OTHER_PASSES else Secrecy.SURE
    if last == "pat":
        return Secrecy.SURE if before and (variable or before in _TOKEN_OF_ACCESS) else Secrecy.MAYBE
    if last == "key" and before and before not in _OTHER_KEYS:
        return Secrecy.SURE if variable else Secrecy.MAYBE
    return Secrecy.NONE


_COUNT = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(?i:true|false|none|null)|")
"""Values that no token has: `num_tokens`, `use_auth_token`. A password may be a number."""
_MAY_BE_A_NUMBER = re.compile(rb"(?i)PASS|SECRET|KEY|PWD|CREDENTIAL")
_MASKED = (b"", b"***")
_SPECIAL_TOKEN = re.compile(rb"[<\[][^<>\[\]\s]{0,40}[>\]]")
_LOOKS_SECRET = re.compile(rb"(?!/|\w:[\\/])(?=\S*\d)(?=\S*[A-Za-z])[!-~]{6,}")


_HOSTS = rb"|HOST_?NAME|NODE_?NAME|NODE_?LIST|(?<![A-Z])HOST(?![A-Z])|MASTER_ADDR|FQDN"
_USERS = rb"|USER_?NAME|LOGNAME|(?<![A-Z])USER(?![A-Z])|STARTED_BY"


@dataclass(frozen=True)
class Names:
    """What names say about values that are to be masked: secrets, and on request others.

    Attributes:
        hosts: names of hosts as well. users: names of users as well.
    """

    hosts: bool = False
    users: bool = False

    @cached_property
    def pattern(self) -> bytes:
        """Of a part, in any case, of every name that can say so."""
        return b"(?:" + _SUSPICIOUS + _HOSTS * self.hosts + _USERS * self.users + b")"

    @cached_property
    def hints(self) -> tuple[bytes, ...]:
        """In capitals, what has to be looked for to find such names."""
        hosts, users = (b"HOST", b"NODE", b"MASTER_ADDR", b"FQDN"), (b"USER", b"LOGNAME", b"STARTED_BY")
        return (*_HINTS, *hosts * self.hosts, *users * self.users)

    def suspects(self, name: bytes) -> bool:
        """Whether a name has in it what names of secrets have, be it one or not."""
        return re.search(self.pattern, name, re.IGNORECASE) is not None

    @cached_property
    def _others(self) -> re.Pattern[bytes]:
        return re.compile(rb"(?i)(?!)" + _HOSTS * self.hosts + _USERS * self.users)

    def secrecy(self, name: bytes) -> Secrecy:
        """What a name says of its value."""
        return Secrecy.SURE if self._others.search(name) else secrecy(name)

    def hide(self, name: bytes, value: bytes) -> bool:
        """Whether a value is to be masked under a name.

        Example:
            >>> names = Names()
            >>> [names.hide(*both) for both in ((b"TOKEN", b"512"), (b"PASSWORD", b"512"), (b"PWD", b"/root"))]
            [False, True, False]
        """
        found = self.secrecy(name)
        if found is Secrecy.NONE or value in _MASKED:
            return False
        if b"oken" in name.lower() and _SPECIAL_TOKEN.fullmatch(value):
            return False
        if _COUNT.fullmatch(value) and not _MAY_BE_A_NUMBER.search(name):
            return False
        return found is Secrecy.SURE or _LOOKS_SECRET.fullmatch(value) is not None
