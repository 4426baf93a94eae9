# Receives Parley's events with FastAPI: pip install fastapi uvicorn, and parley
import os

from fastapi import BackgroundTasks, FastAPI, Request, Response
from parley import ConversationCreatedEvent, MessageSentEvent, ParleyEvent, parse_event, verify_webhook

app = FastAPI()


def handle(event: ParleyEvent) -> None:
    """An operator may send an event again: keep each `event_id` in a unique index, and skip the known ones."""
    match event:
        case ConversationCreatedEvent(payload=created):
            print(created.session_id, "is", created.conversation_id)
        case MessageSentEvent(payload=message):
            print(message.role, "wrote", message.content)
        case _:  # a kind that you do not need
            pass


@app.post("/parley")
async def receive(request: Request, work: BackgroundTasks) -> Response:
    raw_body = await request.body()  # the signature is of the bytes, so no JSON parser may come first
    verdict = verify_webhook(raw_body, request.headers.get("x-factory-signature"), os.environ["WEBHOOK_SECRET"])
    if not verdict.ok:
        return Response(verdict.reason, status_code=401)
    work.add_task(handle, parse_event(raw_body))  # after the answer, which is due within five seconds
    return Response(status_code=204)
