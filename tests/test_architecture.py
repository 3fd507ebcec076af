"""Tests of what architecture.md promises of modules; `make lint` checks the layers."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

IMPURE = {"os", "subprocess", "submitit", "torch", "time", "random", "shutil", "socket"}
CLOCK = {"now", "today", "utcnow"}
"""Functions of `datetime` that read the clock."""
PURE = {
    *(f"slurm_jobs/cluster/{name}.py" for name in ("allowed_partitions", "limits", "slurm_output")),
    "slurm_jobs/commands/limit_checks.py",
    *(f"slurm_jobs/nodes/doctor/{name}.py" for name in ("node_checks", "slurm_settings")),
    *(f"slurm_jobs/plan/{name}.py" for name in ("fingerprints", "make_plan", "missing_work")),
    *(f"slurm_jobs/plan/{name}.py" for name in ("array_pieces", "planned", "stage_dependencies")),
    *(f"slurm_jobs/report/numbers/{name}.py" for name in ("build_report", "projection")),
    *(f"slurm_jobs/report/comparison/{name}.py" for name in ("compare", "scaling")),
    *(f"slurm_jobs/report/comparison/{name}.py" for name in ("speed_verdict", "scaling_base")),
    "slurm_jobs/report/steps/attempt_steps.py",
    "slurm_jobs/report/page/report_page.py",
    "slurm_jobs/report/numbers/step_stretches.py",
    "slurm_jobs/report/numbers/timeline.py",
    "slurm_jobs/report/numbers/stage_numbers.py",
    *(f"slurm_jobs/report/numbers/trainings/{name}_numbers.py" for name in ("rank", "training")),
    "slurm_jobs/report/rules/rule_table.py",
    "slurm_jobs/report/rules/loading/data_wait.py",
    "slurm_jobs/schedulers/batch_script.py",
    "slurm_jobs/base/units.py",
    "slurm_jobs/formats/accelerate_file.py",
    *(
        f"slurm_jobs/spec/{name}.py"
        for name in ("graph", "load", "matrix", "model", "marked_paths")
    ),
    *(f"slurm_jobs/spec/{name}.py" for name in ("spec_files", "validation", "value_types")),
    "slurm_jobs/spec/overrides/apply.py",
    *(f"slurm_jobs/spec/yaml/{name}.py" for name in ("document", "parser_errors", "reader")),
    "slurm_jobs/spec/checks/path_checks.py",
    *(f"slurm_jobs/spec/checks/data/{name}.py" for name in ("image_sizes", "manifests")),
    *(f"slurm_jobs/spec/checks/stages/{name}.py" for name in ("stage_form", "training_agreement")),
    "slurm_jobs/status/reconcile.py",
}
NODE_ENTRIES = tuple(
    f"slurm_jobs.worker.{name}" for name in ("supervisor", "rank", "call", "node_facts")
)


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, also those inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute | ast.Name)
            and "import_module" in ast.dump(node.func)
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, node.args[0].value


def top(name: str) -> str:
    return name.partition(".")[0]


def test_one_module_imports_submitit() -> None:
    found = {
        name_of(path)
        for package in ("slurm_jobs", "pipeline")
        for path in sources(package)
        for _, name in imports(path)
        if top(name) == "submitit"
    }
    assert found == {"slurm_jobs/schedulers/slurm.py"}


def says_pure(path: Path) -> bool:
    return "PURE." in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def test_the_pure_modules_say_so() -> None:
    missing = [name for name in sorted(PURE) if not says_pure(ROOT / name)]
    assert missing == []


def test_pure_modules_import_nothing_that_acts() -> None:
    pure = [path for path in sources("slurm_jobs") if name_of(path) in PURE or says_pure(path)]
    assert len(pure) >= len(PURE)
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in pure
        for line, name in imports(path)
        if top(name) in IMPURE
    ]
    wrong += [
        f"{name_of(path)}:{node.lineno} asks for the time"
        for path in pure
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in CLOCK
    ]
    assert wrong == []


@pytest.mark.parametrize("module", NODE_ENTRIES)
def test_the_compute_nodes_entry_needs_the_standard_library_alone(module: str) -> None:
    # -I -S: no site-packages, no user's packages, no PYTHONPATH.
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}"
    command = [sys.executable, "-I", "-S", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("package", ["slurm_jobs", "pipeline"])
def test_output_of_every_program_is_decoded_whatever_bytes_it_has(package: str) -> None:
    """A site's wrapper, a plugin or a message in a locale of its own may write any bytes."""
    strict = [
        f"{path}:{node.lineno}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
        and _is_true(given := {word.arg: word.value for word in node.keywords})
        and not {"errors", "encoding"} <= given.keys()
    ]
    assert strict == []


def _is_true(given: dict[str | None, ast.expr]) -> bool:
    values = [given.get("text"), given.get("universal_newlines")]
    return any(isinstance(value, ast.Constant) and value.value is True for value in values)


