"""Reference pages of the site, generated from the code whenever mkdocs builds it; none of them is committed."""
