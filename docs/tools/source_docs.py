"""What the source says of its own classes, functions and fields, as Markdown.

Read from the syntax tree, so that nothing is imported and a text is the same on every Python: the
docstring of a class or function, and the string or comment that stands beside a field.
"""

from __future__ import annotations

import ast
import inspect
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SECTION = re.compile(r"(Args|Returns|Raises|Yields):")
_ITEM = re.compile(r"(\w[\w, ]*): (.*)")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of a dataclass."""

    name: str
    kind: str
    """As it is annotated."""
    default: str
    """Empty where it has none."""
    meaning: str


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of `package.module`."""
    return ast.parse(source_path(module).read_text(encoding="utf-8"))


def source_path(module: str) -> Path:
    """The file of a module."""
    return ROOT / f"{module.replace('.', '/')}.py"


def module_doc(module: str) -> str:
    """Its docstring."""
    return ast.get_docstring(tree(module)) or ""


def class_node(module: str, name: str) -> ast.ClassDef:
    """The class of that name.

    Raises:
        LookupError: the module has none.
    """
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    message = f"{source_path(module)} has no class {name}"
    raise LookupError(message)


def functions(nodes: Iterable[ast.stmt]) -> Iterator[FunctionNode]:
    """Those among `nodes` that are public."""
    for node in nodes:
        if isinstance(node, FunctionNode) and not node.name.startswith("_"):
            yield node


def fields(module: str, name: str) -> list[Field]:
    """The fields of a dataclass, in order: first those of its bases in the same module."""
    node = class_node(module, name)
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    known = {each.name for each in tree(module).body if isinstance(each, ast.ClassDef)}
    found = [each for base in bases if base in known for each in fields(module, base)]
    body = node.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id.startswith("_"):
            continue
        found.append(
            Field(
                name=node.target.id,
                kind=ast.unparse(node.annotation),
                default=_default(node.value),
                meaning=_text(after),
            )
        )
    return found


def constant_doc(module: str, name: str) -> str:
    """The string below a constant of the module."""
    body = tree(module).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            return _text(after)
    message = f"{source_path(module)} has no {name}"
    raise LookupError(message)


@cache
def comments(module: str) -> dict[str, str]:
    """The comment behind each string of a module that has one on its line."""
    found: dict[str, str] = {}
    with source_path(module).open("rb") as stream:
        first: dict[int, str] = {}
        for token in tokenize.tokenize(stream.readline):
            row = token.start[0]
            if token.type == tokenize.STRING and token.string.startswith('"'):
                first.setdefault(row, token.string.strip('"'))
            elif token.type == tokenize.COMMENT and row in first:
                found[first[row]] = token.string.removeprefix("#").strip()
    return found


def signature(node: FunctionNode) -> str:
    """`name(arguments) -> result`, without `self` and `cls`."""
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){result}"


def is_property(node: FunctionNode) -> bool:
    """Whether it is read as a value."""
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def doc_of(node: FunctionNode | ast.ClassDef) -> str:
    """The docstring as Markdown: sections of arguments, results and errors as lists."""
    lines, inside = [], False
    for line in (ast.get_docstring(node) or "").splitlines():
        section, item = _SECTION.fullmatch(line), _ITEM.fullmatch(line.strip())
        if section:
            inside = True
            lines += [f"{section[1]}:", ""]
        elif inside and item:
            names = ", ".join(f"`{name.strip()}`" for name in item[1].split(","))
            lines.append(f"- {names}: {item[2]}")
        else:
            lines.append(f"  {line.strip()}" if inside and line.strip() else line)
    return "\n".join(lines).strip()


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table whose cells cannot be left by what stands in them."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Text of one cell, on one line."""
    return " ".join(text.split()).replace("|", "\\|")


def field_table(module: str, name: str) -> str:
    """The fields of a dataclass as a table."""
    rows = [
        (f"`{f.name}`", f"`{f.kind}`", f"`{f.default}`" if f.default else "", f.meaning)
        for f in fields(module, name)
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        made = [k.value for k in value.keywords if k.arg == "default_factory"]
        return "{}" if made and ast.unparse(made[0]) == "dict" else ast.unparse(value)
    return ast.unparse(value)


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    return ""
