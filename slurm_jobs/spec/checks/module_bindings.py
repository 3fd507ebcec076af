"""Names that a module binds when it is loaded, as far as its text shows it. PURE."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Binding = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None
"""Definition of a name; None for an import or an assignment."""

OPAQUE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
"""Nodes that keep the names that are bound inside them."""


def bindings_of(tree: ast.Module) -> dict[str, list[Binding]]:
    """Return what may define each name of a module, `*` for a star import.

    A statement at the top level replaces what was before; one below `if` or `try` may not run.
    """
    bindings: dict[str, list[Binding]] = {}
    for statement in tree.body:
        bound = list(bound_by(statement))
        if not isinstance(statement, ast.If | ast.Try | ast.For | ast.While | ast.Match):
            for name, _ in bound:
                bindings[name] = []
        for name, definition in bound:
            bindings.setdefault(name, []).append(definition)
    return bindings


def bound_by(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """Yield the names that a statement binds in the module, without those of inner scopes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, node
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            is_package = isinstance(node, ast.Import) and alias.asname is None
            yield alias.name.partition(".")[0] if is_package else alias.asname or alias.name, None
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, None
    elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
        yield node.name, None
    if not isinstance(node, OPAQUE):
        for child in ast.iter_child_nodes(node):
            yield from bound_by(child)
