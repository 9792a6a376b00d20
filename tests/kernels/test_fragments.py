"""The emulator's mma and ldmatrix against another writing of their layouts: CuTe's.

CuTe (mma_traits_sm80.hpp, SM80_16x8x16_F32F16F16F32_TN) gives each operand a layout from (thread,
value) to a place in the column-major matrix; the emulator follows the PTX manual's tables. A kernel
that is right on the emulator by a shared mistake about a fragment would be wrong on a GPU.
"""

import ctypes

import torch

from sparse_mla import emulated

# ((4, 8), values) : strides, into an index m + rows * k
LEFT = ((32, 1), (16, 8, 128), 16)
RIGHT = ((16, 1), (8, 64), 8)
RESULT = ((32, 1), (16, 8), 16)


def places(layout):
    """[32 lanes, values, 2]: the row and column that each value of each lane has."""
    threads, values, rows = layout
    found = torch.zeros(32, 2 ** len(values), 2, dtype=torch.long)
    for lane in range(32):
        for value in range(2 ** len(values)):
            index = lane % 4 * threads[0] + lane // 4 * threads[1]
            index += sum((value >> bit & 1) * stride for bit, stride in enumerate(values))
            found[lane, value] = torch.tensor([index % rows, index // rows])
    return found


def fragments(matrix, layout):
    """[32, values]: each lane's values of a matrix."""
    at = places(layout)
    return matrix[at[..., 0], at[..., 1]]


def words(halves):
    """[32, n] float16 as [32, n / 2] 32-bit words, the first half low."""
    return halves.contiguous().view(torch.int32)


def test_mma_multiplies_what_cutes_layouts_say():
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(16, 16, generator=generator).half()
    right = torch.randn(8, 16, generator=generator).half()  # [n, k]
    added = torch.randn(16, 8, generator=generator)
    operands = torch.cat(
        [
            words(fragments(left, LEFT)),
            words(fragments(right, RIGHT)),
            fragments(added, RESULT).view(torch.int32),
        ],
        dim=1,
    ).contiguous()
    result = torch.zeros(32, 4, dtype=torch.int32)

    emulated.conversions().sparse_mla_multiply(pointer(operands), pointer(result))

    expected = added.double() + left.double() @ right.double().T
    torch.testing.assert_close(result.view(torch.float32), fragments(expected, RESULT).float())


def test_ldmatrix_gives_the_left_operands_fragments():
    matrix = torch.arange(256, dtype=torch.float16).view(16, 16)
    result = torch.zeros(32, 4, dtype=torch.int32)

    emulated.conversions().sparse_mla_load(pointer(matrix), 0, pointer(result))

    assert torch.equal(result, words(fragments(matrix, LEFT)))


def test_ldmatrix_transposes_each_8x8_matrix():
    matrix = torch.arange(256, dtype=torch.float16).view(16, 16)
    result = torch.zeros(32, 4, dtype=torch.int32)

    emulated.conversions().sparse_mla_load(pointer(matrix), 1, pointer(result))

    # As the right operand [n, k]: k runs down the rows, n over columns 0-7 and then 8-15.
    halves = [words(fragments(matrix[:, n : n + 8].T, RIGHT)) for n in (0, 8)]
    assert torch.equal(result, torch.cat(halves, dim=1))


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())
