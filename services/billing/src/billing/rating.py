"""What an event costs: disjoint meters, each at the price that held when the request was admitted.

Invariant: amounts are exact. A price has at most 9 decimals per million tokens, so an amount has at
most 15; the arithmetic raises rather than round. Rounding happens once, on the invoice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Literal

from billing.directory import Price
from billing.events import Event

Meter = Literal["input_uncached", "cached_input", "output"]

EXACT = Context(prec=60, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
TOKENS_PER_PRICE_EXPONENT = 6
"""Prices are per million tokens."""


@dataclass(frozen=True)
class RatedLine:
    """The tokens of one meter of one event, and what they cost."""

    event: Event
    meter: Meter
    price_id: str
    currency: str
    quantity: int
    amount: Decimal


@dataclass(frozen=True)
class Rated:
    """Events with their lines, and those whose model has no price yet."""

    lines: list[RatedLine]
    unpriced: list[Event]


def rate(events: Sequence[Event], prices: Mapping[str, Sequence[Price]]) -> Rated:
    """Rates events by the prices of their models; an event without tokens needs no price."""
    rated = Rated([], [])
    for event in events:
        quantities = _quantities(event)
        if not quantities:
            continue
        price = price_at(prices.get(event.model, ()), event.occurred_at)
        if price is None:
            rated.unpriced.append(event)
            continue
        for meter, quantity in quantities.items():
            amount = _amount(quantity, _unit_price(price, meter))
            line = RatedLine(event, meter, price.price_id, price.currency, quantity, amount)
            rated.lines.append(line)
    return rated


def price_at(prices: Sequence[Price], moment: datetime) -> Price | None:
    """The price of one model at a moment; what came before its first price is rated at the first.

    So an event that waited for a price gets the same one whenever it is posted.
    """
    if not prices:
        return None
    begun = [price for price in prices if price.effective_from <= moment]
    if begun:
        return max(begun, key=lambda price: price.effective_from)
    return min(prices, key=lambda price: price.effective_from)


def _quantities(event: Event) -> dict[Meter, int]:
    quantities: dict[Meter, int] = {
        "input_uncached": event.prompt_tokens - event.cached_tokens,
        "cached_input": event.cached_tokens,
        "output": event.completion_tokens,
    }
    return {meter: quantity for meter, quantity in quantities.items() if quantity}


def _unit_price(price: Price, meter: Meter) -> Decimal:
    match meter:
        case "input_uncached":
            return price.input_usd_per_mtok
        case "cached_input":
            return price.cached_input_usd_per_mtok
        case "output":
            return price.output_usd_per_mtok


def _amount(quantity: int, usd_per_mtok: Decimal) -> Decimal:
    product = EXACT.multiply(Decimal(quantity), usd_per_mtok)
    return EXACT.scaleb(product, Decimal(-TOKENS_PER_PRICE_EXPONENT))
