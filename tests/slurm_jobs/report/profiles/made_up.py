"""Chrome traces as Kineto writes them, of a rank that never ran."""

import gzip
import json


def event(cat, name, start_us, end_us):
    """A piece of work."""
    return {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": end_us - start_us}


def step(number, start_us, end_us, cat="user_annotation"):
    """The range that the recorder draws around a step."""
    return event(cat, f"step {number}", start_us, end_us)


def write_trace(path, *events):
    """A trace with them, and with what else stands in one."""
    others = [{"ph": "M", "name": "process_name", "pid": 1}, {"ph": "i", "cat": "x", "ts": 1}]
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        json.dump({"traceEvents": [*others, *events]}, stream)
    return path
