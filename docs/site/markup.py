"""What the site needs beyond Markdown: roles of docstrings, and equations as MathML, which browsers show as they are.

MkDocs calls `on_page_content` (a hook), mkdocstrings loads `Roles` (an extension of griffe).
"""

import re
from html import unescape
from typing import Any

import griffe
from latex2mathml.converter import convert

_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*))*)", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`")
_NAME = re.compile(r":(?:func|class|meth|mod|attr|data):`~?([^`]+)`")
_WRITTEN = re.compile(r"<code>(\${1,2})([^<$]+)\1</code>")


class Roles(griffe.Extension):
    """Turns docstrings into Markdown: roles and examples into code, equations into code between dollar signs."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Translate one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = translate(obj.docstring.value)


def translate(text: str) -> str:
    """Translate a docstring to Markdown."""
    text = _BLOCK.sub(lambda found: f"{found[1]}`$${' '.join(found[2].split())}$$`", text)
    text = _INLINE.sub(lambda found: f"`${' '.join(found[1].split())}$`", text)
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    return _NAME.sub(r"`\1`", text)


def on_page_content(html: str, **_: Any) -> str:
    """Write the equations of a page, code between dollar signs, as MathML; what is wider than a phone scrolls."""

    def write(found: re.Match[str]) -> str:
        if found[1] == "$":
            return convert(unescape(found[2]), display="inline")
        equation = convert(unescape(found[2]), display="block")
        return f'<span style="display: block; overflow-x: auto">{equation}</span>'

    return _WRITTEN.sub(write, html)
