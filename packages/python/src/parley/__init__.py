"""Calls Parley and receives its events."""

from . import types as _types
from .async_client import AsyncParley
from .client import Parley
from .core import Accepted, Delta, ParleyError
from .send_queue import QueueFullError, SendQueue
from .types import *  # noqa: F403
from .webhooks import UnknownEvent, WebhookVerdict, parse_event, verify_webhook

__all__ = [
    "Accepted",
    "AsyncParley",
    "Delta",
    "Parley",
    "ParleyError",
    "QueueFullError",
    "SendQueue",
    "UnknownEvent",
    "WebhookVerdict",
    "parse_event",
    "verify_webhook",
]
__all__ += _types.__all__

__version__ = "0.1.0"
