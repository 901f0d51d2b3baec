"""Adapters: other projects' environments as ours, and ours as theirs. One file for each project, loaded when it is asked for.

Nothing is imported here, so that one adapter does not need the packages of another: `from agent_gym.adapters.textarena import TextArenaEnv`.
All packages come with `pip install "agentr1-gym[adapters]"`, but where docs/adapters.md says otherwise.
"""
