from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .core import read
from .types import EVENT_TYPES, ParleyEvent


@dataclass(frozen=True, slots=True)
class WebhookVerdict:
    ok: bool
    reason: Literal["missing_t", "missing_v1", "stale", "mismatch"] | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """An event of a kind that is newer than this package."""

    event: str
    event_id: str
    timestamp: int
    payload: dict[str, Any]


def verify_webhook(
    raw_body: bytes | str,
    header: str | Sequence[str] | None,
    secrets: str | Sequence[str],
    *,
    tolerance_seconds: float = 300,
    now: float | None = None,
) -> WebhookVerdict:
    """Checks the `X-Factory-Signature` of a request. Pass the bytes of the body as they arrived, and during a rotation
    both secrets. The clocks may differ by `tolerance_seconds`, in both directions."""
    keys = [secrets] if isinstance(secrets, str) else list(secrets)
    # An empty key is refused, because anyone can sign with it and a missing setting often becomes one.
    if not keys or "" in keys:
        raise ValueError("verify_webhook needs the secret of the endpoint")
    lines = [header or ""] if isinstance(header, str) or header is None else header
    parts = [part.strip() for part in ",".join(lines).split(",")]
    t = next((part[2:] for part in parts if part.startswith("t=")), None)
    if t is None or not re.fullmatch("[0-9]{1,12}", t):
        return WebhookVerdict(False, "missing_t")
    given = [part[3:].encode() for part in parts if part.startswith("v1=")]
    if not any(given):
        return WebhookVerdict(False, "missing_v1")
    timestamp = int(t)
    if not abs((time.time() if now is None else now) - timestamp) <= tolerance_seconds:
        return WebhookVerdict(False, "stale")
    signed = t.encode() + b"." + (raw_body.encode() if isinstance(raw_body, str) else raw_body)
    expected = [hmac.new(key.encode(), signed, hashlib.sha256).hexdigest().encode() for key in keys]
    # All pairs are compared, so that the time does not reveal which pair matched.
    matches = [hmac.compare_digest(one, other) for one in given for other in expected]
    return WebhookVerdict(True, timestamp=timestamp) if any(matches) else WebhookVerdict(False, "mismatch")


def parse_event(body: bytes | str | dict[str, Any]) -> ParleyEvent | UnknownEvent:
    """Reads the body of an event whose signature was verified, or the `envelope` of an event in the list."""
    data = body if isinstance(body, dict) else json.loads(body)
    known = EVENT_TYPES.get(data["event"])
    return read(UnknownEvent, data) if known is None else read(known, data)
