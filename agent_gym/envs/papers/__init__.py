"""`AgentR1/PaperSearch-v0` and its rooms: the library that is searched, in memory or behind a server, the pool, relevance, experts, and a server of papers."""

from agent_gym.envs.papers.env import PaperSearchEnv
from agent_gym.envs.papers.http import HttpLibrary
from agent_gym.envs.papers.library import LocalLibrary, PaperLibrary
from agent_gym.envs.papers.relevance import HttpRelevance, Relevance
from agent_gym.envs.papers.server import PaperServer, serve_papers

__all__ = [
    "HttpLibrary",
    "HttpRelevance",
    "LocalLibrary",
    "PaperLibrary",
    "PaperSearchEnv",
    "PaperServer",
    "Relevance",
    "serve_papers",
]
