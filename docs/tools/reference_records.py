"""docs/reference/records.md, from the dataclasses and types that the records are written by."""

from __future__ import annotations

import re

import source_docs as source

from pipeline.data.disk_format.index import INDEX_TYPES
from slurm_jobs.formats.node_records.probe_measures import MEASURES
from slurm_jobs.formats.timings.step_records import DEVICE_FIELDS, STEP_FIELDS
from slurm_jobs.formats.timings.system_readings import GPU_FIELDS, HOST_FIELDS

INTRO = """\
# Records and files of a run

A run is a folder of plain files, and all that `status`, `resume` and `report` know is read from \
them. JSON files hold the fields below under the same names. In `run.json`, orders, attempts, \
completions and probes a field with a default may be missing (an older version wrote them), and \
fields that are not known (a newer one did) are passed over. Where a quantity has a unit, its \
name ends in it.
"""
_TIMINGS, _SYSTEM = (
    "slurm_jobs.formats.timings.step_records",
    "slurm_jobs.formats.timings.system_readings",
)
_RECORDS, _INTENTS = "slurm_jobs.formats.records.attempt_records", "slurm_jobs.run_folder.ledger"
_CONTEXT = "slurm_jobs.formats.records.task_context"
_PROBES, _INFO = (
    "slurm_jobs.formats.node_records.probe_measures",
    "pipeline.data.disk_format.dataset_info",
)
_WORDS = {"i8": "int64", "i4": "int32", "f8": "float64", "f4": "float32"}


def page() -> str:
    """The folder, then each record."""
    return INTRO + "".join(
        (
            _section("The folder", _body("slurm_jobs.run_folder.paths")),
            _record("`run.json`", "slurm_jobs.run_folder.run_values", "RunMeta"),
            _ledger(),
            _record("`jobs/TOKEN/job.json`", "slurm_jobs.run_folder.orders", "JobOrder"),
            _record(
                "`resources` of an order",
                "slurm_jobs.formats.records.job_resources",
                "JobResources",
            ),
            _record("`attempts/STAGE/*.json`", _RECORDS, "AttemptRecord"),
            _completions(),
            _record("`tasks/STAGE/ATTEMPT/context.json`", _CONTEXT, "TaskContext"),
            _record("What the scheduler accounts", _RECORDS, "TaskAccounting"),
            _steps(),
            _system(),
            _dataset(),
            _probes(),
        )
    )


def _section(title: str, body: str) -> str:
    return f"\n## {title}\n\n{body.strip()}\n"


def _body(module: str) -> str:
    """A module's docstring without its first line."""
    return source.module_doc(module).partition("\n\n")[2]


def _record(title: str, module: str, name: str) -> str:
    said = source.doc_of(source.class_node(module, name))
    return _section(title, f"`{module}.{name}`: {said}\n\n{source.field_table(module, name)}")


def _ledger() -> str:
    kinds = source.constant_doc(_INTENTS, "EntryKind")
    entry, intent = source.field_table(_INTENTS, "Entry"), source.field_table(_INTENTS, "Intent")
    parts = (
        _body("slurm_jobs.run_folder.ledger"),
        kinds,
        entry,
        "Read back, the entries of one token are an intent:",
        intent,
    )
    return _section("`ledger/000001.json`", "\n\n".join(parts))


def _completions() -> str:
    outcome = source.constant_doc(_RECORDS, "Outcome")
    body = f"`{_RECORDS}.CompletionRecord`: how an attempt ended. {outcome}\n\n"
    return _section(
        "`completions/STAGE/*.json`", body + source.field_table(_RECORDS, "CompletionRecord")
    )


def _steps() -> str:
    rows = []
    for name, code in STEP_FIELDS:
        meaning = source.comments(_TIMINGS).get(name, "")
        if name in DEVICE_FIELDS:
            meaning = source.constant_doc(_TIMINGS, "DEVICE_FIELDS")
        rows.append((f"`{name}`", f"`{_WORDS[code]}`", meaning))
    table = source.table(("field", "type", "meaning"), rows)
    return _section(
        "`timing/STAGE/ATTEMPT/rank-00000.steps`",
        f"{_body(_TIMINGS)}\n\n{table}",
    )


def _system() -> str:
    said = source.comments(_SYSTEM)
    names = ("unix_s", "interval_s", *HOST_FIELDS, *GPU_FIELDS, "number")
    kinds = {"unix_s": "float64", "number": "int32"}
    kinds |= dict.fromkeys(GPU_FIELDS, "float32, one a GPU")
    rows = [(f"`{n}`", f"`{kinds.get(n, 'float32')}`", said.get(n, "")) for n in names]
    table = source.table(("field", "type", "meaning"), rows)
    return _section("`timing/STAGE/ATTEMPT/node-00000.system`", f"{_body(_SYSTEM)}\n\n{table}")


def _dataset() -> str:
    lies = source.module_doc(_INFO)
    info = [_record("`dataset.json`", _INFO, "DatasetInfo").replace("\n\n`", f"\n\n{lies}\n\n`", 1)]
    info.append(_record("`shards` of `dataset.json`", _INFO, "ShardInfo"))
    info.append(_record("`index` of `dataset.json`", _INFO, "IndexInfo"))
    said = {
        f.name: f.meaning for f in source.fields("pipeline.data.disk_format.index", "DatasetIndex")
    }
    rows = []
    for name, kind in INDEX_TYPES.items():
        meaning = re.sub(rf"^{kind.name}[.:,]? ?", "", said[name])
        rows.append((f"`{name}`", f"`{kind.name}`", meaning))
    table = source.table(("column", "type", "meaning"), rows)
    body = source.module_doc("pipeline.data.disk_format.index")
    return "".join(info) + _section("`index.arrow`", f"{body}\n\n{table}")


def _probes() -> str:
    rows = [(f"`{m.name}`", m.unit, m.label, f"`{m.group}`") for m in MEASURES]
    table = source.table(("number", "unit", "measure", "group"), rows)
    record = _record("Probes of nodes", _PROBES, "NodeProbe")
    return f"{record}\nWhat `numbers` may hold:\n\n{table}"
