"""A search over the documents of several owners that answers queries: what happens at an owner, without its network.

An owner keeps its documents and its index at home (:mod:`~fedrank.texts.served.engines`). A question reaches it sealed
(:mod:`~fedrank.texts.served.envelopes`), is scored with exact counts at home and the federation's noisy statistics
(:mod:`~fedrank.texts.served.statistics`, :mod:`~fedrank.texts.served.owner`), and is answered with at most k pairs of
a ticket and a rounded score (:mod:`~fedrank.texts.served.owner`). Processes and addresses are in
:mod:`fedrank.deploy.search`.
"""
