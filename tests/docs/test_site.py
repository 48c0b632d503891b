"""The documentation site has no broken link, no broken anchor and no orphan, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELVES = ("Start", "How to", "Reference", "Why")
_LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^\s\">]+")


def test_the_site_is_whole_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    # With --strict every warning about links, anchors and the navigation is an error.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    texts = {page.relative_to(tmp_path / "site").as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix().replace("README.html", "index.html")
        assert [shelf for shelf in SHELVES if shelf not in texts[name]] == [], name
    assert {found for text in texts.values() for found in _LOADED.findall(text)} == set()
    # Lists, tables and code are read as on a code host.
    assert [name for name, text in texts.items() if "<p>```" in text or "<p>|" in text] == []
