"""What the recipes beside it need besides built-in stages: folders of models, and data to try on.

`models` downloads folders from the Hugging Face hub, or links those of a folder that you have: on
nodes without a network, and for tests with tiny weights. `chats` renders the demo's pictures with
conversations about them, so that each recipe runs as it is; put your own manifests in its place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.expand import expand_typed
from slurm_jobs.formats.records.task_context import TaskContext, resume_command

if TYPE_CHECKING:
    import shapes_demo

HUB = "hub"
FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model")
"""Of a model's folder: no code, and no weights as pickles."""
QUESTIONS = {"size": "Which size?", "colour": "Which colour?", "shape": "Which shape?"}
DESCRIBE = "Describe it."
TASKS = {
    "caption": (),
    "colour-shape": ("colour", "shape"),
    "shape-colour": ("shape", "colour"),
    "size-colour": ("size", "colour"),
    "shape-size": ("shape", "size"),
}
"""What is asked before the picture is described, in this order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelsConfig:
    """Which folders, and where they come from."""

    models: dict[str, str]
    """Names on the hub by the names that the output folder has for them."""
    source: str = HUB
    """`hub`, or a folder with one of each name."""
    revisions: dict[str, str] = field(default_factory=dict)
    """Commits or tags on the hub, by the same names; the newest where none is given."""


def models(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Put each model's folder, or a link to it, into the output folder."""
    settings = build_config(ModelsConfig, config)
    for name in settings.models:
        if settings.source == HUB:
            _download(name, settings, context)
        else:
            _link(Path(expand_typed(settings.source), name), context.output_dir / name)
    return {"models": settings.models, "source": settings.source}


def _download(name: str, settings: ModelsConfig, context: TaskContext) -> None:
    """Download the files of a model that are not there yet."""
    from huggingface_hub import constants, snapshot_download

    from pipeline.models.hub import DOWNLOAD_ERRORS, download_failure, failure_text

    on_hub, place = settings.models[name], context.output_dir / name
    if place.is_symlink():  # to the user's folder, by an attempt with another `source`
        place.unlink()
    revision = settings.revisions.get(name)
    try:
        snapshot_download(on_hub, revision=revision, local_dir=place, allow_patterns=list(FILES))
    except DOWNLOAD_ERRORS as error:
        failure = download_failure(error)
        if failure is None:
            raise
        if failure.kind not in {"unreachable", "offline"}:
            message = failure_text(failure, on_hub, revision)
            raise (StageError if failure.is_transient else StageConfigError)(message) from error
        downloads = " and ".join(
            f"`hf download {model}{_revision(settings, folder)} --local-dir FOLDER/{folder}`"
            for folder, model in settings.models.items()
        )
        option = f"stages.{context.stage}.config.source=FOLDER"
        message = (
            f"cannot download {on_hub} from {constants.ENDPOINT}: {context.node_name} has no "
            f"network, or does not reach it ({failure.cause}). On a machine with a network: "
            f"{downloads}; copy FOLDER to where the nodes read it, then "
            f"`{resume_command(context.run_dir, '--set', option)}`"
        )
        raise StageError(message) from error  # a retry may succeed after a short fault


def _revision(settings: ModelsConfig, name: str) -> str:
    return f" --revision {settings.revisions[name]}" if name in settings.revisions else ""


def _link(folder: Path, place: Path) -> None:
    if not (folder / "config.json").is_file():
        message = (
            f"source: {folder.absolute()} has no config.json: give a folder that has a model as "
            f"{folder.name}/, or `hub`"
        )
        raise StageConfigError(message)
    if place.is_dir() and not place.is_symlink():  # a download, perhaps of a part
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(folder.resolve(), target_is_directory=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatsConfig:
    """How many pictures, and what is said about them."""

    task: str = "caption"
    """One of `TASKS`."""
    num_train: int = 2_000
    num_heldout: int = 96
    max_side_px: int = 200
    seed: int = 0


def chats(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Write pictures, `train.jsonl` and `heldout.jsonl` with the task's conversations.

    Raises:
        StageConfigError: there is no such task.
    """
    settings = build_config(ChatsConfig, config)
    if settings.task not in TASKS:
        message = f"task is {settings.task!r}: give one of {', '.join(TASKS)}"
        raise StageConfigError(message)
    pictures = draw_pictures(
        {
            "num_train": settings.num_train,
            "num_heldout": settings.num_heldout,
            "max_side_px": settings.max_side_px,
            "seed": settings.seed,
        },
        context,
    )
    out_dir = context.output_dir
    for split, drawn in pictures.items():
        rows = (json.dumps(conversation(p, settings.task, out_dir)) + "\n" for p in drawn)
        write_text_atomic(out_dir / f"{split}.jsonl", "".join(rows))
    return {"task": settings.task, "num_train": settings.num_train}


def draw_pictures(
    settings: Mapping[str, Any], context: TaskContext
) -> dict[str, list[shapes_demo.Picture]]:
    """The demo's pictures, none of them broken, and its processor; by split, what is on each."""
    import shapes_demo  # not needed for `models`

    unbroken = {**settings, "num_broken": 0}
    shapes_demo.render(unbroken, context)
    drawn = build_config(shapes_demo.RenderConfig, unbroken)
    return {
        split: shapes_demo.plan_pictures(drawn, context.output_dir, split, number, 0)
        for split, number in (("train", drawn.num_train), ("heldout", drawn.num_heldout))
    }


def check_image_size(image_size: int) -> None:
    """Refuse a size that patches do not fill.

    Raises:
        ValueError: it is not a multiple of the patch size.
    """
    import shapes_demo

    patch = shapes_demo.PATCH_SIZE
    if image_size < patch or image_size % patch:
        message = f"image_size is {image_size}: give a multiple of {patch}"
        raise ValueError(message)


def conversation(picture: shapes_demo.Picture, task: str, out_dir: Path) -> dict[str, Any]:
    """A row: a turn for each thing that is asked, the last one the description."""
    import shapes_demo

    row = shapes_demo.manifest_row(picture, out_dir)
    (asked, said), turns = row["messages"], []
    for name in TASKS[task]:
        turns.append(turn("user", QUESTIONS[name]))
        turns.append(turn("assistant", getattr(picture, name)))
    turns += [turn("user", DESCRIBE) if turns else asked, said]
    if TASKS[task]:
        turns[0]["content"].insert(0, {"type": "image"})
    return {**row, "messages": turns}


def turn(role: str, text: str, *, shown: bool = False) -> dict[str, Any]:
    """A message; `shown`: a picture's place is before its text."""
    picture = [{"type": "image"}] if shown else []
    return {"role": role, "content": [*picture, {"type": "text", "text": text}]}
