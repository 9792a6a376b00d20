"""The row's small formats: the emulator's conversions and the reference's, against torch's own.

Three writings of each format that share nothing: torch's casts, the reference's tables in float64,
and the emulator's integer arithmetic. Equal means bit for bit. Whole rows are read as the `nvfp4`
package reads them.
"""

import ctypes

import torch

from benches.kernels.rows import every_product
from nvfp4 import golden
from nvfp4 import row as codec_row
from sparse_mla import emulated, reference, row

BYTES = torch.arange(256, dtype=torch.uint8)


def same(left, right):
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def halves(codes):
    return torch.tensor(codes, dtype=torch.int32).to(torch.uint16).view(torch.float16)


def test_all_halves_become_the_floats_that_torch_makes_of_them():
    library = emulated.conversions()

    found = torch.tensor([library.sparse_mla_half_to_float(code) for code in range(65536)])

    assert same(found, halves(range(65536)).float())


def test_floats_round_to_the_halves_that_torch_rounds_them_to():
    library = emulated.conversions()
    values = halves(range(0, 65536, 7)).double()
    values = values[values.isfinite()]
    between = torch.cat([values * factor for factor in (1.0, 1 + 2**-11, 1 - 2**-11, 1 + 2**-12)])
    edges = torch.tensor([65519.9, 65520.0, 1e30, 2**-24, 2**-25, 2**-25 * 1.001, -0.0])
    floats = torch.cat([between.float(), edges, torch.tensor([torch.inf, -torch.inf, torch.nan])])

    found = halves([library.sparse_mla_half_from_float(value) for value in floats.tolist()])

    assert same(found, floats.to(torch.float16))


def test_all_e4m3_bytes_become_exact_halves():
    library = emulated.conversions()

    found = halves([library.sparse_mla_half_from_e4m3(byte) for byte in range(256)])

    assert same(found.double(), BYTES.view(torch.float8_e4m3fn).double())


def test_all_e2m1_codes_become_exact_halves():
    library = emulated.conversions()

    found = halves([library.sparse_mla_half_from_e2m1(code) for code in range(16)])

    assert found.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def test_hoppers_arithmetic_makes_the_same_halves_of_every_pair_of_codes():
    library = emulated.conversions()
    table = torch.tensor([library.sparse_mla_half_from_e2m1(code) for code in range(16)])
    found = (ctypes.c_uint32 * 4)()

    for byte in range(256):
        library.sparse_mla_e2m1_by_arithmetic(ctypes.c_uint32(byte * 0x01010101), found)

        assert [*found] == [int(table[byte & 15] | table[byte >> 4] << 16)] * 4


def test_the_reference_decodes_every_scale_byte_to_its_own_group():
    rows = torch.zeros(32, row.ROW_BYTES, dtype=torch.uint8)
    rows[:, : row.ROPE_AT] = 0x22  # every latent value is 1.0
    rows[torch.arange(32), row.SCALES_AT + torch.arange(32)] = 0x38  # one scale of 1.0 in each row

    values = reference.decode_rows(rows)

    for at in range(32):
        group = at % 8 * 4 + at // 8  # the inverse of 8 (g & 3) + (g >> 2)
        kept = values[at].nonzero().flatten().tolist()
        assert kept == list(range(16 * group, 16 * group + 16))


def test_the_reference_decodes_every_rope_byte_as_torch_does():
    rows = torch.zeros(256, row.ROW_BYTES, dtype=torch.uint8)
    rows[:, row.ROPE_AT] = BYTES

    values = reference.decode_rows(rows)[:, row.LATENT]

    assert same(values, BYTES.view(torch.float8_e4m3fn).double())


def test_products_of_codes_and_scales_are_exact_in_halves():
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    products = codes[:, None] * BYTES.view(torch.float8_e4m3fn).double()

    assert same(products.to(torch.float16).double(), products)


def test_the_codec_and_the_kernel_read_the_same_row():
    # Two packages that import nothing of each other: every scale with every code, every rope byte.
    random = torch.randint(
        0, 256, (200, row.ROW_BYTES), dtype=torch.uint8, generator=torch.Generator().manual_seed(9)
    )
    packed = torch.cat([every_product(), random])

    assert same(reference.decode_rows(packed), golden.dequantise(packed).double())


def test_the_codec_and_the_kernel_give_a_row_the_same_sizes():
    kernel = (row.ROW_BYTES, row.LATENT, row.ROPE, row.GROUP, row.HEAD_SIZE)
    codec = (codec_row.ROW_BYTES, codec_row.LATENT, codec_row.ROPE, codec_row.GROUP)

    assert kernel == (*codec, codec_row.WIDTH)
    assert slice(0, row.ROPE_AT) == codec_row.CODE_BYTES
    assert slice(row.ROPE_AT, row.SCALES_AT) == codec_row.ROPE_BYTES
    assert min(codec_row.SCALE_BYTES) == row.SCALES_AT
    assert max(codec_row.SCALE_BYTES) == row.ROW_BYTES - 1
