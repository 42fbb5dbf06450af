"""Which settings would have served a site best in its last weeks: replays, chosen on one half, judged on the other."""
