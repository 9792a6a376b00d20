"""Good answers to tool-eval-bench's scenarios: what a model of GLM's family would write, by turn.

`transcripts/*.yaml` hold, for each scenario, one entry per turn of the assistant: `think` is its
reasoning, `say` its visible text, `calls` its tool calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tool_eval_bench.evals.scenarios import ALL_SCENARIOS_WITH_HARDMODE

from toolcall.formats.render import render_calls
from toolcall.formats.table import WireFormat

FOLDER = Path(__file__).parent / "transcripts"
PROBE_ID = "probe"
PROBE_MESSAGE = "Reply with the single word OK. Do not call any tools."
"""tool_eval_bench/runner/orchestrator.py, probe_tool_choice_required (3.0.0)."""


@dataclass(frozen=True)
class Turn:
    """One turn of the assistant."""

    say: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    think: str = ""

    def written(self, tool_format: WireFormat) -> str:
        """The turn as the model writes it: reasoning, text, calls."""
        opening, closing = tool_format.reasoning or ("", "")
        calls = render_calls(tool_format, self.calls) if self.calls else ""
        parts = [f"{opening}{self.think}{closing}", self.say, calls]
        return "".join("\n" + part for part in parts if part)


class Transcripts:
    """Every scenario's turns, found by the conversation's first user message."""

    def __init__(self) -> None:
        written: dict[str, Any] = {}
        for path in sorted(FOLDER.glob("*.yaml")):
            written |= yaml.safe_load(path.read_text())
        messages = {scenario.id: scenario.user_message for scenario in ALL_SCENARIOS_WITH_HARDMODE}
        messages[PROBE_ID] = PROBE_MESSAGE
        self._turns: dict[str, tuple[Turn, ...]] = {}
        for scenario_id, message in messages.items():
            turns = written[scenario_id]
            # Two scenarios that ask the same differ in their tools only; one refers to the other.
            turns = written[turns] if isinstance(turns, str) else turns
            self._turns[message] = _turns(turns)

    def turn(self, first_user_message: str, answers_so_far: int) -> Turn:
        """What the assistant says next. Raises KeyError or IndexError for what nobody wrote."""
        return self._turns[first_user_message][answers_so_far]


def _turns(written: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            say=turn.get("say", ""),
            calls=tuple(pair for call in turn.get("calls", ()) for pair in call.items()),
            think=turn.get("think", ""),
        )
        for turn in written
    )
