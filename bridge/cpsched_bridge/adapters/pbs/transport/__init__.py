"""PBS's own programs: what they print as records, and the commands by which the bridge changes something.

- `programs`, `environment`: how they are run, with which deadlines.
- `json_text`, `wording`: what they print.
- `reading`: everything that one reading takes.
- `commands`: a start, the opening and closing of a queue, a move, the claim, points of
  advice.
"""
