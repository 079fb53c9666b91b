"""The pages under docs/ that are rendered from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_rendered_pages_say_what_the_code_says() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "docs" / "render.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_a_page_that_differs_fails_the_check_by_name(tmp_path: Path) -> None:
    script = tmp_path / "render.py"
    script.write_bytes((ROOT / "docs" / "render.py").read_bytes())
    subprocess.run([sys.executable, script], check=True)
    (tmp_path / "cli.md").write_text("stale", encoding="utf-8")
    check = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 1
    assert "out of date: cli.md." in check.stderr
