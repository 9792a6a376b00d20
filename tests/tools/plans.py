"""A plan of the stack for tests that look at processes without starting them."""

from pathlib import Path

from launcher.processes import Plan, Shape, port_names
from launcher.runenv import RunDir


def plan_in(folder: Path, shape: Shape | None = None) -> Plan:
    """A plan with invented ports and secrets; nothing listens on them."""
    shape = shape or Shape()
    return Plan(
        run=RunDir.at(folder),
        shape=shape,
        ports={name: 20_000 + n for n, name in enumerate(port_names(shape))},
        secrets={"POSTGRES_PASSWORD": "p", "SUPERVISOR_PASSWORD": "s", "ADMIN_KEY": "a"},
        model_dir=folder / "model",
    )
