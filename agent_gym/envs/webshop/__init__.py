"""WebShop: buying what somebody asked for in a shop of many products, without Java, a web server or markup in the way.

`Catalogue` reads the official data files, `Shop` adds goals, search, prices and the reward, `Session` is one visit: a state machine that
takes `search[...]` and `click[...]`.
"""

from agent_gym.envs.webshop.catalogue import Catalogue
from agent_gym.envs.webshop.engine import Session, Turn, Visit
from agent_gym.envs.webshop.goals import NO_BOUND, Goal, Goals
from agent_gym.envs.webshop.json_stream import CatalogueError
from agent_gym.envs.webshop.product import Product
from agent_gym.envs.webshop.reward import RewardParts
from agent_gym.envs.webshop.shop import Rules, Shop

__all__ = [
    "NO_BOUND",
    "Catalogue",
    "CatalogueError",
    "Goal",
    "Goals",
    "Product",
    "RewardParts",
    "Rules",
    "Session",
    "Shop",
    "Turn",
    "Visit",
]
