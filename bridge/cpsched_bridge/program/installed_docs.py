"""Pages of the documentation for those who have the installed program and no clone of the project.

A page of the site holds notes for those who build and test it, in comments. It has links to other pages of the site.
What it says of a clone stands between `<!-- clone -->` and `<!-- end clone -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CLONE = re.compile(r"<!-- clone -->.*?<!-- end clone -->\n?", re.DOTALL)
_NOTE = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]\n]*)\]\(([\w./-]+\.md)?(#[\w-]*)?\)")
_GAP = re.compile(r"\n{3,}")


def for_an_installation(text: str, names: Mapping[str, str]) -> str:
    """The page without notes and without what concerns a clone.

    A link leads to the page beside this one that `names` has for it; of links to other pages the words stay.
    """

    def linked(found: re.Match[str]) -> str:
        words, page, anchor = found[1], found[2], found[3] or ""
        if page is None:
            return found[0]
        return f"[{words}]({names[page]}{anchor})" if page in names else words

    return _GAP.sub("\n\n", _LINK.sub(linked, _NOTE.sub("", _CLONE.sub("", text))))
