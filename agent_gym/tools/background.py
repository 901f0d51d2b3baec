"""Where tools wait; see `agent_gym._background`, which context policies that ask a model share."""

from __future__ import annotations

from agent_gym._background import BackgroundLoop, Workers, background, never_waits, sessions, workers

__all__ = ["BackgroundLoop", "Workers", "background", "never_waits", "sessions", "workers"]
