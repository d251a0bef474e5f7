#!/usr/bin/env python3
"""Brings Countersign's questions to a Telegram chat, and the answers back.

Countersign posts each question to /approve and is told "pending" at once. The question becomes a
message with buttons; whoever presses one decides. Nothing is kept here: a button carries the id of
its question, so a restart loses nothing, and Countersign itself sees to it that only the first
answer counts.

Settings are environment variables, see README.md. Python's standard library is all that is needed.
"""

import hmac
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

QUESTION_BYTES_MAX = 1 << 20
# Telegram takes 4096 characters; some are left for the answer.
MESSAGE_CHARS_MAX = 3800
REASON_ASKED = "Why not? Reply to this message with the reason. Question "
CALLBACK_TRIES = 4


class Settings:
    def __init__(self, environ):
        self.bot_token = needed(environ, "TELEGRAM_BOT_TOKEN")
        self.chat_id = needed(environ, "TELEGRAM_CHAT_ID")
        self.callback_token = needed(environ, "COUNTERSIGN_CALLBACK_TOKEN")
        self.approver_key = needed(environ, "APPROVER_KEY")
        self.telegram = environ.get("TELEGRAM_API", "https://api.telegram.org").rstrip("/")
        self.countersign = environ.get("COUNTERSIGN_URL", "http://127.0.0.1:7420").rstrip("/")
        self.poll_seconds = int(environ.get("TELEGRAM_POLL_SECONDS", "25"))
        host, _, port = environ.get("LISTEN", "127.0.0.1:8080").rpartition(":")
        self.listen = (host, int(port))


def needed(environ, name):
    value = environ.get(name, "").strip()
    if not value:
        sys.exit(f"telegram_approver: set {name}")
    return value


def post(url, body, headers=None, timeout=30):
    """Sends JSON, reads JSON: the status and the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, {}


class Chat:
    """One Telegram chat, through the Bot API."""

    def __init__(self, settings):
        self.settings = settings

    def call(self, method, patience=30, **fields):
        url = f"{self.settings.telegram}/bot{self.settings.bot_token}/{method}"
        status, answer = post(url, fields, timeout=patience)
        if status != 200 or not answer.get("ok"):
            raise OSError(f"Telegram refused {method} with status {status}")
        return answer.get("result")

    def show(self, question):
        """Shows a question. The text is sent without markup, so an agent's words stay words."""
        lines = [
            question["approval_request"],
            f"Risk: {question['risk_assessment']}",
            f"Why: {question['justification']}",
        ]
        command = question.get("arguments", {}).get("command")
        if command:
            lines.append(f"Command, to the letter:\n{command}")
        identity = question["approval_request_id"]
        button = lambda text, act: {"text": text, "callback_data": f"{act}:{identity}"}
        self.call(
            "sendMessage",
            chat_id=self.settings.chat_id,
            text=shortened("\n\n".join(lines)),
            reply_markup={
                "inline_keyboard": [
                    [button("Approve", "approve"), button("Deny", "deny")],
                    [button("Deny with a reason", "why")],
                ]
            },
        )

    def ask_why(self, identity):
        self.call(
            "sendMessage",
            chat_id=self.settings.chat_id,
            text=f"{REASON_ASKED}{identity}",
            reply_markup={"force_reply": True},
        )

    def say(self, text):
        self.call("sendMessage", chat_id=self.settings.chat_id, text=shortened(text))

    def updates(self, offset):
        seconds = self.settings.poll_seconds
        wanted = ["message", "callback_query"]
        return self.call(
            "getUpdates", patience=seconds + 15, offset=offset, timeout=seconds, allowed_updates=wanted
        )


def shortened(text):
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"


class Countersign:
    """Where answers go."""

    def __init__(self, settings):
        self.url = f"{settings.countersign}/api/v1/mcp/approver/callback"
        self.headers = {"X-Codex-MCP-Token": settings.callback_token}

    def decide(self, identity, decision, actor, reason):
        """Says what somebody decided; gives what holds now. Saying it again changes nothing."""
        body = {"approval_request_id": identity, "decision": decision, "actor_id": actor, "reason": reason}
        for attempt in range(CALLBACK_TRIES):
            try:
                status, answer = post(self.url, body, self.headers)
            except OSError:
                status, answer = 0, {}
            if status == 200:
                return answer["approval_state"]
            if 400 <= status < 500:
                return f"not accepted (status {status})"
            time.sleep(0.5 * 2**attempt)
        return "not reached; press again later"


