"""The plan as a table, and what the command says to wrong input."""

import pytest

from kv_layout.__main__ import main


def lines_of(capsys, *arguments):
    assert main(["plan", *arguments]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_long_request_of_glm_5_takes_one_descriptor_per_block_or_one_per_layer_and_block(capsys):
    lines = lines_of(capsys, "--model", "glm-5", "--context", "200000")
    descriptors = {(line[0], line[2]): line[6] for line in lines[2:]}

    assert descriptors["LBHNC", "1,024"] == "30,968"  # (79 latent + 79 indexer layers) * 196
    assert descriptors["BLHNC", "64"] == "3,125"


def test_the_same_bytes_move_whatever_the_layouts(capsys):
    lines = lines_of(
        capsys, "--model", "llama-3.1-70b", "--context", "4096", "--from", "LBNHC", "--to", "BLHNC",
        "--block", "64", "--source-tp", "8", "--target-tp", "2",
    )  # fmt: skip

    (row,) = lines[2:]
    assert row[-3:] == ["20,480", "671.1", "32,768"]  # a quarter each is one source rank's head


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "glm-6"], "expected a model of glm-5, glm-5.2, deepseek-v3.2, "),
        (["--model", "glm-5", "--kv-dtype", "int4"], "expected a KV dtype of bf16, fp8, "),
        (["--model", "glm-5", "--from", "HND"], "expected a layout of LBHNC, LBNHC, "),
        (["--model", "glm-5", "--block", "0"], "block_tokens: expected a whole number from 1"),
        (["--model", "llama-3.1-70b", "--source-tp", "3"], "a tensor-parallel size that divides 8"),
    ],
)
def test_wrong_input_is_answered_with_what_was_expected(arguments, message, capsys):
    assert main(["plan", "--context", "100", *arguments]) == 2
    assert message in capsys.readouterr().err
