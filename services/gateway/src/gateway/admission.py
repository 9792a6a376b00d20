"""What the gateway knows of a request once it may be forwarded."""

import time
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp

from gateway.keys import Caller
from gateway.request_body import CheckedBody, Endpoint
from millrace.v1 import usage_pb2
from wire.deadlines import Deadline


@dataclass(frozen=True)
class Admitted:
    """A request that was checked: who, what, since when and until when."""

    request_id: str
    caller: Caller
    endpoint: Endpoint
    body: CheckedBody
    session_id: str | None
    admitted_at: Timestamp
    """Wall time: the price that holds at this moment is the price of the request."""
    deadline: Deadline
    admitted_at_s: float = field(default_factory=time.monotonic)

    def age_s(self) -> float:
        """Seconds since the admission."""
        return time.monotonic() - self.admitted_at_s

    def new_event(self) -> usage_pb2.UsageEvent:
        """The usage event of this request, without an outcome."""
        return usage_pb2.UsageEvent(
            request_id=self.request_id,
            team_id=self.caller.team_id,
            key_id=self.caller.key_id,
            model=self.body.model,
            endpoint=self.endpoint.value,
            occurred_at=self.admitted_at,
            is_stream=self.body.is_stream,
        )
