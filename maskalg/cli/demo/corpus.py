"""Real text as packed documents: files, split into tokens, numbered by a vocabulary."""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import torch

from ...errors import MaskValueError

# Documents of a few hundred to a few thousand tokens, so that 16k tokens hold several.
_DEFAULT_SIZES: Final = range(1 << 10, 1 << 14)
_SKIPPED_FOLDERS: Final = {"__pycache__", "site-packages", "dist-packages", "test", "tests"}
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Document:
    """A file's name and its tokens."""

    name: str
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Corpus:
    """Documents in the order they are packed."""

    documents: tuple[Document, ...]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each document."""
        return [len(document.tokens) for document in self.documents]

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """A number for each distinct token, the most frequent first."""
        counts = Counter(token for document in self.documents for token in document.tokens)
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        return {token: rank for rank, token in enumerate(ranked)}

    def token_ids(self) -> torch.Tensor:
        """The documents one after the other, int64 `[tokens]`."""
        number = self.vocabulary
        return torch.tensor([number[token] for d in self.documents for token in d.tokens])


def read_corpus(paths: Sequence[Path], tokens: int) -> Corpus:
    """The first `tokens` tokens of some files; the last document is cut where it does not fit.

    Args:
        paths: text files in UTF-8, and folders, which are searched for such files in the order
            of their names; none means sources of the standard library of this Python.
        tokens: how many tokens to read at most.

    Raises:
        ValueError: a path that does not exist or is no text, or no token anywhere.
    """
    documents: list[Document] = []
    room = tokens
    for name, text in _named_texts(paths) if paths else _standard_library():
        words = tuple(_TOKEN.findall(text)[:room])
        if words:
            documents.append(Document(name, words))
        room -= len(words)
        if not room:
            break
    if not documents:
        where = ", ".join(str(path) for path in paths) or "the standard library's folder"
        raise MaskValueError(f"no text found in {where}: name text files or a folder of them")
    return Corpus(tuple(documents))


def _named_texts(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    # All paths are checked before the first is read, so that a typing error shows up early.
    for path in paths:
        if not path.exists():
            raise MaskValueError(f"{path}: no such file or folder")
    for path in paths:
        if path.is_dir():
            yield from _folder(path)
            continue
        text = _text(path)
        if text is None:
            raise MaskValueError(f"{path}: cannot be read as UTF-8 text")
        yield path.name, text


def _standard_library() -> Iterator[tuple[str, str]]:
    folder = Path(sysconfig.get_path("stdlib"))
    for path in _files(folder):
        if path.suffix == ".py" and path.stat().st_size in _DEFAULT_SIZES:
            text = _text(path)
            if text is not None:
                yield str(path.relative_to(folder)), text


def _folder(folder: Path) -> Iterator[tuple[str, str]]:
    for path in _files(folder):
        text = _text(path)
        if text is not None:
            yield str(path.relative_to(folder)), text


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder and then those of its folders, by name; nothing hidden."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")
        )
        for name in sorted(names):
            path = Path(place, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _text(path: Path) -> str | None:
    """The file's text; None if it cannot be read or is not text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text
