"""Reads a folder of traces with the real verifiers package, and tells what it holds: `python verifiers_reader.py FOLDER [PACKAGES]`."""

import json
import sys
from pathlib import Path

if len(sys.argv) > 2:
    sys.path.append(sys.argv[2])

from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes, type_adapter, write_episode


def tell(episode):
    (trace,) = episode.traces
    return {
        "env": episode.env.id,
        "group": episode.group.id if episode.group else None,
        "ok": episode.ok,
        "id": episode.id,
        "task": {"type": trace.task.type, "key": trace.task.key, **trace.task.data.model_dump(mode="json")},
        "reward": trace.reward,
        "metrics": trace.metrics,
        "stop": trace.stop_condition,
        "truncated": trace.is_truncated,
        "completed": trace.is_completed,
        "trainable": trace.agent.trainable,
        "turns": trace.num_turns,
        "errors": [error.type for error in trace.errors],
        "info": trace.info,
        "replies": [message.content for message in trace.assistant_messages],
        "usage": [trace.usage.prompt_tokens, trace.usage.completion_tokens] if trace.usage else None,
        "branches": [
            {"token_ids": branch.token_ids, "mask": branch.sampled_mask, "logprobs": branch.logprobs} for branch in trace.branches
        ],
    }


folder = Path(sys.argv[1])
episodes = read_episodes(folder, WireTrace)
again = folder / "again"
again.mkdir()
for one in episodes:
    write_episode(again, one)  # its own writer takes what its reader read
assert len(read_episodes(again, WireTrace)) == len(episodes)
assert type_adapter(WireTrace)
sys.stdout.write(json.dumps([tell(one) for one in episodes]))
