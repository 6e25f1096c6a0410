"""The one way through the rooms: a room imports earlier rooms only, whenever it imports them."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "maskalg"

ROOMS = [
    "errors",
    "formula",
    "engine",
    "export",
    "proof",
    "schedule",
    "questions",
    "views",
    "values",
    "tracing",
    "parsing",
    "codegen",
    "tiles",
    "backends",
    "verifier",
    "operators",
    "attention",
    "nn",
    "parallel",
    "explanation",
    "testing",
    "bench",
    "integrations",
    "cli",
    "__main__",
]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if path != ROOT / "__init__.py"
}


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING`."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    checked = (block for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING")
    return {node for block in checked for node in ast.walk(block)}


def imports(name: str) -> set[str]:
    """The files of the package that a file imports, inside of functions too."""
    path = FILES[name]
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    tree = ast.parse(path.read_text())
    left_out = for_types_only(tree)
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or node in left_out:
            continue
        base = package[: len(package) - node.level + 1]
        module = ".".join([*base, *(node.module.split(".") if node.module else [])])
        for alias in node.names:
            inner = f"{module}.{alias.name}".lstrip(".")
            found.add(inner if inner in FILES else module)
    return found & set(FILES) - {name}


def test_every_room_has_a_place():
    rooms = {path.stem if path.is_file() else path.name for path in ROOT.iterdir()}
    assert rooms - {"__init__", "__pycache__", "py"} == set(ROOMS)


def test_rooms_import_earlier_rooms_only():
    place = {room: number for number, room in enumerate(ROOMS)}
    wrong = [
        f"{name} imports {other}"
        for name in FILES
        for other in imports(name)
        if place[other.split(".")[0]] > place[name.split(".")[0]]
    ]
    assert not wrong


def test_no_file_imports_itself_by_others():
    left = {name: imports(name) for name in FILES}
    # Files that import nothing which is left can be in no circle.
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert not left


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
        if not place.startswith("backends/triton/"):
            assert not found & {"triton", "maskalg_kernels"}, place
        # The verifier asks SymPy for derivatives, and trusts no code of ours in its place.
        if not place.startswith("proof/") and place != "verifier/reals.py":
            assert "sympy" not in found, place
