"""Find the best settings for a site's last weeks: chosen on one half of the weeks, tested on the other half."""
