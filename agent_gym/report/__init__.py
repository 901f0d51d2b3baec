"""Reports and the viewer: `write_report` (a run as one HTML page), `write_viewer` (episodes token by token), and SVG figures.

The figures are `learning_curve`, `evaluation_figure` and `comparison_figure`.

    from agent_gym.report import write_report
    write_report("runs/hotpotqa")

`markup.py` makes HTML that is safe by construction, `charts.py` draws SVG, `curves.py` and `overview.py` show runs with them. `store.py` reads files of
episodes in pieces, `transcript.py` and `episodes.py` make of an episode what the page's script (`view_*.js`) shows token by token. `page.py` puts the page
together as a file, `serve.py` serves it on this machine. Nothing beyond the base install is needed, and nothing is loaded from anywhere else.
"""

from __future__ import annotations

from agent_gym.report.figures import comparison_figure, evaluation_figure
from agent_gym.report.page import learning_curve, render_report, write_report, write_viewer

__all__ = ["comparison_figure", "evaluation_figure", "learning_curve", "render_report", "write_report", "write_viewer"]
