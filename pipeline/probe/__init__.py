"""Built-in stage `probe`: measures the performance of a job's nodes.

Each file measures one thing and returns numbers with their units, or the reason why there is
none. `stage` calls them in turn, each with its share of the time.
"""

from pipeline.probe.stage import run

__all__ = ["run"]
