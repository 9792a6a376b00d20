"""Who calls: the directory as billing last sent it, and the check of a key against it.

Only hashes are here: a key's SHA-256 is looked up, the key itself is neither kept nor logged. A
revocation holds from the moment its update is applied, for every request that starts afterwards.
"""

import hashlib
from dataclasses import dataclass

from gateway.errors import KeyRefused, NotReady, TeamSuspended
from millrace.v1 import directory_pb2

MAX_KEY_BYTES = 512
"""Millrace keys have 55 characters; anything far longer is not worth a hash."""


@dataclass(frozen=True)
class Caller:
    """The team that pays and the public name of the key that was used."""

    team_id: str
    key_id: str


class DirectorySnapshot:
    """Teams and keys by id; a snapshot replaces all of them, a delta replaces the rows it names."""

    def __init__(self) -> None:
        self.revision: int | None = None
        self._teams: dict[str, directory_pb2.Team] = {}
        self._keys: dict[str, directory_pb2.ApiKey] = {}
        self._key_of_digest: dict[bytes, directory_pb2.ApiKey] = {}

    @property
    def has_arrived(self) -> bool:
        """True once a first snapshot is here."""
        return self.revision is not None

    def apply(self, update: directory_pb2.DirectoryUpdate) -> None:
        """Takes one message of `WatchDirectory`; deltas before the first snapshot are of no use."""
        if update.is_snapshot:
            self._teams, self._keys, self._key_of_digest = {}, {}, {}
        elif self.revision is None:
            return
        for team in update.teams:
            self._teams[team.team_id] = team
        for key in update.keys:
            replaced = self._keys.get(key.key_id)
            if replaced is not None:
                self._key_of_digest.pop(replaced.sha256, None)
            self._keys[key.key_id] = key
            self._key_of_digest[key.sha256] = key
        self.revision = update.revision

    def find(self, digest: bytes) -> tuple[directory_pb2.ApiKey, directory_pb2.Team] | None:
        """The key with this SHA-256 and its team."""
        key = self._key_of_digest.get(digest)
        if key is None:
            return None
        team = self._teams.get(key.team_id)
        return None if team is None else (key, team)


def check_key(authorization: bytes | None, directory: DirectorySnapshot) -> Caller:
    """Who sent this `Authorization` header; raises KeyRefused or TeamSuspended."""
    if not directory.has_arrived:
        raise NotReady("The gateway has just started and has no keys yet. Try again in a second.")
    if authorization is None:
        raise KeyRefused(
            "You didn't provide an API key. Send it in the header `Authorization: Bearer mr-...`."
        )
    scheme, _, key = authorization.partition(b" ")
    key = key.strip()
    if scheme.lower() != b"bearer" or not 0 < len(key) <= MAX_KEY_BYTES:
        raise KeyRefused("Expected the header `Authorization: Bearer mr-...`, with one API key.")
    found = directory.find(hashlib.sha256(key).digest())
    if found is None:
        raise KeyRefused("Incorrect API key provided. Ask your team's administrator for a key.")
    record, team = found
    if record.is_revoked:
        raise KeyRefused(f"The API key {record.key_id} was revoked. Ask for a new one.")
    if team.is_suspended:
        raise TeamSuspended("Your team is suspended. Ask the operator of this service.")
    return Caller(team_id=record.team_id, key_id=record.key_id)
