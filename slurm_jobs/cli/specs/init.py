"""`slurm-jobs init [FOLDER]`: inspect the cluster and the data, and write a first spec."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import InputError, SpecError
from slurm_jobs.cli.arguments import path_of
from slurm_jobs.cli.specs.init_questions import ask
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path, with_short_path
from slurm_jobs.commands.starter.data_inspection import existing
from slurm_jobs.commands.starter.model_inspection import inspect_weights
from slurm_jobs.commands.starter.starter_facts import JobPlace

if TYPE_CHECKING:
    from slurm_jobs.commands.starter.first_spec import WrittenSpec
    from slurm_jobs.commands.starter.other_tools.start_point import StartPoint


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
        action="append",
        help="your manifest, or a folder of images with texts next to them; several are mixed",
    )
    parser.add_argument(
        "--image-root",
        metavar="FOLDER",
        type=Path,
        help="folder that the paths of images in the manifest start from",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        type=Path,
        help="a training of LLaMA-Factory, axolotl or ms-swift to translate: YAML or a script",
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
    parser.add_argument(
        "--replace",
        action="store_true",
        help="write new files where there are others, which are kept under another name",
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing")


def run_init(options: argparse.Namespace) -> int:
    """Inspect, ask, write, and check the result like `check --cluster`."""
    from slurm_jobs.cli.specs.check import check_cluster
    from slurm_jobs.commands.spec_reading.read_spec import load
    from slurm_jobs.commands.spec_reading.stage_packages import package_notes
    from slurm_jobs.commands.starter.first_spec import Request, begin
    from slurm_jobs.commands.starter.place_choice import inspect_cluster

    _refuse_wrong(options)  # before Slurm is asked, which takes seconds
    start = _start_point(options)
    place = inspect_cluster(
        account=options.account, partition=options.partition, is_local=options.local
    )
    first, *more = options.data or [None]
    given = {"data": first, "model": options.model}
    name, image_root = options.name, options.image_root
    if start is not None:
        given["model"] = options.model or start.model
        name, image_root = name or start.name, image_root or start.image_root
    is_asking = not (options.yes or options.json or options.recipe or start)
    if is_asking and sys.stdin.isatty():
        place, given = ask(place, given)
    named = {"--account": options.account, "--partition": options.partition}
    request = Request(
        folder=options.folder,
        name=name,
        data=given["data"],
        more_data=tuple(more),
        image_root=image_root,
        is_replacing=options.replace,
        recipe=options.recipe,
        start=start,
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
                "keys": [dataclasses.asdict(row) for row in written.account],
            }
        )
    else:
        _print_written(written, place, problems, notes, is_local=options.local)
    return 2 if problems else 0


def _start_point(options: argparse.Namespace) -> StartPoint | None:
    """Return what the file of `--from` names; None without one."""
    from slurm_jobs.commands.starter.other_tools.settings_file import read_training
    from slurm_jobs.commands.starter.other_tools.start_point import start_point

    if options.source is None:
        return None
    return start_point(read_training(options.source), has_data=options.data is not None)


def _refuse_wrong(options: argparse.Namespace) -> None:
    """Raise InputError for options that exclude each other, and what is invalid or not there."""
    from slurm_jobs.commands.starter.shipped_recipes import ALL, recipe_text
    from slurm_jobs.spec.value_types import check_run_name

    local_options = [
        f"--{name}"
        for name in ("data", "image-root", "model")
        if getattr(options, name.replace("-", "_")) is not None
    ]
    local_options += [] if options.source is None else ["--from"]
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
            check_run_name(options.name)
        except ValueError as error:
            message = f"--name {options.name}: {error}"
    if message:
        raise InputError(message)
    if options.recipe not in {None, ALL}:
        recipe_text(options.recipe)
    for path in options.data or ():
        existing(path)
    if options.image_root is not None and not existing(options.image_root).is_dir():
        message = f"--image-root {options.image_root} is a file; name a folder"
        raise InputError(message)
    if options.model is not None:
        inspect_weights(options.model, as_named=options.model)


def _print_written(
    written: WrittenSpec, place: JobPlace, problems: list[str], notes: list[str], *, is_local: bool
) -> None:
    from slurm_jobs.commands.starter.gpu_choice import room_text
    from slurm_jobs.commands.starter.other_tools.account import summary, table_lines

    if place.is_slurm:
        print(f"cluster: {place.name}")
    elif is_local:
        print("jobs run on this machine, because of --local")
    else:
        print("there is no Slurm here, so jobs run on this machine")
    print(f"CPU jobs: {room_text(place.cpu)}")
    print(f"GPU jobs: {room_text(place.gpu)}" if place.gpu else "GPUs: none found")
    for line in (*place.notes, *written.said):
        print(line)
    if written.account:
        print(summary(written.account))
        for line in table_lines(written.account):
            print(line)
    for path in written.files:
        print(f"wrote {shown_path(path.absolute())}")
    for path in written.kept:
        print(f"kept {shown_path(path.absolute())}, which already has this content")
    for note in notes:
        print(f"note: {note}")
    spec = shown_path(written.spec.absolute())
    if problems:
        check = command_text("check", spec, *(["--cluster"] if place.is_slurm else []))
        print("\n".join([*problems, f"fix these problems, then: {check}"]), file=sys.stderr)
        return
    print(f"{spec}: no problems found")
    print(f"next: {command_text('plan', spec)}")
    print(f"then: {command_text('submit' if place.is_slurm else 'run', spec)}")
