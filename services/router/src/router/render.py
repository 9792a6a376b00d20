"""From messages to prompt tokens: the model's own chat template and tokenizer.

`tokenizers` and Jinja are used directly. The transformers package would add four seconds and 200 MB
to every start of the router for these few lines around the same two libraries; the environment
below is set up as transformers does it (transformers/utils/chat_template_utils.py), which a test
compares.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from router.errors import ContextTooLong, InvalidRequest
from toolcall.formats import detect
from toolcall.formats.table import WireFormat
from toolcall.marks import Marks, control_tokens
from toolcall.plan import AnswerStart


class Renderer:
    """Tokenizer, chat template, tool format and end-of-sequence ids of one model folder."""

    def __init__(self, model_dir: Path, context_tokens: int, tool_format: str = "auto") -> None:
        self.tokenizer: Any = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        added = json.loads((model_dir / "tokenizer.json").read_text())["added_tokens"]
        self.marks = Marks(control_tokens(added))
        self.context_tokens = context_tokens
        config = json.loads((model_dir / "tokenizer_config.json").read_text())
        self._specials = {
            name: config[name] for name in ("bos_token", "eos_token", "pad_token") if name in config
        }
        template = (model_dir / "chat_template.jinja").read_text()
        self._template = _environment().from_string(template)
        self.format = _tool_format(tool_format, template)
        self.eos_token_ids = _eos_token_ids(model_dir)
        self.visible_marks = _visible_marks(self.marks, added, self.format)

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        template_arguments: dict[str, Any] | None = None,
    ) -> str:
        """The prompt text of a conversation, ready for the assistant's turn.

        Raises InvalidRequest when the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=list(messages),
                tools=list(tools) if tools else None,
                add_generation_prompt=True,
                **self._specials,
                **(template_arguments or {}),
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise InvalidRequest(
                f"The model's chat template cannot render these messages: {error}", param="messages"
            ) from error

    def answer_start(self, prompt_text: str) -> AnswerStart:
        """Whether the prompt ends inside the model's reasoning, behind it, or before any."""
        if self.format is None or self.format.reasoning is None:
            return "after_reasoning"
        opening, closing = self.format.reasoning
        end = prompt_text.rstrip()
        if end.endswith(opening):
            return "in_reasoning"
        return "after_reasoning" if end.endswith(closing) else "fresh"

    def tokenize(self, text: str, param: str) -> tuple[int, ...]:
        """Token ids of a prompt. Raises ContextTooLong when no room is left for an answer."""
        return self.check_length(
            tuple(self.tokenizer.encode(text, add_special_tokens=False).ids), param
        )

    def check_length(self, prompt: tuple[int, ...], param: str) -> tuple[int, ...]:
        """The prompt itself. Raises ContextTooLong or InvalidRequest."""
        if not prompt:
            raise InvalidRequest(f"The {param} has no tokens. Send some text.", param=param)
        if len(prompt) >= self.context_tokens:
            raise ContextTooLong(len(prompt), self.context_tokens, param)
        vocabulary = self.tokenizer.get_vocab_size(with_added_tokens=True)
        if max(prompt) >= vocabulary or min(prompt) < 0:
            raise InvalidRequest(
                f"Token ids must lie in 0..{vocabulary - 1}, got {min(prompt)}..{max(prompt)}.",
                param=param,
            )
        return prompt


def _tool_format(name: str, template: str) -> WireFormat | None:
    if name == "none":
        return None
    return detect.detect(template) if name == "auto" else detect.by_name(name)


def _visible_marks(
    marks: Marks, added: Sequence[dict[str, Any]], tool_format: WireFormat | None
) -> frozenset[int]:
    """Control tokens that belong to an answer: tags, and special tokens that the format uses."""
    special = {token["id"] for token in added if token.get("special")}
    row = () if tool_format is None else astuple(tool_format)
    used = set(marks.encode("".join(_literals(row))))
    return frozenset(
        id_ for id_ in marks.token_ids if id_ not in special or marks.mark_of(id_) in used
    )


def _literals(row: Any) -> list[str]:
    """Every text of a format's table row; a superset of what may stand in an answer."""
    if isinstance(row, str):
        return [row]
    if isinstance(row, tuple):
        return [text for part in row for text in _literals(part)]
    return []


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


class _GenerationBlock(Extension):
    """`{% generation %}`: some templates mark what the assistant wrote, for training."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        """The block's content, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, as chat templates expect it."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _eos_token_ids(model_dir: Path) -> tuple[int, ...]:
    path = model_dir / "generation_config.json"
    source = path if path.exists() else model_dir / "config.json"
    ids = json.loads(source.read_text()).get("eos_token_id")
    return tuple(ids) if isinstance(ids, list) else (ids,)
