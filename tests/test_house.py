"""Imports point one way between packages, and every package is in the table of CONTRIBUTING.md."""

import ast
import itertools
import re
from pathlib import Path

import pytest

import knotwork

SOURCE = Path(knotwork.__file__).parent


def package_of(module):
    """knotwork.network.compile.units → network/compile; files at the top count as packages of their own."""
    parts = module.split(".")[1:]
    if parts and not (SOURCE / Path(*parts)).is_dir():
        parts = parts[:-1] if len(parts) > 1 else parts
    return "/".join(parts)


def imports():
    """Yield (importing module, imported module) within the library, lazy imports included, type checking apart."""
    for path in SOURCE.rglob("*.py"):
        module = ".".join(("knotwork", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(without_type_checking(ast.parse(path.read_text()))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("knotwork"):
                for name in node.names:
                    inner = f"{node.module}.{name.name}"
                    is_module = (SOURCE / Path(*inner.split(".")[1:])).with_suffix(".py").exists()
                    yield module, inner if is_module else node.module


def without_type_checking(tree):
    class Drop(ast.NodeTransformer):
        def visit_If(self, node):
            return None if getattr(node.test, "id", "") == "TYPE_CHECKING" else self.generic_visit(node)

    return Drop().visit(tree)


def graph():
    edges = {}
    for importer, imported in imports():
        a, b = package_of(importer), package_of(imported)
        if a and b and a != b:
            edges.setdefault(a, {}).setdefault(b, f"{importer} imports {imported}")
    return edges


def test_packages_import_each_other_one_way_only():
    edges = graph()
    path, seen = [], set()

    def visit(package):
        if package in path:
            cycle = [*path[path.index(package) :], package]
            pytest.fail("; ".join(edges[a][b] for a, b in itertools.pairwise(cycle)))
        if package in seen:
            return
        seen.add(package)
        path.append(package)
        for other in edges.get(package, {}):
            visit(other)
        path.pop()

    for package in list(edges):
        visit(package)


def test_every_package_is_in_the_table():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    importing = {package_of(importer) for importer, _ in imports()} - {""}
    packages = {f"{package}/" for package in importing if (SOURCE / package).is_dir()}
    missing = [package for package in sorted(packages) if f"`{package}`" not in text]
    assert not missing


def test_the_walk_of_one_fit_names_files_that_are_there():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    walk = text[text.index("## One fit") : text.index("## Rules")]
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", walk)
    assert len(named) > 10
    assert [name for name in named if not (SOURCE / name).exists()] == []
