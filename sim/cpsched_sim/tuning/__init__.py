"""Find the best settings for a site's last weeks: choose them on one half, and test them on the other."""
