"""Which wire format a model writes, told from its chat template."""

from dataclasses import replace

from toolcall.errors import ToolCallError
from toolcall.formats.table import (
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V41,
    FORMATS,
    GLM_45,
    GLM_47,
    HERMES,
    KIMI_K2,
    LLAMA_3,
    QWEN_CODER,
    WireFormat,
)

MOST_SPECIFIC_FIRST = (
    GLM_47,
    GLM_45,
    QWEN_CODER,
    HERMES,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
    DEEPSEEK_V41,
    KIMI_K2,
    LLAMA_3,
)
NOT_SERVED = ("<tool_sep>",)
"""Tags of families that write GLM's tags and others between them (Hunyuan)."""
ESCAPES = (("\\n", "\n"), ('\\"', '"'), ("\\'", "'"))


def detect(chat_template: str) -> WireFormat | None:
    """The format of a model with this chat template; None when it has no tools that we know.

    A template that never mentions reasoning belongs to a model that does none.
    """
    text = _unescape(chat_template)
    if any(tag in text for tag in NOT_SERVED):
        return None
    for row in MOST_SPECIFIC_FIRST:
        if all(hint in text for hint in row.template_hints):
            return row if _reasons(row, text) else replace(row, reasoning=None)
    return None


def by_name(name: str) -> WireFormat:
    """The format of this name. Raises ToolCallError, which names the known ones."""
    if name not in FORMATS:
        raise ToolCallError(f"expected one of {', '.join(FORMATS)}: {name!r}")
    return FORMATS[name]


def _unescape(template: str) -> str:
    """String literals in templates write line ends and quotes as escapes."""
    for escape, character in ESCAPES:
        template = template.replace(escape, character)
    return template


def _reasons(row: WireFormat, template: str) -> bool:
    return row.reasoning is not None and any(tag in template for tag in row.reasoning)
