from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Literal, TypeVar

import httpx

from .core import (
    LONGEST_POLL_S,
    Accepted,
    Blocks,
    Call,
    Delta,
    PageT,
    ParleyError,
    ReplyParts,
    Sending,
    Settings,
    Tries,
    answer_of,
    attributes_call,
    ended_early,
    erase_call,
    error_of,
    escalate_call,
    events_call,
    history_call,
    list_call,
    next_page,
    no_reply,
    pause_between,
    turn_call,
)
from .types import (
    AcceptedTurn,
    ChatResponse,
    Conversation,
    ConversationHistory,
    Escalation,
    ListEventsAnswer,
    Message,
    SetAttributesAnswer,
    Turn,
)

T = TypeVar("T")
Item = TypeVar("Item")


class Parley:
    """Calls the chat API with an API key. Every call is repeated when that is safe and may help: after a broken
    connection, 429, and 5xx. A send has an idempotency key, so a visitor is never answered twice.

    `timeout` is the time in seconds of one call with all its tries. `transport` is httpx's, for example for a proxy."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout: float = 60,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._settings = Settings(url, api_key, timeout, retries)
        url, headers = self._settings.url, self._settings.headers
        self._http = httpx.Client(base_url=url, headers=headers, transport=transport)

    def __enter__(self) -> Parley:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def chat(
        self,
        session_id: str,
        message: str,
        language: str | None = None,
        *,
        idempotency_key: str | None = None,
        include_sources: bool = False,
        timeout: float | None = None,
    ) -> ChatResponse:
        """Sends a visitor's message and waits for the reply."""
        sending = Sending(session_id, message, language, idempotency_key, include_sources)
        return self._answer(sending.chat(), timeout)

    def send(
        self,
        session_id: str,
        message: str,
        language: str | None = None,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> AcceptedTurn:
        """Sends a visitor's message and does not wait for the reply: see `wait_for_turn`."""
        sending = Sending(session_id, message, language, idempotency_key, False)
        return self._answer(sending.send(), timeout)

    def stream(
        self,
        session_id: str,
        message: str,
        language: str | None = None,
        *,
        idempotency_key: str | None = None,
        include_sources: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Accepted | Delta | ChatResponse]:
        """Sends a visitor's message and gives the reply piece by piece. After a broken connection it goes on."""
        call = Sending(session_id, message, language, idempotency_key, include_sources).stream()
        tries = self._settings.tries(timeout)
        parts = ReplyParts()
        while True:
            try:
                parts.begin()
                blocks = Blocks()
                with self._http.stream(**call.parts(), timeout=tries.left()) as response:
                    if not response.is_success:
                        response.read()
                        raise error_of(response)
                    for chunk in response.iter_bytes():
                        for event, data in blocks.feed(chunk):
                            part = parts.of(event, json.loads(data))
                            if part is not None:
                                yield part
                            if isinstance(part, ChatResponse):
                                return
                raise ended_early()
            except (httpx.RequestError, ParleyError) as cause:
                time.sleep(tries.pause_after(cause))

    def turn(
        self,
        turn_id: str,
        *,
        include_sources: bool = False,
        timeout: float | None = None,
    ) -> Turn:
        """Reads a turn. It is kept for 24 hours after its end."""
        return self._answer(turn_call(turn_id, include_sources), timeout)

    def wait_for_turn(
        self,
        turn_id: str,
        *,
        include_sources: bool = False,
        timeout: float | None = None,
    ) -> Turn:
        """Waits until a turn is `answered` or `failed`. The same message, sent again, resumes a failed one."""
        ends_at = time.monotonic() + (self._settings.timeout if timeout is None else timeout)
        pause = 0.5
        while True:
            left = ends_at - time.monotonic()
            turn = self.turn(turn_id, include_sources=include_sources, timeout=left)
            if turn.status in ("answered", "failed"):
                return turn
            if left <= pause:
                raise no_reply()
            time.sleep(pause)
            pause = pause_between(pause)

    def conversation(
        self,
        conversation_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        after_seq: int | None = None,
        wait: int | None = None,
        include_sources: bool = False,
        timeout: float | None = None,
    ) -> ConversationHistory:
        """Reads a conversation with one page of its messages. With `after_seq` and `wait` it is a long poll."""
        query = {"limit": limit, "cursor": cursor, "after_seq": after_seq, "wait": wait}
        return self._answer(history_call(conversation_id, include_sources, **query), timeout)

    def messages(
        self,
        conversation_id: str,
        *,
        limit: int | None = None,
        after_seq: int | None = None,
        wait: int | None = None,
        include_sources: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Message]:
        """All messages of a conversation, oldest first. The next page is read when it is needed."""
        call = history_call(conversation_id, include_sources, limit=limit, after_seq=after_seq, wait=wait)
        return self._list(call, lambda page: page.messages, timeout)

    def follow(
        self,
        conversation_id: str,
        after_seq: int,
        *,
        timeout: float | None = None,
    ) -> Iterator[Message]:
        """New final messages, for as long as the caller goes on, by long polls. Give the highest `seq` that you have,
        or 0 for all. Both messages of a turn have one `seq`."""
        while True:
            since, known = time.monotonic(), after_seq
            page = self.messages(conversation_id, after_seq=known, wait=LONGEST_POLL_S, timeout=timeout)
            for message in page:
                after_seq = max(after_seq, message.seq or 0)
                yield message
            # A process that stops answers early and without messages.
            if after_seq == known and time.monotonic() - since < 1:
                time.sleep(1)

    def conversations(
        self,
        *,
        session_id: str | None = None,
        updated_after: str | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[Conversation]:
        """The assistant's conversations without messages, the oldest change first."""
        call = list_call(session_id=session_id, updated_after=updated_after, limit=limit)
        return self._list(call, lambda page: page.conversations, timeout)

    def events(
        self,
        *,
        after: str | None = None,
        endpoint: str | None = None,
        outcome: Literal["delivered", "not_sent", "rejected", "unknown"] | None = None,
        limit: int | None = None,
        wait: int | None = None,
        timeout: float | None = None,
    ) -> ListEventsAnswer:
        """A page of ended deliveries with their events, for comparing a ledger. Go on with `after=page.cursor`, also
        later: the list is some seconds behind, and skips nothing."""
        call = events_call(after=after, endpoint=endpoint, outcome=outcome, limit=limit, wait=wait)
        return self._answer(call, timeout)

    def escalate(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        lead_score: float | None = None,
        timeout: float | None = None,
    ) -> Escalation:
        """Hands a conversation to a person."""
        return self._answer(escalate_call(conversation_id, reason, lead_score), timeout)

    def set_attributes(
        self,
        conversation_id: str,
        attributes: Mapping[str, str | float | bool | None],
        *,
        timeout: float | None = None,
    ) -> SetAttributesAnswer:
        """Tells operators facts about a visitor. None removes one, and those that are not named stay."""
        return self._answer(attributes_call(conversation_id, attributes), timeout)

    def erase(self, conversation_id: str, *, timeout: float | None = None) -> None:
        """Erases a conversation for good."""
        tries = self._settings.tries(timeout)
        try:
            self._repeat(erase_call(conversation_id), tries)
        except ParleyError as error:
            if not tries.was_done_before(error):
                raise

    def _answer(self, call: Call[T], timeout: float | None) -> T:
        return self._repeat(call, self._settings.tries(timeout))

    def _repeat(self, call: Call[T], tries: Tries) -> T:
        while True:
            try:
                response = self._http.request(**call.parts(), timeout=tries.left())
                return answer_of(call, response)
            except (httpx.RequestError, ParleyError) as cause:
                time.sleep(tries.pause_after(cause))

    def _list(
        self,
        call: Call[PageT],
        items_of: Callable[[PageT], list[Item]],
        timeout: float | None,
    ) -> Iterator[Item]:
        while True:
            page = self._answer(call, timeout)
            for item in items_of(page):
                yield item
            if page.next_cursor is None:
                return
            call = next_page(call, page.next_cursor)
