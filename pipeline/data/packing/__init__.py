"""Samples in packs: pure functions on the lengths of an index, and the file of the result.

`plan.pack_order` packs an epoch by one of `strategies.STRATEGIES`, `files` stores the packs,
`work` computes their cost and `deal` gives every rank an equal amount of it. The reader reads
the samples of a pack and passes segments to the model.
"""

from pipeline.data.packing.budget import (
    OverBudgetError,
    PackBudget,
    Packs,
    check_sizes,
    join_packs,
    too_large,
)
from pipeline.data.packing.deal import WINDOW_GROUPS, deal_by_work, deal_epoch
from pipeline.data.packing.files import open_packs, plan_name, write_packs
from pipeline.data.packing.lower_bound import fewest_packs
from pipeline.data.packing.plan import make_packs, pack_order
from pipeline.data.packing.statistics import Padding, Waits, padding, waits
from pipeline.data.packing.strategies import STRATEGIES
from pipeline.data.packing.work import WorkModel, pack_work, work_model

__all__ = [
    "STRATEGIES",
    "WINDOW_GROUPS",
    "OverBudgetError",
    "PackBudget",
    "Packs",
    "Padding",
    "Waits",
    "WorkModel",
    "check_sizes",
    "deal_by_work",
    "deal_epoch",
    "fewest_packs",
    "join_packs",
    "make_packs",
    "open_packs",
    "pack_order",
    "pack_work",
    "padding",
    "plan_name",
    "too_large",
    "waits",
    "work_model",
    "write_packs",
]
