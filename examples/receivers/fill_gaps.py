# Sees by X-Factory-Sequence that events are missing, and takes them from the feed: python fill_gaps.py
import json, os, threading, urllib.parse, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from verify import verify  # examples/verify-signature/verify.py, beside this file

known, last, cursor = set(), {}, ""  # keep these in your database
one_at_a_time = threading.Lock()


def take(sequence: int, event: dict) -> None:
    if event["event_id"] not in known:
        known.add(event["event_id"])
        conversation = event["payload"]["conversation_id"]
        last[conversation] = max(sequence, last.get(conversation, 0))
        print(conversation, sequence, event["event_id"], flush=True)


def fill(conversation: str, sequence: int) -> None:
    """Reads the feed up to the event before this one, and waits for it: the feed is some seconds behind."""
    global cursor
    found = 0
    while found < sequence - 1:
        query = {"endpoint": os.environ["ENDPOINT_ID"], "wait": 20, **({"after": cursor} if cursor else {})}
        url = f"{os.environ['PARLEY_URL']}/api/v1/events?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {os.environ['PARLEY_KEY']}"})
        page = json.load(urllib.request.urlopen(request, timeout=30))
        for one in page["events"]:
            if one["sequence"] and one["envelope"]:  # test events have no sequence
                take(one["sequence"], one["envelope"])
            if one["conversationId"] == conversation:
                found = max(found, one["sequence"])
        cursor = page["cursor"] or ""


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        is_ours = verify(body, self.headers["x-factory-signature"], [os.environ["WEBHOOK_SECRET"]])
        self.send_response(204 if is_ours else 401)  # within five seconds; the work comes after it
        self.end_headers()
        self.wfile.flush()
        sequence = int(self.headers["x-factory-sequence"] or 0)
        if is_ours and sequence:
            event = json.loads(body)
            conversation = event["payload"]["conversation_id"]
            with one_at_a_time:
                if sequence > last.get(conversation, 0) + 1:
                    fill(conversation, sequence)
                take(sequence, event)


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Receiver).serve_forever()
