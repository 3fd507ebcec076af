"""Run recipes at the small scale of their pages, and put the figures into docs/recipes/.

`python docs/tools/make_recipes.py guide` runs configs/guide.yaml as often as recipes_run/guide.py
says, with the overrides that it names, and fills the marked places of docs/recipes/guide.md.
`--from RUN` takes runs that are there already. On a machine that computes something else the
figures are of little worth: they have the share of time that others held the cores beside them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tools.recipe_pages import fill_page, run_recipe  # noqa: E402


def main() -> None:
    """Write one page or several."""
    names = sorted(path.stem for path in (ROOT / "docs/tools/recipes_run").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "recipes", nargs="+", choices=names, metavar="RECIPE", help=", ".join(names)
    )
    parser.add_argument(
        "--from", dest="runs", action="append", type=Path, default=[], metavar="RUN"
    )
    options = parser.parse_args()
    if options.runs and len(options.recipes) > 1:
        parser.error("--from takes runs of one recipe")
    for name in options.recipes:
        recipe = importlib.import_module(f"docs.tools.recipes_run.{name}")
        spec = f"configs/{name}.yaml"
        runs = options.runs or [run_recipe(spec, recipe.SMALL) for _ in range(recipe.NUM_RUNS)]
        fill_page(name, recipe.SMALL, recipe.blocks(runs))


if __name__ == "__main__":
    main()
