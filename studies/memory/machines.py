"""Write into each recipe on which machines it fits by the memory plan: for each card the smallest number of cards of one machine.

``python -m studies.memory.machines`` prints the lines, ``--write`` puts them into the recipes, and ``--sizes`` prints the
smallest machines by size of the model, for docs/will_it_fit.md.
"""

from __future__ import annotations

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(description="On which machines do the recipes fit?")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    options = parser.parse_args()
    from studies.memory.recipe_machines import print_recipes, print_sizes  # imports torch

    if options.sizes:
        print_sizes()
    else:
        print_recipes(options.write)


if __name__ == "__main__":
    main()
