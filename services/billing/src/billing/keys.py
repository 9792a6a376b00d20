"""API keys: how one is made, and the only form in which it is kept.

Invariant: the key itself leaves this process once, in the answer that created it. Everything else
(database, directory, logs) knows the key's id and the SHA-256 of the whole key.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

KEY_ID_BYTES = 4
SECRET_BYTES = 32
"""256 random bits: a plain SHA-256 suffices, nothing of this size can be guessed."""


@dataclass(frozen=True)
class NewKey:
    """A key that was just made; `text` is hidden from repr so that no log line can show it."""

    key_id: str
    text: str = field(repr=False)
    sha256: bytes


def mint() -> NewKey:
    """A new key, `mr-<key id>-<secret>`."""
    key_id = secrets.token_hex(KEY_ID_BYTES)
    text = f"mr-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"
    return NewKey(key_id, text, sha256(text))


def sha256(key: str) -> bytes:
    """The digest a key is known by."""
    return hashlib.sha256(key.encode()).digest()


def is_key(candidate: str, expected_sha256: bytes) -> bool:
    """True when the candidate hashes to the digest; takes the same time wherever they differ."""
    return hmac.compare_digest(sha256(candidate), expected_sha256)
