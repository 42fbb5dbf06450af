"""Find the best settings for a site's last weeks.

Settings are chosen on one half of the weeks and tested on the other.
"""
