"""Find the settings that work best for a site's last weeks: chosen on one half of them, tested on the other."""
