// Generated from the API document: node scripts/run.js generate

export type SendMessageQuery = {
  /** `sources`: each reply of the assistant comes with `sources`, what it is taken from. */
  include?: 'sources';
};

export type ChatRequest = {
  /** Any stable string for each visitor. The same value is the same conversation. */
  session_id: string;
  /** The visitor's text. */
  message: string;
  /** BCP 47 tag of the message; detected when omitted. */
  language?: string | null;
};

export type ChatResponse = {
  /** The assistant's answer. */
  reply: string;
  /** Buttons to show; omitted when there are none. */
  suggestedActions?: SuggestedAction[];
  /** What the reply is taken from; only with `include=sources`. */
  sources?: ReplySource[];
  /** The same for the whole session. */
  conversationId: string;
  /** The assistant's message. */
  messageId: string;
  /** The later message of the visitor that was answered together with this one: its caller gets the same reply, so show it once. */
  mergedInto?: string;
};

/** A button that a client may show. */
export type SuggestedAction = {
  label: string;
  type: 'link' | 'reply' | 'escalate' | 'phone' | 'email';
  payload: string;
};

/** What a reply is taken from. */
export type ReplySource = {
  /** The title of the page, or the name of the file. */
  title: string;
  /** The page, with the anchor of the passage. Null for a file. */
  url: string | null;
  /** The text that the reply is taken from. */
  quote: string;
};

export type AcceptedTurn = {
  /** The same for the whole session. */
  conversationId: string;
  /** For `GET /api/v1/turns/{id}`. */
  turnId: string;
  status: 'accepted';
};

export type GetTurnQuery = {
  /** `sources`: each reply of the assistant comes with `sources`, what it is taken from. */
  include?: 'sources';
};

export type Turn = {
  /** For `GET /api/v1/turns/{id}`. */
  turnId: string;
  /** `accepted`: pending. `answering`: a worker is making the reply. `failed`: an error of the service; sending the same message again resumes it. */
  status: 'accepted' | 'answering' | 'answered' | 'failed';
  /** The assistant's answer. */
  reply?: string;
  /** Buttons to show; omitted when there are none. */
  suggestedActions?: SuggestedAction[];
  /** What the reply is taken from; only with `include=sources`. */
  sources?: ReplySource[];
  /** The same for the whole session. */
  conversationId: string;
  /** The assistant's message. */
  messageId?: string;
  /** The later message of the visitor that was answered together with this one: its caller gets the same reply, so show it once. */
  mergedInto?: string;
};

export type SendChannelMessageQuery = {
  /** `sources`: each reply of the assistant comes with `sources`, what it is taken from. */
  include?: 'sources';
};

export type SendSecretChannelMessageQuery = {
  /** `sources`: each reply of the assistant comes with `sources`, what it is taken from. */
  include?: 'sources';
};

export type ListConversationsQuery = {
  /** Only the conversation of this session. */
  session_id?: string;
  /** Only conversations that changed after this time. */
  updated_after?: string;
  /** Conversations per page. The default is 100. */
  limit?: number;
  /** The `nextCursor` of the previous page. Any other text is refused with 422. */
  cursor?: string;
};

export type ConversationList = {
  conversations: Conversation[];
  hasMore: boolean;
  /** For the query parameter `cursor` of the next page. */
  nextCursor: string | null;
};

export type Conversation = {
  conversationId: string;
  sessionId: string;
  /** Where the first message came from. */
  channel: 'api' | 'webhook' | 'web' | 'playground';
  /** Canonical BCP 47 tag. */
  language: string;
  status: 'open' | 'escalated' | 'resolved';
  leadScore: number;
  tags: Tag[];
  /** ISO 8601, UTC. */
  createdAt: string;
  /** ISO 8601, UTC. */
  updatedAt: string;
  escalatedAt: string | null;
  escalationReason: string | null;
  resolvedAt: string | null;
  /** The operator’s id. */
  resolvedBy: string | null;
};