def handle(update, chat, countersign):
    """One thing that happened in the chat."""
    press, message = update.get("callback_query"), update.get("message")
    if press and belongs(press.get("message", {}), chat):
        act, _, identity = press.get("data", "").partition(":")
        who = name_of(press["from"])
        if act == "why":
            chat.ask_why(identity)
            told = "Say why"
        elif act in ("approve", "deny"):
            told = outcome(act, who, countersign.decide(identity, act, who, f"pressed {act} in Telegram"))
            chat.say(f"{told}. Question {identity}")
        else:
            told = "This is no button of mine"
        chat.call("answerCallbackQuery", callback_query_id=press["id"], text=told)
    elif message and belongs(message, chat):
        asked = message.get("reply_to_message", {}).get("text", "")
        found = re.fullmatch(re.escape(REASON_ASKED) + r"(\S+)", asked)
        if found:
            who, reason = name_of(message["from"]), message.get("text", "").strip() or "no reason was given"
            state = countersign.decide(found[1], "deny", who, reason)
            chat.say(f"{outcome('deny', who, state)}. Question {found[1]}")


def outcome(act, who, state):
    """What came of it, in words: somebody else may have been first, or the time was over."""
    meant = {"approve": ("approved", "applied"), "deny": ("denied",)}[act]
    if state in meant:
        return f"{act} by {who}: {state}"
    if state == "pending":
        return f"{act} by {who}: counted, more people must agree"
    return f"{act} by {who} came too late: it is {state}"


def belongs(message, chat):
    """Whether it was said in the chat that decides. Anybody may write to a bot."""
    return str(message.get("chat", {}).get("id")) == chat.settings.chat_id


def name_of(person):
    return "telegram:" + (person.get("username") or str(person["id"]))


class Questions(BaseHTTPRequestHandler):
    """Takes questions from Countersign."""

    chat = None

    def do_POST(self):
        key = f"Bearer {self.chat.settings.approver_key}"
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), key.encode()):
            return self.answer(401, {"decision": "error", "reason": "the key is wrong"})
        if self.path != "/approve":
            return self.answer(404, {"decision": "error", "reason": "questions go to /approve"})
        try:
            length = int(self.headers.get("Content-Length", "0"))
            if length > QUESTION_BYTES_MAX:
                return self.answer(413, {"decision": "error", "reason": "the question is too long"})
            self.chat.show(json.loads(self.rfile.read(length)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return self.answer(400, {"decision": "error", "reason": "this is no question"})
        except OSError as error:
            return self.answer(502, {"decision": "error", "reason": f"Telegram cannot be reached: {error}"})
        return self.answer(202, {"decision": "pending", "reason": "queued"})

    def do_GET(self):
        self.answer(200 if self.path in ("/healthz", "/readyz") else 404, {})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def listen_to(chat, countersign):
    """Hears what happens in the chat, for ever. Telegram keeps what was not fetched."""
    offset = 0
    while True:
        try:
            updates = chat.updates(offset)
        except (OSError, ValueError) as error:
            print(f"telegram_approver: {error}; trying again", file=sys.stderr)
            time.sleep(2)
            continue
        for update in updates:
            offset = update["update_id"] + 1
            try:
                handle(update, chat, countersign)
            except (OSError, ValueError, KeyError) as error:
                print(f"telegram_approver: an update was not handled: {error}", file=sys.stderr)


def main():
    settings = Settings(os.environ)
    chat = Chat(settings)
    Questions.chat = chat
    server = ThreadingHTTPServer(settings.listen, Questions)
    host, port = server.server_address[:2]
    print(f"telegram_approver: listening on {host}:{port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listen_to(chat, Countersign(settings))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
