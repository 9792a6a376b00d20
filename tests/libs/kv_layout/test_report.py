"""The plan as a table, and what the command says to wrong input."""

from itertools import product

import pytest

from kv_layout.__main__ import main

LAYOUTS = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")


def lines_of(capsys, *arguments):
    assert main(["plan", *arguments]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_long_request_of_glm_5_takes_one_descriptor_per_block_or_one_per_layer_and_block(capsys):
    lines = lines_of(capsys, "--model", "glm-5", "--context", "200000")
    descriptors = {(line[0], line[2]): line[6] for line in lines[2:]}

    assert descriptors["LBHNC", "1,024"] == "30,968"  # (79 latent + 79 indexer layers) * 196
    assert descriptors["BLHNC", "64"] == "3,125"


@pytest.mark.parametrize(("layout", "regions"), [("LBHNC", "158"), ("BLHNC", "1")])
def test_a_context_of_one_block_takes_a_descriptor_per_region(layout, regions, capsys):
    (row,) = lines_of(
        capsys, "--model", "glm-5", "--context", "64", "--block", "64", "--from", layout,
    )[2:]  # fmt: skip

    assert row[4:7] == [regions, "1", regions]


@pytest.mark.parametrize(("source", "target"), list(product(LAYOUTS, LAYOUTS)))
def test_the_same_bytes_move_whatever_the_layouts(source, target, capsys):
    (row,) = lines_of(
        capsys, "--model", "llama-3.1-70b", "--context", "4096", "--from", source, "--to", target,
        "--block", "64", "--source-tp", "8", "--target-tp", "2",
    )[2:]  # fmt: skip

    descriptors, megabytes, mean_bytes = row[-3:]
    assert megabytes == "671.1"  # 4,096 tokens, 80 layers, the 4 heads of one reader, 512 B
    moved = 4096 * 80 * 4 * 512
    assert int(mean_bytes.replace(",", "")) == moved // int(descriptors.replace(",", ""))


def test_a_descriptor_is_what_continues_on_both_sides(capsys):
    (row,) = lines_of(
        capsys, "--model", "llama-3.1-70b", "--context", "4096", "--from", "LBNHC", "--to", "BLHNC",
        "--block", "64", "--source-tp", "8", "--target-tp", "2",
    )[2:]  # fmt: skip

    assert row[-3:] == ["20,480", "671.1", "32,768"]  # a quarter each is one source rank's head


def test_the_size_of_a_descriptor_is_a_rounded_mean(capsys):
    (row,) = lines_of(
        capsys, "--model", "glm-5", "--context", "35", "--block", "7", "--target-block", "5",
        "--from", "LBHNC",
    )[2:]  # fmt: skip

    # 11 stretches between the borders of either block size, in 158 layers; 35 * 62,252 B in all.
    assert row[-3:] == ["1,738", "2.2", "1,254"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "glm-6"], "expected a model of glm-5, glm-5.2, deepseek-v3.2, "),
        (["--model", "glm-5", "--kv-dtype", "int4"], "expected a KV dtype of bf16, fp8, "),
        (["--model", "glm-5", "--from", "HND"], "expected a layout of LBHNC, LBNHC, "),
        (["--model", "glm-5", "--block", "0"], "block_tokens: expected a whole number from 1"),
        (["--model", "glm-5", "--target-block", "0"], "block_tokens: expected a whole number from"),
        (["--model", "glm-5", "--source-tp", "0"], "tensor-parallel size: expected a whole"),
        (["--model", "glm-5", "--target-tp", "-1"], "tensor-parallel size: expected a whole"),
        (["--model", "glm-5", "--from", ""], "expected a layout of LBHNC, LBNHC, "),
        (["--model", "glm-5", "--to", ""], "expected a layout of LBHNC, LBNHC, "),
        (["--model", "glm-5", "--kv-dtype", ""], "expected a KV dtype of bf16, fp8, "),
        (["--model", "llama-3.1-70b", "--source-tp", "3"], "a tensor-parallel size that divides 8"),
    ],
)
def test_wrong_input_is_answered_with_what_was_expected(arguments, message, capsys):
    assert main(["plan", "--context", "100", *arguments]) == 2
    assert message in capsys.readouterr().err
