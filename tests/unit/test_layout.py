"""The places of tests, and what they may import of each other."""

import ast
import pkgutil
import re
from pathlib import Path

import compute_agent
import placement_server

TESTS = Path(__file__).parents[1]
RUNS_TESTS = {TESTS / "property" / "candidates" / "long_run.py"}
"""Programs that call tests, which is what they are for."""

NAME_OF_TEST = re.compile(r"(?<!def )\btest_\w+")


def imported_by(path: Path) -> set[str]:
    """The modules that a module imports, and the names it takes from packages as modules too."""
    package = path.relative_to(TESTS.parent).parent.parts
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            modules |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return modules


def test_no_module_of_tests_is_imported_by_another():
    paths = set(TESTS.rglob("*.py")) - RUNS_TESTS
    tests = {
        ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for path in paths
        if path.name.startswith("test_")
    }
    assert len(tests) > 100
    names = {module.rpartition(".")[2] for module in tests}
    # parsed only where the name of one stands: parsing all takes seconds
    naming = [path for path in paths if names & set(NAME_OF_TEST.findall(path.read_text()))]
    wrong = [(str(path), module) for path in naming for module in imported_by(path) & tests]
    assert wrong == [], "what several tests share belongs to tests/fixtures, a conftest or a module"


def test_folders_of_unit_tests_are_named_as_the_packages_they_test():
    packages = {
        module.name
        for root in (compute_agent, placement_server)
        for module in pkgutil.iter_modules(root.__path__)
    }
    folders = {path.parent.name for path in (TESTS / "unit").glob("*/test_*.py")}
    assert folders - packages == {"benchmarks"}


def test_docstrings_of_modules_open_with_a_noun_phrase():
    root = TESTS.parent
    paths = [
        path
        for folder in ("compute_agent", "placement_server", "tests", "benchmarks", "tools")
        for path in (root / folder).rglob("*.py")
    ]
    assert len(paths) > 500
    questions = re.compile(r'"""(What|Whether|Does|Is|Are|Who|How|Why|When|Where|Which|Whatever)\b')
    wrong = [str(path.relative_to(root)) for path in paths if questions.match(path.read_text())]
    assert wrong == [], "name the thing that the module is about"
