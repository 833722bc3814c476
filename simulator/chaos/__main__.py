"""`python -m simulator.chaos --seeds N [--first K] [--patience X]`."""

import asyncio
import logging
from typing import Annotated

import typer

from simulator.chaos.run import run


def main(
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds")] = 5,
    first: Annotated[int, typer.Option(min=0, help="first seed")] = 1,
    patience: Annotated[float, typer.Option(min=1, help="factor for all time limits")] = 1,
) -> None:
    """Inject faults into a real control plane, and check that gangs stay whole."""
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # connections that faults cut
    bad = asyncio.run(run(range(first, first + seeds), typer.echo, patience))
    if bad:
        raise typer.Exit(1)
    typer.echo(f"{seeds} seeds, no violation")


typer.run(main)
