"""Model servers on loopback for the agents that are measured: every turn is one message, at once or slowly."""

import json
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW = re.compile(r"\[\[slow (\d+)\]\]")
PIECE_S = 0.1


def start():
    """The address of a server that speaks to Codex and to Claude Code; it ends with us."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class Model(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"object": "list", "data": [], "models": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            return self.answer({"input_tokens": 100})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        pieces = ["part "] * wanted(body) or ["hello"]
        try:
            (responses if path.endswith("/responses") else messages)(self.event, pieces, body)
        except OSError:
            pass

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def event(self, value):
        self.wfile.write(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


def wanted(body):
    """How many pieces the last message of the human asks for; none for a quick answer."""
    last = ""
    for item in body.get("input") or body.get("messages") or []:
        if item.get("role") == "user":
            content = item.get("content")
            parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or []]
            text = "\n".join(part for part in parts if not part.lstrip().startswith("<"))
            last = text or last
    found = SLOW.search(last)
    return int(found.group(1)) if found else 0


def responses(event, pieces, _):
    answer, message = f"resp_{uuid.uuid4().hex}", f"msg_{uuid.uuid4().hex}"
    def item(content):
        return {"type": "message", "role": "assistant", "id": message, "content": content}
    event({"type": "response.created", "response": {"id": answer}})
    event({"type": "response.output_item.added", "output_index": 0, "item": item([])})
    for piece in pieces:
        event({"type": "response.output_text.delta", "item_id": message, "output_index": 0, "content_index": 0, "delta": piece})
        if len(pieces) > 1:
            time.sleep(PIECE_S)
    text = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
    event({"type": "response.output_item.done", "output_index": 0, "item": item(text)})
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 7,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 107}
    event({"type": "response.completed", "response": {"id": answer, "status": "completed", "usage": usage, "output": []}})


def messages(event, pieces, body):
    message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": body.get("model"), "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 1}}
    event({"type": "message_start", "message": message})
    event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for piece in pieces:
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
        if len(pieces) > 1:
            time.sleep(PIECE_S)
    event({"type": "content_block_stop", "index": 0})
    event({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 7}})
    event({"type": "message_stop"})
