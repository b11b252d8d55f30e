"""What the page is made of, without a report: its policy, what is refused, texts that would end a script."""

import base64
import hashlib
import re
from typing import Any

import orjson
import pytest
from etplus.report import report_html as pages
from etplus.report.report_html import check_page_name, embedded, page
from etplus.trace.errors import EtplusError, UsageError

DATA: dict[str, Any] = {"a": "</script><!--&\u2028\u2029"}


def test_only_the_page_s_own_scripts_may_run() -> None:
    text = page(DATA, "a < b").decode()
    assert "<title>a &lt; b</title>" in text and "{{" not in text.split("<script")[0]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = ["sha256-" + base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert re.findall(r"'(sha256-[^']+)'", text) == hashes and len(hashes) == 2


def test_texts_cannot_end_the_script_that_they_stand_in() -> None:
    data = embedded(DATA)
    assert not set("<>&\u2028\u2029") & set(data.decode()) and orjson.loads(data) == DATA


def test_the_memory_is_asked_for_three_times_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        pages, "require_memory", lambda title, size, *_, times, remedy: asked.append((title, size, times))
    )
    page(DATA, "job")
    assert asked == [("job", len(embedded(DATA)), 3)]


def test_a_page_that_no_browser_opens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_LARGEST", len(embedded(DATA)))
    page(DATA, "job")
    monkeypatch.setattr(pages, "_LARGEST", len(embedded(DATA)) - 1)
    with pytest.raises(EtplusError, match=r"^job: the page would need .*; select a part with --steps or --window"):
        page(DATA, "job")


def test_only_html_names_are_accepted_for_a_page() -> None:
    for name in ("-", "a", "a.html", "a.HTM", "b.html.gz", "dir.json/a"):
        check_page_name(name)
    for name in ("a.json", "a.json.gz", "a.html.txt"):
        with pytest.raises(UsageError, match=rf"^{re.escape(name)}: the report is an HTML page, not \.(json|txt);"):
            check_page_name(name)
