"""What a person looks at: pictures, pages, typeset formulas. Each is imported when first used."""

from ..formula.shown import HTML, Shown


def html(value: Shown) -> str | None:
    """What a notebook shows of a value."""
    from .notebook.notebook import html

    return html(value)


HTML.append(html)
