"""``python -m simulator``: the command ``tilecast``."""

from simulator.cli import main

main()
