"""`python -m docs.scripts`: bring every generated part and every picture of the site up to date."""

from __future__ import annotations

from docs.scripts.pages import outdated

for path, content in outdated():
    path.write_text(content, encoding="utf-8")
    print("wrote", path)
