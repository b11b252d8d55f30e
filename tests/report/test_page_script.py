"""The page's script: its own tests in Node, and what the package ships of it."""

import shutil
import subprocess

import pytest
from support import ROOT

PAGE = ROOT / "report" / "page"


@pytest.mark.slow
def test_the_scripts_own_tests_pass() -> None:
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    done = subprocess.run(["node", "--test", "test/"], cwd=PAGE, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout.decode()


def test_the_bundle_is_one_script_without_imports() -> None:
    text = (PAGE / "page.js").read_text("utf-8")
    assert text.startswith('"use strict";(()=>{') and text.endswith("})();\n")
    assert "</script" not in text and "<!--" not in text and "sourceMappingURL" not in text
