"""`python -m kv_layout plan --model glm-5 --context 200000`: what moving one request costs."""

import argparse
import sys
from typing import TypeVar

from kv_layout import models, report
from kv_layout.errors import KVLayoutError
from kv_layout.layouts import KVLayout

Option = TypeVar("Option", int, str)


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; 2 with a line on stderr for what cannot be planned."""
    options = _parser().parse_args(arguments)
    try:
        sys.stdout.write(_plan(options))
    except KVLayoutError as error:
        sys.stderr.write(f"kv_layout: {error}\n")
        return 2
    return 0


def _plan(options: argparse.Namespace) -> str:
    dtypes = {models.LatentModel: "fp8_ds_mla", models.HeadModel: "bf16"}
    model = models.named(options.model)
    kv_dtype = _given(options.kv_dtype, dtypes[type(model)])
    caches = model.caches(kv_dtype)
    pairs = [(layout, layout) for layout in KVLayout]
    if options.source is not None or options.target is not None:
        source = KVLayout.named(_given(options.source, options.target))
        pairs = [(source, KVLayout.named(_given(options.target, options.source)))]
    rows = [
        report.row(
            caches,
            options.context,
            report.Side(source, block, options.source_tp),
            report.Side(target, _given(options.target_block, block), options.target_tp),
        )
        for block in options.block
        for source, target in pairs
    ]
    per_token = sum(cache.token_bytes for cache in caches)
    parts = ", ".join(
        f"{cache.layers} x {cache.heads} {cache.name} of {cache.content_bytes} B"
        for cache in caches
    )
    title = (
        f"{options.model}, {kv_dtype}: {parts} = {per_token:,} B per token; "
        f"{options.context:,} tokens, scattered blocks, read by one rank"
    )
    return report.table(title, rows)


def _given(option: Option | None, otherwise: Option) -> Option:
    """The option; 0 and an empty name are given too, to be refused rather than overlooked."""
    return otherwise if option is None else option


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kv_layout", description=__doc__)
    commands = parser.add_subparsers(required=True)
    plan = commands.add_parser("plan", help="descriptors and bytes of one request's transfer")
    plan.add_argument("--model", required=True, help=", ".join(models.MODELS))
    plan.add_argument("--context", type=int, required=True, help="tokens")
    plan.add_argument("--kv-dtype", help="as vLLM's --kv-cache-dtype; bf16 for the model's own")
    plan.add_argument("--block", type=int, nargs="+", default=[1024, 64], help="tokens per block")
    plan.add_argument("--target-block", type=int, help="the reader's, if another")
    plan.add_argument("--from", dest="source", help="layout of the sender; all six if not given")
    plan.add_argument("--to", dest="target", help="layout of the reader")
    plan.add_argument("--source-tp", type=int, default=1)
    plan.add_argument("--target-tp", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
