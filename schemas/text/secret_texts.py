"""Secrets: which names are those of secrets, and where in a text they are: by what they look like, by what is around
them, and behind such names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


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
_SUSPICIOUS = rb"(?:" + b"|".join((*_LONG, *(word + rb"(?![A-Z])" for word in _SHORT))) + rb")"
_AROUND = (b"_", b"-", b".", b" ", b'"', b"'"), (b"_", b"-", b".", b" ", b'"', b"'", b"=", b":", b"\\", b"1", b"2")
_HINTS = (*_LONG, *(before + word + after for before in _AROUND[0] for word in _SHORT for after in _AROUND[1]))
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
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
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
    words = [word.lower() for word in _PART.findall(text)]
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
    """By the last word, of a name without words that say nothing; a `variable` is in capitals."""
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
    """What names say about values that are to be masked: secrets, and on request names of hosts and users as well."""

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


_FORMS: tuple[tuple[tuple[bytes, ...], bytes], ...] = (
    ((b"HF_",), rb"hf_(?=[A-Za-z0-9]*[A-Z0-9]|[a-z]{20})[A-Za-z0-9]{8,}"),  # Hugging Face
    ((b"GHP_", b"GHO_", b"GHU_", b"GHS_", b"GHR_"), rb"gh[pousr]_[A-Za-z0-9]{8,}"),  # GitHub
    ((b"GITHUB_PAT_",), rb"github_pat_\w{8,}"),
    (
        (b"GLPAT-", b"GLDT-", b"GLRT-", b"GLCBT-", b"GLPTT-", b"GLFT-", b"GLSOAT-", b"GLIMT-", b"GLAGENT-"),
        rb"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-[\w.-]{8,}",  # GitLab
    ),
    ((b"AKIA", b"ASIA", b"AROA", b"AIDA", b"ABIA", b"ACCA"), rb"A(?:KI|SI|RO|ID|BI|CC)A[A-Z0-9]{12,}"),  # AWS
    ((b"SK-",), rb"(?<![\w-])sk-(?=[\w-]*[A-Z0-9])[\w-]{8,}"),  # OpenAI, Anthropic
    ((b"SK_LIVE_", b"SK_TEST_", b"RK_LIVE_", b"RK_TEST_"), rb"[sr]k_(?:live|test)_\w{8,}"),  # Stripe
    ((b"WHSEC_",), rb"whsec_[\w+/=]{8,}"),
    ((b"XOX",), rb"xox[a-z](?:\.xox[a-z])?-[\w-]{8,}"),  # Slack
    ((b"XAPP-",), rb"xapp-[\w-]{8,}"),
    ((b"NPM_",), rb"npm_(?=[A-Za-z0-9]*[A-Z0-9]|[a-z]{20})[A-Za-z0-9]{8,}"),
    ((b"PYPI-",), rb"pypi-(?=[\w-]{0,99}[A-Z])(?=[\w-]{0,99}\d)[\w-]{12,}"),
    ((b"EYJ",), rb"eyJ[\w-]{6,}={0,2}\.[\w-]{4,}={0,2}(?:\.[\w-]*={0,2})*"),  # JSON web tokens
    ((b"AIZA",), rb"AIza[\w-]{30,}"),  # Google
    ((b"YA29.",), rb"ya29\.[\w-]{10,}"),
    ((b"GOCSPX-",), rb"GOCSPX-[\w-]{10,}"),
    ((b"SG.",), rb"SG\.[\w-]{10,}\.[\w-]{10,}"),  # SendGrid
    ((b"DCKR_PAT_",), rb"dckr_pat_[\w-]{8,}"),
    ((b"HVS.", b"HVB.", b"HVR."), rb"hv[sbr]\.[\w-]{12,}"),  # Vault
    ((b"DAPI",), rb"dapi[0-9a-f]{32}"),  # Databricks
    ((b"GSK_",), rb"gsk_[A-Za-z0-9]{20,}"),  # Groq
    ((b"NVAPI-",), rb"nvapi-[\w-]{16,}"),
    ((b"-----BEGIN",), rb"-----BEGIN[ A-Z0-9]*PRIVATE KEY[^-]*-----.*?(?:-----END[ A-Z0-9]*PRIVATE KEY[^-]*-----|\Z)"),
)
"""What such values begin with, in capitals, and the whole of them."""

HINTS = (*(o for openers, _ in _FORMS for o in openers), b"://", b"BASIC ", b"SIG=", b"CURL", b"LOGIN ", b"MYSQL")
"""In capitals: one of them, or of `Names.hints`, is in every text that has something to mask, escapes decoded."""

_FORM = re.compile(rb"(?<![A-Za-z0-9])(?:" + rb"|".join(form for _, form in _FORMS) + rb")", re.DOTALL)
_ONE_WORD = re.compile(rb"[\w.]*")
"""A text of which nothing can be the value of anything else."""


class Found(NamedTuple):
    """Where a secret is in a text, and what it is, for people; `kept` if its name is suspicious but it is no secret."""

    begin: int
    end: int
    what: str
    kept: bool = False


def find_secrets(text: bytes, names: Names) -> Iterator[Found]:
    """All secrets in a text, in any order, some of them more than once.

    Example:
        >>> text = b"curl -H 'x-api-key: 12ab' https://example.org --token=a b"
        >>> [text[found.begin : found.end] for found in find_secrets(text, Names())]
        [b'12ab', b'a b']
    """
    for form in _FORM.finditer(text):
        yield Found(*form.span(), f"like {form.group()[:4].decode()}…")
    if _ONE_WORD.fullmatch(text):
        return
    lowered = text.lower()
    for hint, pattern, what in _PLACES:
        if hint in lowered:
            for place in pattern.finditer(text):
                yield Found(*_span(place), what)
    if b":/" in text or b":\\" in text:
        yield from _in_urls(text)
    yield from _behind_names(text, names)


_PLACES = tuple(
    (hint, re.compile(pattern), what)
    for hint, pattern, what in (
        (b"authorization", rb"(?i)\b(?:proxy-)?authorization\\*[\"']?\s*[:=]\s*([^\r\n\"'\\]+)", "Authorization"),
        (b"digest", rb"(?i)\bdigest\s+((?:\w+=(?:\\*\"[^\"]*\"|[^\s,\"]+)[,\s]*)+)", "Digest …"),
        (b"cookie", rb"(?i)\b(?:set-)?cookie\\*[\"']?\s*[:=]\s*([^\r\n\"'\\]+)", "Cookie"),
        (b"bearer", rb"(?i)\bbearer\s+([\w.~+/=-]{6,})", "Bearer …"),
        (b"basic", rb"(?i)\bbasic\s+((?=[\w.~+/-]*[\d=])[\w.~+/=-]{8,})", "Basic …"),
        (b"token", rb"(?i)\btoken\s+((?=[\w.~+/-]*[a-z])(?=[\w.~+/-]*[\d=])[\w.~+/=-]{8,})", "token …"),
        (b"=", rb"(?i)[?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|security-token|credential)|hmac)="
               rb"([^&\s\"'#<>\\]+)", "signature of a URL"),
        (b"=", rb"(?i)[?&;](?:key|code)=((?=[^&\s]{0,99}\d)(?=[^&\s]{0,99}[a-z])[\w%.~+/=-]{10,})", "key of a URL"),
        (b"sig=", rb"(?i)\bsig=((?=[\w/+-]*[\d%])[\w%/+=-]{8,})", "signature of a URL"),
        (b"curl", rb"(?<=\s)(?:-u|--user|-U|--proxy-user)[\s=]*[\"']?[^\s:\"'/-][^\s:\"'/]*:"
                  rb"((?!\d+(?:\s|\Z))[^\s\"']+)", "curl -u"),
        (b"login", rb"(?i)\blogin\s+\S+\s+password\s+(\S+)", "password of a login"),
        (b"login", rb"(?i)\blogin\s[^\r\n]{0,99}?\s-p[\s=]*(\S+)", "password of a login"),
        (b"mysql", rb"(?i)\bmysql\w*\s[^\r\n]{0,99}?\s-p(\S+)", "password of mysql"),
        (b"sshpass", rb"(?i)\bsshpass\s+-p\s*(\S+)", "sshpass"),
    )
)  # fmt: skip
"""Each with what is in the text, in small letters, if it can match."""

_USER_AND_PASSWORD = re.compile(
    rb":\\*/\\*/([^\s/@:\"'<>?#]*):((?!\d+(?:[/?#,;]|\Z))(?:(?!:\\*/)[^\s\"'<>])+)(?=@[\w.-])"  # with @ and / in it
)
_USER = re.compile(rb"(?i)\bhttps?:\\*/\\*/([^\s/@:\"'<>?#]+)(?=:?@)")
_PLAIN_USER = re.compile(rb"(?i)[a-z][a-z._-]{0,14}|\**")
_WEBHOOK = re.compile(
    rb"(?i)https?:\\*/\\*/(?:hooks\.[\w.-]+|[\w.-]*webhook[\w.-]*|chat\.googleapis\.com(?=\\*/v1)"
    rb"|[\w.-]+(?:\\*/[\w.-]+)*\\*/webhook\w*|api\.telegram\.org(?=\\*/bot))\\*/([^\s\"'<>\\]+)"
)


def _in_urls(text: bytes) -> Iterator[Found]:
    for url in _USER_AND_PASSWORD.finditer(text):
        yield Found(*_span(url), "password of a URL")
        user = url.span((url.lastindex or 0) - 1)
        if user[1] - user[0] >= 16:  # a token, beside a password that says nothing
            yield Found(*user, "user of a URL")
    for url in _USER.finditer(text):
        if not _PLAIN_USER.fullmatch(url.group(1)):
            yield Found(*url.span(1), "user of a URL")
    for url in _WEBHOOK.finditer(text):
        yield Found(*_span(url), "webhook")


_STOP = (
    rb"(?!\s+-{1,2}[A-Za-z]"  # the next option
    rb"|[\s,;&?]+\\*[\"']?[A-Za-z_][\w.-]*\\*[\"']?(?:=|:\s)|,\s*\\*[\"'{\[]"  # the next name or item
    rb"|\\*[\"'](?:\Z|[\s,;:)\]}&<])|[)\]}]+(?:\Z|[\s,;)\]}\"'])|</"  # the end of what encloses it
    rb"|\s+(?:\|\|?|&&?|;|[12]?>>?)(?:\s|\Z)|;\s|[\r\n\0]|\\+[rn](?:\\|[\"'\s]|\Z|[\w.-]+\s*[=:]))"
)
_QUOTED = (
    rb"[bru]{0,2}(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|(?P<quote>\\+[\"'])((?:(?!(?P=quote)).)*)(?P=quote))"
)
_UNQUOTED = rb"((?:" + _STOP + rb".)+)"
_IS = rb"[ \t]*(?:=>|:=|=(?!=)|:(?![:/]))(?:[ \t]*[|>]?[+-]?\r?\n[ \t]+|[ \t]*)"
_QUOTE = rb"\\*[\"'](?:\]|\))?"

_IS_QUOTED, _IS_UNQUOTED, _LISTED, _BRACKETED, _GIVEN_QUOTED, _GIVEN, _OF_LINE, _VALUE_OF, _ELEMENT = (
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rb"(?:" + _QUOTE + rb")?" + _IS + _QUOTED,
        rb"(?:" + _QUOTE + rb")?" + _IS + rb"(?![\[({]\s*[\"\[({])" + _UNQUOTED,
        _QUOTE + rb"\s*,\s*" + _QUOTED + rb"(?!\s*:)",
        rb"'?" + _IS + rb"[\[({]([^\])}\"]*)[\])}]",  # as Python writes lists; those of JSON are read as such
        rb"(?:[\s\0]|\\\r?\n)+" + _QUOTED,
        rb"(?:[\s\0]|\\\r?\n)+(?!-)" + _UNQUOTED,
        rb"=(?![\"'=])((?:\\\r?\n|[^\r\n\0])*)",
        rb"(?:" + _QUOTE + rb")?[\s,;]+(?:" + _QUOTE + rb")?(?i:value)(?:" + _QUOTE + rb")?" + _IS
        + rb"(?:" + _QUOTED + rb"|" + _UNQUOTED + rb")",
        rb">([^<]+)</",
    )
)  # fmt: skip
_BESIDE = re.compile(
    rb"[ \t]*(?:->|[,|]|[ \t]|[ \t]is[ \t])[ \t]*((?=[^\s]{0,99}\d)(?=[^\s]{0,99}[A-Za-z])[^\s\"',;|]{8,})"
)
"""What has letters and digits beside the name of a variable, as in a table."""
_VARIABLE = re.compile(rb"[A-Z][A-Z0-9]*_[A-Z0-9_]+|(?i:token|password|api[ _-]key)")
_FOLLOWS = re.compile(rb"(?:" + _QUOTE + rb")?(?:[\s\0=:>,;|-]|\\\r?\n)+(?:(?i:value)\W{1,5})?([^\s\"']{0,256})")
"""What follows a name with a value, and the first word of that."""
_WORD = re.compile(rb"[a-z]+")
"""Such names are words of other lists, too, unless the list is a pair."""
_PAIR_START = re.compile(rb"[(\[]\s*[\"']\Z")
_SET = re.compile(rb"(?i)\b(?:setx?|setenv|export)\s+\Z")
_NAME_IS = re.compile(rb"(?i)\b(?:name|key)(?:" + _QUOTE + rb")?\s*[:=]\s*(?:" + _QUOTE + rb")?\Z")
_BEFORE = 24
"""Bytes before a name in which that is looked for."""
_CLASS = re.compile(
    rb"_*[A-Z]+[a-z0-9]+[A-Z]\w*(?<!oken)(?<!ecret)(?<!assword)(?<!redentials)(?<!ookie)(?<![Kk]ey)(?<!uth)"
)


@lru_cache
def _words(names: Names) -> re.Pattern[bytes]:
    """Words that may be names that say what their value is; "api key" is one."""
    first = rb"(?:(?i:api|access|secret|private|auth|account) (?=(?i:key|token)))?"
    return re.compile(rb"(?<![\w.-])(-{0,2}" + first + rb"(?=[\w.-]*(?i:" + names.pattern + rb"))[A-Za-z_][\w.-]*)")


def _behind_names(text: bytes, names: Names) -> Iterator[Found]:
    done = 0
    for word in _words(names).finditer(text):
        name, start = word.group(1), word.start(1)
        if start < done or (follows := _FOLLOWS.match(text, word.end())) is None:
            continue
        value, between = None, text[word.end() : follows.start(1)]
        if names.secrecy(name) is Secrecy.NONE:
            if b"=" not in between and b":" not in between:
                continue
        else:
            value = _quoted(text, word)
            if value is None and names.hide(name, follows.group(1).rstrip(b",;)]}")):
                value = _unquoted(text, word)
            elif value is not None and not names.hide(name, text[slice(*value)]):
                value = None
        begin, end = value or word.span(1)
        done = end if value else done
        yield Found(begin, end, name.decode("utf-8", "replace"), kept=value is None)


def _quoted(text: bytes, word: re.Match[bytes]) -> tuple[int, int] | None:
    """The span of the value in quotes or brackets that follows a name."""
    start, at = word.span(1)
    is_one = text[start - 1 : start] in (b'"', b"'") and (
        _WORD.fullmatch(word.group(1)) is None or _PAIR_START.search(text, max(start - _BEFORE, 0), start) is not None
    )
    return _first_span(
        _IS_QUOTED.match(text, at), _BRACKETED.match(text, at), _LISTED.match(text, at) if is_one else None,
        _GIVEN_QUOTED.match(text, at) if _is_given(text, word) else None,
    )  # fmt: skip


def _unquoted(text: bytes, word: re.Match[bytes]) -> tuple[int, int] | None:
    """The span of the value without quotes that follows a name."""
    name, (start, at) = word.group(1), word.span(1)
    before = text[max(start - _BEFORE, 0) : start]
    of_class = _CLASS.fullmatch(name) is not None and text[at : at + 1] == b":"
    return _first_span(
        _OF_LINE.match(text, at) if not before or before[-1:] in b"\r\n\0" else None,
        None if of_class else _IS_UNQUOTED.match(text, at),
        _GIVEN.match(text, at) if _is_given(text, word) else None,
        _VALUE_OF.match(text, at) if _NAME_IS.search(before) else None,
        _BESIDE.match(text, at) if _VARIABLE.fullmatch(name) else None,
        _ELEMENT.match(text, at) if before[-1:] == b"<" else None,
    )


def _is_given(text: bytes, word: re.Match[bytes]) -> bool:
    """Whether what follows a name after a blank is its value."""
    start = word.start(1)
    return word.group(1)[:1] == b"-" or _SET.search(text, max(start - _BEFORE, 0), start) is not None


def _first_span(*found: re.Match[bytes] | None) -> tuple[int, int] | None:
    return next((_span(place) for place in found if place is not None), None)


def _span(found: re.Match[bytes]) -> tuple[int, int]:
    """The span of the last group that took part."""
    return found.span(found.lastindex or 0)


_ESCAPED = (*(b"\\U00" + digit for digit in (b"2", b"3", b"4", b"5", b"6", b"7")), b":\\/")
"""Of letters and signs, behind which anything may be hidden."""
_GROUPS = 16
_LENGTH = 4
_UPPER = np.frombuffer(bytes(range(256)).upper(), np.uint8)


def find_hints(text: bytes, names: Names) -> list[int]:
    """Offsets, ascending: all that is to be masked is in a JSON string with one of them in it, or follows such a one.

    Example:
        >>> find_hints(b'["a", "HF_TOKEN", "b"]', Names())
        [7, 10]
    """
    hints = (*names.hints, *HINTS, *_ESCAPED)
    first, second, beginnings = _tables(hints)
    codes = np.frombuffer(text + bytes(_LENGTH - 1), np.uint8)
    pairs = codes[:-1].astype(np.uint16)
    pairs <<= 8
    pairs |= codes[1:]
    places = np.flatnonzero(first[pairs[:-2]])
    places = places[(first[pairs[places]] & second[pairs[places + 2]]) != 0]
    found = _UPPER[codes[places[:, None] + np.arange(_LENGTH)]].view(">u4").ravel()
    places = places[_among(found, beginnings) | _among(found & 0xFFFFFF00, beginnings)]
    longest = max(map(len, hints))
    hits = (at for at in places.tolist() if text[at : at + longest].upper().startswith(hints))
    return [at + (text[at] == ord('"')) for at in hits]  # a quote is where the string begins that the rest is in


def _among(values: npt.NDArray[np.uint32], ranked: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Like `np.isin`, for many values and few ones that are sorted."""
    nearest: npt.NDArray[np.uint32] = ranked[np.searchsorted(ranked, values).clip(max=len(ranked) - 1)]
    return np.equal(nearest, values)


@lru_cache
def _tables(hints: tuple[bytes, ...]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    """By two bytes: a bit for each group of hints of which one begins with them; the same for the two bytes after
    those; and what hints begin with, four bytes or three and 0."""
    tables = np.zeros(1 << 16, np.uint16), np.zeros(1 << 16, np.uint16)
    for number, hint in enumerate(hints):
        letters = [{*hint[at : at + 1].upper(), *hint[at : at + 1].lower()} for at in range(min(len(hint), _LENGTH))]
        letters += [set(range(256))] * (_LENGTH - len(letters))
        for table, both in zip(tables, (letters[:2], letters[2:]), strict=True):
            for high, low in product(*both):
                table[high << 8 | low] |= 1 << number % _GROUPS
    beginnings = {int.from_bytes(hint[:_LENGTH].ljust(_LENGTH, b"\0"), "big") for hint in hints}
    return *tables, np.array(sorted(beginnings), np.uint32)
