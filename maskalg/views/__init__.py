"""Pictures, pages and typeset formulas. Each is imported when first used."""

from ..formula.printing import HTML, Shown


def html(value: Shown) -> str | None:
    """A value as HTML for a notebook."""
    from .notebook.notebook import html

    return html(value)


HTML.append(html)