def test_functions_that_tests_slow_down_exist() -> None:
    """They are named by texts, which a rename of the function does not find."""
    pattern = re.compile(r'^[A-Z_]+ = "(pipeline\.[\w.]+):([\w.]+)"$', re.MULTILINE)
    named = [
        found
        for file in sorted((ROOT / "tests" / "end_to_end").glob("*.py"))
        for found in pattern.findall(file.read_text())
    ]
    assert len(named) >= 8
    for module, names in named:
        owner = importlib.import_module(module)
        for name in names.split("."):
            owner = getattr(owner, name)


READ_DIRECTLY = {
    "slurm_jobs/commands/node_checks/login_node.py": "the kernel's mounts, and packages",
    "slurm_jobs/commands/run_search/remembered_dirs.py": "the kernel's mounts",
    "slurm_jobs/commands/spec_reading/hub_request.py": "the answer of a hub",
    "slurm_jobs/commands/starter/first_spec.py": "files that ship with slurm-jobs",
    "slurm_jobs/run/library.py": "sources and bytecode of slurm-jobs",
    "slurm_jobs/base/machine.py": "the kernel's files",
    "slurm_jobs/base/regular_files.py": "the readers themselves",
    "slurm_jobs/base/shipped_files.py": "files that ship with slurm-jobs",
    "slurm_jobs/worker/nsight.py": "the kernel's files",
}
"""Files that may read without `slurm_jobs.base.regular_files`, and what they read."""
OF_FILES = {"disk", "files", "spec.files", "self", "self._files"}
"""Names of a loader's `Files`, which reads what `commands/spec_reading/disk_files.py` opens."""


def direct_reads(path: Path) -> Iterator[int]:
    """Lines that open a file for reading, and would wait for the writer of a pipe."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        owner, _, name = ast.unparse(node.func).rpartition(".")
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if (
            name == "open"
            and owner not in {"os", "Image", "tarfile"}
            and (not modes or str(modes[0]).startswith("r"))
        ):
            yield node.lineno
        is_known = owner in {"", *OF_FILES} or "/proc/" in owner
        if name in {"read_text", "read_bytes"} and not is_known:
            yield node.lineno


def test_records_are_read_only_by_the_readers_of_regular_files() -> None:
    found = {
        f"{name_of(path)}:{line}"
        for path in sources("slurm_jobs")
        if name_of(path) not in READ_DIRECTLY
        for line in direct_reads(path)
    }
    assert found == set()


MESSAGE_NAMES = {
    *("detail", "error_text", "failure", "full_reason", "message", "problem", "reason"),
    *("status_reason", "why"),
}
"""Names of texts that are made for people."""
READING_METHODS = {
    *("count", "endswith", "find", "index", "partition", "rpartition", "rsplit", "split"),
    "startswith",
}
PATTERN_METHODS = {"findall", "finditer", "fullmatch", "match", "search"}

_CODE = "a code in spite of its name: `Reason` of `pipeline/preprocess/rejects.py`"
_LAYOUT = "changes the layout of the text"
_SAME = "equality of two texts: what is new, or the same"
_SLURM = "a word of Slurm, or of our local scheduler, which uses the same field"
_CHAT = "a message of a conversation"
_KEY_FIRST = "our own rule: a config's check begins with the key that it is about"
_TO_DO = "left over: reads our own text"
_KEY_OF_USER = "finds which value of the user's own --set an error is about"
_OLD = "records of versions without kinds have a text alone"
MESSAGES_READ = {
    "pipeline/models/loading/pretrained.py": {"str(error).partition('\\n')": _LAYOUT},
    "pipeline/preprocess/images/decode.py": {
        "re.findall('\\\\d+', str(error))": "Pillow gives the number nowhere else",
        "'truncated' in str(error).lower()": "Pillow has no kinds",
    },
    "pipeline/preprocess/images/image_sources.py": {"rejection.reason != 'missing_image'": _CODE},
    "pipeline/preprocess/images/resize.py": {
        "'allocate memory' in str(error)": "torch has no kind"
    },
    "slurm_jobs/cli/run_view/next_commands.py": {"name.search(record.reason)": _KEY_OF_USER},
    "slurm_jobs/formats/records/old_failures.py": {
        "_RESUME.findall(reason)": _OLD,
        "pattern.match(reason)": _OLD,
    },
    "pipeline/preprocess/rejects.py": {"reason in CHOSEN_REASONS": _CODE},
    "pipeline/preprocess/stage.py": {"reject.reason not in NOT_BROKEN": _CODE},
    "pipeline/train/held_out_rows.py": {"reason in reasons": _CODE},
    "slurm_jobs/cli/command_parser.py": {
        "_NO_VERB.match(message)": "argparse has no kinds",
        "_NO_OPTION.match(message)": "argparse has no kinds",
    },
    "slurm_jobs/commands/resuming/given_spec.py": {
        "problem.message not in before": _SAME,
        "problem.message not in messages_without[n]": _SAME,
        "n.message not in known": _SAME,
    },
    "slurm_jobs/report/rules/stages/rows_left_out.py": {
        "reason in CHOSEN_REASONS": _CODE,
        "reason in NOT_BROKEN": _CODE,
        "reason not in NOT_BROKEN": _CODE,
    },
    "slurm_jobs/schedulers/job_rows.py": {"reason == 'None'": _SLURM},
    "slurm_jobs/schedulers/local_runner.py": {
        "reason != WAITING": _SLURM,
    },
    "slurm_jobs/schedulers/local_state.py": {"reason in reasons": _SLURM},
    "slurm_jobs/schedulers/slurm.py": {"SWITCHED_OFF in str(error).lower()": _SLURM},
    "slurm_jobs/formats/configs/train_conflicts.py": {
        "message not in problems": _SAME,
        "message.partition(' ')": _KEY_FIRST,
    },
    "slurm_jobs/formats/manifests/first_turns.py": {"message not in before": _CHAT},
    "slurm_jobs/formats/manifests/text.py": {
        "'field limit' in problem": "csv has no kinds",
        "'new-line character' in problem": "csv has no kinds",
    },
    "slurm_jobs/spec/model_keys.py": {
        "str(error).partition(': ')": _KEY_FIRST,
        "str(error).startswith(f'{key} ')": _KEY_FIRST,
    },
    "slurm_jobs/spec/validation.py": {"follows.search(message)": _KEY_FIRST},
    "slurm_jobs/spec/yaml/document.py": {"message.split('\\n  ')": _LAYOUT},
    "slurm_jobs/status/slice_status.py": {
        "task.reason == NO_RUNNER": _SLURM,
    },
    "slurm_jobs/tuning/tuning_sentence.py": {
        "entry['why'] == TOO_SHORT": "results of earlier versions"
    },
}
"""Where the words of a message are compared or searched, and the reason why that may be."""


def is_message(node: ast.expr) -> bool:
    """Whether an expression is a text for people, by its name."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in MESSAGE_NAMES
        case ast.Subscript(slice=ast.Constant(value=name)):
            return name in MESSAGE_NAMES
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in {"error", "exception"}
        case ast.Call(func=ast.Attribute(attr="lower" | "casefold" | "strip", value=text)):
            return is_message(text)
    return False


