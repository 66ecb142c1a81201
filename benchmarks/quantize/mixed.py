"""What int8, int4 and a mix of schemes take on boards, and what each loses.

    python benchmarks/quantize/mixed.py --boards BOARD... --models MODEL:DATA:MAX_LOSS...

DATA is a file as of ``utvm quantize --data``, or LOW..HIGH: then smooth random inputs take its
place. MAX_LOSS is as of ``--max-loss``. All figures are of the default level. Prints a row for each
model, board and form: the loss, cycles, bytes of flash and of RAM. A mixed form is chosen for each
board.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from accuracy import data_of

from utvm_deploy.boards.board import load_board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.precision.facts import Budgets, Mixed, ModelPrice
from utvm_deploy.quality.precision.mixing import mix
from utvm_deploy.quality.precision.prices import measure
from utvm_deploy.quality.precision.steps import Sensitivities, sensitivities
from utvm_deploy.quality.quantizing.facts import UNIFORM_SCHEMES, Recipe
from utvm_deploy.quality.quantizing.model_steps import quantize_with_recipe


def known(model: str, given: str) -> Sensitivities:
    """What quantizing each layer alone costs."""
    path = Path(model)
    data: object = Path(given)
    if ".." in given:
        graph = load_model(path)
        data = data_of([given], graph.tensors[graph.inputs[0]].shape[1:]).calibration
    return sensitivities(path, data)


def mixed_on(found: Sensitivities, name: str, max_loss: float) -> Mixed:
    """The choice for a board, with the prices of all schemes."""
    board = load_board(name)
    prices = {}
    for scheme in UNIFORM_SCHEMES:
        made = quantize_with_recipe(found.calibration, Recipe.of(scheme))
        prices[scheme] = measure(made.data, board)
    rows = [
        replace(
            row,
            prices={
                scheme: price.layers[row.output]
                for scheme, price in prices.items()
                if row.output in price.layers
            },
        )
        for row in found.rows
    ]
    made_mix, _ = mix(
        found.calibration,
        found.labels,
        rows,
        max_loss=max_loss,
        budgets=Budgets(),
        measure=partial(measure, board=board),
        prices=prices,
    )
    return made_mix


def row(cells: list[str], loss: float, unit: str, price: ModelPrice | None) -> str:
    """A row of the table."""
    assert price is not None
    numbers = (price.ticks, price.flash_bytes, price.ram_bytes)
    loss_cell = f"{loss:.1f} {'points' if unit.startswith('percent') else unit}"
    return f"| {' | '.join([*cells, loss_cell, *(f'{one:,}' for one in numbers)])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", metavar="MODEL:DATA:MAX_LOSS", nargs="+", required=True)
    parser.add_argument("--boards", nargs="+", required=True)
    args = parser.parse_args()
    print("| model | board | form | loss | cycles | flash | RAM |")
    print("|---|---|---|--:|--:|--:|--:|")
    for spec in args.models:
        model, data, max_loss = spec.split(":")
        found = known(model, data)
        for board in args.boards:
            made = mixed_on(found, board, float(max_loss))
            cells = [Path(model).stem, board]
            for scheme in ("int8", "int4"):
                loss, price = made.losses[scheme], made.prices[scheme]
                print(row([*cells, scheme], loss, made.loss_unit, price))
            label = f"mixed: {len(made.narrow)} int4, {len(made.wide)} int16x8"
            print(row([*cells, label], made.loss, made.loss_unit, made.price), flush=True)


if __name__ == "__main__":
    main()
