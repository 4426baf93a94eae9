from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from weakref import WeakValueDictionary

from .async_client import AsyncParley
from .core import ParleyError
from .types import ChatResponse

WINDOW_S = 62
"""The key's window, and what the way to the service may shift it by."""


class QueueFullError(Exception):
    """There is no room in the queue for a further message."""


class SendQueue:
    """Sends messages for many sessions. Those of one session are sent one after the other, in the order in which they
    were given. It stays under the key's limit, and after a 429 it waits as long as the service says; no message is lost
    or sent twice by that.

    `per_minute` is the limit of the key, `sessions` how many sessions have a message on its way at once, and `most` how
    many messages may wait: one more is refused with a `QueueFullError`."""

    def __init__(self, parley: AsyncParley, *, per_minute: int = 60, sessions: int = 16, most: int = 10_000) -> None:
        self._parley = parley
        self._most = most
        self._size = 0
        self._begun: deque[float] = deque(maxlen=per_minute)
        self._places = asyncio.Semaphore(sessions)
        self._pace = asyncio.Lock()
        self._paused_until = 0.0
        self._sessions: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(
        self,
        session_id: str,
        message: str,
        language: str | None = None,
        *,
        idempotency_key: str | None = None,
        include_sources: bool = False,
    ) -> ChatResponse:
        """Gives the reply, after those of all earlier messages of the session."""
        if self._size >= self._most:
            raise QueueFullError(f"{self._most} messages wait already")
        self._size += 1
        try:
            # A repetition has the same key, so it is never a second message.
            key = idempotency_key or str(uuid.uuid4())
            return await self._send_in_turn(session_id, message, language, key, include_sources)
        finally:
            self._size -= 1

    async def _send_in_turn(
        self, session_id: str, message: str, language: str | None, key: str, include_sources: bool
    ) -> ChatResponse:
        # Whoever waits for a lock gets it in turn, and it is forgotten once nobody does.
        session = self._sessions.get(session_id) or asyncio.Lock()
        self._sessions[session_id] = session
        async with session:
            while True:
                try:
                    async with self._places:
                        await self._begin()
                        return await self._parley.chat(
                            session_id,
                            message,
                            language,
                            idempotency_key=key,
                            include_sources=include_sources,
                        )
                except ParleyError as error:
                    await self._wait_after(error)

    async def _begin(self) -> None:
        async with self._pace:
            # Looked at again after each wait: meanwhile another message may have been refused.
            while (wait := self._free_at() - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            self._begun.append(time.monotonic())

    def _free_at(self) -> float:
        full = len(self._begun) == self._begun.maxlen
        return max(self._paused_until, self._begun[0] + WINDOW_S if full else 0)

    async def _wait_after(self, error: ParleyError) -> None:
        """Returns if the message is to be sent again once the limit of the key, or of its session, allows it."""
        if error.retry_after is None or error.code not in ("rate_limited", "session_busy"):
            raise error
        if error.code == "rate_limited":
            self._paused_until = max(self._paused_until, time.monotonic() + error.retry_after)
        else:
            await asyncio.sleep(error.retry_after)
