"""Rules and dashboards in a real Prometheus, Debian's package `prometheus` (`make prometheus-test`).

`test_rules.py` gives the rules invented series, and looks when each alert fires. `test_scene.py` lets Prometheus
scrape a sandbox in which serving takes room from a job, and evaluates every panel and every rule.
"""
