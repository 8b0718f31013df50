"""Docstrings with parameters that exist and in one style, and classes named by nouns."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("compute_agent", "placement_server", "tests", "benchmarks", "tools", "examples")
PARAMETER = re.compile(r":param ([^:]+):")
VARIABLE = re.compile(r":[ic]var ([^:]+):")
OTHER_STYLE = re.compile(r"#" + r":|:(?:func|class|meth|mod|attr|data|exc|const|obj):`")
TWO_BACKTICKS = re.compile(r"(?<!`)``(?!`)")
PARTICIPLE = re.compile(r"^ *class (_?[A-Z][a-z]+(?:[^e]ed|able))\b", re.MULTILINE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_files() -> list[Path]:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 500
    return files


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in (*named, *rest) if argument is not None}


def members(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Return what makes an object of a class, and all attributes that its body writes."""
    fields = {
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    makers = {"__init__", "__new__"}
    taken = fields.union(
        *(
            parameters(statement)
            for statement in node.body
            if isinstance(statement, ast.FunctionDef) and statement.name in makers
        )
    )
    written = {
        statement.attr
        for statement in ast.walk(node)
        if isinstance(statement, ast.Attribute) and isinstance(statement.ctx, ast.Store)
    } | {
        target.id
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    properties = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    return taken, fields | written | properties


def names_without_a_place(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            taken, attributes = parameters(node), set[str]()
        elif isinstance(node, ast.ClassDef):
            taken, attributes = members(node)
        else:
            continue
        docstring = ast.get_docstring(node) or ""
        for pattern, allowed in ((PARAMETER, taken), (VARIABLE, attributes)):
            for names in pattern.findall(docstring):
                for name in re.split(r",\s*", names):
                    if name.lstrip("*") not in allowed:
                        yield f"line {node.lineno}: {node.name} has no {name}"


def test_docstrings_name_parameters_that_exist():
    wrong = [
        f"{path.relative_to(ROOT)}, {sentence}"
        for path in python_files()
        if ":param " in (text := path.read_text()) or "var " in text
        for sentence in names_without_a_place(ast.parse(text))
    ]
    assert wrong == [], "name a parameter as the function does"


def test_the_search_finds_a_parameter_that_no_function_has():
    tree = ast.parse(
        'def f(a, *, b):\n    """Do it.\n\n    :param a: x.\n    :param c: y.\n    """'
    )
    assert list(names_without_a_place(tree)) == ["line 1: f has no c"]


def test_references_are_plain_backticks_and_constants_have_docstrings():
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OTHER_STYLE.search(line)
    ] + [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno}"
        for path in python_files()
        if TWO_BACKTICKS.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, DOCUMENTED) and TWO_BACKTICKS.search(ast.get_docstring(node) or "")
    ]
    assert wrong == [], "write `name` for a reference, and a docstring below a constant"


def test_no_class_is_named_by_a_participle_alone():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files()
        for name in PARTICIPLE.findall(path.read_text())
    ]
    assert wrong == [], "name the thing that is so: KeptProvider, not Kept"
