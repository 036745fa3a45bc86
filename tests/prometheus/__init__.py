"""Rules, metrics and dashboards, judged by promtool, Prometheus and the types of Grafana (`make prometheus-test`)."""
