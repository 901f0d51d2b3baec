"""A server of the protocol written by hand, which starts at once and can misbehave: `python mcp_raw_server.py MODE`."""

import json
import os
import signal
import sys
import time

mode = sys.argv[1] if len(sys.argv) > 1 else "good"
TOOLS = [
    {"name": "echo", "description": "Say it again.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
    {"name": "pid", "inputSchema": {"type": "object"}},
    {"name": "count", "inputSchema": {"type": "object"}},
    {"name": "code", "inputSchema": {"type": "object", "properties": {"code": {"type": "integer"}}}},
    {"name": "malformed", "inputSchema": {"type": "object"}},
    {"name": "silent", "inputSchema": {"type": "object"}},
    {"name": "die", "inputSchema": {"type": "object"}},
]


def answer(number, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": number, **result}), flush=True)


def call(number, name, arguments):
    global calls
    calls += 1
    if name == "silent":
        return
    if name == "die":
        print("the server dies of the test", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "code":
        return answer(number, error={"code": arguments["code"], "message": "the server said no"})
    if name == "malformed":
        return answer(number, result={"content": [{"type": "text", "no text": 1}], "isError": "maybe"})
    text = {"echo": str(arguments.get("text")), "pid": str(os.getpid()), "count": str(calls)}[name]
    return answer(number, result={"content": [{"type": "text", "text": text}]})


calls = 0
if mode == "mute":
    time.sleep(1000)
if mode == "leaves":
    sys.exit("no licence for this server")
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "noise":
    while True:
        print("this is no protocol", flush=True)
        time.sleep(0.01)
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if mode == "chatty":
        print("DEBUG:", method, "\n{}\n[]\n\u2028", flush=True)
    if number is None:
        continue
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "raw", "version": "1"}
        answer(number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        page = {"tools": TOOLS}
        if mode == "endless":
            start = int(message.get("params", {}).get("cursor") or 0)
            page = {
                "tools": [{"name": f"t{start + i}", "inputSchema": {"type": "object"}} for i in range(100)],
                "nextCursor": str(start + 100),
            }
        answer(number, result=page)
    elif method == "tools/call":
        call(number, message["params"]["name"], message["params"].get("arguments") or {})
    else:
        answer(number, error={"code": -32601, "message": "Method not found"})
while mode == "stubborn":
    time.sleep(1)
