"""`slurm-jobs init [FOLDER]`: inspect the cluster and the data, and write a first spec."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slurm_jobs.cli.options import command_text, path_of, print_json, shown_path, with_short_path
from slurm_jobs.commands.starter_data import DEFAULT_MODEL, Place, existing, inspect_weights
from slurm_jobs.shared.errors import InputError, SpecError, plain

if TYPE_CHECKING:
    from slurm_jobs.commands.init import WrittenSpec


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=path_of,
        default=Path("configs"),
        help="where the files go (default: configs)",
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        help="your manifest, or a folder of images with texts next to them",
    )
    parser.add_argument("--model", help="a folder, or OWNER/NAME on the Hugging Face hub")
    parser.add_argument("--name", help="of the spec and its runs (default: finetune)")
    parser.add_argument(
        "--recipe",
        metavar="RECIPE",
        help="begin with this recipe instead; `all` copies all of them",
    )
    parser.add_argument("--account", help="Slurm's account, where you have several")
    parser.add_argument("--partition", help="for jobs with GPUs, where there are several")
    parser.add_argument(
        "--local", action="store_true", help="jobs run on this machine, also where there is Slurm"
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing")


def run_init(options: argparse.Namespace) -> int:
    """Inspect, ask, write, and check the result like `check --cluster`."""
    from slurm_jobs.cli.plan import check_cluster
    from slurm_jobs.commands.init import Request, begin, inspect_cluster
    from slurm_jobs.commands.read_spec import load
    from slurm_jobs.commands.stage_packages import package_notes

    _refuse_wrong(options)  # before Slurm is asked, which takes seconds
    place = inspect_cluster(
        account=options.account, partition=options.partition, is_local=options.local
    )
    given = {"data": options.data, "model": options.model}
    if not (options.yes or options.json or options.recipe) and sys.stdin.isatty():
        place, given = ask(place, given)
    named = {"--account": options.account, "--partition": options.partition}
    request = Request(
        folder=options.folder,
        name=options.name,
        data=given["data"],
        recipe=options.recipe,
        named={option: value for option, value in named.items() if value is not None},
        **({"model": given["model"]} if given["model"] else {}),
    )
    written = begin(request, place)
    problems: list[str] = []
    notes: list[str] = []
    try:
        loaded = load(written.spec, to_submit=True)
        notes += [*check_cluster(loaded), *(str(with_short_path(note)) for note in loaded.notes)]
        notes += package_notes(loaded)
    except SpecError as error:
        problems += [str(with_short_path(problem)) for problem in error.problems]
    if options.json:
        print_json(
            {
                "spec": str(written.spec.absolute()),
                "files": [str(path) for path in written.files],
                "kept": [str(path) for path in written.kept],
                "said": list(written.said),
                "problems": problems,
                "notes": notes,
            }
        )
    else:
        _print_written(written, place, problems, notes, is_local=options.local)
    return 2 if problems else 0


def _refuse_wrong(options: argparse.Namespace) -> None:
    """Raise InputError for options that exclude each other, and what is invalid or not there."""
    from slurm_jobs.commands.init import ALL, recipe_text
    from slurm_jobs.spec.value_types import check_name

    local_options = [
        f"--{name}" for name in ("data", "model") if getattr(options, name) is not None
    ]
    message = ""
    if options.recipe is not None and local_options:
        message = (
            f"{local_options[0]} is for your own data, but a recipe includes data; leave out one "
            "of the two"
        )
    elif options.recipe == "all" and options.name is not None:
        message = "--name is for one spec, and --recipe all copies several"
    elif options.name is not None:
        try:
            check_name(options.name)
        except ValueError as error:
            message = f"--name {options.name}: {error}"
    if message:
        raise InputError(message)
    if options.recipe not in {None, ALL}:
        recipe_text(options.recipe)
    if options.data is not None:
        existing(options.data)
    if options.model is not None:
        inspect_weights(options.model, as_named=options.model)


def _print_written(
    written: WrittenSpec, place: Place, problems: list[str], notes: list[str], *, is_local: bool
) -> None:
    from slurm_jobs.commands.init import NONE_READ
    from slurm_jobs.commands.starter.gpu_choice import room_text

    where = "jobs run on this machine"
    here = f"{where} (--local)" if is_local else f"no Slurm here: {where}"
    print(f"cluster: {place.name}" if place.is_slurm else here)
    print(f"CPU jobs: {room_text(place.cpu)}")
    print(f"GPU jobs: {room_text(place.gpu)}" if place.gpu else "GPUs: none found")
    unread = [] if problems else [line for line in written.said if line.startswith(NONE_READ)]
    for line in (*place.notes, *written.said):
        if line not in unread:
            print(line)
    for path in written.files:
        print(f"wrote {shown_path(path.absolute())}")
    for path in written.kept:
        print(f"kept {shown_path(path.absolute())}: it is as it would be written")
    for note in notes:
        print(f"note: {note}")
    spec = shown_path(written.spec.absolute())
    if problems:
        check = command_text("check", spec, *(["--cluster"] if place.is_slurm else []))
        print("\n".join([*problems, f"fix that, then: {check}"]), file=sys.stderr)
        return
    print(f"{spec}: no problems found")
    for line in unread:
        print(f"note: {line}; a run would reject these rows, so check the files first")
    print(f"next: {command_text('plan', spec)}")
    print(f"then: {command_text('submit' if place.is_slurm else 'run', spec)}")


# Questions of `init` on a terminal: data, model, account, partition.
#
# Enter accepts the default. Questions go to standard error: standard output lists the files.


T = TypeVar("T")
_DEFAULT = "Slurm's default"


def ask(place: Place, given: Mapping[str, Any]) -> tuple[Place, dict[str, Any]]:
    """Ask for what is missing; see the module.

    Returns:
        The place with the user's choices, and `data` and `model`.

    Raises:
        InputError: the input ended before all was answered.
    """
    answers = dict(given)
    if answers["data"] is None:
        what = "your manifest or folder of images (Enter: the demo, which brings its own)"
        answers["data"] = _valid_answer(what, lambda text: existing(Path(text)))
    if answers["data"] is None:
        return place, answers
    if answers["model"] is None:
        what = f"model: a folder, or OWNER/NAME on the hub [{DEFAULT_MODEL}]"
        model = _valid_answer(what, lambda text: inspect_weights(text, as_named=text))
        answers["model"] = model.name if model is not None else ""
    if len(place.accounts) > 1:
        account = _one_of("account", (_DEFAULT, *place.accounts), place.account or _DEFAULT)
        place = dataclasses.replace(place, account=None if account == _DEFAULT else account)
    if len(place.gpu_rooms) > 1 and place.gpu is not None:
        names = {
            f"{room.partition}:{room.gpu_type}" if room.gpu_type else str(room.partition): room
            for room in place.gpu_rooms
        }
        default = next(name for name, room in names.items() if room == place.gpu)
        place = dataclasses.replace(place, gpu=names[_one_of("GPUs", list(names), default)])
    return place, answers


def _valid_answer(question: str, parse: Callable[[str], T]) -> T | None:
    """Ask until the answer can be parsed; return None for Enter."""
    while text := _answer(question):
        try:
            return parse(text)
        except (InputError, OSError) as error:
            problem = f"{text}: {error.strerror}" if isinstance(error, OSError) else str(error)
            print(plain(problem), file=sys.stderr)
    return None


def _one_of(what: str, known: Sequence[str], default: str) -> str:
    while True:
        text = _answer(f"{what}: {', '.join(known)} [{default}]") or default
        if text in known:
            return text
        print(f"none of {', '.join(known)}: {text}", file=sys.stderr)


def _answer(question: str) -> str:
    print(f"{question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.endswith("\n"):  # Ctrl-D: the user wants to stop
        print(file=sys.stderr)
        message = "nothing was written: the input ended; --yes asks nothing"
        raise InputError(message)
    return line.strip()
