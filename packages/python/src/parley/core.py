"""What both clients share: the requests, the errors, when a try is repeated, and how answers are read."""

from __future__ import annotations

import random
import time
import types
import typing
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, Union, cast
from urllib.parse import quote

import httpx

from .types import (
    AcceptedTurn,
    ChatResponse,
    ConversationHistory,
    ConversationList,
    Escalation,
    ListEventsAnswer,
    SetAttributesAnswer,
    Turn,
)

T = TypeVar("T")

# The service answers a caller within 30 s, so a try that takes longer has lost its connection.
TRY_S = 35.0
PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
LONGEST_POLL_S = 25


class ParleyError(Exception):
    """Why a call failed. `code` is one of `ERROR_CODES`, a newer one, `connection` (no answer, or a broken one) or
    `timeout` (the time of the call is over)."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        field: str | None = None,
        details: list[dict[str, str]] | None = None,
        request_id: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        """The status of the response. None if there was none."""
        self.field = field
        """The first wrong field of the request."""
        self.details = details or []
        self.request_id = request_id
        """For questions to the service's operators."""
        self.retry_after = retry_after
        """Seconds after which to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The first part of a streamed reply."""

    turn_id: str
    conversation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A new piece of a streamed reply, and the whole `reply` so far. A higher `attempt` starts the text again."""

    text: str
    reply: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and what its answer is read into."""

    into: type[T]
    method: str
    path: str
    params: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    def parts(self) -> dict[str, Any]:
        params = {name: value for name, value in self.params.items() if value is not None}
        parts = {"method": self.method, "url": f"/api/v1{self.path}", "params": params, "headers": dict(self.headers)}
        return parts if self.body is None else {**parts, "json": self.body}


def _sources(include_sources: bool) -> dict[str, object]:
    return {"include": "sources" if include_sources else None}


def _one(conversation_id: str) -> str:
    return f"/conversations/{quote(conversation_id, safe='')}"


@dataclass(frozen=True, slots=True)
class Sending:
    """A visitor's message, to be sent in one of three ways."""

    session_id: str
    message: str
    language: str | None
    idempotency_key: str | None
    include_sources: bool

    def _call(self, into: type[T], headers: dict[str, str]) -> Call[T]:
        body = {"session_id": self.session_id, "message": self.message, "language": self.language}
        key = {"Idempotency-Key": self.idempotency_key or str(uuid.uuid4())}
        return Call(into, "POST", "/chat", _sources(self.include_sources), {**headers, **key}, body)

    def chat(self) -> Call[ChatResponse]:
        return self._call(ChatResponse, {})

    def send(self) -> Call[AcceptedTurn]:
        return self._call(AcceptedTurn, {"Prefer": "respond-async"})

    def stream(self) -> Call[ChatResponse]:
        return self._call(ChatResponse, {"Accept": "text/event-stream"})


def turn_call(turn_id: str, include_sources: bool) -> Call[Turn]:
    return Call(Turn, "GET", f"/turns/{quote(turn_id, safe='')}", _sources(include_sources))


def history_call(conversation_id: str, include_sources: bool, **query: object) -> Call[ConversationHistory]:
    return Call(ConversationHistory, "GET", _one(conversation_id), {**query, **_sources(include_sources)})


def list_call(**query: object) -> Call[ConversationList]:
    return Call(ConversationList, "GET", "/conversations", query)


def events_call(**query: object) -> Call[ListEventsAnswer]:
    return Call(ListEventsAnswer, "GET", "/events", query)


def escalate_call(conversation_id: str, reason: str | None, lead_score: float | None) -> Call[Escalation]:
    body = {"reason": reason, "lead_score": lead_score}
    return Call(Escalation, "POST", f"{_one(conversation_id)}/escalate", body=body)


def attributes_call(
    conversation_id: str, attributes: Mapping[str, str | float | bool | None]
) -> Call[SetAttributesAnswer]:
    return Call(SetAttributesAnswer, "POST", f"{_one(conversation_id)}/attributes", body=dict(attributes))


def erase_call(conversation_id: str) -> Call[Any]:
    return Call(type(None), "DELETE", _one(conversation_id))


def next_page(call: Call[T], cursor: str) -> Call[T]:
    return Call(call.into, call.method, call.path, {**call.params, "cursor": cursor})


class Tries:
    """The tries of one call: its time, how often it may fail, and the pauses."""

    def __init__(self, timeout: float, retries: int) -> None:
        self.failed = 0
        self._ends_at = time.monotonic() + timeout
        self._retries = retries

    def left(self) -> float:
        """The seconds that the next try may take."""
        return max(0.001, min(TRY_S, self._ends_at - time.monotonic()))

    def pause_after(self, cause: Exception) -> float:
        """The seconds until the next try. Raises if another try would not help, or there is none left."""
        error = cause if isinstance(cause, ParleyError) else _broken(cause)
        again = error.status is None or error.status == 429 or error.status >= 500
        # The first repetition of a broken one is made at once: it joins the turn that is already being answered.
        growing = 0.0 if self.failed == 0 else min(LONGEST_PAUSE_S, PAUSE_S * 4**self.failed)
        pause = growing * random.uniform(0.5, 1) if error.retry_after is None else float(error.retry_after)
        self.failed += 1
        if not again or self.failed > self._retries or time.monotonic() + pause >= self._ends_at:
            raise error from (None if error is cause else cause)
        return pause

    def was_done_before(self, error: ParleyError) -> bool:
        """Whether the try before may have erased it, and only its answer was lost."""
        return error.code == "not_found" and self.failed > 1


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


