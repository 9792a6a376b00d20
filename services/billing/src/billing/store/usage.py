"""Answers usage questions from what is booked."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from billing.usage import UsageLine, UsageQuestion, UsageSummary

ASKED = """
    SELECT e.*, u.request_id IS NOT NULL AS is_unpriced
    FROM usage_event e LEFT JOIN unpriced_event u USING (request_id, seq)
    WHERE e.team_id = :team_id
      AND (CAST(:start AS timestamptz) IS NULL OR e.occurred_at >= :start)
      AND (CAST(:end AS timestamptz) IS NULL OR e.occurred_at < :end)
      AND (CAST(:request_id AS uuid) IS NULL OR e.request_id = :request_id)"""

SUMMARIZE = text(f"""
    WITH asked AS ({ASKED}),
    cost AS (
        SELECT request_id, seq, sum(amount) AS amount
        FROM rated_line JOIN asked USING (request_id, seq) GROUP BY request_id, seq)
    SELECT model, key_id, count(DISTINCT request_id) AS requests,
        sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
        sum(completion_tokens) AS completion_tokens, coalesce(sum(amount), 0) AS cost_usd
    FROM asked LEFT JOIN cost USING (request_id, seq)
    WHERE NOT is_unpriced
    GROUP BY model, key_id ORDER BY model, key_id""")

COUNT_UNPRICED = text(f"""
    WITH asked AS ({ASKED})
    SELECT count(*) FILTER (WHERE is_unpriced) FROM asked""")

NEWEST = text("SELECT occurred_at FROM usage_event ORDER BY occurred_at DESC LIMIT 1")


async def summarize(db: AsyncConnection, question: UsageQuestion) -> UsageSummary:
    """The team's usage by model and key; an unknown team has none."""
    parameters = {
        "team_id": question.team_id,
        "start": question.start,
        "end": question.end,
        "request_id": question.request_id,
    }
    lines = await db.execute(SUMMARIZE, parameters)
    unpriced = await db.execute(COUNT_UNPRICED, parameters)
    newest = await db.execute(NEWEST)
    return UsageSummary(
        lines=[
            UsageLine(
                row.model,
                row.key_id,
                row.requests,
                int(row.prompt_tokens),
                int(row.cached_tokens),
                int(row.completion_tokens),
                row.cost_usd,
            )
            for row in lines
        ],
        unpriced_events=int(unpriced.scalar_one()),
        complete_through=newest.scalar_one_or_none(),
    )
