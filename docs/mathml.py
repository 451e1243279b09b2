"""Formulas as MathML, made when the pages are built: they show without a network and without a script from elsewhere.

docutils translates LaTeX; Sphinx only lacks the few lines that ask it to. A formula that cannot be translated is a
warning, so the build fails.
"""

import re
from html import escape

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_TAG = re.compile(r"\\tag\{([^}]*)\}")


def translate(tex, node, *, block):
    """MathML of a formula, with its tag as a number at the right."""
    number = _TAG.search(tex)
    try:
        markup = tex2mathml(_TAG.sub("", tex).strip(), as_block=block)
    except Exception as error:  # docutils raises its own kinds, which are not public
        logging.getLogger(__name__).warning("formula %r: %s", tex, error, location=node)
        return f"<code>{escape(tex)}</code>"
    return markup + (f'<span class="eqno">({escape(number.group(1))})</span>' if number else "")


def inline(self, node):
    """A formula in a line."""
    self.body.append(translate(node.astext(), node, block=False))
    raise SkipNode


def block(self, node):
    """A formula of its own."""
    self.body.append(f'<div class="math notranslate">{translate(node.astext(), node, block=True)}</div>\n')
    raise SkipNode


def setup(app):
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
