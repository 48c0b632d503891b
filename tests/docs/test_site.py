"""The documentation site has no broken link, no broken anchor and no orphan, and loads nothing from elsewhere."""

import logging
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
CONFIGURATION = str(ROOT / "mkdocs.yml")
_LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^\s\">]+")


def test_links_and_anchors_lead_somewhere_and_every_page_is_on_a_shelf(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The checks are those of `make site`. The search index and the theme would take most of the time.
    config = load_config(CONFIGURATION, site_dir=str(tmp_path), theme="mkdocs", plugins=[])
    assert [shelf for section in config["nav"] for shelf in section] == ["Start", "How to", "Reference", "Why"]
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(config)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    # Lists, tables and code are read as on a code host.
    texts = {page.name: page.read_text() for page in tmp_path.rglob("*.html")}
    assert [name for name, text in texts.items() if "<p>```" in text or "<p>|" in text] == []


def test_a_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text((ROOT / "docs" / "start" / "command-line.md").read_text())
    build(load_config(CONFIGURATION, docs_dir=str(docs), site_dir=str(tmp_path / "site"), nav=["index.md"]))
    (page,) = (tmp_path / "site").glob("index.html")
    assert "search" in page.read_text()
    assert _LOADED.findall(page.read_text()) == []
