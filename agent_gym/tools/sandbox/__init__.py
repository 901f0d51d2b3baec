"""Python that a model wrote, run where it can do no harm: `PythonTool`, and the sandbox below it."""

from agent_gym.tools.sandbox.process import Finished, Limits, Sandbox, SandboxUnavailable
from agent_gym.tools.sandbox.tool import PythonTool

__all__ = ["Finished", "Limits", "PythonTool", "Sandbox", "SandboxUnavailable"]
