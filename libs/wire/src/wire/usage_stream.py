"""The JetStream stream that carries usage events: the one definition that gateway and billing
share.

Whoever starts first makes it. A stream that is already there stays as it is: an operator may have
given it more replicas or a longer life, and no service start may undo that.
"""

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from wire import subjects

MAX_AGE_S = 14 * 24 * 3600
"""How far back the ledger can be replayed; a billing outage must end before it."""
DUPLICATE_WINDOW_S = 120
"""Within it the broker drops a batch sent twice: an economy, billing's unique key is the proof."""
NAME_IN_USE = 10058
"""JetStream's error code when a stream of that name exists with another configuration."""


async def ensure_usage_stream(js: JetStreamContext) -> None:
    """Makes the stream when it is missing; safe to call from several processes at once."""
    try:
        await js.stream_info(subjects.USAGE_STREAM)
    except NotFoundError:
        await _create(js)


async def _create(js: JetStreamContext) -> None:
    # Limits retention, not a work queue: acknowledged batches stay for reconciliation, and a work
    # queue would pay one disk sync per acknowledgement.
    config = StreamConfig(
        name=subjects.USAGE_STREAM,
        subjects=subjects.USAGE_STREAM_SUBJECTS,
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_age=MAX_AGE_S,
        duplicate_window=DUPLICATE_WINDOW_S,
    )
    try:
        await js.add_stream(config)
    except BadRequestError as error:
        if error.err_code != NAME_IN_USE:
            raise
