"""What one exchange costs: its usage event, written down exactly once.

Invariant: an account ends in exactly one of `settle` (an event goes to billing) and `release` (no
upstream took the request up); the first call decides, later ones change nothing.
"""

from typing import TypeAlias

from opentelemetry import trace

import observe
from gateway import metrics
from gateway.admission import Admitted
from gateway.choose import Target
from gateway.relay import AnswerMeter, Usage
from gateway.spool import Spool
from millrace.v1 import usage_pb2

log = observe.get_logger(__name__)

COMPLETED = usage_pb2.REQUEST_OUTCOME_COMPLETED
CLIENT_DISCONNECTED = usage_pb2.REQUEST_OUTCOME_CLIENT_DISCONNECTED
UPSTREAM_FAILED = usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED
GATEWAY_LOST = usage_pb2.REQUEST_OUTCOME_GATEWAY_LOST

Outcome: TypeAlias = usage_pb2.RequestOutcome.ValueType


class Account:
    """Opened in the spool when made; raises SpoolUnavailable or TooBusy then."""

    def __init__(self, spool: Spool, admitted: Admitted, likely: Target | None) -> None:
        self.meter = AnswerMeter(strips_usage=not admitted.body.wants_usage)
        self._spool = spool
        self._admitted = admitted
        self._event = admitted.new_event()
        self._place(likely)
        self._ticket = spool.admit(self._event)

    @property
    def is_open(self) -> bool:
        """True until settled or released."""
        return self._ticket.is_open

    @property
    def age_s(self) -> float:
        """Since the admission."""
        return self._admitted.age_s()

    def note(self) -> None:
        """Keeps the count so far, in case this process dies."""
        self._ticket.note(self.meter.known_usage())

    def settle(self, outcome: Outcome, target: Target | None) -> None:
        """Writes the usage event; it is on disk when this returns."""
        if not self.is_open:
            return
        usage = self.meter.known_usage()
        self._place(target)
        self._event.outcome = outcome
        self._event.prompt_tokens = usage.prompt_tokens
        self._event.cached_tokens = usage.cached_tokens
        self._event.completion_tokens = usage.completion_tokens
        self._event.is_exact = self.meter.usage is not None
        self._spool.settle(self._ticket, self._event)
        name = usage_pb2.RequestOutcome.Name(outcome)
        self._report(name.removeprefix("REQUEST_OUTCOME_").lower(), usage)

    def release(self) -> None:
        """Ends the account without an event."""
        if self.is_open:
            self._spool.release(self._ticket)
            self._report("released", Usage())

    def _place(self, target: Target | None) -> None:
        """Notes where the request runs, or will run as things stand."""
        if target is not None:
            self._event.cluster, self._event.pool = target.cluster, target.pool

    def _report(self, outcome: str, usage: Usage) -> None:
        model = self._admitted.body.model
        metrics.REQUESTS.labels(model, self._admitted.endpoint.value, outcome).inc()
        metrics.DURATION_SECONDS.labels(model).observe(self.age_s)
        metrics.TOKENS.labels(model, "prompt").inc(usage.prompt_tokens)
        metrics.TOKENS.labels(model, "cached").inc(usage.cached_tokens)
        metrics.TOKENS.labels(model, "completion").inc(usage.completion_tokens)
        trace.get_current_span().set_attribute("millrace.outcome", outcome)
        log.info(
            "request_ended",
            request_id=self._admitted.request_id,
            team_id=self._admitted.caller.team_id,
            key_id=self._admitted.caller.key_id,
            model=model,
            outcome=outcome,
            is_exact=self._event.is_exact,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            duration_s=round(self.age_s, 4),
        )
