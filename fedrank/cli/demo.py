"""``fedrank demo``, ``demo web``: something to look at."""

from __future__ import annotations

from cyclopts import App

from fedrank.cli.experiment import demo
from fedrank.cli.terminal import Switch

app = App(name="demo")
app.default(demo)


@app.command
def web(*, port: int = 8780, browser: Switch = False) -> None:
    """A search page that learns from its visitors, most of them simulated, and shows what leaves the browser.

    A hub and its page are served on this machine only, until Ctrl-C; what was learnt is gone with it. The page searches
    the documentation of Python's standard library, as the running interpreter has it.

    Args:
        port: Port; 0: any that is free.
        browser: Open the page in a browser.
    """
    import webbrowser

    from fedrank.deploy.demo import run_demo

    def ready(url: str) -> None:
        print(f"page  {url}/", f"hub   {url}/status", "Ctrl-C ends it.", sep="\n", flush=True)
        if browser:
            webbrowser.open(f"{url}/")

    run_demo(port, ready)
