"""What can be known of the CUDA kernel without a GPU: what the compilers made of it, what its body
does.

Nothing here is a GPU's speed; `kernels/device_check.sh` measures that on one. The floors are
arithmetic.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benches.kernels import nvcc
from benches.kernels.cubin import Variant, compiled
from benches.kernels.emulation import exactness_figures, fusion_figures, race_figure
from benches.report import Figure
from sparse_mla import build, emulated, row
from sparse_mla.device_check import HBM_BYTES_PER_S
from sparse_mla.errors import CompilerMissing
from tests.mutants import sparse_mla as mutants

THREADS = 512
REGISTER_FILE = 65_536
"""32-bit registers of a multiprocessor, on all three targets."""
SHARED_BYTES = 232_448
"""227 KB: what one block may use, on all three targets. The planner counts one block each."""
NATIVE_FP4 = "F2FP.F16.E2M1"
EVERYWHERE = ("HMMA.16816", "LDSM.16.MT88", "UBLKCP", "SYNCS", "UCGABAR", "F2FP.F16.E4M3")
"""Tensor cores, transposed ldmatrix, bulk copies, mbarriers, cluster barriers, native e4m3."""

FLOOR_TOKENS = (15, 20, 35)
"""As `device_check` times them."""
CARDS = {
    "GB200": (HBM_BYTES_PER_S["B200"], 2.5e15),
    "H200": (HBM_BYTES_PER_S["H200"], 0.99e15),
}
"""Bytes of memory and dense FP16 operations a second, from the vendors' sheets: what a floor
assumes, not what anybody measured here."""


def figures(*, is_full: bool = True) -> list[Figure]:
    """Everything; the short set of cases takes a tenth of the full one's minutes."""
    print(floor_table())
    return [
        *compiler_figures(),
        *exactness_figures(is_full=is_full),
        *fusion_figures(),
        race_figure(is_full=is_full),
        mutant_figure(),
    ]


def compiler_figures() -> list[Figure]:
    """Registers, spills, shared memory and instructions on the three targets."""
    found = []
    try:
        print(f"nvcc {nvcc.put_on_path()}; registers, spills and opcodes are its ptxas's")
        for architecture in build.ARCHITECTURES:
            found += _target_figures(architecture, compiled(architecture))
    except (CompilerMissing, nvcc.NotFetched) as error:
        found.append(
            Figure("targets_compiled", 0, "", f"= {len(build.ARCHITECTURES)}", False, str(error))
        )
    shared = max(
        emulated.shared_bytes(tiles, split) for tiles in (1, 2, 4) for split in (False, True)
    )
    found.append(_at_most("shared_bytes_of_a_block", shared, "B", SHARED_BYTES, "largest variant"))
    return found


def _target_figures(architecture: str, variants: Sequence[Variant]) -> list[Figure]:
    registers = max(variant.registers for variant in variants)
    spilled = max(variant.spilled_bytes + variant.stack_bytes for variant in variants)
    local = sum(variant.count("LDL") + variant.count("STL") for variant in variants)
    fp4 = min(variant.count(NATIVE_FP4) for variant in variants)
    missing = [
        f"{prefix} in {variant.row_tiles} tiles"
        for variant in variants
        for prefix in EVERYWHERE
        if not variant.count(prefix)
    ]
    is_native = architecture != "sm_90a"
    one_tile = next(variant for variant in variants if variant.row_tiles == 1)
    four_tiles = next(variant for variant in variants if variant.row_tiles == 4)
    most = four_tiles.highest_register + 1
    # Only with four tiles do roles exchange registers: one then holds more than at its start.
    unlike = [
        f"{variant.row_tiles} tiles"
        for variant in variants
        if (variant.count("USETMAXREG") > 0) != (variant.row_tiles == 4)
    ]
    return [
        _at_most(
            f"registers_{architecture}",
            registers,
            "",
            REGISTER_FILE // THREADS,
            f"one tile {one_tile.registers}; with four, one role moves up to {most}",
        ),
        Figure(
            f"misplaced_register_exchanges_{architecture}",
            len(unlike),
            "",
            "= 0",
            not unlike,
            ", ".join(unlike) or "setmaxnreg with four tiles, and only there",
        ),
        _at_most(
            f"spilled_and_stack_{architecture}",
            spilled,
            "B",
            0,
            f"the most of {len(variants)} variants",
        ),
        _at_most(
            f"local_memory_accesses_{architecture}", local, "", 0, "LDL and STL, all variants"
        ),
        Figure(
            f"native_fp4_conversions_{architecture}",
            fp4,
            "",
            "> 0" if is_native else "= 0: Hopper has none",
            (fp4 > 0) == is_native,
            f"{NATIVE_FP4} in the smallest variant",
        ),
        Figure(
            f"instructions_missing_{architecture}",
            len(missing),
            "",
            "0",
            not missing,
            ", ".join(missing) or ", ".join(EVERYWHERE),
        ),
    ]


def mutant_figure() -> Figure:
    """Broken kernels caught, of all there are."""
    with tempfile.TemporaryDirectory() as folder:
        caught = {mutant.name: mutants.catch(mutant, Path(folder)) for mutant in mutants.MUTANTS}
    survivors = [name for name, how in caught.items() if how is None]
    return Figure(
        "kernel_mutants_caught",
        len(caught) - len(survivors),
        "",
        f"= {len(caught)}",
        not survivors,
        ", ".join(survivors),
    )


def floor_table(slots: int = 2048, heads: int = 16) -> str:
    """What no kernel can beat: bytes over HBM, FLOPs over the tensor cores. Arithmetic only."""
    lines = [
        f"floors of one decode, {heads} heads, {slots} rows a token (arithmetic, not measured):",
        "tokens     MB  GB200 HBM  H200 HBM  GB200 fp16  H200 fp16",
    ]
    for tokens in FLOOR_TOKENS:
        moved = tokens * slots * row.ROW_BYTES
        work = tokens * slots * heads * 2 * (row.HEAD_SIZE + row.LATENT)
        cells = [
            *(f"{moved / bytes_per_s * 1e6:.2f} us" for bytes_per_s, _ in CARDS.values()),
            *(f"{work / flops * 1e6:.2f} us" for _, flops in CARDS.values()),
        ]
        lines.append(
            f"{tokens:6}  {moved / 1e6:5.1f}  {cells[0]:>9}  {cells[1]:>8}  {cells[2]:>10}"
            f"  {cells[3]:>9}"
        )
    return "\n".join(lines)


def _at_most(name: str, value: float, unit: str, limit: float, note: str) -> Figure:
    return Figure(name, value, unit, f"<= {limit:g}", value <= limit, note)
