# Sees by X-Factory-Sequence that events are missing, and takes them from the feed: pip install parley
import json, os
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from parley import Parley, verify_webhook

parley = Parley(os.environ["PARLEY_URL"], os.environ["PARLEY_KEY"])
known, last, after = set(), {}, None  # keep these in your database
one_after_the_other = ThreadPoolExecutor(1)


def take(event_id: str, conversation: str | None, sequence: int | None, envelope: dict | None) -> None:
    if event_id not in known and sequence:  # a test event has no sequence
        known.add(event_id)
        last[conversation] = max(sequence, last.get(conversation, 0))
        print(conversation, sequence, event_id, flush=True)  # your work; no `envelope`: it was erased meanwhile


def receive(envelope: dict, sequence: int) -> None:
    global after
    conversation = envelope["payload"].get("conversation_id")
    while sequence > last.get(conversation, 0) + 1:
        page = parley.events(after=after, endpoint=os.environ["ENDPOINT_ID"], wait=20)  # some seconds behind
        for one in page.events:
            take(one.event_id, one.conversation_id, one.sequence, one.envelope)
        after = page.cursor
    take(envelope["event_id"], conversation, sequence, envelope)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body, sequence = self.rfile.read(int(self.headers["content-length"])), self.headers["x-factory-sequence"]
        is_ours = verify_webhook(body, self.headers["x-factory-signature"], os.environ["WEBHOOK_SECRET"]).ok
        self.send_response(204 if is_ours else 401)  # within five seconds; the work comes after it
        self.end_headers()
        if is_ours and sequence:
            one_after_the_other.submit(receive, json.loads(body), int(sequence))


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Receiver).serve_forever()
