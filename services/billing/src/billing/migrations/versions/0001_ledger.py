"""Teams, keys, prices, usage events, rated lines and the double-entry ledger.

What the database itself guarantees, whoever writes to it: every directory change gets the next
revision and wakes the followers; what was booked never changes; every journal balances; prices only
move forward.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

DIRECTORY = """
CREATE TABLE directory_revision (
    is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    revision bigint NOT NULL);
INSERT INTO directory_revision (revision) VALUES (0);

CREATE TABLE team (
    team_id      text PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name <> ''),
    is_suspended boolean NOT NULL DEFAULT false,
    created_at   timestamptz NOT NULL DEFAULT now(),
    revision     bigint NOT NULL UNIQUE);

CREATE TABLE api_key (
    key_id     text PRIMARY KEY CHECK (key_id ~ '^[0-9a-f]{8}$'),
    sha256     bytea NOT NULL UNIQUE CHECK (length(sha256) = 32),
    team_id    text NOT NULL REFERENCES team,
    name       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    revision   bigint NOT NULL UNIQUE);
CREATE INDEX api_key_team ON api_key (team_id);

CREATE TABLE price (
    price_id                 text PRIMARY KEY,
    model                    text NOT NULL CHECK (model <> ''),
    currency                 char(3) NOT NULL,
    input_usd_per_mtok        numeric(18, 9) NOT NULL CHECK (input_usd_per_mtok >= 0),
    cached_input_usd_per_mtok numeric(18, 9) NOT NULL CHECK (cached_input_usd_per_mtok >= 0),
    output_usd_per_mtok       numeric(18, 9) NOT NULL CHECK (output_usd_per_mtok >= 0),
    effective_from           timestamptz NOT NULL,
    revision                 bigint NOT NULL UNIQUE,
    UNIQUE (model, effective_from));
"""

# The row lock on directory_revision is held until commit: revisions appear in commit order.
REVISIONS = """
CREATE FUNCTION stamp_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE directory_revision SET revision = revision + 1 RETURNING revision INTO NEW.revision;
    PERFORM pg_notify('millrace_directory', '');
    RETURN NEW;
END $$;
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON team
    FOR EACH ROW EXECUTE FUNCTION stamp_revision();
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON api_key
    FOR EACH ROW EXECUTE FUNCTION stamp_revision();
CREATE TRIGGER stamp BEFORE INSERT ON price
    FOR EACH ROW EXECUTE FUNCTION stamp_revision();

CREATE FUNCTION require_forward_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM price WHERE model = NEW.model AND effective_from >= NEW.effective_from)
    THEN RAISE EXCEPTION 'a price of % that begins later exists already', NEW.model;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER forward BEFORE INSERT ON price
    FOR EACH ROW EXECUTE FUNCTION require_forward_price();
"""

EVENTS = """
CREATE TABLE usage_event (
    request_id        uuid NOT NULL,
    seq               bigint NOT NULL,
    team_id           text NOT NULL,
    key_id            text NOT NULL,
    model             text NOT NULL,
    cluster           text NOT NULL,
    pool              text NOT NULL,
    endpoint          text NOT NULL,
    occurred_at       timestamptz NOT NULL,
    received_at       timestamptz NOT NULL DEFAULT now(),
    outcome           text NOT NULL,
    prompt_tokens     bigint NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens     bigint NOT NULL CHECK (cached_tokens BETWEEN 0 AND prompt_tokens),
    completion_tokens bigint NOT NULL CHECK (completion_tokens >= 0),
    is_exact          boolean NOT NULL,
    is_stream         boolean NOT NULL,
    payload_sha256    bytea NOT NULL,
    PRIMARY KEY (request_id, seq));
CREATE INDEX usage_event_team_time ON usage_event (team_id, occurred_at);
CREATE INDEX usage_event_time ON usage_event (occurred_at);

CREATE TABLE unpriced_event (
    request_id uuid NOT NULL,
    seq        bigint NOT NULL,
    model      text NOT NULL,
    parked_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request_id, seq));
CREATE INDEX unpriced_event_model ON unpriced_event (model);

CREATE TABLE event_conflict (
    request_id     uuid NOT NULL,
    seq            bigint NOT NULL,
    payload_sha256 bytea NOT NULL,
    payload        bytea NOT NULL,
    seen_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request_id, seq, payload_sha256));

CREATE TABLE dead_letter (
    payload_sha256 bytea PRIMARY KEY,
    payload        bytea NOT NULL,
    reason         text NOT NULL,
    seen_at        timestamptz NOT NULL DEFAULT now());
"""

LEDGER = """
CREATE TABLE journal (
    journal_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    idem_key   text NOT NULL UNIQUE,
    kind       text NOT NULL,
    team_id    text NOT NULL,
    period     date NOT NULL,
    posted_at  timestamptz NOT NULL DEFAULT now());

CREATE TABLE rated_line (
    request_id uuid NOT NULL,
    seq        bigint NOT NULL,
    meter      text NOT NULL,
    price_id   text NOT NULL REFERENCES price,
    currency   char(3) NOT NULL,
    quantity   bigint NOT NULL CHECK (quantity > 0),
    amount     numeric(38, 15) NOT NULL CHECK (amount >= 0),
    journal_id bigint NOT NULL REFERENCES journal,
    PRIMARY KEY (request_id, seq, meter));
CREATE INDEX rated_line_journal ON rated_line (journal_id);

CREATE TABLE posting (
    journal_id bigint NOT NULL REFERENCES journal,
    line       int NOT NULL,
    account    text NOT NULL,
    currency   char(3) NOT NULL,
    amount     numeric(38, 15) NOT NULL CHECK (amount <> 0),
    PRIMARY KEY (journal_id, line));
CREATE INDEX posting_account ON posting (account, currency);

CREATE FUNCTION require_balance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM posting WHERE journal_id = NEW.journal_id
               GROUP BY currency HAVING sum(amount) <> 0)
    THEN RAISE EXCEPTION 'journal % does not balance', NEW.journal_id;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER balanced AFTER INSERT ON posting
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_balance();

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP;
END $$;
"""

APPEND_ONLY = (
    "price",
    "usage_event",
    "event_conflict",
    "dead_letter",
    "journal",
    "rated_line",
    "posting",
)
NEVER_DELETED = ("team", "api_key")


def upgrade() -> None:
    """Makes everything."""
    for script in (DIRECTORY, REVISIONS, EVENTS, LEDGER):
        for statement in _statements(script):
            op.execute(statement)
    for table in APPEND_ONLY:
        _refuse(table, "UPDATE OR DELETE OR TRUNCATE")
    for table in NEVER_DELETED:
        _refuse(table, "DELETE OR TRUNCATE")


def downgrade() -> None:
    """There is no way back from a ledger."""
    raise NotImplementedError("the ledger is never taken back: restore a backup instead")


def _refuse(table: str, operations: str) -> None:
    op.execute(
        f"CREATE TRIGGER append_only BEFORE {operations} ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )


def _statements(script: str) -> list[str]:
    """asyncpg prepares one statement at a time; a function's body holds semicolons of its own."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if line.rstrip().endswith(";") and pending.count("$$") % 2 == 0:
            statements.append(pending)
            pending = ""
    assert not pending.strip(), f"unfinished statement: {pending}"
    return statements
