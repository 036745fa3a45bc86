"""The page in a real Chromium, driven through its DevTools protocol; needs Debian's package `chromium`.

Plain `pytest` leaves these tests out; `make page-test` runs them. `make screenshots` takes the pictures of the docs.
`page_cluster` is the cluster that these tests, and those of `tests/dashboard`, look at.
"""
