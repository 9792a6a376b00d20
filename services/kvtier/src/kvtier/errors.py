"""What can go wrong in kvtier."""


class KvTierError(Exception):
    """Base of everything kvtier raises on purpose."""


class MasterBinaryMissing(KvTierError):
    """The engine packages are not installed in this environment."""

    def __init__(self) -> None:
        super().__init__(
            "Expected the program mooncake_master beside this Python or on PATH, found none. "
            "Install what tools/engine.txt pins."
        )


class MasterSilent(KvTierError):
    """The master did not answer on its metrics port."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"Expected Mooncake's metrics at {url}, got {reason}.")


class NodeNotMounted(KvTierError):
    """The store node could not lend its memory."""

    def __init__(self, status: int, master: str) -> None:
        super().__init__(
            f"Mooncake's setup answered {status} instead of 0 for the master at {master}. "
            "Its reason is in the lines above; the node is started again."
        )
        self.status = status
