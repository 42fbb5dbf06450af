"""Writes the parts of the site that come out of the code; `make docs-pages` runs it, a test holds pages and code equal.

A page marks such a part with two comments; what stands between them is replaced:

    <!-- begin generated: settings -->
    <!-- end generated -->
"""
