"""The built-in stage `probe`: what the nodes of a job can do, measured.

One file a thing that is measured; each returns numbers with their units, or the reason why there
is none. `stage` calls them in turn, each with its share of the time.
"""

from pipeline.probe.stage import run

__all__ = ["run"]
