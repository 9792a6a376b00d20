"""Runs a mutant: `python -m tests.mutants billing ack_before_commit+kill_before_commit`."""

import importlib
import sys


def main(service: str, names: str) -> None:
    """Applies the named patches in order, then runs the service as `python -m <service>` would."""
    mutants = importlib.import_module(f"tests.mutants.{service}").MUTANTS
    for name in names.split("+"):
        if name not in mutants:
            known = ", ".join(sorted(mutants))
            raise SystemExit(f"{service} has no mutant {name!r}; it has: {known}")
        mutants[name]()
    importlib.import_module(f"{service}.__main__").main()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m tests.mutants <service> <mutant>[+<mutant>...]")
    main(sys.argv[1], sys.argv[2])
