"""Reference pages, which are generated from the code whenever mkdocs builds the site and are not committed."""