PageT = TypeVar("PageT", bound=Page)


def pause_between(waited: float) -> float:
    return min(3.0, waited + 0.5)


def no_reply() -> ParleyError:
    return ParleyError("The turn has no reply yet.", code="timeout")


class Settings:
    def __init__(self, url: str, api_key: str, timeout: float, retries: int) -> None:
        if not api_key:
            raise ValueError("Parley needs an API key")
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {api_key}"}
        self.timeout = timeout
        self.retries = retries

    def tries(self, timeout: float | None) -> Tries:
        return Tries(self.timeout if timeout is None else timeout, self.retries)


def _broken(cause: Exception) -> ParleyError:
    if isinstance(cause, httpx.TimeoutException):
        return ParleyError("The call took too long.", code="timeout")
    return ParleyError("There was no complete answer.", code="connection")


def error_of(response: httpx.Response) -> ParleyError:
    """The error of a response whose body was read."""
    status, retry_after = response.status_code, response.headers.get("retry-after", "")
    after = int(retry_after) if retry_after.isdecimal() and len(retry_after) <= 6 else None
    request_id = response.headers.get("x-request-id")
    try:
        return told_error(response.json()["error"], status=status, retry_after=after)
    except (ValueError, KeyError, TypeError):
        # A proxy's page and not the service's answer.
        code = "rate_limited" if status == 429 else "unavailable" if status >= 502 else "internal_error"
        message = f"The response with status {status} is not the service's."
        return ParleyError(message, code=code, status=status, request_id=request_id, retry_after=after)


def told_error(error: Any, *, status: int, retry_after: int | None = None) -> ParleyError:
    return ParleyError(
        error["message"],
        code=error["code"],
        status=status,
        field=error.get("field"),
        details=error.get("details"),
        request_id=error.get("requestId"),
        retry_after=retry_after,
    )


def answer_of(call: Call[T], response: httpx.Response) -> T:
    if not response.is_success:
        raise error_of(response)
    if response.status_code == 204:
        return read(call.into, None)
    try:
        return read(call.into, response.json())
    except ValueError as cause:
        raise ParleyError("There was no complete answer.", code="connection") from cause


class Blocks:
    """Divides a stream of server-sent events into its events. Comments only show that the connection lives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bytes]]:
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        for block in blocks:
            name, _, data = block.partition(b"\n")
            if name.startswith(b"event: ") and data.startswith(b"data: "):
                yield name[7:].decode(), data[6:]


class ReplyParts:
    """Makes the parts of a streamed reply from its events, over all its connections."""

    def __init__(self) -> None:
        self._accepted = False
        self._attempt = 0
        self.begin()

    def begin(self) -> None:
        """A new connection starts the text again."""
        self._theirs = 0
        self._reply = ""

    def of(self, event: str, body: Any) -> Accepted | Delta | ChatResponse | None:
        if event == "accepted" and not self._accepted:
            self._accepted = True
            return read(Accepted, body)
        if event == "delta":
            if body["attempt"] > self._theirs:
                self._theirs, self._reply = body["attempt"], ""
                self._attempt += 1
            self._reply += body["text"]
            return Delta(text=body["text"], reply=self._reply, attempt=self._attempt)
        if event == "message":
            return read(ChatResponse, body)
        if event == "error":
            error = body["error"]
            raise told_error(error, status=404 if error["code"] == "not_found" else 500)
        return None


def ended_early() -> ParleyError:
    return ParleyError("The stream ended early.", code="connection")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


@cache
def _hints(into: type) -> dict[str, Any]:
    return typing.get_type_hints(into)


def read(into: type[T], data: Any) -> T:
    """Makes an object of JSON. Fields that are not known are ignored."""
    return cast(T, _read(into, data))


def _read(into: Any, data: Any) -> Any:
    origin = typing.get_origin(into)
    if origin in (Union, types.UnionType):
        inner = [one for one in typing.get_args(into) if one is not type(None)]
        return _read(inner[0], data) if data is not None and len(inner) == 1 else data
    if origin is list:
        (item,) = typing.get_args(into)
        return [_read(item, one) for one in data]
    if not is_dataclass(into):
        return data
    kind = cast(type[Any], into)
    values = {}
    for one in fields(kind):
        # Events have the names of Python, answers those of JavaScript.
        name = one.name if one.name in data else _camel(one.name)
        if name in data:
            values[one.name] = _read(_hints(cast(type, into))[one.name], data[name])
    return kind(**values)
