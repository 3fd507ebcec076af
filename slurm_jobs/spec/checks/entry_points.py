"""Checks of the functions that stages run, in the text of the user's modules. PURE."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.imported_modules import ModuleReader
from slurm_jobs.spec.checks.module_bindings import OPAQUE, Binding, bindings_of, bound_by
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.stage_views import StageView

_CALL = "a stage's function is called with two values, `(config, context)`"


def entry_point_problems(spec: CheckedSpec, profile: ClusterProfile | None) -> Iterator[Problem]:
    """Yield functions that no stage can call, and modules with syntax errors.

    These are functions that a module next to the spec lacks, or that take other arguments. A module
    elsewhere belongs to the stage's Python and is not read.
    """
    modules = ModuleReader(spec.folder, spec.files)
    messages: dict[tuple[str, bool], str | None] = {}
    for name, view in spec.views.items():
        settings = _settings_of(view, spec, profile)
        key = view.run or "", not uses_another_python(settings)
        if key not in messages:
            messages[key] = entry_point_problem(key[0], modules, follows_imports=key[1])
        message = messages[key]
        if message is not None:
            yield spec.problem(("stages", name, "run"), message)


def entry_point_problem(
    run: str, modules: ModuleReader, *, follows_imports: bool = True
) -> str | None:
    """Return what is wrong with `module:function`; None if nothing is, or if it is not known.

    It is not known if the folder of `modules` lacks the module, and for names that are imported or
    assigned.

    Args:
        run: value of the key `run`.
        modules: reader of the folder.
        follows_imports: False if another Python than this one may load the modules.
    """
    module, colon, function = run.partition(":")
    if not colon:
        return None
    file = modules.file_of(module.split("."))
    if file is None:
        return modules.missing_submodule_problem(module) if follows_imports else None
    try:
        tree = modules.parse(file)
    except (SyntaxError, ValueError) as error:
        return f"{file} is not valid Python: {error}"
    problem = None if tree is None else _problem_in(tree, file, function)
    if problem is None and follows_imports:
        return modules.import_problem(module)
    return problem


def _problem_in(tree: ast.Module, file: str, function: str) -> str | None:
    bindings = bindings_of(tree)
    candidates = bindings.get(function, [])
    if candidates:
        problems = [_call_problem(candidate) for candidate in candidates]
        # Which definition of several holds may be known only when the module runs.
        where = f"{file}:{getattr(candidates[-1], 'lineno', 1)}"
        return None if None in problems else f"{where}: {problems[-1]}"
    if "*" in bindings or "__getattr__" in bindings:  # these may bring any name
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Global) and function in node.names:
            return None
        if isinstance(node, OPAQUE[:3]) and node.name == function:
            return (
                f"{file}:{node.lineno} defines `{function}` inside a class or another function, "
                "where no stage can find it; define it at the top level of the module"
            )
    return f"{file} defines no `{function}`{did_you_mean(function, bindings)}"


def _call_problem(definition: Binding) -> str | None:
    """Return why a call of a definition cannot give a stage's result; None if it may."""
    if definition is None or definition.decorator_list:
        return None
    name = definition.name
    if isinstance(definition, ast.ClassDef):
        # A base class, a metaclass and `__new__` may give a dict.
        makes_itself = any("__new__" in dict(bound_by(each)) for each in definition.body)
        if definition.bases or definition.keywords or makes_itself:
            return None
        return (
            f"`{name}` is a class, so a call gives an object of it, but a stage returns a dict or "
            "None; name a function"
        )
    arguments = definition.args
    signature = f"{name}({ast.unparse(arguments)})"
    positional = [*arguments.posonlyargs, *arguments.args]
    num_required = len(positional) - len(arguments.defaults)
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    keywords = [argument.arg for argument, default in pairs if default is None]
    if len(positional) < 2 and arguments.vararg is None:
        return (
            f"`{signature}` takes {_number_of_values(len(positional))} by position, but {_CALL}; "
            f"write `def {name}(config, context)`"
        )
    if num_required > 2:
        return (
            f"`{signature}` needs {_number_of_values(num_required)}, but {_CALL}; give the others "
            "defaults, or read them from `config`"
        )
    if keywords:
        return (
            f"`{signature}` needs `{keywords[0]}` by name, but {_CALL}; give `{keywords[0]}` a "
            "default, or read it from `config`"
        )
    if isinstance(definition, ast.AsyncFunctionDef):
        return (
            f"`{name}` is an `async def`, so a call gives a coroutine that never runs; write "
            f"`def {name}(config, context)`, and call `asyncio.run` in it"
        )
    if _yields(definition):
        return (
            f"`{name}` contains `yield`, so a call gives a generator that never runs; return a "
            "dict or None, and yield in another function"
        )
    return None


def _number_of_values(number: int) -> str:
    return f"{number or 'no'} value{'' if number == 1 else 's'}"


def _yields(function: ast.FunctionDef) -> bool:
    """Check whether a function is a generator, which its inner functions do not make it."""
    remaining: list[ast.AST] = [*function.body]
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, OPAQUE):
            remaining.extend(ast.iter_child_nodes(node))
    return False


def module_problems(spec: CheckedSpec, profile: ClusterProfile | None) -> Iterator[Problem]:
    """Yield modules that do not exist, if a module with a similar name is next to the spec.

    Only for stages that run in this Python with its module path unchanged.
    """
    copied = modules_of_spec(spec.document.value, spec.folder, spec.files)
    for name, view in spec.views.items():
        module, colon, _ = (view.run or "").partition(":")
        module = module.partition(".")[0]
        near = did_you_mean(module, copied) if colon and module not in copied else ""
        settings = _settings_of(view, spec, profile)
        if near and not uses_another_python(settings) and not spec.files.has_module(module):
            message = f"there is no module `{module}` next to the spec or in this Python{near}"
            yield spec.problem(("stages", name, "run"), message)


def _settings_of(
    view: StageView, spec: CheckedSpec, profile: ClusterProfile | None
) -> list[Mapping[str, Any]]:
    return [view.keys, spec.document.value, profile.model_dump() if profile else {}]


def uses_another_python(settings: Sequence[Mapping[str, Any]]) -> bool:
    """Check whether keys of a stage, its spec or its profile name a Python or may add modules."""
    environments = [keys.get("environment") for keys in settings]
    return any(keys.get("python") or keys.get("setup") for keys in settings) or any(
        isinstance(environment, Mapping) and "PYTHONPATH" in environment
        for environment in environments
    )


def modules_of_spec(values: Any, spec_dir: str, files: Files) -> frozenset[str]:
    """Return the modules that a run's snapshot can hold: next to the spec, and under `code:`."""
    code = values.get("code") if isinstance(values, dict) else None
    paths = code if isinstance(code, list) else []  # other values are reported elsewhere
    listed = [PurePosixPath(path) for path in paths if isinstance(path, str)]
    modules = {path.stem for path in listed if path.suffix in {"", ".py"}}
    return frozenset({*files.modules_in(spec_dir), *modules})
