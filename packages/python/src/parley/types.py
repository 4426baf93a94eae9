# Generated from the API document: node scripts/run.js generate
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Union


__all__ = [
    "ERROR_CODES",
    "EVENT_TYPES",
    "AcceptedTurn",
    "Attributes",
    "ChatResponse",
    "Conversation",
    "ConversationCreatedEvent",
    "ConversationCreatedPayload",
    "ConversationErasedEvent",
    "ConversationErasedPayload",
    "ConversationEscalatedEvent",
    "ConversationEscalatedPayload",
    "ConversationHistory",
    "ConversationList",
    "ConversationResolvedEvent",
    "ConversationResolvedPayload",
    "EndedEvent",
    "Escalation",
    "ListEventsAnswer",
    "Message",
    "MessageReceivedEvent",
    "MessageReceivedPayload",
    "MessageSentEvent",
    "MessageSentPayload",
    "ParleyEvent",
    "ReplySource",
    "SetAttributesAnswer",
    "SuggestedAction",
    "Tag",
    "TagAddedEvent",
    "TagAddedPayload",
    "Turn",
    "WebhookTestEvent",
    "WebhookTestPayload",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTestPayload:
    ping: Literal["pong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTestEvent:
    event: Literal["webhook.test"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: WebhookTestPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationErasedPayload:
    conversation_id: str
    event_ids: list[str]
    """The events that your endpoint got of it, or may have got, oldest first."""
    more_events: bool
    """True: there were older ones, which are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationErasedEvent:
    event: Literal["conversation.erased"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: ConversationErasedPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSentPayload:
    conversation_id: str
    message_id: str
    """The `messageId` of the message in the history."""
    turn_id: str | None
    """The turn that it answers; null for messages of operators and the system."""
    seq: int
    """Its place in the conversation."""
    role: Literal["assistant", "operator", "system"]
    content: str
    """The whole message."""
    suggested_actions: list[SuggestedAction] | None = None
    sources: list[ReplySource] | None = None
    """What a reply is taken from; only for endpoints with `include: ["sources"]`."""
    channel: Literal["api", "webhook", "web"]
    language: str
    """Canonical BCP 47 tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSentEvent:
    event: Literal["message.sent"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: MessageSentPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class TagAddedPayload:
    conversation_id: str
    tag: str
    color: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TagAddedEvent:
    event: Literal["tag.added"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: TagAddedPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationResolvedPayload:
    conversation_id: str
    resolved_by: str
    """The operator’s id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationResolvedEvent:
    event: Literal["conversation.resolved"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: ConversationResolvedPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEscalatedPayload:
    conversation_id: str
    reason: str
    lead_score: float
    language: str
    """Canonical BCP 47 tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEscalatedEvent:
    event: Literal["conversation.escalated"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: ConversationEscalatedPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceivedPayload:
    conversation_id: str
    role: Literal["user"]
    content: str
    """The first 500 characters."""
    channel: Literal["api", "webhook", "web"]
    language: str
    """Canonical BCP 47 tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceivedEvent:
    event: Literal["message.received"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: MessageReceivedPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCreatedPayload:
    conversation_id: str
    session_id: str
    channel: Literal["api", "webhook", "web"]
    language: str
    """Canonical BCP 47 tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCreatedEvent:
    event: Literal["conversation.created"]
    event_id: str
    """Unique and stable: use it to detect duplicates."""
    timestamp: int
    """When it happened, in Unix seconds."""
    payload: ConversationCreatedPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEvent:
    delivery_id: str
    event_id: str
    event: Literal["conversation.created", "message.received", "conversation.escalated", "conversation.resolved", "tag.added", "message.sent", "conversation.erased", "webhook.test"]
    endpoint_id: str
    conversation_id: str | None
    sequence: int | None
    """As in `X-Factory-Sequence`; null for a test event."""
    redelivery: bool
    outcome: Literal["delivered", "not_sent", "rejected", "unknown"]
    error_kind: Literal["address_refused", "dns", "connect", "tls", "expired", "backlog", "endpoint_removed", "endpoint_disabled", "timeout", "reset", "bad_response", "worker_lost", "erased", "internal"] | None
    happened_at: str
    """ISO 8601, UTC."""
    ended_at: str
    """ISO 8601, UTC."""
    envelope: dict[str, object] | None
    """The body as it was sent or would have been; null after the conversation was erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEventsAnswer:
    cursor: str | None
    """For `after`. Null if there is nothing yet."""
    has_more: bool
    read_up_to: str
    """Every delivery that ended before this time is in the list. It is some seconds ago, because the write of an earlier end may take so long to be visible."""
    events: list[EndedEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAttributesAnswer:
    conversation_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    conversation_id: str
    status: Literal["escalated"]
    reason: str
    lead_score: float
    language: str
    """Canonical BCP 47 tag."""
    escalated_at: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    message_id: str
    turn_id: str | None
    """The turn of this message; null for messages of operators and the system, and for what the assistant says by itself."""
    seq: int | None
    """Position in the conversation: 1, 2, 3 … without gaps. The two messages of a turn share one. Null while the turn is pending."""
    role: Literal["user", "assistant", "operator", "system"]
    content: str
    language: str | None
    suggested_actions: list[SuggestedAction] | None = None
    sources: list[ReplySource] | None = None
    """What a reply of the assistant is taken from; only with `include=sources`."""
    merged_into: str | None = None
    """The later message of the visitor that was answered together with this one."""
    created_at: str
    """ISO 8601, UTC."""


Attributes = dict[str, str | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHistory:
    conversation_id: str
    session_id: str
    channel: Literal["api", "webhook", "web", "playground"]
    """Where the first message came from."""
    language: str
    """Canonical BCP 47 tag."""
    status: Literal["open", "escalated", "resolved"]
    lead_score: float
    tags: list[Tag]
    created_at: str
    """ISO 8601, UTC."""
    updated_at: str
    """ISO 8601, UTC."""
    escalated_at: str | None
    escalation_reason: str | None
    resolved_at: str | None
    resolved_by: str | None
    """The operator’s id."""
    attributes: Attributes
    messages: list[Message]
    has_more: bool
    next_cursor: str | None
    """For the query parameter `cursor` of the next page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    tag: str
    color: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    conversation_id: str
    session_id: str
    channel: Literal["api", "webhook", "web", "playground"]
    """Where the first message came from."""
    language: str
    """Canonical BCP 47 tag."""
    status: Literal["open", "escalated", "resolved"]
    lead_score: float
    tags: list[Tag]
    created_at: str
    """ISO 8601, UTC."""
    updated_at: str
    """ISO 8601, UTC."""
    escalated_at: str | None
    escalation_reason: str | None
    resolved_at: str | None
    resolved_by: str | None
    """The operator’s id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationList:
    conversations: list[Conversation]
    has_more: bool
    next_cursor: str | None
    """For the query parameter `cursor` of the next page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    turn_id: str
    """For `GET /api/v1/turns/{id}`."""
    status: Literal["accepted", "answering", "answered", "failed"]
    """`accepted`: pending. `answering`: a worker is making the reply. `failed`: an error of the service; sending the same message again resumes it."""
    reply: str | None = None
    """The assistant's answer."""
    suggested_actions: list[SuggestedAction] | None = None
    """Buttons to show; omitted when there are none."""
    sources: list[ReplySource] | None = None
    """What the reply is taken from; only with `include=sources`."""
    conversation_id: str
    """The same for the whole session."""
    message_id: str | None = None
    """The assistant's message."""
    merged_into: str | None = None
    """The later message of the visitor that was answered together with this one: its caller gets the same reply, so show it once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTurn:
    conversation_id: str
    """The same for the whole session."""
    turn_id: str
    """For `GET /api/v1/turns/{id}`."""
    status: Literal["accepted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySource:
    """What a reply is taken from."""

    title: str
    """The title of the page, or the name of the file."""
    url: str | None
    """The page, with the anchor of the passage. Null for a file."""
    quote: str
    """The text that the reply is taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedAction:
    """A button that a client may show."""

    label: str
    type: Literal["link", "reply", "escalate", "phone", "email"]
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    reply: str
    """The assistant's answer."""
    suggested_actions: list[SuggestedAction] | None = None
    """Buttons to show; omitted when there are none."""
    sources: list[ReplySource] | None = None
    """What the reply is taken from; only with `include=sources`."""
    conversation_id: str
    """The same for the whole session."""
    message_id: str
    """The assistant's message."""
    merged_into: str | None = None
    """The later message of the visitor that was answered together with this one: its caller gets the same reply, so show it once."""


ParleyEvent = Union[
    ConversationCreatedEvent,
    MessageReceivedEvent,
    ConversationEscalatedEvent,
    ConversationResolvedEvent,
    TagAddedEvent,
    MessageSentEvent,
    ConversationErasedEvent,
    WebhookTestEvent,
]
"""An event of an endpoint, of a kind that this version knows."""


EVENT_TYPES: dict[str, type[ParleyEvent]] = {
    "conversation.created": ConversationCreatedEvent,
    "message.received": MessageReceivedEvent,
    "conversation.escalated": ConversationEscalatedEvent,
    "conversation.resolved": ConversationResolvedEvent,
    "tag.added": TagAddedEvent,
    "message.sent": MessageSentEvent,
    "conversation.erased": ConversationErasedEvent,
    "webhook.test": WebhookTestEvent,
}


ERROR_CODES = (
    "missing_api_key",
    "invalid_api_key",
    "invalid_verify_token",
    "invalid_visitor_token",
    "invalid_user_signature",
    "not_signed_in",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "conflict",
    "payload_too_large",
    "validation_failed",
    "invalid_json",
    "idempotency_key_reused",
    "rate_limited",
    "session_busy",
    "quota_exceeded",
    "internal_error",
    "reply_timeout",
    "unavailable",
    "malformed_request",
    "request_timeout",
    "headers_too_large",
)
"""New codes may come."""
