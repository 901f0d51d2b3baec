"""`python -m agent_gym.cli`, and what `accelerate launch -m agent_gym.cli train ...` starts."""

from __future__ import annotations

import sys

from agent_gym.cli import main

if __name__ == "__main__":
    sys.exit(main())
