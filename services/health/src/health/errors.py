"""What can go wrong in health; `edge.py` turns each into a gRPC status, once."""


class HealthError(Exception):
    """Base of everything health raises on purpose."""


class InstanceMissing(HealthError):
    """A cordon request without the name of an instance, or with one that no process can have."""

    def __init__(self, instance: str) -> None:
        super().__init__(
            f"Expected the name of an instance without dots or spaces, got {instance!r}. "
            "WatchServices lists the names."
        )
        self.instance = instance


class InstanceUnknown(HealthError):
    """No process of this name beats or has beaten in the last ten minutes."""

    def __init__(self, instance: str) -> None:
        super().__init__(
            f"No process named {instance!r} is known. WatchServices lists the names; "
            "a process has a new one after each start."
        )
        self.instance = instance


class CordonNotKept(HealthError):
    """NATS did not take the change, so nothing was changed."""

    def __init__(self, instance: str, reason: str) -> None:
        super().__init__(
            f"The cordon of {instance!r} could not be written to NATS ({reason}). "
            "Nothing has changed; try again."
        )
        self.instance = instance
