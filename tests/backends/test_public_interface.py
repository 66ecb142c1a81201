"""CMSIS-NN is a backend like any other: it uses what plug-ins may use, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import utvm_deploy.backends

PACKAGE = Path(utvm_deploy.backends.__file__).parents[1]
#: Beside the interface: the attributes of operators, and the name under which records know it.
ALLOWED = ("backends", "graph.attributes", "records.candidate")


def test_cmsis_nn_uses_nothing_private() -> None:
    others = []
    paths = sorted((PACKAGE / "backends" / "cmsis_nn").glob("*.py"))
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                name = node.module.removeprefix("utvm_deploy.")
                is_ours = node.module.startswith("utvm_deploy")
                is_allowed = name.startswith("backends.cmsis_nn") or name in ALLOWED
                if is_ours and not is_allowed:
                    others.append(f"{path.name}: {node.module}")
    assert others == []


def test_the_interface_names_all_that_it_offers() -> None:
    assert sorted(utvm_deploy.backends.__all__) == utvm_deploy.backends.__all__
    for name in utvm_deploy.backends.__all__:
        assert hasattr(utvm_deploy.backends, name)
