"""Names, data, checkpoints, evaluation and trackers of another tool's training."""

from __future__ import annotations

from typing import Any, get_args

from slurm_jobs.commands.starter.other_tools.tool_table import Meaning
from slurm_jobs.commands.starter.translation.translation import Translation
from slurm_jobs.formats.configs.training_parts import TrackerName

_TRACKERS = frozenset(get_args(TrackerName))
_NONE = frozenset({"none", "null", "[]"})
_OF_TRACKERS: tuple[Meaning, ...] = (
    "wandb_project",
    "tracker_project",
    "wandb_entity",
    "tracker_run",
)


def translate_outputs(translation: Translation) -> None:
    """Translate what a training is called, reads, saves and reports."""
    training, facts = translation.training, translation.facts
    _account_data(translation)
    translation.account("task", "kept", "supervised fine-tuning is all there is")
    own = "output is stored in the run's folder"
    translation.account("output_dir", "translated", f"`name: {facts.name}`; {own}")
    translation.keep("log_steps", "log_every_steps", _positive(training.number("log_steps")))
    steps = training.number("save_steps")
    if steps is not None and steps >= 1:
        text = translation.change("checkpoint.every_steps", int(steps))
        translation.account("save_steps", "kept", f"{text}, besides one every 15 minutes")
    else:
        translation.without(["save_steps"], "there is a checkpoint every 15 minutes")
    limit = _positive(training.number("save_limit"))
    translation.keep("save_limit", "checkpoint.keep_last", limit)
    if limit is None:
        translation.without(["save_limit"], "the last two checkpoints are kept")
    if facts.data.evaluation is None:
        no_rows = "there are no held-out rows: give them as `evaluate.manifest`"
        translation.without(["eval_steps"], no_rows)
        translation.without(["held_out_data"], "its rows are not here: set `evaluate.manifest`")
    else:
        every = _positive(training.number("eval_steps"))
        translation.keep("eval_steps", "evaluate.every_steps", every)
        text = f"`evaluate.manifest: {facts.data.evaluation}`"
        translation.account("held_out_data", "translated", text)
    share = "without a counterpart yet: put held-out rows into a file, `evaluate.manifest`"
    if training.number("held_out_share") == 0:
        translation.account("held_out_share", "kept", "no rows are held out")
    else:
        translation.without(["held_out_share"], share)
    _translate_trackers(translation)


def _positive(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 1 else None


def _account_data(translation: Translation) -> None:
    facts, start = translation.facts, translation.start
    how = "downloaded by the stage `models`" if facts.model.is_on_hub else "`model.path`"
    if facts.model.is_on_hub and translation.training.tool.is_on_modelscope:
        how += " from the Hugging Face hub: check that the name means the same as on ModelScope"
    translation.account("model", "kept", f"{facts.model.name}, {how}")
    text = f"`manifest: {facts.data.manifest}`"
    if start.left_out:
        text += f"; left out, because one data set is trained on: {', '.join(start.left_out)}"
    elif start.download:
        text += f"; get it first: `{start.download}`"
    if start.reference is not None and start.reference.num_rows is not None:
        text += f"; all its rows are used, not {start.reference.num_rows}"
    translation.account("data", "translated", text)
    translation.account("data_folder", "translated", text)
    root = facts.data.image_root
    of_images = (
        "its images are found from the manifest" if root is None else f"`image_root: {root}`"
    )
    translation.account("image_folder", "translated", of_images)


def _translate_trackers(translation: Translation) -> None:
    training = translation.training
    use: list[str] = []
    lost: list[str] = []
    for setting in training.given("trackers"):
        if setting.key.startswith("use_"):
            is_used = str(setting.value).lower() == "true"
            names = [setting.key.removeprefix("use_")] if is_used else []
        else:
            values = setting.value if isinstance(setting.value, list) else [setting.value]
            names = [name.strip() for value in values for name in str(value).split(",")]
        for name in names:
            known = {"comet": "comet_ml"}.get(name, name)
            if known in _TRACKERS:
                use.append(known)
            elif name.lower() not in _NONE:
                lost.append(name)
    project = training.text("wandb_project")
    if project is not None:
        use.append("wandb")
    use = list(dict.fromkeys(use))
    project = project or training.text("tracker_project")
    text = translation.change("trackers.use", use) if use else "no `trackers`"
    if lost:
        text += f"; there is no tracker {', '.join(lost)} here"
    translation.account("trackers", "without" if lost and not use else "kept", text)
    if not use:
        translation.without(_OF_TRACKERS, "no tracker is used")
        return
    if project is not None:
        kept = translation.change("trackers.project", project)
        translation.account("wandb_project", "kept", f"{text}; {kept}")
        translation.account("tracker_project", "kept", kept)
    options: dict[str, Any] = {
        "entity": training.text("wandb_entity"),
        "name": training.text("tracker_run"),
    }
    options = {key: value for key, value in options.items() if value is not None}
    if "wandb" in use and options:
        written = translation.change("trackers.options", {"wandb": options})
        translation.account("wandb_entity", "translated", written)
        translation.account("tracker_run", "translated", written)
    else:
        translation.without(["wandb_entity", "tracker_run"], "the tracker names the run itself")
