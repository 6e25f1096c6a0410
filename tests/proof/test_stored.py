"""Closed forms in the cache folder: later processes read them, if nothing has changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, prefix, sliding
from maskalg.engine import cache
from maskalg.engine.normal_form import bound, transposed
from maskalg.engine.recent import Recent
from maskalg.proof import proof, stored
from maskalg.proof.proof import closed_forms_of, prove_structure

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files have owners on POSIX")

IDS = torch.arange(40) // 7
MASKS = {
    "everything": ma.everything,
    "nothing": ma.nothing,
    "window": causal & sliding(5),
    "sinks": causal & (sliding(5) | prefix(2)),
    "documents": causal & document(IDS),
    "two tables": document(IDS, IDS // 2),
    "known documents": causal & document.from_lengths([10, 30]),
    "padding": ma.padding(torch.tensor([3, 9]), queries=True),
    "by head": ma.where(ma.head % 2 == 0, causal, sliding(3)),
    "shifted": (causal & document(IDS)).shift(q=torch.tensor([3, 4])),
    "chunks": ma.chunked(8),
    "blocks": ma.kv_idx // 4 <= ma.q_idx // 4,
    "token sets": causal & (ma.table(IDS)[ma.kv_idx] > 2),
    "residues": ma.dilated(3),
    "scattered": document(IDS % 3) & ~document(IDS % 2),
    "tensor": ma.dense(torch.ones(9, 9, dtype=torch.bool).tril()),
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """An empty folder, and nothing known of earlier proofs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stored, "enabled", True)
    for name in ("_CACHE", "_READ"):
        monkeypatch.setattr(proof, name, Recent(64))
    return tmp_path / "maskalg" / "proofs"


def forget():
    proof._CACHE = Recent(64)


@pytest.mark.parametrize("name", MASKS)
def test_what_is_read_is_what_was_proved(name, folder):
    for structure in (bound(MASKS[name]).structure, transposed(bound(MASKS[name]).structure)):
        wanted = prove_structure(structure).forms
        assert stored.read(structure) is None
        stored.write(structure, wanted)
        got = stored.read(structure)
        assert got.bounds == wanted.bounds
        assert stored._text(got) == stored._text(wanted)
        own = [slot for bound in got.bounds for node in bound.walk() for slot in node.own]
        assert all(slot is structure.slots[slot.index] for slot in own)
    assert len(list(folder.iterdir())) == 2


def test_digits_are_proved_anew(folder):
    closed_forms_of(bound(ma.neighborhood((6, 8), 3)).structure)
    assert not folder.exists()


def kept(folder):
    structure = bound(MASKS["documents"]).structure
    closed_forms_of(structure)
    (path,) = folder.iterdir()
    assert stored.read(structure) is not None
    return structure, path


def test_no_byte_may_differ(folder):
    structure, path = kept(folder)
    content = path.read_bytes()
    for place in (0, 70, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert stored.read(structure) is None
    path.write_bytes(content[: len(content) // 2])
    assert stored.read(structure) is None
    path.write_bytes(b"\xff" * 100)
    assert stored.read(structure) is None
    path.write_bytes(content)
    assert stored.read(structure) is not None


def test_a_file_of_another_structure_is_none_of_this(folder):
    structure, path = kept(folder)
    other = bound(causal & document(IDS, order="contiguous")).structure
    assert other.mask_key != structure.mask_key
    stored._path(stored._key(other)).write_bytes(path.read_bytes())
    assert stored.read(other) is None


def test_other_code_is_another_proof(folder, monkeypatch):
    structure, _ = kept(folder)
    stored._code.cache_clear()
    monkeypatch.setattr(stored, "_ROOMS", ("formula", "engine"))
    assert stored.read(structure) is None
    stored._code.cache_clear()
    monkeypatch.setattr(stored, "find_spec", lambda name: None)
    assert stored.read(structure) is None
    stored.write(structure, prove_structure(structure).forms)
    assert len(list(folder.iterdir())) == 1
    stored._code.cache_clear()


def test_code_that_is_edited_while_it_runs_leaves_nothing(folder, monkeypatch):
    structure = bound(MASKS["window"]).structure
    forms = prove_structure(structure).forms
    stored._code.cache_clear()
    monkeypatch.setattr(stored, "IMPORTED", 1.0)
    stored.write(structure, forms)
    assert not folder.exists() and stored.read(structure) is None
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parents[1]))
    monkeypatch.setattr(stored, "enabled", True)
    stored._code.cache_clear()
    assert stored.read(structure) is None  # the digest is that of now
    monkeypatch.setattr(stored, "_ROOMS", ("formula",))
    stored.write(structure, forms)
    assert not folder.exists()
    monkeypatch.undo()
    stored._code.cache_clear()


def test_nobody_else_may_write_the_file(folder, monkeypatch):
    structure, path = kept(folder)
    assert path.stat().st_mode & 0o077 == 0
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert stored.read(structure) is None
    path.chmod(0o600)
    assert stored.read(structure) is not None
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert stored.read(structure) is None
    monkeypatch.undo()


def test_a_file_without_an_owner_is_not_read(tmp_path, monkeypatch):
    """Windows has neither `os.getuid` nor `os.O_NOFOLLOW`."""
    path = tmp_path / "file"
    cache.keep(path, b"content")
    assert cache.kept(path) == b"content"
    with monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        windows.delattr(os, "getuid")
        windows.delattr(os, "O_NOFOLLOW")
        found = cache.kept(path)
    assert found is None


def test_a_link_is_not_followed(folder):
    structure, path = kept(folder)
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    assert stored.read(structure) is None


def test_a_person_is_shown_a_proof_of_this_process(folder, monkeypatch):
    structure, _ = kept(folder)
    forget()
    monkeypatch.setattr(stored, "_value", None)  # not even looked at
    assert MASKS["documents"].prove().exact
    assert prove_structure(structure).elimination is not None


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert closed_forms_of(bound(causal).structure).exact


def test_a_user_without_a_home(monkeypatch):
    def none():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", none)
    assert closed_forms_of(bound(causal).structure).exact


SECOND = """
import sys, maskalg as ma
from maskalg.codegen.hooks import source_of
print(source_of(ma.causal & ma.sliding(5), ptx=True), "sympy" in sys.modules)
"""


def test_a_second_process_needs_no_sympy(folder):
    told = [
        subprocess.run([sys.executable, "-c", SECOND], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    first, second = (run.stdout.split() for run in told)
    assert first[:-1] == second[:-1] and (first[-1], second[-1]) == ("True", "False")
