"""The environments, one file or folder per task. `ToolEnv` is the base of those that are solved by calling tools.

They are registered with Gymnasium under ids (`agent_gym.registration`), and only the one that is made is imported.
"""

if not __name__.startswith("agent_gym."):
    raise ImportError("the folder envs/ at the repository's root is a link for people; import agent_gym.envs instead")
