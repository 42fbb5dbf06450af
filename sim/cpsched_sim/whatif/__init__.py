"""A site's own weeks, replayed: what its users would have waited under something else, and how far that can be trusted.

The order of the modules is the order of the work: `history` reads the accounting, `window` cuts the weeks out of it,
`cases` says what is replayed, `replaying` replays it, `side_by_side` does so in processes, `blocks` draws weeks anew,
`fidelity` holds the twin against the real starts, `gains` the counterfactuals against the twin, and `findings` puts
down what came of it, for `page` and `letter` to tell.
"""
