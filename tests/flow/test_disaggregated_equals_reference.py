"""Greedy answers over prefill, NIXL and decode equal an independent implementation's.

The reference is the transformers library in float32 on the same weights. Prompts cover a part of
one KV block, several blocks, and more than one prefill step (1,024 tokens).
"""

import json
import subprocess
import sys

import pytest

from launcher import model

PROMPTS = [
    "What is the capital of France?",
    "Write one sentence about a fox. " + "The fox is quick. " * 30,
    "Here is a text. "
    + "The quick brown fox jumps over the lazy dog. " * 130
    + "What animal jumps?",
]
TOKENS = 24

REFERENCE = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
torch.set_num_threads(2)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
for prompt in json.load(sys.stdin):
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False)
    made = model.generate(torch.tensor([ids]), max_new_tokens=int(sys.argv[2]), do_sample=False)
    new = made[0][len(ids):].tolist()
    print(json.dumps([len(ids), tokenizer.decode(new, skip_special_tokens=True)]))
"""


@pytest.fixture(scope="module")
def reference():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REFERENCE, model.ensure("smollm2"), str(TOKENS)],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("index", range(len(PROMPTS)))
async def test_the_platform_answers_as_the_reference_does(client, reference, worker_status, index):
    pulled_before = (await worker_status("decode-1")).nixl_bytes_pulled
    prompt_tokens, text = reference[index]

    answer = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": PROMPTS[index]}],
        temperature=0,
        max_tokens=TOKENS,
    )

    assert answer.usage.prompt_tokens == prompt_tokens
    assert answer.choices[0].message.content == text
    again = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": PROMPTS[index]}],
        temperature=0,
        max_tokens=TOKENS,
    )
    assert again.choices[0].message.content == text, "the cached prefix gave another answer"
    assert (await worker_status("decode-1")).nixl_bytes_pulled > pulled_before