export type Tag = {
  tag: string;
  color: string | null;
};

export type GetConversationQuery = {
  /** Messages per page. The default is 1,000. */
  limit?: number;
  /** The `nextCursor` of the previous page. Any other text is refused with 422. */
  cursor?: string;
  /** Only messages with a higher `seq`. Send the highest `seq` you have, or 0 for all. A message that waits for its reply has no `seq` and is left out. */
  after_seq?: number;
  /** With `after_seq`: seconds to wait for a message with a higher `seq`. If none comes, the response is 200 without messages. Without `after_seq` it has no effect. */
  wait?: number;
  /** `sources`: each reply of the assistant comes with `sources`, what it is taken from. */
  include?: 'sources';
};

export type ConversationHistory = {
  conversationId: string;
  sessionId: string;
  /** Where the first message came from. */
  channel: 'api' | 'webhook' | 'web' | 'playground';
  /** Canonical BCP 47 tag. */
  language: string;
  status: 'open' | 'escalated' | 'resolved';
  leadScore: number;
  tags: Tag[];
  /** ISO 8601, UTC. */
  createdAt: string;
  /** ISO 8601, UTC. */
  updatedAt: string;
  escalatedAt: string | null;
  escalationReason: string | null;
  resolvedAt: string | null;
  /** The operator’s id. */
  resolvedBy: string | null;
  attributes: Attributes;
  messages: Message[];
  hasMore: boolean;
  /** For the query parameter `cursor` of the next page. */
  nextCursor: string | null;
};

export type Attributes = Record<string, string | number | boolean>;

export type Message = {
  messageId: string;
  /** The turn of this message; null for messages of operators and the system, and for what the assistant says by itself. */
  turnId: string | null;
  /** Position in the conversation: 1, 2, 3 … without gaps. The two messages of a turn share one. Null while the turn is pending. */
  seq: number | null;
  role: 'user' | 'assistant' | 'operator' | 'system';
  content: string;
  language: string | null;
  suggestedActions?: SuggestedAction[];
  /** What a reply of the assistant is taken from; only with `include=sources`. */
  sources?: ReplySource[];
  /** The later message of the visitor that was answered together with this one. */
  mergedInto?: string;
  /** ISO 8601, UTC. */
  createdAt: string;
};

export type EscalateRequest = {
  reason?: string | null;
  /** Replaces the stored score. */
  lead_score?: number | null;
};

export type Escalation = {
  conversationId: string;
  status: 'escalated';
  reason: string;
  leadScore: number;
  /** Canonical BCP 47 tag. */
  language: string;
  /** ISO 8601, UTC. */
  escalatedAt: string;
};

export type AttributesInput = Record<string, string | number | boolean | null>;

export type SetAttributesAnswer = {
  conversationId: string;
  attributes: Attributes;
};

export type ListEventsQuery = {
  /** The `cursor` of the page before. Without it, the list begins with the oldest. */
  after?: string;
  /** Only deliveries to this endpoint. */
  endpoint?: string;
  /** Only deliveries that ended so. */
  outcome?: 'delivered' | 'not_sent' | 'rejected' | 'unknown';
  /** Items per page. The default is 200. A page has about 1 MiB at most, so it may have fewer. */
  limit?: number;
  /** Seconds to wait if there is no item after the cursor yet. If none comes, the page is empty. */
  wait?: number;
};

export type ListEventsAnswer = {
  /** For `after`. Null if there is nothing yet. */
  cursor: string | null;
  hasMore: boolean;
  /** Every delivery that ended before this time is in the list. It is some seconds ago, because the write of an earlier end may take so long to be visible. */
  readUpTo: string;
  events: EndedEvent[];
};