def reads_message(node: ast.AST) -> bool:
    """Whether a comparison, a search or a pattern looks at the words of a message."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [left, *others]
            is_emptiness = any(isinstance(s, ast.Constant) and s.value in ("", None) for s in sides)
            is_identity = all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
            return any(map(is_message, sides)) and not is_emptiness and not is_identity
        case ast.Call(func=ast.Attribute(attr="split"), args=[], keywords=[]):
            return False  # joined again, with single blanks
        case ast.Call(func=ast.Attribute(attr=method, value=text), args=arguments):
            is_reading = method in READING_METHODS and is_message(text)
            return is_reading or (method in PATTERN_METHODS and any(map(is_message, arguments)))
    return False


def messages_read(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every expression that looks at the words of a message."""
    for node in ast.walk(ast.parse(source)):
        if reads_message(node):
            yield node.lineno, ast.unparse(node)


def test_no_decision_reads_the_words_of_a_message() -> None:
    """What a failure is, its kind says; its text is made from that, and for people alone."""
    wrong, used = [], set()
    for path in [*sources("slurm_jobs"), *sources("pipeline")]:
        name = name_of(path)
        for line, expression in messages_read(path.read_text(encoding="utf-8")):
            used.add((name, expression))
            if expression not in MESSAGES_READ.get(name, {}):
                wrong.append(f"{name}:{line}: {expression}")
    assert wrong == [], "give the value a kind, and decide by that"
    allowed = {(name, text) for name, texts in MESSAGES_READ.items() for text in texts}
    assert allowed - used == set(), "no longer there"


@pytest.mark.parametrize(
    "planted",
    [
        'if error.reason.startswith("x"):\n    pass',
        'found = "timed out" in str(error).lower()',
        'is_late = entry["why"] == LATE',
        "match = PATTERN.search(problem)",
    ],
)
def test_a_decision_that_reads_a_message_is_found(planted: str) -> None:
    assert [line for line, _ in messages_read(planted)] == [1]


@pytest.mark.parametrize("package", ["slurm_jobs", "pipeline"])
def test_no_comment_stands_alone_between_blank_lines_at_the_margin(package: str) -> None:
    """Such a comment opens a new topic, and then the file is two files."""
    alone = re.compile(r"(?<=\n\n)# .*\n(?:#.*\n)*(?=\n|\Z)")
    sections = []
    for path in sources(package):
        text = path.read_text(encoding="utf-8")
        for comment in alone.finditer(text):
            line = text.count("\n", 0, comment.start()) + 1
            sections.append(f"{name_of(path)}:{line}")
    remedy = "divide the file, or put the comment directly above what it is about"
    assert not sections, f"{', '.join(sections)}: {remedy}"


def test_the_linter_reads_every_python_file() -> None:
    """A pattern in ruff's settings that leaves out a folder does so at every depth."""
    command = [sys.executable, "-m", "ruff", "check", "--show-files", "."]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    linted = {Path(line) for line in shown.splitlines()}
    for package in ("slurm_jobs", "pipeline", "tests", "benchmarks", "docs"):
        unseen = set((ROOT / package).rglob("*.py")) - linted
        assert not unseen
