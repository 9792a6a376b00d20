"""Everything that can go wrong at the gateway; `edge/replies.py` has the table of what a client
then sees."""


class GatewayError(Exception):
    """Base of all; `str(error)` is the message for the client: expected, came, what to do."""

    param: str | None = None
    retry_after_s: int | None = None


class KeyRefused(GatewayError):
    """No key, a key that nobody knows, or a revoked one."""


class TeamSuspended(GatewayError):
    """The key is fine, its team may not call."""


class ModelUnknown(GatewayError):
    """No deployment serves this model to this key."""

    param = "model"


class BodyInvalid(GatewayError):
    """The request body breaks a rule; `param` names the field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BodyTooLarge(GatewayError):
    """More bytes than the gateway reads; `is_unread` when the client is still sending."""

    def __init__(self, message: str, is_unread: bool) -> None:
        super().__init__(message)
        self.is_unread = is_unread


class BodyTooSlow(GatewayError):
    """The client did not send its request in time."""


class QueryInvalid(GatewayError):
    """A query parameter breaks a rule."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class NotReady(GatewayError):
    """No directory or no route table has arrived since this process started."""

    retry_after_s = 1


class Stopping(GatewayError):
    """This gateway process is on its way out; another one answers."""

    retry_after_s = 1


class TooBusy(GatewayError):
    """As many requests in flight as this process carries."""

    retry_after_s = 1


class SpoolUnavailable(GatewayError):
    """Usage could not be written down, so nothing may be served."""

    retry_after_s = 5


class NoCapacity(GatewayError):
    """No upstream took the request within the failover window."""

    def __init__(self, message: str, retry_after_s: int, may_have_run: bool) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.may_have_run = may_have_run


class UpstreamBroken(GatewayError):
    """An upstream's answer was none that a client could use."""


class UpstreamSilent(GatewayError):
    """An upstream did not answer in time."""


class UsageUnavailable(GatewayError):
    """Billing could not be asked."""

    retry_after_s = 2


class SpoolLocked(Exception):
    """Another gateway process owns this spool folder."""
