"""Expressions from text, and from code that text names.

`parse` never runs code: it walks Python's syntax tree over a white list of names. `read` takes
the same text, or `module:name`, which imports the user's module.
"""

from .code import is_place, loaded, read
from .names import NAMES
from .reader import parse

__all__ = ["NAMES", "is_place", "loaded", "parse", "read"]
