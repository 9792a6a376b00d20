"""`./tools/bench kv_layout`: what a layout costs in a transfer, what LayerSplit stores and moves.

transfers      LBHNC against BLHNC, each between two real engines, read in turn
split_prefill  LayerSplit on 2 and 4 ranks over gloo
"""

import argparse
import itertools
import sys
from dataclasses import replace
from pathlib import Path

from benches.kv_layout import split_prefill, transfers
from benches.report import Figure, finish
from launcher import model

RANKS = (2, 4)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="./tools/bench kv_layout",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=("transfers", "split_prefill"))
    parser.add_argument("--context", type=int, default=4000, help="tokens of the prompt")
    parser.add_argument("--reads", type=int, default=15, help="timed reads of each layout")
    parser.add_argument(
        "--kv-dtype",
        nargs="+",
        default=["auto", "fp8"],
        help="as vLLM's --kv-cache-dtype, each with engines of its own; auto is bfloat16",
    )
    parser.add_argument(
        "--over",
        nargs="+",
        default=list(transfers.TRANSPORTS),
        choices=transfers.TRANSPORTS,
        help="NIXL's way: the host's memory as UCX chooses, or TCP",
    )
    parser.add_argument(
        "--model-dir", type=Path, help="a model of vLLM's; SmolLM2-135M if not given"
    )
    args = parser.parse_args()
    figures: list[Figure] = []
    if args.only != "transfers":
        figures += [figure for ranks in RANKS for figure in split_prefill.measure(ranks)]
    if args.only != "split_prefill":
        model_dir = args.model_dir or model.ensure("smollm2")
        for transport, kv_dtype in itertools.product(args.over, args.kv_dtype):
            load = transfers.Load(model_dir, args.context, args.reads, kv_dtype, transport)
            name = f"{kv_dtype} over {transport}: "
            figures += [replace(each, name=name + each.name) for each in transfers.measure(load)]
    return finish("kv_layout", figures)


if __name__ == "__main__":
    sys.exit(main())
