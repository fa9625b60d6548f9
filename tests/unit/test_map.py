"""docs/architecture.md is the map: what it names exists, and what exists is on it."""

import ast
import importlib
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import cel
from cel.cf_methods import METHODS
from cel.protocols import Status

ROOT = Path(__file__).parents[2]
PACKAGE = Path(cel.__file__).parent
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
COMMANDS = {"lint-imports", "python -P", "cel ...", "cel check"}
FORMS = {"a <= b", "module:attribute", "Decimal"}  # how a relation and a name look; of Python


def _sections():
    parts = re.split(r"^## (.*)$", MAP, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _rows(section):
    """[(names in the first cell, text of the second)] of the tables of a section."""
    lines = re.findall(r"^\| (.*?) \| (.*) \|$", _sections()[section], re.M)
    return [(re.findall(r"`([^`]+)`", a), b) for a, b in lines if "---" not in a]


def _names(text):
    return re.findall(r"`([^`]+)`", text)


def _defined(folder):
    """All names that files define: classes, functions, arguments, fields, assignments."""
    found = set()
    for path in [folder] if folder.is_file() else folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


def _place(name):
    """The folder or file of a dotted name below the package."""
    path = PACKAGE.joinpath(*name.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


def _resolves(dotted):
    """Whether `a.b.c` is a module of the package or an attribute of one."""
    parts = dotted.removeprefix("cel.").split(".")
    for n in range(len(parts), 0, -1):
        if _place(".".join(parts[:n])).exists():
            found = importlib.import_module(".".join(["cel", *parts[:n]]))
            break
    else:
        return hasattr(cel, parts[0]) and len(parts) == 1
    for name in parts[n:]:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.fixture(scope="module")
def everywhere():
    files = {m.stem for m in PACKAGE.rglob("*.py")}
    return _defined(PACKAGE) | files | {m.parent.name for m in PACKAGE.rglob("*.py")}


def test_every_name_on_the_map_exists(everywhere):
    wrong = []
    for name in _names(MAP):
        if name in COMMANDS | FORMS | {s.value for s in Status}:
            continue
        bare = re.sub(r"[(=].*", "", name)  # `explain(X, target)`, `start_outside="widen"`
        first, _, rest = bare.partition(".")
        if _place(bare).exists() or bare in everywhere or _resolves(bare):
            continue
        if rest and first in everywhere and rest in everywhere:  # `Target.place`
            continue
        wrong.append(name)
    assert not wrong


def test_what_a_row_names_is_in_its_package():
    for packages, told in _rows("The map")[1:]:
        places = [_place(p) for p in packages]
        inside = set().union(*(_defined(p) for p in places))
        inside |= {m.stem for p in places for m in p.rglob("*.py")}
        inside |= {f.name for p in places for f in p.rglob("*") if f.is_dir()}
        stray = [n for n in _names(told) if n not in inside | COMMANDS | {"cel.explain"}]
        assert not stray, f"{packages} do not have {stray}"


def test_every_package_and_top_module_has_its_row():
    listed = [name for packages, _ in _rows("The map") for name in packages]
    there = {p.stem for p in PACKAGE.glob("*.py")} | {
        p.parent.name for p in PACKAGE.glob("*/__init__.py")
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == there - {"__init__", "__main__"}


def test_rows_stand_in_the_order_of_the_layers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    assert "ignore_imports" not in contract  # "without exceptions"
    layers = [re.findall(r"cel\.(\w+)", line) for line in reversed(contract["layers"])]
    depth = {name: i for i, names in enumerate(layers) for name in names}
    order = [depth[name] for packages, _ in _rows("The map") for name in packages]
    assert order == sorted(order)


def test_every_folder_is_named():
    named = set(_names(MAP))
    folders = {p.parent.name for p in PACKAGE.rglob("__init__.py")} - {"cel"}
    assert folders <= named


def test_every_room_of_the_methods_is_named_once():
    rows = _rows("The rooms of `cf_methods`")[1:]
    last = next(i for i, (names, _) in enumerate(rows) if names == ["group_methods"])
    rooms, methods = rows[: last + 1], rows[last + 1 :]
    folder = PACKAGE / "cf_methods"
    listed = [name for names, _ in rooms for name in names]
    there = {p.stem for p in folder.glob("*.py")} | {
        p.parent.name for p in folder.glob("*/__init__.py")
    }
    assert sorted(listed) == sorted(there - {"__init__"})
    for room in ("global_methods", "group_methods"):
        (told,) = (text for names, text in rooms if names == [room])
        assert set(_names(told)) == _children(folder / room)
    told = [name for _, text in methods for name in _names(text)]
    assert sorted(told) == sorted(_children(folder / "local_methods"))


def _children(folder):
    files = {p.stem for p in folder.glob("*.py")} - {"__init__"}
    return files | {p.parent.name for p in folder.glob("*/__init__.py")}


def test_every_registered_method_stands_in_a_room_of_its_scope():
    for name, method in METHODS.items():
        if method.__module__.startswith("cel.cf_methods."):
            room = method.__module__.split(".")[2]
            assert room.startswith(method.scope.value), name


def test_only_one_module_reads_yaml():
    users = {"yaml": set(), "pydantic": set()}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in {n.split(".")[0] for n in names} & set(users):
                users[name].add(path.name)
    assert users == {"yaml": {"config.py"}, "pydantic": {"config.py"}}


def test_the_page_of_modules_is_written_anew():
    spec = importlib.util.spec_from_file_location("modules", ROOT / "tools" / "modules.py")
    modules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules)
    page = (ROOT / "docs" / "modules.md").read_text(encoding="utf8")
    assert page == modules.page(), "docs/modules.md is out of date; run: make pages"
