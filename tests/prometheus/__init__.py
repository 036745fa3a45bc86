"""Rules and metrics, judged by promtool of Debian's package `prometheus` (`make prometheus-test`)."""
