"""What the site needs beyond Markdown: the roles of docstrings, and equations as MathML, which browsers show as they are.

MkDocs calls `on_page_content` (a hook), mkdocstrings loads `Roles` (an extension of griffe).
"""

import html
import re
from typing import Any

import griffe
from latex2mathml.converter import convert

_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*))*)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`")
_NAME = re.compile(r":(?:func|class|meth|mod|attr|data):`~?([^`]+)`")
_WRITTEN = re.compile(r"<code>(\${1,2})(.+?)\1</code>", re.DOTALL)


class Roles(griffe.Extension):
    """Turns the roles of docstrings into Markdown: names into code, equations into code between dollar signs."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Translate one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = translate(obj.docstring.value)


def translate(text: str) -> str:
    """Translate the roles of a docstring."""
    text = _BLOCK.sub(lambda found: f"{found[1]}`$${' '.join(found[2].split())}$$`", text)
    text = _INLINE.sub(lambda found: f"`${' '.join(found[1].split())}$`", text)
    return _NAME.sub(r"`\1`", text)


def on_page_content(page: str, **_: Any) -> str:
    """Write the equations of a page, code between dollar signs, as MathML."""
    display = {"$": "inline", "$$": "block"}
    return _WRITTEN.sub(lambda found: convert(html.unescape(found[2]), display=display[found[1]]), page)
