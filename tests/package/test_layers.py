"""The one way through the rooms: a stage imports earlier stages only."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "maskalg"

STAGES = [
    {"errors", "parameters", "recent"},
    {"node", "derived", "entries"},
    {"nodes", "binding"},
    {"printing", "cases", "comparisons", "distances"},
    {"integer_ranges", "saturation", "long_integers", "functions"},
    {"expression", "score_terms", "not_numbers"},
    {"algebra"},
    {"index"},
    {"choice", "elementary"},
    {"masks", "biases", "weights"},
    {"normalform"},
    {"extents", "widths", "keys", "float8"},
    {"inputs", "dropped", "hidden_masks"},
    {"evaluate"},
    {"tracing"},
    {"parsing"},
    {"proof"},
    {"schedule"},
    {"reasoning", "export"},
    {"codegen", "tiles", "backward_tiles", "decode_tiles", "tuned"},
    {"backends"},
    {"operators"},
    {"attention"},
    {"nn"},
    {"explanation"},
    {"inspect", "explore", "testing", "bench", "integrations"},
    {"cli"},
    {"__main__"},
]

# Methods of values that reach later stages, by an import inside the method.
ALLOWED_LATE = {
    ("algebra", "proof"),
    ("algebra", "schedule"),
    ("algebra", "reasoning"),
    ("algebra", "evaluate"),
    ("algebra", "tracing"),
    ("algebra", "inspect"),
    ("schedule", "export"),
    ("expression", "inspect"),
    ("schedule", "inspect"),
    ("proof", "inspect"),
    ("expression", "explore"),
}


def stage_of(room: str) -> int:
    return next(i for i, stage in enumerate(STAGES) if room in stage)


def imports(path: Path):
    """(room imported, whether inside a function) of every import of the package in a file."""
    tree = ast.parse(path.read_text())
    package = ["maskalg", *path.relative_to(ROOT).parts[:-1]]
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            node.inside = getattr(parent, "inside", False) or isinstance(
                parent, (ast.FunctionDef, ast.AsyncFunctionDef)
            )
            checking = isinstance(parent, ast.If) and ast.unparse(parent.test) == "TYPE_CHECKING"
            node.typing = getattr(parent, "typing", False) or checking
            if isinstance(node, ast.ImportFrom) and not node.typing:
                base = package[: len(package) - node.level + 1] if node.level else []
                module = [*base, *(node.module.split(".") if node.module else [])]
                if module[:1] != ["maskalg"]:
                    continue
                if len(module) > 1:
                    yield module[1], node.inside
                else:
                    for alias in node.names:
                        yield alias.name, node.inside


def test_every_room_has_a_stage():
    rooms = {p.stem if p.is_file() else p.name for p in ROOT.iterdir()}
    rooms -= {"__init__", "__pycache__", "py"}
    listed = set().union(*STAGES)
    assert rooms == listed


def test_stages_import_earlier_stages_only():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for imported, inside in imports(path):
            if imported not in set().union(*STAGES):
                continue
            late = stage_of(imported) > stage_of(room)
            if late and not (inside and (room, imported) in ALLOWED_LATE):
                wrong.append(f"{path.relative_to(ROOT.parent)} imports {imported}")
    assert not wrong


def third_party(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def test_triton_and_sympy_stay_in_their_rooms():
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        found = set(third_party(path))
        if not place.startswith("backends/triton"):
            assert not found & {"triton", "maskalg_kernels"}, place
        if not place.startswith("proof/"):
            assert "sympy" not in found, place
