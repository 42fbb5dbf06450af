"""Adapt documentation pages for an installation without a clone of the project.

Comments in a page are notes for those who build and test it. Text about a clone stands between `<!-- clone -->` and
`<!-- end clone -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CLONE = re.compile(r"<!-- clone -->.*?<!-- end clone -->\n?", re.DOTALL)
_NOTE = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]\n]*)\]\(([\w./-]+\.md)?(#[\w-]*)?\)")
_GAP = re.compile(r"\n{3,}")


def strip_clone_notes(text: str, names: Mapping[str, str]) -> str:
    """Remove notes and the text about a clone.

    A link to a page in `names` leads to that file; a link to another page becomes plain text.
    """

    def linked(found: re.Match[str]) -> str:
        words, page, anchor = found[1], found[2], found[3] or ""
        if page is None:
            return found[0]
        return f"[{words}]({names[page]}{anchor})" if page in names else words

    return _GAP.sub("\n\n", _LINK.sub(linked, _NOTE.sub("", _CLONE.sub("", text))))
