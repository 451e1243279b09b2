"""A search page that learns from its visitors, to look at: ``fedrank demo web``.

The page searches the documentation of Python's standard library, as the running interpreter has it. Ranking, learning
and privacy happen in the browser, by the JavaScript SDK; beside the page's own visitor, simulated visitors with devices
of their own search in a worker of the page, and all report to a real hub on this machine.
"""
