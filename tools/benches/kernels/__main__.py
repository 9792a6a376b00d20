"""`./tools/bench kernels`: the 352-byte row, attention over it, what it loses, and the CUDA kernel.

- codec: equality of native and golden, one core's rates, attention's error and speed;
- accuracy: the gain of the scale search and of calibration over amax / 6;
- cuda: what the compilers made of the kernel, and its body on the emulator; no GPU is asked for.

The whole takes tens of minutes on two cores, nearly all of it golden's and the emulator's;
`--short --parts codec` one.
"""

import argparse
import sys
from collections.abc import Callable

from benches.kernels import accuracy, codec, cuda
from benches.report import Figure, finish
from launcher import model

MODEL = "smollm2"
ROWS, SHORT_ROWS = 10_000_000, 100_000
SEEDS, SHORT_SEEDS = 3, 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="./tools/bench kernels", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer rows, draws and cases")
    parser.add_argument("--repeats", type=int, default=40, help="of each timed call")
    parser.add_argument("--parts", nargs="+", help="only these")
    args = parser.parse_args()
    rows, seeds = (SHORT_ROWS, SHORT_SEEDS) if args.short else (ROWS, SEEDS)
    parts: dict[str, Callable[[], list[Figure]]] = {
        "codec": lambda: codec.figures(rows, args.repeats),
        "accuracy": lambda: accuracy.figures(model.ensure(MODEL), seeds),
        "cuda": lambda: cuda.figures(is_full=not args.short),
    }
    chosen = args.parts or list(parts)
    unknown = sorted(set(chosen) - set(parts))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
    return finish("kernels", [figure for name in chosen for figure in parts[name]()])


if __name__ == "__main__":
    sys.exit(main())