export type EndedEvent = {
  deliveryId: string;
  eventId: string;
  event:
    | 'conversation.created'
    | 'message.received'
    | 'conversation.escalated'
    | 'conversation.resolved'
    | 'tag.added'
    | 'message.sent'
    | 'conversation.erased'
    | 'webhook.test';
  endpointId: string;
  conversationId: string | null;
  /** As in `X-Factory-Sequence`; null for a test event. */
  sequence: number | null;
  redelivery: boolean;
  outcome: 'delivered' | 'not_sent' | 'rejected' | 'unknown';
  errorKind:
    | 'address_refused'
    | 'dns'
    | 'connect'
    | 'tls'
    | 'expired'
    | 'backlog'
    | 'endpoint_removed'
    | 'endpoint_disabled'
    | 'timeout'
    | 'reset'
    | 'bad_response'
    | 'worker_lost'
    | 'erased'
    | 'internal'
    | null;
  /** ISO 8601, UTC. */
  happenedAt: string;
  /** ISO 8601, UTC. */
  endedAt: string;
  /** The body as it was sent or would have been; null after the conversation was erased. */
  envelope: Record<string, unknown> | null;
};

export type ConversationCreatedEvent = {
  event: 'conversation.created';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    session_id: string;
    channel: 'api' | 'webhook' | 'web';
    /** Canonical BCP 47 tag. */
    language: string;
  };
};

export type MessageReceivedEvent = {
  event: 'message.received';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    role: 'user';
    /** The first 500 characters. */
    content: string;
    channel: 'api' | 'webhook' | 'web';
    /** Canonical BCP 47 tag. */
    language: string;
  };
};

export type ConversationEscalatedEvent = {
  event: 'conversation.escalated';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    reason: string;
    lead_score: number;
    /** Canonical BCP 47 tag. */
    language: string;
  };
};

export type ConversationResolvedEvent = {
  event: 'conversation.resolved';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    /** The operator’s id. */
    resolved_by: string;
  };
};

export type TagAddedEvent = {
  event: 'tag.added';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    tag: string;
    color: string | null;
  };
};

export type MessageSentEvent = {
  event: 'message.sent';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    /** The `messageId` of the message in the history. */
    message_id: string;
    /** The turn that it answers; null for messages of operators and the system. */
    turn_id: string | null;
    /** Its place in the conversation. */
    seq: number;
    role: 'assistant' | 'operator' | 'system';
    /** The whole message. */
    content: string;
    suggested_actions?: SuggestedAction[];
    /** What a reply is taken from; only for endpoints with `include: ["sources"]`. */
    sources?: ReplySource[];
    channel: 'api' | 'webhook' | 'web';
    /** Canonical BCP 47 tag. */
    language: string;
  };
};

export type ConversationErasedEvent = {
  event: 'conversation.erased';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    conversation_id: string;
    /** The events that your endpoint got of it, or may have got, oldest first. */
    event_ids: string[];
    /** True: there were older ones, which are not named. */
    more_events: boolean;
  };
};

export type WebhookTestEvent = {
  event: 'webhook.test';
  /** Unique and stable: use it to detect duplicates. */
  event_id: string;
  /** When it happened, in Unix seconds. */
  timestamp: number;
  payload: {
    ping: 'pong';
  };
};

/** An event of an endpoint. New kinds may come: ignore those that you do not know. */
export type ParleyEvent =
  | ConversationCreatedEvent
  | MessageReceivedEvent
  | ConversationEscalatedEvent
  | ConversationResolvedEvent
  | TagAddedEvent
  | MessageSentEvent
  | ConversationErasedEvent
  | WebhookTestEvent;

/** New codes may come. */
export type ErrorCode =
  | 'missing_api_key'
  | 'invalid_api_key'
  | 'invalid_verify_token'
  | 'invalid_visitor_token'
  | 'invalid_user_signature'
  | 'not_signed_in'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'conflict'
  | 'payload_too_large'
  | 'validation_failed'
  | 'invalid_json'
  | 'idempotency_key_reused'
  | 'rate_limited'
  | 'session_busy'
  | 'quota_exceeded'
  | 'internal_error'
  | 'reply_timeout'
  | 'unavailable'
  | 'malformed_request'
  | 'request_timeout'
  | 'headers_too_large'
  | (string & {});
