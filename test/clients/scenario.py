"""Makes the same calls with both clients, and prints what they got as JSON. The arguments: healthy URL, broken URL."""

import asyncio
import json
import sys
from dataclasses import asdict

from parley import AsyncParley, Parley, ParleyError

HEALTHY, KEY, BROKEN, SILENT = sys.argv[1:]


class Blocking:
    """The blocking client with the door of the other one, so that one scenario does for both."""

    def __init__(self, parley):
        self._parley = parley

    def __getattr__(self, name):
        method = getattr(self._parley, name)

        def call(*args, **options):
            result = method(*args, **options)
            if not hasattr(result, "__next__"):
                return asyncio.sleep(0, result)

            async def items():
                for one in result:
                    yield one

            return items()

        async def failing(*args, **options):
            return await call(*args, **options)

        return call if name in ("stream", "messages", "follow", "conversations") else failing


async def code_of(call):
    try:
        await call
    except ParleyError as error:
        return [error.code, error.status, error.field, bool(error.request_id), error.retry_after]


async def healthy(parley, session):
    said = {"session_id": session, "message": "When are you open?"}
    first = await parley.chat(**said, include_sources=True)
    again = await parley.chat(**said)
    parts = [part async for part in parley.stream(**said)]
    turn = await parley.wait_for_turn((await parley.send(**said)).turn_id)
    one = first.conversation_id
    attributes = (await parley.set_attributes(one, {"plan": "pro", "old": None})).attributes
    escalation = await parley.escalate(one, "angry", lead_score=80)
    followed = []
    async for message in parley.follow(one, 4):
        followed.append([message.seq, message.role])
        break
    messages = [message.role async for message in parley.messages(one, limit=3)]
    listed = [each.conversation_id async for each in parley.conversations(session_id=session)]
    wrong = await code_of(parley.chat(session, " "))
    await parley.erase(one)
    return {
        "reply": [first.reply, first.sources, turn.status, turn.reply],
        "new key": first.message_id != again.message_id,
        "parts": [[type(part).__name__, getattr(part, "reply", None)] for part in parts],
        "conversation": [attributes, escalation.reason, escalation.lead_score, followed, messages, listed == [one]],
        "wrong": wrong,
        "gone": (await code_of(parley.conversation(one)))[:2],
    }


async def broken(parley, silent):
    said = {"session_id": "a", "message": "b"}
    return {
        "repeated": asdict(await parley.chat(**said)),
        "not repeated": await code_of(parley.chat(**said)),
        "proxy": (await code_of(parley.turn("t")))[:2],
        "late": await code_of(parley.chat(**said, timeout=5)),
        "stream": [asdict(part) async for part in parley.stream(**said)],
        "erased": await parley.erase("c"),
        "silent": await code_of(silent.chat(**said, timeout=0.2)),
    }


async def main():
    with Parley(HEALTHY + "/", KEY) as parley, Parley(BROKEN, "sk_x") as other, Parley(SILENT, "sk_x") as silent:
        blocking = {**await healthy(Blocking(parley), "sync"), **await broken(Blocking(other), Blocking(silent))}
    async with AsyncParley(HEALTHY, KEY) as parley, AsyncParley(BROKEN, "sk_x") as other:
        async with AsyncParley(SILENT, "sk_x") as silent:
            waiting = {**await healthy(parley, "async"), **await broken(other, silent)}
    print(json.dumps([blocking, waiting]))


asyncio.run(main())
