"""How every bench ends: a table for people and, last, one JSON line for machines."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value beside its target; `note` is for people only."""

    name: str
    value: float
    unit: str
    target: str
    ok: bool
    note: str = ""


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median, least and most of a series, as one reads it in a table."""
    middle = statistics.median(values)
    return (
        f"median {middle:.{digits}f} of {len(values)}"
        f" ({min(values):.{digits}f}..{max(values):.{digits}f})"
    )


def finish(bench: str, figures: Sequence[Figure]) -> int:
    """Prints the report; returns the exit status: 0 when every target is met."""
    rows = [("figure", "value", "target", "", "")]
    for figure in figures:
        value = f"{figure.value:g} {figure.unit}".strip()
        rows.append(
            (figure.name, value, figure.target, "ok" if figure.ok else "MISSED", figure.note)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[4]]).rstrip())
    lines = [
        {key: value for key, value in asdict(figure).items() if key != "note"} for figure in figures
    ]
    print(json.dumps({"bench": bench, "figures": lines}))
    return 0 if all(figure.ok for figure in figures) else 1
