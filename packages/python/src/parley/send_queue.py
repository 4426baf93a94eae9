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


class SendQueue:
    """Sends messages for many sessions. Those of one session are sent one after the other, in the order in which they
    were given. It stays under the key's limit, and after a 429 it waits as long as the service says; no message is lost
    or sent twice by that.

    `per_minute` is the limit of the key, `sessions` how many sessions have a message on its way at once."""

    def __init__(self, parley: AsyncParley, *, per_minute: int = 60, sessions: int = 16) -> None:
        self._parley = parley
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
        # Whoever waits for a lock gets it in turn, and it is forgotten once nobody does.
        session = self._sessions.get(session_id) or asyncio.Lock()
        self._sessions[session_id] = session
        # A repetition has the same key, so it is never a second message.
        key = idempotency_key or str(uuid.uuid4())
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
            full = len(self._begun) == self._begun.maxlen
            free_at = max(self._paused_until, self._begun[0] + WINDOW_S if full else 0)
            await asyncio.sleep(max(0, free_at - time.monotonic()))
            self._begun.append(time.monotonic())

    async def _wait_after(self, error: ParleyError) -> None:
        """Returns if the message is to be sent again once the limit of the key, or of its session, allows it."""
        if error.retry_after is None or error.code not in ("rate_limited", "session_busy"):
            raise error
        if error.code == "rate_limited":
            self._paused_until = max(self._paused_until, time.monotonic() + error.retry_after)
        else:
            await asyncio.sleep(error.retry_after)
