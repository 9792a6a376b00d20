"""What billing counts for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

EVENTS_POSTED = Counter(
    "millrace_billing_events_posted_total", "Usage events booked for the first time"
)
EVENTS_DUPLICATE = Counter(
    "millrace_billing_events_duplicate_total", "Usage events that were booked already"
)
EVENT_CONFLICTS = Counter(
    "millrace_billing_event_conflicts_total", "Known event ids that came with another payload"
)
DEAD_LETTERS = Counter(
    "millrace_billing_dead_letters_total", "Messages or events that could not be read"
)
EVENTS_UNPRICED = Gauge(
    "millrace_billing_unpriced_events", "Events that wait for a price of their model"
)
POST_RETRIES = Counter(
    "millrace_billing_post_retries_total", "Batches that Postgres did not take at the first try"
)
POST_SECONDS = Histogram(
    "millrace_billing_post_seconds", "Time to book one fetched batch, commit included"
)
DIRECTORY_REVISION = Gauge(
    "millrace_billing_directory_revision", "Newest change of teams, keys and prices seen here"
)
FOLLOWERS = Gauge("millrace_billing_directory_followers", "Open WatchDirectory streams")
