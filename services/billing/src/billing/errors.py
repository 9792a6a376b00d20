"""What can go wrong in billing; `edge/translate.py` turns each into a status and a code, once."""


class BillingError(Exception):
    """Base of everything billing raises on purpose."""


class TeamNotFound(BillingError):
    """No team has this id."""

    def __init__(self, team_id: str) -> None:
        super().__init__(f"No team has the id {team_id!r}. List the teams to see their ids.")
        self.team_id = team_id


class TeamNameTaken(BillingError):
    """Team names are unique, because the command line takes a name for an id."""

    def __init__(self, name: str) -> None:
        super().__init__(f"A team named {name!r} exists already. Choose another name.")
        self.name = name


class KeyNotFound(BillingError):
    """No key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"No key has the id {key_id!r}. A key's id is the 8 hexadecimal digits after 'mr-'."
        )
        self.key_id = key_id


class InvalidPeriod(BillingError):
    """A usage question whose end is not after its start."""

    def __init__(self, start: str, end: str) -> None:
        super().__init__(f"The period must end after it starts, but it goes from {start} to {end}.")


class InvalidQuestion(BillingError):
    """A usage question that names nothing that can be looked up."""


class UnusableEvent(BillingError):
    """A usage event that can't be booked; its bytes go to the dead letters with this reason."""
