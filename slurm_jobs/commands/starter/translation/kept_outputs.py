"""Names, data, checkpoints and trackers of another tool's training."""

from __future__ import annotations

from typing import Any, get_args

from slurm_jobs.commands.starter.other_tools.mixed_sets import is_by_weight
from slurm_jobs.commands.starter.other_tools.tool_table import Meaning
from slurm_jobs.commands.starter.translation.translation import Translation
from slurm_jobs.formats.configs.training_parts import TrackerName
from slurm_jobs.spec.overrides.text_edits import inline_text

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
    _translate_trackers(translation)


def _positive(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 1 else None


def _account_data(translation: Translation) -> None:
    facts, start = translation.facts, translation.start
    how = "downloaded by the stage `models`" if facts.model.is_on_hub else "`model.path`"
    if facts.model.is_on_hub and translation.training.tool.is_on_modelscope:
        how += " from the Hugging Face hub: check that the name means the same as on ModelScope"
    translation.account("model", "kept", f"{facts.model.name}, {how}")
    text = f"`manifest: {inline_text(facts.data.written_manifest)}`"
    if start.awaited is not None and start.awaited.download:
        text += f"; get it first: `{start.awaited.download}`"
    if start.left_out:
        text += f"; left out: {', '.join(start.left_out)}"
    translation.account("data", "translated", text)
    translation.account("data_folder", "translated", text)
    root = facts.data.image_root
    roots = [entry["image_root"] for entry in facts.data.entries if "image_root" in entry]
    of_images = "its images are found from the manifest"
    if root is not None or roots:
        of_images = f"`image_root: {root or roots[0]}`"
    translation.account("image_folder", "translated", of_images)
    columns = [each.columns for each in start.data if each.columns]
    if columns:
        translation.account("data_columns", "translated", f"`columns: {inline_text(columns[0])}`")
    else:
        reason = "`columns` has no such key" if start.data else "the data are not those of the file"
        translation.without(["data_columns"], reason)
    _account_mixing(translation)
    _account_most_rows(translation)


def _account_mixing(translation: Translation) -> None:
    """State how the samples of several data sets are mixed."""
    training = translation.training
    if any("weight" in each.proportion for each in translation.start.data):
        text = (
            "`weight` of each manifest, from all of its rows; there are as many samples as in all "
            "manifests"
        )
        translation.account_all(["mix_strategy", "mix_weights"], "translated", text)
    elif not is_by_weight(training):
        once = "each sample comes once, if `manifest` says nothing else"
        translation.account("mix_strategy", "kept", once)
        translation.without(["mix_weights"], once)
    else:
        reason = "there is one data set"
        if len(translation.start.data) > 1:
            reason = "it is not a number above 0 for each data set: set each `weight` yourself"
        translation.without(["mix_strategy", "mix_weights"], reason)


def _account_most_rows(translation: Translation) -> None:
    """State what became of the most rows of each data set."""
    start, data = translation.start, translation.facts.data
    most = translation.training.count("max_rows")
    if any(entry.get("num_samples") == most for entry in data.entries):
        text = f"`num_samples: {most}` in `manifest`, drawn by `seed` instead of the first rows"
        translation.account("max_rows", "translated", text)
    elif not start.data or data.num_rows is None:
        reason = "the number of rows is not known: set `num_samples` in `manifest` if it is larger"
        translation.without(["max_rows"], reason)
    elif any("weight" in each.proportion for each in start.data):
        translation.without(["max_rows"], "`weight` says how many samples are drawn")
    else:
        translation.account("max_rows", "kept", "no data set has more rows")


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
