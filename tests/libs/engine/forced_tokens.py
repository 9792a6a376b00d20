"""A vLLM logits processor that makes a real engine write a script, as far as its mask allows.

`extra_args["forced_tokens"]` of a request holds the script. At step i token i becomes the only
possible one, unless the grammar's mask, which vLLM applies before (gpu_model_runner.py,
sample_tokens), has forbidden it: then the row is left alone. So an answer that is equal to its
script proves that the mask allowed all of it, and the first difference is the first refused token.
"""

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

FORCED_KEY = "forced_tokens"


class ForcedTokens(LogitsProcessor):
    """Loaded by its name: `tests.libs.engine.forced_tokens:ForcedTokens`."""

    @classmethod
    def validate_params(cls, sampling_params):
        """Raises ValueError for a script that is no list of token ids."""
        script = (sampling_params.extra_args or {}).get(FORCED_KEY, [])
        if not isinstance(script, list) or not all(isinstance(token, int) for token in script):
            raise ValueError(f"{FORCED_KEY} must be a list of token ids, got {script!r}")

    def __init__(self, *_):
        self._rows = {}

    def is_argmax_invariant(self):
        """Greedy answers follow the script too."""
        return False

    def update_state(self, batch_update):
        """Follows the requests through the rows of the batch."""
        process_dict_updates(self._rows, batch_update, _script_and_output)

    def apply(self, logits):
        """Leaves one token in each row whose script goes on with an allowed one."""
        for row, (script, output) in self._rows.items():
            if len(output) >= len(script):
                continue
            token = script[len(output)]
            logit = logits[row, token].clone()
            if torch.isfinite(logit):
                logits[row] = -torch.inf
                logits[row, token] = logit
        return logits


def _script_and_output(params, prompt_ids, output_ids):
    """The script beside vLLM's own, growing list of the request's tokens; None without a script."""
    script = (params.extra_args or {}).get(FORCED_KEY)
    return (script, output_ids) if script else None
